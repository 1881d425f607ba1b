"""The values of a function beside a point, along a direction, in memory that is used again where it may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from gradproof.frameworks.torch.storage import memory_of
from gradproof.frameworks.torch.subject.calling import LARGE, Caller
from gradproof.frameworks.torch.subject.spaces import Space


class Walker(Protocol):
    """A subject, as far as walking needs one."""

    inputs: Space
    outputs: Space
    points: list[Tensor]
    caller: Caller
    centre: Tensor

    @property
    def storages(self) -> set[int]:
        """Where the results at the point lie."""
        ...

    def tried(self, moved: Sequence[Tensor]) -> list[Tensor] | None:
        """The results for other varied tensors; None where there are none of the usual kind."""
        ...


class Walk:
    """What is remembered from step to step: the direction, the memory of the last step, and that of the first results.

    A function may return the same memory again. Then copies are kept, and what was overwritten is asked for anew.
    """

    __slots__ = ("_again", "_direction", "_first", "_memory", "_shares_memory", "_steps")

    def __init__(self) -> None:
        self.forget()
        self._first: tuple[Tensor, float, list[Tensor], Tensor] | None = None
        self._again: set[int] = set()
        self._shares_memory = False

    def forget(self) -> None:
        """Let go of the memory that is held for moving along one direction."""
        self._direction: Tensor | None = None
        self._steps: list[Tensor] = []
        self._memory: list[Tensor] | None = None

    def values(self, subject: Walker, direction: Tensor, t: float) -> Tensor:
        """The values at point + t·direction; NaN throughout where there are none."""
        if direction is not self._direction:
            self._direction, self._steps = direction, subject.inputs.tensors(direction)
        moved = subject.inputs.displaced(subject.points, self._steps, t, self._memory)
        results = subject.tried(moved)
        if results is None:
            return torch.full_like(subject.centre, torch.nan)
        if not subject.outputs.plain:
            del moved
            return subject.outputs.coordinates(results)  # a copy
        values = subject.outputs.coordinates(results)
        storages = memory_of(results)
        if not storages.isdisjoint(subject.storages) or not storages.isdisjoint(self._again):
            return self._from_shared_memory(subject, values)
        if self._first is None:  # held, so that memory that comes again is noticed
            self._first = (direction, t, results, values)
            self._again |= storages
        if subject.inputs.size >= LARGE:
            shared = not storages.isdisjoint(memory_of(moved))
            self._memory = None if shared or subject.caller.needs_graph else moved
        return values

    def _from_shared_memory(self, subject: Walker, values: Tensor) -> Tensor:
        kept = values.clone()
        if not self._shares_memory:
            self._shares_memory = True
            still = torch.zeros(subject.inputs.size, dtype=torch.float64, device=subject.inputs.device)
            subject.centre = self.values(subject, still, 0.0)
            if self._first is not None:
                direction, t, _, overwritten = self._first
                overwritten.data = self.values(subject, direction, t)
        return kept
