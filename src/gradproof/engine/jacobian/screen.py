"""The first look at a range of outputs: along a direction, what is claimed beside one difference to either side."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from gradproof.engine.contraction import CLAIM_ACCURACY
from gradproof.engine.estimators.differences import ROUNDING
from gradproof.engine.estimators.steps import RATIO, SHORT, first_step
from gradproof.engine.options import Probing
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import ALIKE, CLEARLY, COARSEST, ROUNDINGS, TRACE

CLOSER = (RATIO**-4, RATIO**-5)  # times the first step, for columns that are off by little


class Look(NamedTuple):
    """What of the largest slope in a column an error has to be to be looked for, and what a bend."""

    error: float
    bend: float


FIRST = Look(error=3e-8, bend=1e-3)
CLOSE = Look(error=1e-7, bend=1e-6)


class Discrepancy(NamedTuple):
    """A direction, by its number, along which something is not as claimed: how far off, in which rows, of what slopes.

    `missing` is what the slopes are beyond what is claimed, `bends` how much more they are on one side. `excess` is the
    error over what is allowed. `slight` says that it is off by little; what bends or is hidden is not. `alone` says
    that it moves one column.
    """

    number: int
    error: float
    excess: float
    rows: Array
    slopes: Array
    missing: Array
    bends: Array
    slight: bool
    alone: bool = True


class RowBlock:
    """A range of outputs, at first look."""

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
        self.murky = 2 * ROUNDINGS * ROUNDING * subject.numbers.precision > COARSEST * first_step(
            subject.numbers.precision
        )
        self.coarsest = self.largest = 0.0

    def hidden(self, claimed: Array, direction: Array) -> list[int]:
        """The columns that noise hides, as is known before they are measured: it, and what is claimed, are."""
        xp = self.subject.arrays
        peaks = xp.maximum(xp.amax(claimed, 0), -xp.amin(claimed, 0)) * abs(direction)
        self.largest = max(self.largest, float(peaks.max()))
        doubtful = COARSEST * peaks < float(self.noise.max())
        if not self.murky:
            doubtful &= peaks > 0
        columns = xp.where(doubtful)[0]
        buried = self.noise[:, None] > COARSEST * peaks[columns]
        if not self.murky:
            buried &= claimed[:, columns] != 0
        return [int(column) for column in columns[buried.any(0)]]

    def slopes(self, directions: Array) -> tuple[Array, Array]:
        """How the outputs change along each direction, as seen from both sides, and how much more on one side."""
        both = self.subject.arrays.concatenate([directions, -directions])
        values, centre = self.subject.evaluate_many(both, 1.0)[:, self.rows], self.subject.centre[self.rows]
        changes = values - centre
        if not self.subject.scale.finite:  # an infinity that stays does not change
            changes = self.subject.arrays.where(values == centre, 0.0, changes)
        ahead, behind = changes[: directions.shape[0]], changes[directions.shape[0] :]
        bends = ahead + behind
        ahead -= behind
        ahead *= 0.5
        return ahead, bends

    def same_in_group(self, off: Discrepancy, group: Discrepancy) -> bool:
        """Return True if the worst output of a column is as far off in its group as it is by itself."""
        row, worst = self.worst(off)
        slack, here = ALIKE * abs(worst) + 2 * float(self.noise[row]), group.rows == row
        bends = float(group.bends[here].sum()) - float(off.bends[off.rows == row].sum())
        return abs(float(group.missing[here].sum()) - worst) <= slack and abs(bends) <= slack

    def unit(self, row: int) -> Array:
        """An incoming gradient for one output of the block."""
        unit = self.subject.arrays.zeros_like(self.subject.centre)
        unit[self.rows.start + row] = 1.0
        return unit

    def worst(self, off: Discrepancy) -> tuple[int, float]:
        """The row that is most off, and what its slope is beyond what is claimed."""
        worst = int(self.subject.arrays.argmax(abs(off.missing)))
        return int(off.rows[worst]), float(off.missing[worst])

    def additive(self, claimed: Array, offs: Iterable[Discrepancy], direction: Array) -> Array:
        """Which outputs all inputs together move as they do one by one; so it is where there is a derivative.

        What they move by themselves, or in groups, is as claimed but for what was found off. They may do so on the
        first step or on a shorter one: there curvature, by which they depend on each other, is less.
        """
        xp = self.subject.arrays
        missing, bent, bending = (xp.zeros_like(self.noise) for _ in range(3))
        for off in {id(off): off for off in offs}.values():
            missing[off.rows] += off.missing
            bent[off.rows] += off.bends
            bending[off.rows] += abs(off.bends)
        expected, fits = claimed @ direction + missing, missing != missing
        for t in (1.0, SHORT):
            changes, bends = (each[0] / t for each in self.slopes(t * direction[None]))
            slack = ALIKE * abs(missing) + 2 * self.noise / t
            fits |= (abs(changes - expected) <= slack) & (abs(bends - bent) <= slack + bending)
        return fits

    def compare(self, directions: Array, steps: Array, predicted: Array, look: Look = FIRST) -> list[Discrepancy]:
        """The directions along which something is off, bent or hidden.

        `steps` are the shortest along each direction, of those that are taken.
        """
        xp, options = self.subject.arrays, self.options
        slopes, bends = self.slopes(directions)
        size = abs(predicted)
        peak = xp.amax(size, 1)[:, None]
        self.largest = max(self.largest, float(peak.max()))
        hidden = self.noise > COARSEST * peak
        if not self.murky:  # then what is claimed to be zero would show if it were not
            hidden &= size > 0
        size *= CLAIM_ACCURACY
        allowed = size + self.noise
        allowed += look.error * peak
        if options.rtol or options.atol:
            allowed += options.rtol * abs(slopes) + options.atol * steps
        error = abs(slopes - predicted)
        visible = (abs(bends) <= look.bend * peak + 4 * self.noise) & ~hidden
        fine = (error <= allowed) & visible
        seen = allowed / steps
        seen[hidden] = 0.0
        self.coarsest = max(self.coarsest, float(seen.max()))
        if bool(fine.all()):
            return []
        told_closer = CLEARLY * (CLOSE.error * peak + self.noise / CLOSER[-1])
        little = (error >= told_closer) & (error <= TRACE * peak)
        slight = (visible & ((error <= allowed) | little)).all(1).tolist()
        excess = xp.nan_to_num(xp.amax(error / allowed, 1), nan=math.inf, posinf=math.inf).tolist()
        worst = xp.amax(error / steps, 1).tolist()
        found = []
        for number in xp.where(~fine.all(1))[0].tolist():
            rows = xp.where(~fine[number])[0]
            seen, bent = slopes[number][rows], bends[number][rows]
            missing = seen - predicted[number][rows]
            found.append(Discrepancy(number, worst[number], excess[number], rows, seen, missing, bent, slight[number]))
        return found
