"""What a call would ask of a device, counted on a processor: kernels, waits, and the most memory for tensors.

Every operation that computes counts as a kernel, and every number that is taken out of a tensor as a wait. Vectors are
worked on in pieces of a device's size. That shows a check which launches or waits more than it did, without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.memory import allocated
from gradproof.engine import pieces
from gradproof.frameworks.torch.passes import Drawn, passes

READS = frozenset(
    {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::masked_select", "aten::_unique2"}
)
INDEXING = frozenset({"aten::index", "aten::index_put", "aten::index_put_"})
NO_KERNEL = frozenset({"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::detach", "aten::alias"})


@dataclass(frozen=True)
class Counts:
    """The kernels and the waits of a call, and the peak of memory in bytes."""

    launches: int
    waits: int
    memory: int


def counted(call: Callable[[], Any]) -> Counts:
    """Return what a call asks of a device; it is made three times."""
    with _pieces_of_a_device():
        call()
        with _Operations() as seen, _Lists() as lists, _passes_in_one_kernel(seen):
            call()
        memory = allocated(call)
    return Counts(seen.launches, seen.waits + lists.waits, memory)


@contextmanager
def _pieces_of_a_device() -> Iterator[None]:
    usual, pieces.is_on_cpu = pieces.is_on_cpu, lambda _: False
    try:
        yield
    finally:
        pieces.is_on_cpu = usual


@contextmanager
def _passes_in_one_kernel(seen: _Operations) -> Iterator[None]:
    """Count every pass over long vectors as one kernel, and another one that adds up what its programs leave."""
    usual = passes._kernels
    passes._kernels = lambda _: _Fused(seen)
    try:
        yield
    finally:
        passes._kernels = usual


@dataclass(frozen=True)
class _Fused:
    """The passes with the arguments that their kernels have."""

    seen: _Operations

    def displace(self, point: Tensor, outer: Tensor, inner: Tensor, out: Tensor) -> None:
        self._plain(passes.displaced, point, Drawn(outer, inner, len(point)), out)

    def change(self, values: Tensor, centre: Tensor, outer: Tensor, inner: Tensor) -> Tensor:
        return self._plain(passes.change, values, centre, Drawn(outer, inner, len(values)))

    def apart(self, one: Tensor, other: Tensor) -> Tensor:
        return self._plain(passes.apart, one, other)

    def beside(
        self, truth: Tensor, claimed: Tensor, sizes: Any, outer: Tensor, inner: Tensor, *allowed: float
    ) -> Tensor:
        return self._plain(passes.beside, truth, claimed, sizes, Drawn(outer, inner, len(truth)), *allowed)

    def _plain(self, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        before, fused = self.seen.launches, passes._kernels
        passes._kernels = lambda _: None
        try:
            return function(*arguments)
        finally:
            passes._kernels, self.seen.launches = fused, before + 2


class _Operations(TorchDispatchMode):
    """Counts the operations that compute, and those that take a number out or need one."""

    launches = waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name in READS or (name in INDEXING and any(_is_mask(index) for index in args[1])):
            self.waits += 1
        elif name not in NO_KERNEL and not _is_view(func):
            self.launches += 1
        return func(*args, **(kwargs or {}))


class _Lists(TorchFunctionMode):
    """Counts the tensors that become lists, which a processor does without an operation."""

    waits = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.waits += getattr(func, "__name__", "") == "tolist"
        return func(*args, **(kwargs or {}))


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool


def _is_view(func: Any) -> bool:
    return any(each.alias_info is not None and not each.alias_info.is_write for each in func._schema.returns)
