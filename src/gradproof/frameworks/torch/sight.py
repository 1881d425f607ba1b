"""What a function can see beside its arguments: its closure, the globals that it names, and what it is a method of."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from torch import nn


def seen_by(function: Any) -> dict[str, Any]:
    """What a function written in Python can see, by the names that it sees it under.

    >>> scale = 2
    >>> seen_by(lambda x: scale * x)
    {'scale': 2}
    """
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    seen: dict[str, Any] = {} if owner is None else {"self": owner}
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None:
        return seen
    around = function.__globals__
    seen.update((name, around[name]) for name in code.co_names if name in around)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            seen[name] = cell.cell_contents
        except ValueError:  # nothing has been assigned to it yet
            continue
    return seen


def modules_seen_by(function: Any) -> dict[str, nn.Module]:
    """The modules among it."""
    return {name: value for name, value in seen_by(function).items() if isinstance(value, nn.Module)}
