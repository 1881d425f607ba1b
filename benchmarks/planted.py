"""Planted errors: functions with the forward values of another and a gradient that is wrong in a known way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from benchmarks.independent import SEED

CONSTANT = 1e-3  # the size of an added constant, of the largest gradient entry
ROUNDING_FLOOR = 8.0  # units of rounding, of output over input, up to which a whole gradient is zero but for rounding


@dataclass(frozen=True)
class Victim:
    """The entry that an error is planted in, another entry of the same argument, and a constant to add."""

    path: str
    index: tuple[int, ...]
    argument: int
    entry: int
    other: int
    constant: float


Corruption = Callable[[list[Tensor], Victim], list[Tensor]]


@dataclass(frozen=True)
class Kind:
    """One way for a gradient to be wrong; `lone` says that one entry alone is affected."""

    name: str
    gradients: Corruption
    lone: bool = False
    ignores_incoming: bool = False
    needs_complex: bool = False


@dataclass(frozen=True)
class Planted:
    """A function whose differentiable outputs, as a flat tuple, have gradients that are wrong in one way, or in none.

    `positions` are those of the differentiated tensors among the flattened inputs, `kept` those of the
    differentiable results among the flattened outputs.
    """

    function: Callable[..., Any]
    inputs: tuple[Any, ...]
    positions: tuple[int, ...]
    kept: tuple[int, ...]
    kind: Kind | None = None
    victim: Victim | None = None

    @classmethod
    def around(cls, function: Callable[..., Any], inputs: tuple[Any, ...]) -> Planted | None:
        """The function with its gradients as they are; None where no output depends on the inputs."""
        leaves, _ = tree_flatten(inputs)
        positions = tuple(
            number for number, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.requires_grad
        )
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            results, _ = tree_flatten(function(*inputs))
        kept = tuple(number for number, leaf in enumerate(results) if isinstance(leaf, Tensor) and leaf.requires_grad)
        return cls(function, inputs, positions, kept) if kept else None

    def __call__(self, *inputs: Any) -> Any:
        """The function's own values."""
        leaves, spec = tree_flatten(inputs)
        if not torch.is_grad_enabled():
            results = self._selected(leaves, spec)
        else:
            tensors = [leaves[number] for number in self.positions]
            results = _Corrupted.apply(self, leaves, spec, *tensors)  # type: ignore[no-untyped-call]  # torch's own
        return results[0] if len(results) == 1 else tuple(results)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The differentiated tensors."""
        leaves, _ = tree_flatten(self.inputs)
        return tuple(leaves[number] for number in self.positions)

    def of_tensors(self, *tensors: Tensor) -> Any:
        """The same as a function of the differentiated tensors alone."""
        leaves, spec = tree_flatten(self.inputs)
        for number, tensor in zip(self.positions, tensors, strict=True):
            leaves[number] = tensor
        return self(*tree_unflatten(leaves, spec))

    def corrupted(self, kind: Kind, victim: Victim) -> Planted:
        """The same function with an error planted."""
        return replace(self, kind=kind, victim=victim)

    def gradients(self, seed: int) -> list[Tensor]:
        """The gradients for a random incoming gradient that is the same at every call with this seed."""
        generator = torch.Generator().manual_seed(seed)
        tensors = [tensor.detach().requires_grad_() for tensor in self.tensors]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(SEED)
            result = self.of_tensors(*tensors)
        results = [result] if isinstance(result, Tensor) else list(result)
        incoming = [torch.randn(each.shape, dtype=each.dtype, generator=generator) for each in results]
        return list(torch.autograd.grad(results, tensors, incoming))

    def victim_at(self, gradients: list[Tensor], seed: int, *, least: float = 0.0) -> Victim | None:
        """A random entry whose gradient is above `least` of the largest.

        None where the gradient is not finite, or zero in every entry but for rounding: an error in that is no error.
        """
        largest = largest_entry(gradients)
        if not math.isfinite(largest) or largest <= self._dust():
            return None
        eligible = [torch.where(gradient.reshape(-1).abs() > least * largest)[0] for gradient in gradients]
        generator = torch.Generator().manual_seed(seed)
        chosen = int(torch.randint(sum(map(len, eligible)), (), generator=generator))
        argument = 0
        while chosen >= len(eligible[argument]):
            chosen -= len(eligible[argument])
            argument += 1
        entry, size = int(eligible[argument][chosen]), gradients[argument].numel()
        other = (entry + 1 + int(torch.randint(max(1, size - 1), (), generator=generator))) % size
        named, _ = tree_flatten_with_path(self.inputs)
        return Victim(
            path=f"inputs{keystr(named[self.positions[argument]][0])}",
            index=tuple(int(each) for each in torch.unravel_index(torch.tensor(entry), gradients[argument].shape)),
            argument=argument,
            entry=entry,
            other=other,
            constant=CONSTANT * largest,
        )

    def _dust(self) -> float:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            result = self.of_tensors(*self.tensors)
        size, results = largest_entry(self.tensors), [result] if isinstance(result, Tensor) else result
        finite = [torch.where(torch.isfinite(each), each, 0.0) for each in results]
        precision = max(torch.finfo(tensor.dtype).eps for tensor in self.tensors)
        return ROUNDING_FLOOR * precision * largest_entry(finite) / size if size else 0.0

    def _selected(self, leaves: Sequence[Any], spec: Any) -> list[Tensor]:
        results, _ = tree_flatten(self.function(*tree_unflatten(leaves, spec)))
        return [results[number] for number in self.kept]


class _Corrupted(torch.autograd.Function):
    """The whole call as one node of the graph: its own graph inside serves the backward, which is then corrupted."""

    @staticmethod
    def forward(ctx: Any, planted: Planted, leaves: list[Any], spec: Any, *tensors: Tensor) -> tuple[Tensor, ...]:
        copies = [tensor.detach().requires_grad_() for tensor in tensors]
        inside = list(leaves)
        for number, copy in zip(planted.positions, copies, strict=True):
            inside[number] = copy
        with torch.enable_grad():
            results = planted._selected(inside, spec)
        ctx.planted, ctx.copies, ctx.results = planted, copies, results
        return tuple(result.detach().clone() for result in results)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        planted: Planted = ctx.planted
        if planted.kind is not None and planted.kind.ignores_incoming:
            incoming = tuple(torch.ones_like(each) for each in incoming)
        found = torch.autograd.grad(ctx.results, ctx.copies, incoming, retain_graph=True, allow_unused=True)
        gradients = [_whole(gradient, copy) for gradient, copy in zip(found, ctx.copies, strict=True)]
        if planted.kind is not None and planted.victim is not None:
            gradients = planted.kind.gradients(gradients, planted.victim)
        return None, None, None, *gradients


def largest_entry(gradients: Sequence[Tensor]) -> float:
    """The largest absolute value; infinite where an entry is not finite."""
    if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
        return math.inf
    return max((float(gradient.abs().max()) for gradient in gradients if gradient.numel()), default=0.0)


def effect(right: Sequence[Tensor], wrong: Sequence[Tensor]) -> float:
    """The largest change of a gradient entry, relative to the largest entry."""
    return largest_entry([one - other for one, other in zip(wrong, right, strict=True)]) / largest_entry(right)


def scaled(factor: float) -> Corruption:
    """One entry times a factor."""
    return _one_entry(lambda gradient, victim: gradient[victim.entry] * factor)


def _one_entry(value: Callable[[Tensor, Victim], Tensor]) -> Corruption:
    def corruption(gradients: list[Tensor], victim: Victim) -> list[Tensor]:
        flat = gradients[victim.argument].reshape(-1).clone()
        flat[victim.entry] = value(flat, victim)
        return _replaced(gradients, victim, flat)

    return corruption


def _swapped(gradients: list[Tensor], victim: Victim) -> list[Tensor]:
    flat = gradients[victim.argument].reshape(-1).clone()
    flat[[victim.entry, victim.other]] = flat[[victim.other, victim.entry]]
    return _replaced(gradients, victim, flat)


def _conjugated(gradients: list[Tensor], victim: Victim) -> list[Tensor]:
    return [gradient.conj().resolve_conj() for gradient in gradients]


def _detached(gradients: list[Tensor], victim: Victim) -> list[Tensor]:
    return _replaced(gradients, victim, torch.zeros_like(gradients[victim.argument]))


def _unchanged(gradients: list[Tensor], victim: Victim) -> list[Tensor]:
    return gradients


def _replaced(gradients: list[Tensor], victim: Victim, changed: Tensor) -> list[Tensor]:
    shape = gradients[victim.argument].shape
    return [changed.reshape(shape) if number == victim.argument else each for number, each in enumerate(gradients)]


def _whole(gradient: Tensor | None, like: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros_like(like)
    return gradient.to_dense() if gradient.is_sparse else gradient


KINDS = (
    Kind("one entry zeroed", scaled(0.0), lone=True),
    Kind("one entry × 1.01", scaled(1.01), lone=True),
    Kind("one entry × 1.0001", scaled(1.0001), lone=True),
    Kind("one entry × (1 + 1e-6)", scaled(1 + 1e-6), lone=True),
    Kind("one entry's sign flipped", scaled(-1.0), lone=True),
    Kind("two entries swapped", _swapped),
    Kind(
        "constant added to one entry", _one_entry(lambda flat, victim: flat[victim.entry] + victim.constant), lone=True
    ),
    Kind("conj missing", _conjugated, needs_complex=True),
    Kind("one argument detached", _detached),
    Kind("incoming gradient ignored", _unchanged, ignores_incoming=True),
)
