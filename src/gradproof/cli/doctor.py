"""Examine the installation: versions, devices, and whether checks work. It also runs without torch."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradproof._check import check

PACKAGES = ("gradproof", "torch", "numpy", "scipy", "rich", "click", "jinja2", "pytest", "pytest-xdist")
ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the diagnosis: what was examined, what was found, and whether it works (None: not applicable)."""

    what: str
    found: str
    healthy: bool | None = None


def diagnose() -> Iterator[Line]:
    """Yield everything that a bug report should say, then the results of trial checks.

    >>> all(line.healthy is not False for line in diagnose())
    True
    """
    yield Line("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in PACKAGES:
        version = _version(package)
        yield Line(package, version, healthy=False if (package, version) == ("torch", ABSENT) else None)
    try:
        import torch
    except Exception as error:
        yield Line("torch", f"cannot be imported: {error}. Install it: pip install 'gradproof[torch]'", healthy=False)
        return
    yield Line("threads", f"{torch.get_num_threads()}")
    yield Line("devices", ", ".join(_devices()))
    yield from _trials()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def _devices() -> Iterator[str]:
    import torch

    yield "cpu"
    for number in range(torch.cuda.device_count()):
        yield f"cuda:{number} ({torch.cuda.get_device_name(number)})"
    if torch.backends.mps.is_available():
        yield "mps"


def _trials() -> Iterator[Line]:
    import torch

    x = torch.linspace(0.1, 1, 20, dtype=torch.float64, requires_grad=True)
    trials: dict[str, dict[str, Any]] = {
        "reverse mode": {"modes": "reverse"},
        "forward mode": {"modes": "forward"},
        "second order": {"order": 2},
        "every entry": {"coverage": "full"},
    }
    for what, options in trials.items():
        report = check(torch.sin, x, seed=0, contracts=(), **options)
        found = "works" if report.passed else f"a right gradient did not pass: {report.message}"
        yield Line(what, found, healthy=report.passed)
    detected = not check(_halved, x, seed=0).passed
    yield Line("a wrong gradient", "is found" if detected else "was not found", healthy=detected)


def _halved(x: object) -> object:
    """Return the sine of x, with half of its gradient."""
    import torch

    assert isinstance(x, torch.Tensor)
    return (x + x.detach()).mul(0.5).sin()
