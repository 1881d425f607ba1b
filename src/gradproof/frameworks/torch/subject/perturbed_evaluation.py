"""Evaluate a function at perturbed points along a direction, and reuse memory from step to step."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gradproof.frameworks.torch.storage import memory_of
from gradproof.frameworks.torch.subject.calling import LARGE_TENSOR, Caller
from gradproof.frameworks.torch.subject.spaces import Space


class Perturbable(Protocol):
    """The members of a subject that perturbed evaluation needs."""

    inputs: Space
    outputs: Space
    points: list[Tensor]
    caller: Caller
    centre: Tensor

    @property
    def storages(self) -> set[int]:
        """The addresses of the storages that hold the results at the point."""
        ...

    def tried(self, moved: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the results for perturbed inputs; None if the function raises or its outputs change shape."""
        ...


@dataclass(slots=True)
class _Line:
    """The steps along a direction, and memory for the point that is moved."""

    steps: list[Tensor]
    memory: list[Tensor] | None = None


class PerturbedEvaluation:
    """The state that evaluations along one direction share, for as long as the direction lives.

    A function may return its results in the same memory at every call. The values are then copied, and a value that a
    later call has overwritten is computed again. Values are not kept for that: what nobody holds cannot be overwritten.
    """

    __slots__ = ("_again", "_first", "_line", "_shares_memory")

    def __init__(self) -> None:
        self.forget()
        self._first: MutableMapping[Tensor, tuple[Tensor, float]] = WeakTensorKeyDictionary()
        self._again: set[int] = set()
        self._shares_memory = False

    def forget(self) -> None:
        """Release the memory that is held for one direction."""
        self._line: MutableMapping[Tensor, _Line] = WeakTensorKeyDictionary()

    def values(self, subject: Perturbable, direction: Tensor, t: float) -> Tensor:
        """Return the values at point + t·direction; NaN throughout if the function is not defined there."""
        if direction not in self._line:
            self.forget()
            self._line[direction] = _Line(subject.inputs.tensors(direction))
        line = self._line[direction]
        moved = subject.inputs.displaced(subject.points, line.steps, t, line.memory)
        results = subject.tried(moved)
        if results is None:
            return torch.full_like(subject.centre, torch.nan)
        if not subject.outputs.strided:
            del moved
            return subject.outputs.coordinates(results)  # a copy
        values = subject.outputs.coordinates(results)
        storages = memory_of(results)
        overwrites = not storages.isdisjoint(self._again) and (self._shares_memory or len(self._first) > 0)
        if overwrites or not storages.isdisjoint(subject.storages):
            return self._from_shared_memory(subject, values)
        if not self._shares_memory and not self._first:
            self._first[values] = (direction, t)
            self._again = storages & memory_of([values])
        if subject.inputs.size >= LARGE_TENSOR:
            shared = not storages.isdisjoint(memory_of(moved))
            usable = t and not shared and not subject.caller.needs_graph  # t = 0 copies a point of fewer stored entries
            line.memory = moved if usable else None
        return values

    def _from_shared_memory(self, subject: Perturbable, values: Tensor) -> Tensor:
        kept = values.clone()
        if not self._shares_memory:
            self._shares_memory = True
            zeros = torch.zeros(subject.inputs.size, dtype=torch.float64, device=subject.inputs.device)
            subject.centre = self.values(subject, zeros, 0.0)
            for overwritten, (direction, t) in list(self._first.items()):
                overwritten.data = self.values(subject, direction, t)
        return kept
