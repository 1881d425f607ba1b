"""Read dataclasses from JSON values: every field by its type, with the path of what does not fit.

The reader of a type is made once, from its annotations. It trusts nothing: JSON may come from anywhere.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import reprlib
import types
import typing
from collections.abc import Callable
from typing import Any

from gradproof.engine.results import HeatMap
from gradproof.errors import InputError

NUMBERS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}  # JSON has no numbers for them
Reader = Callable[[Any], Any]


class MisfitError(Exception):
    """A JSON value that does not fit its type; `path` leads to it, the innermost part first."""

    def __init__(self, complaint: str) -> None:
        super().__init__(complaint)
        self.path: list[str] = []


def read(kind: Any, value: Any, where: str) -> Any:
    """Return the instance of a dataclass that a JSON value describes. Unknown fields are ignored.

    >>> from gradproof.engine.results import Resolution
    >>> read(Resolution, {"absolute": 1, "relative": "inf"}, "resolution")
    Resolution(absolute=1.0, relative=inf)
    """
    try:
        return _reader(kind)(value)
    except MisfitError as error:
        path = "".join([where, *reversed(error.path)])
        raise InputError(f"{path} {error}: the report is damaged or incomplete.") from None


@functools.cache
def _reader(kind: Any) -> Reader:
    """Return the function that reads a type."""
    if dataclasses.is_dataclass(kind):
        return _of_fields(kind)
    if isinstance(kind, types.UnionType):
        (inner,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
        return _of_optional(_reader(inner))
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        return _of_list(_reader(inner), inner)
    if isinstance(kind, enum.EnumMeta):
        return _of_choice(kind)
    return _number if kind is float else _of_exactly(kind)


def _of_fields(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    readers = [(field.name, _as_they_are(hints[field.name]), _reader(hints[field.name])) for field in fields]
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    consistent = _is_a_grid if kind is HeatMap else None

    def reader(value: Any) -> Any:
        if type(value) is not dict:
            raise _misfit("an object", value)
        known = {}
        for name, as_they_are, inner in readers:
            if name not in value:
                continue
            found = value[name]
            if type(found) in as_they_are:
                known[name] = found
                continue
            try:
                known[name] = inner(found)
            except MisfitError as error:
                error.path.append(f".{name}")
                raise
        try:
            made = kind(**known)
        except TypeError:
            missing = [name for name in required if name not in known]
            raise MisfitError(f"lacks {', '.join(map(repr, missing))}") from None
        if consistent is not None and not consistent(made):
            raise MisfitError("has not one error for each row and column")
        return made

    return reader


def _as_they_are(kind: Any) -> frozenset[Any]:
    """Return the types of JSON values that are read as they are, without a call."""
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return frozenset(options) & {float, int, str, bool, types.NoneType}


def _is_a_grid(found: HeatMap) -> bool:
    rows, columns = len(found.rows), len(found.columns)
    whole = rows > 0 < columns and len(found.errors) == rows and all(len(row) == columns for row in found.errors)
    return whole and not any(error < 0 for row in found.errors for error in row)


def _of_optional(inner: Reader) -> Reader:
    return lambda value: None if value is None else inner(value)


def _of_list(inner: Reader, kind: Any) -> Reader:
    as_they_are = _as_they_are(kind)

    def reader(value: Any) -> Any:
        if type(value) is not list:
            raise _misfit("a list", value)
        if as_they_are.issuperset(map(type, value)):
            return tuple(value)
        try:
            return tuple(map(inner, value))
        except MisfitError as error:
            error.path.append(f"[{_first_misfit(inner, value)}]")
            raise

    return reader


def _first_misfit(inner: Reader, values: list[Any]) -> int:
    for number, value in enumerate(values):
        try:
            inner(value)
        except MisfitError:
            return number
    return 0


def _of_choice(kind: Any) -> Reader:
    known = {each.value: each for each in kind}

    def reader(value: Any) -> Any:
        if type(value) is not str or value not in known:
            raise _misfit(f"a {kind.__name__.lower()}", value)
        return known[value]

    return reader


def _of_exactly(kind: Any) -> Reader:
    def reader(value: Any) -> Any:
        if type(value) is not kind:
            raise _misfit(f"a {kind.__name__}", value)
        return value

    return reader


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    try:
        return NUMBERS[value] if type(value) is str else float(value) if type(value) is int else _refuse(value)
    except (KeyError, OverflowError):
        raise _misfit("a float", value) from None


def _refuse(value: Any) -> float:
    raise _misfit("a float", value)


def _misfit(wanted: str, value: Any) -> MisfitError:
    shown = reprlib.repr(value)[:40]
    return MisfitError(f"is {shown if type(value) is str else repr(shown)}, where a report has {wanted}")
