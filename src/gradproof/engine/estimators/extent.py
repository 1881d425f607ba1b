"""How far and how many coordinates a direction moves at t = 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gradproof.engine.pieces import CACHED, columns
from gradproof.engine.subject import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """The lengths of a step at t = 1, where they are known: an `Extent` without its direction."""

    shortest: float
    reach: float
    moved: int


class Extent:
    """The lengths of a direction's step, computed when first asked for; all ladders along the direction share them."""

    def __init__(self, xp: Array, direction: Array) -> None:
        self.xp, self.direction = xp, direction

    @property
    def shortest(self) -> float:
        """The shortest step of a coordinate that moves; of many coordinates a sample is looked at."""
        return self._numbers[0]

    @property
    def reach(self) -> float:
        """The length of the step; of several directions the longest."""
        return self._numbers[1]

    @property
    def moved(self) -> int:
        """The number of coordinates that the direction moves; of several directions one."""
        return int(self._numbers[2])

    @cached_property
    def _numbers(self) -> tuple[float, float, float]:
        xp, v, single = self.xp, self.direction, len(self.direction.shape) == 1
        steps = abs(v[:: max(1, v.shape[0] // CACHED)])
        shortest = xp.where(steps > 0, steps, math.inf).min()
        row = [shortest, v @ v, xp.count_nonzero(v)] if single else [shortest, (v * v).sum(1).max()]
        (least,), (square,), *moved = columns(xp, [row])
        return least, math.sqrt(square), moved[0][0] if single else 1.0
