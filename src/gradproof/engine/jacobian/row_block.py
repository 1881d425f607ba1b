"""A range of outputs: claimed slopes compared with one central difference along each direction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from gradproof.engine.contraction import CLAIM_ACCURACY
from gradproof.engine.estimators.rounding import ROUNDING
from gradproof.engine.estimators.steps import RATIO, SHORT, first_step
from gradproof.engine.options import Probing
from gradproof.engine.results import least_error
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import ALIKE, CLEARLY, COARSEST, ENOUGH, NEGLIGIBLE, ROUNDINGS, TRACE

FINE_STEPS = (RATIO**-4, RATIO**-5)  # times the first step, for columns with small errors


class Discrepancy(NamedTuple):
    """A direction along which claimed and measured slopes differ.

    `number` is its place in the batch, `error` the largest error per unit of the step, and `excess` that error over
    what is allowed. `rows` are the outputs that differ, `slopes` their measured slopes and `missing` the measured
    slopes less the claimed ones. `second_differences` are the changes to the two sides, added. `slight` says
    that all errors are small, and that nothing has a kink or is hidden by noise. `alone` says that the direction moves
    one column.
    """

    number: int
    error: float
    excess: float
    rows: Array
    slopes: Array
    missing: Array
    second_differences: Array
    slight: bool
    alone: bool = True


class RowBlock:
    """A range of outputs, compared with what is claimed by one step to either side.

    `noise` is the noise of each output, `resolution` the largest error so far that may have been missed, and `largest`
    the largest claimed slope. `zeros_hidden` says that noise would hide a slope where zero is claimed.
    """

    def __init__(self, subject: Subject, options: Probing, first: int, rows: int) -> None:
        self.subject, self.options = subject, options
        self.rows = slice(first, first + rows)
        values = subject.centre[self.rows]
        if not subject.scale.finite:
            values = subject.arrays.where(subject.arrays.isfinite(values), values, 0.0)
        usual = math.sqrt(float(values @ values) / rows)
        self.noise = abs(values)
        self.noise += usual + subject.numbers.tiny / (ROUNDING * subject.numbers.precision)
        self.noise *= ROUNDINGS * ROUNDING * subject.numbers.precision
        self.zeros_hidden = 2 * ROUNDINGS * ROUNDING * subject.numbers.precision > COARSEST * first_step(
            subject.numbers.precision
        )
        self.resolution = self.largest = 0.0

    def hidden_columns(self, claimed: Array, direction: Array) -> list[int]:
        """Return the columns whose claimed entries are below the noise, before they are measured."""
        xp = self.subject.arrays
        peaks = xp.maximum(xp.amax(claimed, 0), -xp.amin(claimed, 0)) * abs(direction)
        self.largest = max(self.largest, float(peaks.max()))
        doubtful = COARSEST * peaks < float(self.noise.max())
        if not self.zeros_hidden:
            doubtful &= peaks > 0
        columns = xp.where(doubtful)[0]
        buried = self.noise[:, None] > COARSEST * peaks[columns]
        if not self.zeros_hidden:
            buried &= claimed[:, columns] != 0
        return [int(column) for column in columns[buried.any(0)]]

    def slopes(self, directions: Array) -> tuple[Array, Array]:
        """Return the central differences of the outputs along each direction, and their second differences."""
        both = self.subject.arrays.concatenate([directions, -directions])
        values, centre = self.subject.evaluate_many(both, 1.0)[:, self.rows], self.subject.centre[self.rows]
        changes = values - centre
        if not self.subject.scale.finite:  # an infinity that stays does not change
            changes = self.subject.arrays.where(values == centre, 0.0, changes)
        ahead, behind = changes[: directions.shape[0]], changes[directions.shape[0] :]
        second_differences = ahead + behind
        ahead -= behind
        ahead *= 0.5
        return ahead, second_differences

    def same_in_group(self, off: Discrepancy, group: Discrepancy) -> bool:
        """Return True if the worst output of a column is as far off in its group as it is by itself."""
        row, worst = self.worst(off)
        slack, here = ALIKE * abs(worst) + 2 * float(self.noise[row]), group.rows == row
        second_differences = float(group.second_differences[here].sum()) - float(
            off.second_differences[off.rows == row].sum()
        )
        return abs(float(group.missing[here].sum()) - worst) <= slack and abs(second_differences) <= slack

    def unit(self, row: int) -> Array:
        """Return the incoming gradient that is one for one output of the block, and zero elsewhere."""
        unit = self.subject.arrays.zeros_like(self.subject.centre)
        unit[self.rows.start + row] = 1.0
        return unit

    def worst(self, off: Discrepancy) -> tuple[int, float]:
        """Return the row with the largest error, and its measured slope less the claimed one."""
        worst = int(self.subject.arrays.argmax(abs(off.missing)))
        return int(off.rows[worst]), float(off.missing[worst])

    def additive(self, claimed: Array, offs: Iterable[Discrepancy], direction: Array) -> Array:
        """Flag the outputs whose slope along all inputs is the sum of the slopes along each: an additivity test.

        The single slopes are the claimed ones, corrected by the discrepancies. The test is passed on the first step or
        on a shorter one, where curvature is less.
        """
        xp = self.subject.arrays
        missing, second, bending = (xp.zeros_like(self.noise) for _ in range(3))
        for off in {id(off): off for off in offs}.values():
            missing[off.rows] += off.missing
            second[off.rows] += off.second_differences
            bending[off.rows] += abs(off.second_differences)
        expected, fits = claimed @ direction + missing, self.subject.arrays.isnan(missing)
        for t in (1.0, SHORT):
            changes, second_differences = (each[0] / t for each in self.slopes(t * direction[None]))
            slack = ALIKE * abs(missing) + 2 * self.noise / t
            fits |= (abs(changes - expected) <= slack) & (abs(second_differences - second) <= slack + bending)
        return fits

    def compare(
        self, directions: Array, steps: Array, predicted: Array, *, on_fine_steps: bool = False
    ) -> list[Discrepancy]:
        """Return the directions along which slopes are not as claimed, have a kink, or are hidden by noise.

        `steps` are the shortest steps of the coordinates that each direction moves. On far finer steps than the usual
        ones curvature is less, and an error has to be a clear one.
        """
        least, curvature = (CLEARLY * ENOUGH, NEGLIGIBLE) if on_fine_steps else (ENOUGH, TRACE)
        xp, options = self.subject.arrays, self.options
        slopes, second_differences = self.slopes(directions)
        size = abs(predicted)
        peak = xp.amax(size, 1)[:, None]
        self.largest = max(self.largest, float(peak.max()))
        hidden = self.noise > COARSEST * peak
        if not self.zeros_hidden:  # then a slope that is wrongly claimed to be zero would show
            hidden &= size > 0
        size *= CLAIM_ACCURACY
        allowed = size + self.noise
        allowed += least * peak
        if options.rtol or options.atol:
            allowed += options.rtol * abs(slopes) + options.atol * steps
        error = abs(slopes - predicted)
        visible = (abs(second_differences) <= curvature * peak + 4 * self.noise) & ~hidden
        fine = (error <= allowed) & visible
        seen = least_error(allowed, xp.where(error <= allowed, error, 0.0), steps)  # a larger error is seen itself
        seen[hidden] = 0.0
        self.resolution = max(self.resolution, float(seen.max()))
        if bool(fine.all()):
            return []
        shown_by_fine_steps = CLEARLY * (CLEARLY * ENOUGH * peak + self.noise / FINE_STEPS[-1])
        little = (error >= shown_by_fine_steps) & (error <= TRACE * peak)
        slight = (visible & ((error <= allowed) | little)).all(1).tolist()
        excess = xp.nan_to_num(xp.amax(error / allowed, 1), nan=math.inf, posinf=math.inf).tolist()
        worst = xp.amax(error / steps, 1).tolist()
        found = []
        for number in xp.where(~fine.all(1))[0].tolist():
            rows = xp.where(~fine[number])[0]
            seen, second = slopes[number][rows], second_differences[number][rows]
            missing = seen - predicted[number][rows]
            found.append(
                Discrepancy(number, worst[number], excess[number], rows, seen, missing, second, slight[number])
            )
        return found
