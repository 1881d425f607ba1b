"""Sources of cases that come with gradproof: the operators and the modules of torch, from its own test databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from gradproof.audit.case import Case

BUILT_IN = {"torch-ops": "torch_operators", "torch-modules": "torch_modules"}


def built_in(name: str) -> Callable[[], Iterator[Case]]:
    """Return the generator of a source by its name.

    >>> next(built_in("torch-modules")()).name
    'nn.AdaptiveAvgPool1d/float64/order 1/0'
    """
    found: Callable[[], Iterator[Case]] = import_module(f"{__name__}.{BUILT_IN[name]}").cases
    return found
