"""Write reports as JSON and read them: every field, a version, and infinities and NaN as text."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
import types
import typing
from collections.abc import Iterable
from typing import Any, TypeVar

from gradproof.engine import results
from gradproof.errors import InputError

R = TypeVar("R", bound=results.Report)

SCHEMA = 1  # a new version if a field changes its meaning or is removed, not if one is added


def to_json(report: results.Report) -> str:
    """Return one report as a JSON object; `schema` is the version of its format."""
    return json.dumps({"schema": SCHEMA, **_plain(report)}, allow_nan=False)


def all_to_json(reports: Iterable[results.Report]) -> str:
    """Return several reports as one JSON object."""
    return json.dumps({"schema": SCHEMA, "reports": [_plain(report) for report in reports]}, allow_nan=False)


def from_json(text: str, kind: type[R]) -> tuple[R, ...]:
    """Read the reports in a JSON text, which holds one or several, as instances of `kind`.

    >>> import torch, gradproof
    >>> report = gradproof.check(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True), seed=1)
    >>> from_json(report.to_json(), gradproof.Report) == (report,)
    True
    """
    try:
        data = json.loads(text)
    except ValueError as error:
        raise InputError(f"This is no JSON: {error}. Pass what to_json() or --json wrote.") from None
    if not isinstance(data, dict) or "schema" not in data:
        raise InputError("This JSON is no report: it has no 'schema'. Pass what to_json() or --json wrote.")
    if data["schema"] != SCHEMA:
        raise InputError(
            f"This report has the form {data['schema']!r}, and this version of gradproof reads form {SCHEMA}. Read it "
            "with the version that wrote it, or check again."
        )
    given = data["reports"] if isinstance(data.get("reports"), list) else [data]
    return tuple(_read(kind, each, "report") for each in given)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _read(kind: Any, value: Any, where: str) -> Any:
    """Convert a JSON value to a type. Unknown fields are ignored."""
    if dataclasses.is_dataclass(kind):
        return _read_fields(kind, value, where)
    if isinstance(kind, types.UnionType):
        (inner,) = (option for option in typing.get_args(kind) if option is not types.NoneType)
        return None if value is None else _read(inner, value, where)
    if typing.get_origin(kind) is tuple:
        inner, _ = typing.get_args(kind)
        if not isinstance(value, list):
            raise _misfit(where, "a list", value)
        return tuple(_read(inner, item, f"{where}[{number}]") for number, item in enumerate(value))
    try:
        if isinstance(value, (int, float, str) if kind is float else (kind if kind in (int, bool) else str)):
            return kind(value)
    except ValueError:
        pass
    raise _misfit(where, f"a {kind.__name__.lower()}", value)


def _read_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _misfit(where, "an object", value)
    hints = typing.get_type_hints(kind)
    known = {
        field.name: _read(hints[field.name], value[field.name], f"{where}.{field.name}")
        for field in dataclasses.fields(kind)
        if field.name in value
    }
    try:
        return kind(**known)
    except TypeError:
        missing = [field.name for field in dataclasses.fields(kind) if _required(field) and field.name not in value]
        raise InputError(f"{where} lacks {', '.join(map(repr, missing))}: this is no whole report.") from None


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING


def _misfit(where: str, wanted: str, value: Any) -> InputError:
    return InputError(f"{where} is {str(value)[:40]!r}, where a report has {wanted}: this is no whole report.")
