"""Some columns of the Jacobian, measured again by themselves at other step sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.engine.estimators.directional import Measured
from gradproof.engine.estimators.steps import FINEST, RATIO
from gradproof.engine.explanations.quantisation import LENGTHS
from gradproof.engine.jacobian.columns import batches
from gradproof.engine.jacobian.entries import Entries
from gradproof.engine.jacobian.row_block import Discrepancy
from gradproof.engine.results import Resolution
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY, ENOUGH, GROSS


@dataclass(frozen=True, slots=True)
class StepSlopes:
    """The slopes of all outputs along some columns, each at a step of its own to both sides.

    `half_jumps` are half of the slope after the point less the slope before it. `noise` bounds the rounding error of
    both.
    """

    steps: Array
    slopes: Array
    half_jumps: Array
    noise: Array

    def some(self, numbers: list[int]) -> StepSlopes:
        """Return the slopes along some of the columns."""
        return StepSlopes(self.steps[numbers], self.slopes[numbers], self.half_jumps[numbers], self.noise[numbers])


class RemeasuredColumns:
    """Some columns with discrepancies, measured again by themselves at other step sizes."""

    def __init__(self, entries: Entries, discrepancies: dict[int, Discrepancy]) -> None:
        """Take the discrepancies of some columns, each measured by itself, and measure a second, longer step."""
        self.entries, self.block, self.subject = entries, entries.block, entries.block.subject
        self.seed, self.options, self.doubts, self.direction = (
            entries.seed,
            entries.options,
            entries.doubts,
            entries.direction,
        )
        self.xp, self.jacobian = self.subject.arrays, entries.claimed
        self.discrepancies, self.columns = list(discrepancies.values()), list(discrepancies)
        self.claimed = self.jacobian[:, self.columns].T
        self.steps = abs(self.direction[self.columns])
        (self.longer,) = self.measure(list(range(len(self.columns))), [[LENGTHS[1]] * len(self.columns)])
        first = 1.0 * self.claimed
        for number, off in enumerate(self.discrepancies):
            first[number, off.rows] = off.slopes / self.direction[self.columns[number]]
        drops = first - self.longer.slopes
        self.slopes = first + drops / (LENGTHS[1] ** 2 - 1)
        self.bars = abs(drops) + LENGTHS[1] * self.longer.noise
        self.bars = self.bars + CLEARLY * self.subject.numbers.precision * abs(self.slopes)
        self.gaps = abs(self.claimed - self.slopes)
        self.finite = self.xp.isfinite(self.subject.centre[self.block.rows])

    def resolution(self, absolute: float) -> Resolution:
        """Return the resolution: the smallest error that would have been found, relative to the largest claim."""
        largest = float(self.xp.amax(abs(self.claimed)))
        return Resolution.of(absolute, largest)

    def whole_jacobian(self) -> Measured | None:
        """Return the whole Jacobian from values, if every column was measured by itself; else None."""
        if (
            not all(off.alone for off in self.doubts.values())
            or self.claimed.shape[1] != self.subject.outputs.size
            or not bool(self.finite.all())
        ):
            return None
        steps = abs(self.direction)
        peaks = self.xp.amax(abs(self.jacobian), 0)
        slopes, bars = 1.0 * self.jacobian, self.block.noise[:, None] / steps + ENOUGH * peaks
        for column, off in self.doubts.items():
            slopes[off.rows, column] = off.slopes / self.direction[column]
        slopes[:, self.columns], bars[:, self.columns] = self.slopes.T, self.bars.T
        return Measured(slopes, bars)

    def argument(self, number: int) -> str:
        """Return the argument that a column belongs to."""
        return self.subject.inputs.locate(self.columns[number]).path

    def depth(self, number: int) -> float:
        """Return how many times a column's step can be divided by `RATIO` before noise hides the error."""
        off = self.discrepancies[number]
        noise = GROSS * float(self.block.noise[off.rows].max())
        room = off.error * float(self.steps[number]) / noise if noise else math.inf
        return min(math.log(room, RATIO) if 0 < room < math.inf else 0.0, -FINEST)

    def measure(self, numbers: list[int], lengths: list[list[float]]) -> list[StepSlopes]:
        """Measure some columns at several step lengths, as multiples of their first steps, in one batch."""
        xp, columns = self.xp, [self.columns[number] for number in numbers]
        like = self.direction[columns]
        steps = xp.concatenate([like * xp.asarray(each, dtype=like.dtype, device=like.device) for each in lengths])
        moved, seen = columns * len(lengths), []
        for start, stop in batches(0, len(moved), 2 * max(self.subject.inputs.size, self.subject.outputs.size)):
            directions = xp.zeros_like(xp.stack([self.direction] * (stop - start)))
            directions[list(range(stop - start)), moved[start:stop]] = steps[start:stop]
            seen.append(self.block.slopes(directions))
        changes, bends = map(xp.concatenate, zip(*seen, strict=True))
        lengths_taken = abs(steps)[:, None]
        slopes, half_jumps, noise = (
            changes / steps[:, None],
            bends / (2 * lengths_taken),
            self.block.noise / lengths_taken,
        )
        cuts = [slice(k * len(columns), (k + 1) * len(columns)) for k in range(len(lengths))]
        return [StepSlopes(abs(steps)[cut], slopes[cut], half_jumps[cut], noise[cut]) for cut in cuts]
