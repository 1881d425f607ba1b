"""Find the objects that a function can use beside its arguments: its closure, its globals, and its `self`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch import nn

MANY = 64  # items of a container that are inspected, at most


def visible_objects(function: Any) -> dict[str, Any]:
    """Return the objects that a Python function can use beside its arguments, by the names it uses for them.

    >>> scale = 2
    >>> visible_objects(lambda x: scale * x)
    {'scale': 2}
    """
    seen: dict[str, Any] = {}
    while isinstance(function, functools.partial):
        seen.update({f"args[{k}]": value for k, value in enumerate(function.args)}, **function.keywords)
        function = function.func
    owner = getattr(function, "__self__", None)
    if owner is not None:
        seen["self"] = owner
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(function):
        return seen
    code = function.__code__
    if function.__defaults__:
        names = code.co_varnames[: code.co_argcount][-len(function.__defaults__) :]
        seen.update(zip(names, function.__defaults__, strict=True))
    around = function.__globals__
    seen.update((name, around[name]) for name in code.co_names if name in around)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            seen[name] = cell.cell_contents
        except ValueError:  # nothing has been assigned to it yet
            continue
    return seen


def visible_modules(function: Any) -> dict[str, nn.Module]:
    """Return the modules among the visible objects, in visible containers, and in the `self` of a method."""
    pairs = ((path, inner) for name, value in visible_objects(function).items() for path, inner in _opened(name, value))
    return {path: inner for path, inner in pairs if isinstance(inner, nn.Module)}


def _opened(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a value, or the items of a container, by name."""
    if isinstance(value, list | tuple):
        yield from ((f"{name}[{k}]", inner) for k, inner in enumerate(value[:MANY]))
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]", inner) for key, inner in islice(value.items(), MANY))
    elif name == "self" and not isinstance(value, nn.Module | type):
        yield from ((f"self.{key}", inner) for key, inner in getattr(value, "__dict__", {}).items())
    else:
        yield name, value
