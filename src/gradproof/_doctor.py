"""What is installed here, and whether it works."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PACKAGES = ("gradproof", "torch", "numpy", "scipy", "rich", "click", "jinja2", "pytest", "pytest-xdist")


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at: what it is, what was found, and whether that is well (None: neither)."""

    what: str
    found: str
    well: bool | None = None


def examined() -> Iterator[Line]:
    """Everything that a bug report should say, and the trial of a right and of a wrong gradient.

    >>> all(line.well is not False for line in examined())
    True
    """
    yield Line("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in PACKAGES:
        yield Line(package, _version(package), None if _version(package) != "absent" or package != "torch" else False)
    try:
        import torch
    except Exception as error:
        yield Line("torch", f"cannot be imported: {error}. Install it: pip install 'gradproof[torch]'", False)
        return
    yield Line("threads", f"{torch.get_num_threads()}")
    yield Line("devices", ", ".join(_devices()))
    yield from _trials()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _devices() -> Iterator[str]:
    import torch

    yield "cpu"
    for number in range(torch.cuda.device_count()):
        yield f"cuda:{number} ({torch.cuda.get_device_name(number)})"
    if torch.backends.mps.is_available():
        yield "mps"


def _trials() -> Iterator[Line]:
    import torch

    from gradproof._check import check

    x = torch.linspace(0.1, 1, 20, dtype=torch.float64, requires_grad=True)
    trials: dict[str, dict[str, Any]] = {
        "reverse mode": {"modes": "reverse"},
        "forward mode": {"modes": "forward"},
        "second order": {"order": 2},
        "every entry": {"coverage": "full"},
    }
    for what, options in trials.items():
        report = check(torch.sin, x, seed=0, contracts=(), **options)
        yield Line(
            what, "works" if report.passed else f"a right gradient did not pass: {report.message}", report.passed
        )
    found = not check(_halved, x, seed=0).passed
    yield Line("a wrong gradient", "is found" if found else "was not found", found)


def _halved(x: object) -> object:
    """A sine, half of whose gradient is lost."""
    import torch

    assert isinstance(x, torch.Tensor)
    return (x + x.detach()).mul(0.5).sin()
