"""Find the modules, the tensors and the random generators that a function can reach beside its arguments.

They are found from object to object: through closures, defaults, globals, helper functions, attributes, and containers
in containers. Objects of torch, NumPy and the standard library are not entered, since they belong to nobody's function.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

OBJECTS = 10_000  # that are looked into, at most: some milliseconds
ITEMS = 1_000  # of one container
ATOMS = frozenset({str, bytes, bool, int, float, complex, type(None), torch.dtype, torch.device, torch.Size})
ENTERED = {"types", "argparse", "collections"}  # modules of the standard library whose objects hold those of users
FOREIGN = frozenset({*sys.stdlib_module_names, "torch", "numpy", "scipy", "pytest", "_pytest"}) - ENTERED
ROWS = (list, tuple, set, frozenset, deque)
NOT_ENTERED = ("_parameters", "_buffers", "_modules")  # attributes of a module that are not entered as containers


@dataclass(frozen=True, slots=True)
class Reach:
    """What a function can reach, by a path such as `layers[0].norm`."""

    modules: dict[str, nn.Module] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    generators: dict[str, Any] = field(default_factory=dict)


def reach_of(function: Any, arguments: Iterable[tuple[str, Any]] = ()) -> Reach:
    """Return what a function can reach, itself and through arguments, which are given by path.

    >>> norm, generator = nn.BatchNorm1d(3), torch.Generator()
    >>> reach = reach_of(lambda x: [norm][0](x) + torch.rand(3, generator=generator))
    >>> list(reach.modules), reach.generators == {"generator": generator}
    (['norm'], True)
    """
    found, kinds = Reach(), _generator_kinds()
    for path, value in _walk(function, arguments):
        if isinstance(value, nn.Module):
            found.modules[path] = value
        elif isinstance(value, Tensor):
            found.tensors[path] = value
        elif isinstance(value, kinds) and value is not _GLOBAL and not isinstance(value, random.SystemRandom):
            found.generators[path] = value
    return found


def _generator_kinds() -> tuple[type, ...]:
    numpy = getattr(sys.modules.get("numpy"), "random", None)
    return (torch.Generator, random.Random, *((numpy.Generator, numpy.RandomState) if numpy else ()))


_GLOBAL = getattr(random, "_inst", None)  # Python's global generator, which `random_state` takes care of


def _walk(function: Any, arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield every object within reach once, the nearest first."""
    waiting = deque([("", function), *arguments])
    seen = {id(value): value for _, value in waiting}  # holding them keeps their ids unique
    while waiting:
        path, value = waiting.popleft()
        yield path, value
        for inner, part in _parts(path, value):
            if type(part) not in ATOMS and id(part) not in seen and len(seen) < OBJECTS:
                seen[id(part)] = part
                waiting.append((inner, part))


def _parts(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, by path."""
    kind = type(value)
    if issubclass(kind, Tensor):
        return
    if issubclass(kind, ROWS):
        yield from ((f"{path}[{number}]", item) for number, item in enumerate(islice(value, ITEMS)))
    elif issubclass(kind, dict):
        yield from ((f"{path}[{key!r}]", item) for key, item in islice(value.items(), ITEMS))
    elif issubclass(kind, functools.partial):
        yield from _joined(path, {f"args[{number}]": each for number, each in enumerate(value.args)} | value.keywords)
        yield path, value.func
    elif issubclass(kind, types.MethodType):
        yield _join(path, "self"), value.__self__
        yield path, value.__func__
    elif issubclass(kind, staticmethod | classmethod):
        yield path, value.__func__
    elif issubclass(kind, types.FunctionType):
        if not _is_foreign(value.__module__):
            yield from _joined(path, _used_by(value))
    elif issubclass(kind, types.BuiltinFunctionType):
        if isinstance(value.__self__, type):  # the apply of an autograd Function
            yield path, value.__self__
    elif isinstance(value, type):
        if not _is_foreign(value.__module__):
            yield from _joined(path, vars(value))
    elif issubclass(kind, nn.Module):
        yield from _joined(path, dict(value.named_children()))
        held = (
            (name, part) for name, part in vars(value).items() if type(part) not in ATOMS and name not in NOT_ENTERED
        )
        yield from _joined(path, {name: part for name, part in held if type(part) not in (dict, OrderedDict) or part})
        yield path, kind
    elif not issubclass(kind, types.ModuleType) and not _is_foreign(kind.__module__):
        yield from _joined(path, _attributes(value))
        yield path, kind


def _used_by(function: types.FunctionType) -> dict[str, Any]:
    """Return the objects that a Python function uses, by the names that it uses for them.

    >>> scale = 2
    >>> _used_by(lambda x, shift=1: scale * x + shift)
    {'shift': 1, 'scale': 2}
    """
    code, found = function.__code__, dict(function.__kwdefaults__ or {})
    if function.__defaults__:
        names = code.co_varnames[: code.co_argcount][-len(function.__defaults__) :]
        found.update(zip(names, function.__defaults__, strict=True))
    for name in _names_in(code):
        if name not in function.__globals__:
            continue
        value = function.__globals__[name]
        if isinstance(value, types.ModuleType):
            held = vars(value) if not _is_foreign(value.__name__) else {}
            found.update((f"{name}.{inner}", held[inner]) for inner in _names_in(code) if inner in held)
        else:
            found[name] = value
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # nothing has been assigned to it yet
            continue
    if wrapped := vars(function).get("__wrapped__"):
        found[""] = wrapped
    return found


def _names_in(code: types.CodeType) -> list[str]:
    """Return the global names and the attributes that some code uses, and the functions defined in it."""
    inner = (name for each in code.co_consts if isinstance(each, types.CodeType) for name in _names_in(each))
    return list(dict.fromkeys([*code.co_names, *inner]))


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, in its dict and in its slots."""
    found = {}
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if inspect.ismemberdescriptor(member):
                try:
                    found[name] = member.__get__(value)
                except AttributeError:  # nothing has been assigned to it yet
                    continue
    return found | getattr(value, "__dict__", {})


def _is_foreign(module: str | None) -> bool:
    return (module or "builtins").split(".", 1)[0] in FOREIGN


def _joined(path: str, members: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((_join(path, name), member) for name, member in members.items())


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name
