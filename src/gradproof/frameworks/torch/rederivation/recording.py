"""A forward as the list of torch's operations that it consists of, each with its arguments and results.

The forwards of custom autograd Functions are recorded like any other code, and a `detach()` is an identity: what is
recorded is what the function computes, and not how its derivative is claimed. Writing in place is recorded as a new
value of the whole memory that is written to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gradproof.engine.thresholds import SAMPLE, WORK
from gradproof.frameworks.torch.internals import (
    TorchDispatchMode,
    TreeSpec,
    memory_number,
    tree_flatten,
    tree_unflatten,
)

ATEN = torch.ops.aten
IDENTITIES = {ATEN.detach.default: ATEN.alias.default}
OWN = str(Path(__file__).parents[3])
TORCH = str(Path(torch.__file__).parent)
MOST = WORK // 4  # numbers in all values, which are held four times
LONGEST = SAMPLE // 4  # operations: a longer forward, as of a simulation, is not recorded


class UnrecordableError(Exception):
    """Raised where a forward is too long, or does something that no list of operations describes."""


@dataclass(frozen=True, slots=True)
class Value:
    """The number of a recorded value."""

    number: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: what it calls, its arguments with values in the place of tensors, and the values that it makes.

    `written` are the positions among the flattened arguments of what it writes to. `line` is the user's line.
    """

    call: Callable[..., Any]
    arguments: list[Any]
    spec: TreeSpec
    written: tuple[int, ...]
    results: list[int]
    line: str

    @property
    def name(self) -> str:
        """The name that users know: `mul`, `index_add`."""
        return getattr(self.call, "overloadpacket", self.call).__name__.strip("_").removeprefix("linalg_")

    @property
    def tensors(self) -> Iterator[tuple[int, int]]:
        """The positions of tensors among the flattened arguments, and the numbers of their values."""
        return ((place, each.number) for place, each in enumerate(self.arguments) if isinstance(each, Value))

    def run(self, given: Sequence[Any]) -> list[Tensor]:
        """Return the results for flattened arguments, none of which is written to."""
        own = [each.clone() if place in self.written else each for place, each in enumerate(given)]
        args, kwargs = tree_unflatten(own, self.spec)
        found = [each for each in tree_flatten(self.call(*args, **kwargs))[0] if isinstance(each, Tensor)]
        written = [own[place] for place in self.written]
        return [*(each for each in found if not any(each is one for one in written)), *written]


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """A record of operations on some tensors, and of what depends on them.

    Tensors are known by their memory, since torch may give the same one in several objects.
    """

    def __init__(self, inputs: Sequence[Tensor], expansions: dict[Any, Callable[..., Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.values: list[Tensor] = []
        self.operations: list[Operation] = []
        self.active: set[int] = set()
        self._expansions, self._room = expansions, MOST
        self._known: dict[Any, tuple[int, int]] = {}
        self._writes: dict[int, int] = {}
        self._memory: dict[int, int] = {}
        self._alive: list[Any] = []
        self.inputs = [self.number_of(tensor) for tensor in inputs]
        self.active.update(self.inputs)

    def number_of(self, tensor: Tensor) -> int:
        """Return the number of the value that a tensor has now."""
        key, memory = _key(tensor), memory_number(tensor)
        number, writes = self._known.get(key, (-1, -1))
        if writes == self._writes.get(memory, 0):
            return number
        if memory in self._memory:
            arguments = [
                Value(self._memory[memory]),
                list(tensor.shape),
                list(tensor.stride()),
                tensor.storage_offset(),
            ]
            return self._recorded(ATEN.as_strided.default, arguments, tensor)
        return self._new(tensor)

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call an operation and record it, unless it is expanded into others."""
        kwargs = kwargs or {}
        flat, spec = tree_flatten((args, kwargs))
        tensors = {place: self.number_of(each) for place, each in enumerate(flat) if isinstance(each, Tensor)}
        depends = not self.active.isdisjoint(tensors.values()) and not _is_constant(func)
        if depends and func in self._expansions:
            with self:
                return self._expansions[func](*args, **kwargs)
        if depends and func is ATEN.mul.Tensor and len(set(tensors.values())) == 1 < len(tensors):
            with self:
                return flat[0] ** 2  # one step, since a factor of x·x that is left out is the 2 of a square
        if len(self.operations) > LONGEST:
            raise UnrecordableError
        written = tuple(_written(func, flat, args, kwargs))
        if depends and not written and torch.Tag.pointwise in func.tags:
            shape = torch.broadcast_shapes(*(flat[place].shape for place in tensors))  # type: ignore[no-untyped-call]
            small = [place for place, number in tensors.items() if number in self.active and flat[place].shape != shape]
            if small:
                with self:
                    for place in small:
                        flat[place] = flat[place].expand(shape)
                    args, kwargs = tree_unflatten(flat, spec)
                    return func(*args, **kwargs)
        found = func(*args, **kwargs)
        own = [flat[place] for place in written]
        fresh = [each for each in tree_flatten(found)[0] if isinstance(each, Tensor)]
        fresh = [each for each in fresh if not any(each is one for one in own)]
        results = [self._new(each, active=depends) for each in fresh]
        for tensor in own:
            results.append(self._number(tensor.detach().clone(), active=depends))
        if depends:
            arguments = [Value(tensors[place]) if place in tensors else each for place, each in enumerate(flat)]
            self.operations.append(Operation(IDENTITIES.get(func, func), arguments, spec, written, results, _line()))
        for tensor, number in zip(own, results[len(fresh) :], strict=True):
            self._write(tensor, number)
        return found

    def _write(self, tensor: Tensor, number: int) -> None:
        """Give the memory of a tensor that was written to a new value."""
        memory = memory_number(tensor)
        whole = tensor.untyped_storage().nbytes() // tensor.element_size()
        flat = torch.as_strided(tensor, (whole,), (1,), 0).detach()
        if tensor.numel() == whole and tensor.is_contiguous():
            new = self._recorded(ATEN.reshape.default, [Value(number), [whole]], flat)
        else:
            before = self._memory.get(memory)
            if before is None:
                before = self._whole_before(memory, whole)
            geometry = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
            places = torch.arange(whole, device=tensor.device).as_strided(*geometry)
            new = self._recorded(ATEN.index_put.default, [Value(before), [places], Value(number)], flat)
        self._memory[memory] = new
        self._writes[memory] = self._writes.get(memory, 0) + 1
        self._known[_key(tensor)] = (number, self._writes[memory])

    def _whole_before(self, memory: int, whole: int) -> int:
        """Return the value of a whole memory, before it is written to for the first time."""
        for key, (number, _) in self._known.items():
            value = self.values[number]
            if key[0] == memory and value.numel() == whole and value.is_contiguous():
                return self._recorded(ATEN.reshape.default, [Value(number), [whole]], value.reshape(-1))
        raise UnrecordableError

    def _recorded(self, call: Any, arguments: list[Any], result: Tensor) -> int:
        """Record an operation that is not one of the function's own."""
        numbers = [each.number for each in arguments if isinstance(each, Value)]
        active = not self.active.isdisjoint(numbers)
        number = self._number(result.detach().clone(), active=active)
        if active:
            flat, spec = tree_flatten((tuple(arguments), {}))
            self.operations.append(Operation(call, flat, spec, (), [number], ""))
        return number

    def _new(self, tensor: Tensor, *, active: bool = False) -> int:
        number = self._number(tensor.detach().clone(), active=active)
        memory = memory_number(tensor)
        self._alive.append(tensor)
        self._known[_key(tensor)] = (number, self._writes.get(memory, 0))
        return number

    def _number(self, value: Tensor, *, active: bool) -> int:
        self._room -= value.numel()
        if self._room < 0:
            raise UnrecordableError
        self.values.append(value)
        number = len(self.values) - 1
        if active and (value.is_floating_point() or value.is_complex()):
            self.active.add(number)
        return number


def _is_constant(func: Any) -> bool:
    """Return True for operations that draw random numbers, or use the shape of a tensor alone."""
    name = func.overloadpacket.__name__
    return torch.Tag.nondeterministic_seeded in func.tags or name.endswith("_like") or name.startswith("new_")


def _key(tensor: Tensor) -> tuple[Any, ...]:
    geometry = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    return (memory_number(tensor), *geometry, tensor.dtype, tensor.is_conj(), tensor.is_neg())


def _written(func: Any, flat: list[Any], args: Any, kwargs: Any) -> Iterator[int]:
    """Yield the positions among the flattened arguments of the tensors that an operation writes to."""
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = args[number] if number < len(args) else kwargs.get(argument.name)
        for each in tree_flatten(given)[0]:
            if isinstance(each, Tensor):
                yield next(place for place, one in enumerate(flat) if one is each)


def _line() -> str:
    """Return the file and the line of the user's code that is running."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((TORCH, OWN, "<")):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
