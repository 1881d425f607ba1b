"""Sources of cases that come with gradproof: torch's own test databases, and the tests of a suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module

from gradproof.audit.case import Case

BUILT_IN = {"torch-ops": "torch_operators", "torch-modules": "torch_modules", "pytest": "pytest_tests"}
WITH_PATH = {"pytest"}


def is_built_in(name: str) -> bool:
    """Return True for the name of a source that comes with gradproof.

    >>> [is_built_in(name) for name in ("torch-ops", "pytest:tests", "pytest", "my_cases:cases")]
    [True, True, False, False]
    """
    kind, _, path = name.partition(":")
    return kind in BUILT_IN and bool(path) is (kind in WITH_PATH)


def built_in(name: str) -> Callable[[], Iterator[Case]]:
    """Return the generator of a source by its name, such as torch-ops or pytest:tests.

    >>> next(built_in("torch-modules")()).name
    'nn.AdaptiveAvgPool1d/float64/order 1/0'
    """
    kind, _, path = name.partition(":")
    found: Callable[..., Iterator[Case]] = import_module(f"{__name__}.{BUILT_IN[kind]}").cases
    return partial(found, path) if path else found
