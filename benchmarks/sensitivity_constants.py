"""The engine's numeric constants: where they are defined, where they are bound, and how one is changed.

A constant is a name in capitals that a module of `gradproof.engine` binds at its top level to an int, a float, or a
tuple of these. A change is made in the running process, in the defining module and in every module of gradproof that
imported the name. What a module computed from the constant while it was imported keeps its value: other constants,
which are changed by themselves, defaults of parameters, and fields of dataclasses. `Constant.read_at_import` says
whether there is anything of that kind.
"""

from __future__ import annotations

import ast
import importlib
import io
import pkgutil
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import gradproof

ENGINE = "gradproof.engine"
CAPITALS = re.compile(r"_?[A-Z][A-Z0-9_]*")
Number = int | float
Value = Number | tuple[Number, ...]
Binding = tuple[str, str]  # a module and a name in it


@dataclass(frozen=True)
class Constant:
    """A constant, the comment beside its definition, and whether anything that keeps its value was computed from it."""

    module: str
    name: str
    value: Value
    comment: str
    read_at_import: bool

    @property
    def place(self) -> str:
        """The module, within the engine."""
        return self.module.removeprefix(f"{ENGINE}.")

    def __str__(self) -> str:
        return f"{self.place}.{self.name}"


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Source:
    """One file of gradproof."""

    module: str
    text: str
    tree: ast.Module

    def definitions(self) -> Iterator[tuple[str, ast.stmt]]:
        """Yield the names in capitals that are assigned at the top level, and the statements that assign them."""
        for statement in self.tree.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if isinstance(statement, ast.AnnAssign) and statement.value is not None:
                targets = [statement.target]
            for target in targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(each, ast.Name) and CAPITALS.fullmatch(each.id):
                        yield each.id, statement

    def imports(self) -> Iterator[tuple[Binding, Binding]]:
        """Yield what the module itself imports by name: the binding here, and the one that it copies."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                for alias in node.names:
                    yield (self.module, alias.asname or alias.name), (node.module, alias.name)

    def comment(self, statement: ast.stmt) -> str:
        """Return the comment on the lines of a statement."""
        lines = self.text.splitlines(keepends=True)[statement.lineno - 1 : statement.end_lineno]
        tokens = tokenize.generate_tokens(io.StringIO("".join(lines)).readline)
        return " ".join(each.string.lstrip("# ") for each in tokens if each.type == tokenize.COMMENT)


@cache
def sources() -> tuple[Source, ...]:
    """All files of gradproof."""
    root = Path(gradproof.__path__[0])
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        text = path.read_text(encoding="utf-8")
        found.append(Source(".".join(parts).removesuffix(".__init__"), text, ast.parse(text)))
    return tuple(found)


@cache
def origins() -> Mapping[Binding, Binding]:
    """For every name that a module imports: the module and the name from which its value comes in the end."""
    direct = dict(pair for source in sources() for pair in source.imports())

    def origin(binding: Binding) -> Binding:
        passed: set[Binding] = set()
        while binding in direct and binding not in passed:  # a package may import a module of its own by name
            passed.add(binding)
            binding = direct[binding]
        return binding

    return {binding: origin(binding) for binding in direct}


@cache
def read_at_import() -> frozenset[Binding]:
    """The names, where they come from, that some module reads while it is imported."""
    names = ((source.module, name) for source in sources() for name in _read(source.tree))
    return frozenset(origins().get(binding, binding) for binding in names)


def _read(node: ast.AST) -> Iterator[str]:
    """Names that are read outside of the bodies of functions."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    children: Iterable[ast.AST | None] = ast.iter_child_nodes(node)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        children = [*node.args.defaults, *node.args.kw_defaults, *getattr(node, "decorator_list", [])]
    for child in children:
        if child is not None:
            yield from _read(child)


# ── constants ────────────────────────────────────────────────────────────────────────────────────────────────────────


def constants() -> list[Constant]:
    """All numeric constants of the engine, by module and line; imports every module of the engine."""
    import_engine()
    found = []
    for source in sources():
        if source.module == ENGINE or source.module.startswith(f"{ENGINE}."):
            for name, statement in source.definitions():
                value = getattr(sys.modules[source.module], name)
                if is_numeric(value):
                    kept = (source.module, name) in read_at_import()
                    found.append(Constant(source.module, name, value, source.comment(statement), kept))
    return found


def import_engine() -> None:
    """Import every module of the engine, and what a check of PyTorch functions needs."""
    engine = importlib.import_module(ENGINE)
    for each in pkgutil.walk_packages(engine.__path__, f"{ENGINE}."):
        importlib.import_module(each.name)
    importlib.import_module("gradproof.frameworks.torch.examination.examination")


def is_numeric(value: Any) -> bool:
    """Return True for an int, a float, or a tuple of these that is not empty."""
    if isinstance(value, tuple):
        return bool(value) and all(type(each) in (int, float) for each in value)
    return type(value) in (int, float)


def changes(value: Value) -> dict[str, Value]:
    """The value halved and doubled.

    Integers change by one at least. Those that are zero or negative are exponents and are shifted by one, down and up,
    as are all of a tuple of integers if one of them is.
    """
    several = value if isinstance(value, tuple) else (value,)
    if all(type(each) is int for each in several) and min(several) <= 0:
        halved, doubled = tuple(each - 1 for each in several), tuple(each + 1 for each in several)
    else:
        halved = tuple(each // 2 if type(each) is int else each / 2 for each in several)
        doubled = tuple(each * 2 for each in several)
    return {"halved": _like(value, halved), "doubled": _like(value, doubled)}


def _like(value: Value, several: tuple[Number, ...]) -> Value:
    if isinstance(value, tuple):
        return type(value)._make(several) if hasattr(value, "_make") else several  # a named tuple remains one
    return several[0]


def patch(constant: Constant, value: Value) -> None:
    """Change a constant for the rest of this process, wherever it is bound, and forget what functions have cached."""
    origin = (constant.module, constant.name)
    copies = [binding for binding, source in origins().items() if source == origin]
    for module, name in (origin, *copies):
        if name in vars(sys.modules.get(module, _ABSENT)):
            setattr(sys.modules[module], name, value)
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] == "gradproof":
            for each in list(vars(module).values()):
                if callable(getattr(each, "cache_clear", None)):
                    each.cache_clear()


_ABSENT = ModuleType("absent")
