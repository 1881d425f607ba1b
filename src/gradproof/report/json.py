"""A report as JSON: every field, with a version, and numbers that JSON lacks written as text."""

from __future__ import annotations

import dataclasses
import enum
import json
import math
from typing import Any

from gradproof.engine.results import Report

SCHEMA = 1


def to_json(report: Report) -> str:
    """One JSON object; `schema` counts the versions of its form."""
    return json.dumps({"schema": SCHEMA, **_plain(report)}, allow_nan=False)


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
