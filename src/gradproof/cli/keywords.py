"""Inputs that the command line gives by name, such as `dim=-1` or `weight=randn(3)`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from gradproof.errors import InputError

NAMED = re.compile(r"([A-Za-z_]\w*)\s*=(.*)", re.DOTALL)


def split_name(text: str) -> tuple[str, str]:
    """Split an input into its name, which may be empty, and its expression.

    >>> split_name("dim=-1"), split_name("randn(3, dtype=float32)")
    (('dim', '-1'), ('', 'randn(3, dtype=float32)'))
    """
    found = NAMED.fullmatch(text.strip())
    return (found[1], found[2].strip()) if found else ("", text.strip())


def with_inputs(functions: Sequence[Any], placed: Any, named: dict[str, Any]) -> tuple[list[Any], Any]:
    """Return functions and inputs that need no names.

    The first function's signature tells the places of named inputs. Those that have none are bound to the functions,
    which is possible for what needs no gradient alone.
    """
    if not named:
        return list(functions), placed
    try:
        bound = inspect.signature(getattr(functions[0], "forward", functions[0])).bind(*placed, **named)
    except ValueError:  # a builtin has no signature
        kept, rest = tuple(placed), named
    except TypeError as error:
        raise InputError(f"The function does not take these inputs: {error}.") from None
    else:
        bound.apply_defaults()
        kept, rest = bound.args, bound.kwargs
    _refuse_tensors(rest)
    return [_with(function, rest) for function in functions], kept


def _with(function: Callable[..., Any], constants: dict[str, Any]) -> Callable[..., Any]:
    return partial(function, **constants) if constants else function


def _refuse_tensors(constants: dict[str, Any]) -> None:
    for name, value in constants.items():
        if getattr(value, "requires_grad", False):
            raise InputError(
                f"{name} has no position, so that its gradient cannot be checked. Pass it by position where the "
                f"function allows that, or write {name}='fixed …' if it needs no gradient."
            )
