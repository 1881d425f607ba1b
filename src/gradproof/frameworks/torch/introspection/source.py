"""Where the code of a function, a module or an autograd Function is written: its file and line."""

from __future__ import annotations

import functools
import inspect
import linecache
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from torch import nn
from torch.autograd import Function

DECORATORS = 40  # lines above a `def` that are skipped, at most


class Source(NamedTuple):
    """A file, relative to the working directory if it lies below it, and a line. Empty and 0 where they are unknown."""

    file: str = ""
    line: int = 0


def source_of(function: Callable[..., Any], mode: str = "reverse") -> Source:
    """Return where the code is that a wrong derivative of this function points to.

    That is the backward or the jvp of an autograd Function, and the forward of a module.

    >>> source_of(source_of).file.endswith("source.py"), source_of(len)
    (True, Source(file='', line=0))
    """
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    target: Any = function
    if isinstance(owner, type) and issubclass(owner, Function):
        target = rule_of(owner, mode)
    elif isinstance(function, nn.Module):
        target = function.forward
    target = inspect.unwrap(getattr(target, "__func__", target))
    code = getattr(target, "__code__", None) or getattr(type(target).__call__, "__code__", None)
    return _place_of(code) if isinstance(code, CodeType) else Source()


def rule_of(kind: type[Function], mode: str) -> Callable[..., Any]:
    """Return the jvp of an autograd Function if the mode is forward, else its backward, which may be named vjp."""
    if mode == "forward":
        return kind.jvp
    return kind.vjp if kind.backward is Function.backward else kind.backward


def _place_of(code: CodeType) -> Source:
    """Return the file, relative to the working directory if it lies below it, and the line."""
    file, line = _definition(code.co_filename, code.co_firstlineno, code.co_name)
    try:
        here = os.getcwd() + os.sep  # noqa: PTH109  # a tenth of the time of Path.cwd(), in every check
    except OSError:  # the working directory was deleted
        return Source(file, line)
    return Source(file.removeprefix(here), line)


@functools.lru_cache(maxsize=1024)
def _definition(file: str, first: int, name: str) -> Source:
    """Return the file and the line of the `def`, which follows the decorators."""
    lines = islice(enumerate(linecache.getlines(file)[first - 1 :], first), DECORATORS)
    line = next((number for number, text in lines if text.lstrip().startswith(("def ", "async def "))), first)
    if name == "<lambda>":
        line = first
    if not Path(file).exists():  # typed at a prompt
        return Source()
    return Source(file, line)
