"""The format of a report's JSON, as a JSON Schema that is derived from the dataclasses.

`python -m gradproof.report.schema` prints it; `docs/report.schema.json` is what it printed last.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import types
import typing
from typing import Any

from gradproof.engine.results import Report
from gradproof.report.json import SCHEMA

NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]}


def schema() -> dict[str, Any]:
    """Return the schema of one report, or of several in one object.

    >>> schema()["$defs"]["Verdict"]["enum"]
    ['pass', 'fail', 'inconclusive']
    """
    kinds: dict[str, Any] = {}
    _described(Report, kinds)
    version = {"schema": {"const": SCHEMA}}
    one = {"allOf": [{"$ref": "#/$defs/Report"}], "properties": version, "required": ["schema"]}
    several = {
        "type": "object",
        "properties": {**version, "reports": {"type": "array", "items": {"$ref": "#/$defs/Report"}}},
        "required": ["schema", "reports"],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gradproof report",
        "oneOf": [one, several],
        "$defs": kinds,
    }


def _described(kind: Any, kinds: dict[str, Any]) -> dict[str, Any]:
    composite = dataclasses.is_dataclass(kind)
    if composite or isinstance(kind, enum.EnumMeta):
        name = kind.__name__
        if name not in kinds:
            kinds[name] = {}  # kept in the order in which they are met
            kinds[name] |= _object(kind, kinds) if composite else _choice(kind)
        return {"$ref": f"#/$defs/{name}"}
    if isinstance(kind, types.UnionType):
        return {"anyOf": [_described(option, kinds) for option in typing.get_args(kind)]}
    if typing.get_origin(kind) is tuple:
        return {"type": "array", "items": _described(typing.get_args(kind)[0], kinds)}
    if kind is float:
        return NUMBER
    return {"type": {int: "integer", str: "string", bool: "boolean", types.NoneType: "null"}[kind]}


def _object(kind: Any, kinds: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    return {
        "type": "object",
        "description": inspect.cleandoc(kind.__doc__),
        "properties": {field.name: _described(hints[field.name], kinds) for field in fields},
        "required": [field.name for field in fields],
    }


def _choice(kind: Any) -> dict[str, Any]:
    return {"description": inspect.cleandoc(kind.__doc__).split("\n")[0], "enum": [each.value for each in kind]}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
