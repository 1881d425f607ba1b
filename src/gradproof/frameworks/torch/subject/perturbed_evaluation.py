"""Evaluate a function at perturbed points along a direction, and reuse memory from step to step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from gradproof.frameworks.torch.storage import memory_of
from gradproof.frameworks.torch.subject.calling import LARGE, Caller
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


class PerturbedEvaluation:
    """The state that evaluations along one direction share: the direction, reusable memory, and the first results.

    A function may return its results in the same memory at every call. The values are then copied, and a value that a
    later call has overwritten is computed again.
    """

    __slots__ = ("_again", "_direction", "_first", "_memory", "_shares_memory", "_steps")

    def __init__(self) -> None:
        self.forget()
        self._first: tuple[Tensor, float, list[Tensor], Tensor] | None = None
        self._again: set[int] = set()
        self._shares_memory = False

    def forget(self) -> None:
        """Release the memory that is held for one direction."""
        self._direction: Tensor | None = None
        self._steps: list[Tensor] = []
        self._memory: list[Tensor] | None = None

    def values(self, subject: Perturbable, direction: Tensor, t: float) -> Tensor:
        """Return the values at point + t·direction; NaN throughout if the function is not defined there."""
        if direction is not self._direction:
            self._direction, self._steps = direction, subject.inputs.tensors(direction)
        moved = subject.inputs.displaced(subject.points, self._steps, t, self._memory)
        results = subject.tried(moved)
        if results is None:
            return torch.full_like(subject.centre, torch.nan)
        if not subject.outputs.strided:
            del moved
            return subject.outputs.coordinates(results)  # a copy
        values = subject.outputs.coordinates(results)
        storages = memory_of(results)
        if not storages.isdisjoint(subject.storages) or not storages.isdisjoint(self._again):
            return self._from_shared_memory(subject, values)
        if self._first is None:  # kept, so that results in the same memory are noticed
            self._first = (direction, t, results, values)
            self._again |= storages
        if subject.inputs.size >= LARGE:
            shared = not storages.isdisjoint(memory_of(moved))
            usable = t and not shared and not subject.caller.needs_graph  # t = 0 copies a point of fewer stored entries
            self._memory = moved if usable else None
        return values

    def _from_shared_memory(self, subject: Perturbable, values: Tensor) -> Tensor:
        kept = values.clone()
        if not self._shares_memory:
            self._shares_memory = True
            zeros = torch.zeros(subject.inputs.size, dtype=torch.float64, device=subject.inputs.device)
            subject.centre = self.values(subject, zeros, 0.0)
            if self._first is not None:
                direction, t, _, overwritten = self._first
                overwritten.data = self.values(subject, direction, t)
        return kept
