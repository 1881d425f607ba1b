"""Write reports as JSON and read them: every field, a version, and infinities and NaN as text."""

from __future__ import annotations

import dataclasses
import enum
import gc
import json
import math
import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gradproof.engine import results
from gradproof.errors import InputError
from gradproof.report.reading import read

R = TypeVar("R", bound=results.Report)

SCHEMA = 1  # a new version if a field changes its meaning or is removed, not if one is added


def to_json(report: results.Report) -> str:
    """Return one report as a JSON object; `schema` is the version of its format."""
    return json.dumps({"schema": SCHEMA, **_encodable(report)}, allow_nan=False)


def all_to_json(reports: Iterable[results.Report]) -> str:
    """Return several reports as one JSON object."""
    return json.dumps({"schema": SCHEMA, "reports": [_encodable(report) for report in reports]}, allow_nan=False)


def from_json(text: str, kind: type[R]) -> tuple[R, ...]:
    """Read the reports in a JSON text, which holds one or several, as instances of `kind`.

    >>> import torch, gradproof
    >>> report = gradproof.check(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True), seed=1)
    >>> from_json(report.to_json(), gradproof.Report) == (report,)
    True
    """
    if not isinstance(text, str):
        raise InputError(f"A report's JSON is text, and this is a {type(text).__name__}. Pass what to_json() wrote.")
    with _collector_paused():
        return tuple(read(kind, each, "report") for each in _objects(text))


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: a report is thousands of small objects, none of which is garbage yet."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _objects(text: str) -> list[Any]:
    """Return the objects in a JSON text that are to be reports."""
    try:
        data = json.loads(text.removeprefix("\ufeff"))  # a mark that some editors put first
    except (ValueError, RecursionError) as error:
        raise InputError(f"This is not JSON: {error}. Pass what to_json() or --json wrote.") from None
    if not isinstance(data, dict) or "schema" not in data:
        raise InputError("This JSON is not a report: it has no 'schema'. Pass what to_json() or --json wrote.")
    if type(data["schema"]) is not int or data["schema"] != SCHEMA:
        raise InputError(
            f"This report has schema {reprlib.repr(data['schema'])}, and this version of gradproof reads schema "
            f"{SCHEMA}. Read it with the version that wrote it, or check again."
        )
    return data["reports"] if isinstance(data.get("reports"), list) else [data]


def _encodable(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _encodable(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
