"""What a diagnosis is based on: claimed products of the derivative, and measured slopes with their bars.

A derivative under test is a linear map. Its operand is an incoming gradient for a pullback, and a direction for a
pushforward; the result is called the product. Diagnoses speak of operands and products, and serve both modes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gradproof.engine.estimators.directional import Measured, slopes_along
from gradproof.engine.estimators.rounding import ROUNDING
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.parts import Part, parts_of
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import ALIKE, LARGE, TRACE

BUDGET = 26  # the most evaluations for a diagnosis of a large function; one mistake in all entries takes 13


class OutOfBudgetError(Exception):
    """Raised by a measurement that would take more evaluations than are left."""


class Measurements:
    """Claims and slopes of a subject. Random vectors come from seeds that no probe uses."""

    def __init__(self, subject: Subject, seed: int, measured: Measured | None = None) -> None:
        """Take slopes from the Jacobian if it was `measured` before, and from evaluations otherwise."""
        self.subject, self.xp, self._seed = subject, subject.arrays, seed * 31 + 104_729
        self._measured = measured
        self.reverse = subject.mode == "reverse"
        self.inputs, self.outputs = parts_of(subject.inputs), parts_of(subject.outputs)
        self.step = first_step(subject.numbers.precision)
        self.large = max(subject.inputs.size, subject.outputs.size) > LARGE
        self._left = float(BUDGET) if self.large else math.inf

    def operand(self, number: int) -> Array:
        """Draw a random operand."""
        return self.subject.cotangent(self._seed + number) if self.reverse else self.direction(number)

    def direction(self, number: int) -> Array:
        """Draw a random direction that is as long as the first step of a ladder."""
        return self.subject.direction(self._seed + number, Step(self.step))

    def claim(self, operand: Array) -> Array:
        """Return the product that the derivative claims."""
        return self.subject.pullback(operand) if self.reverse else self.subject.pushforward(operand)

    def slopes(self, directions: Array) -> tuple[Array, Array]:
        """Measure the slopes of all outputs along each direction; return them with their bars."""
        self._spend(4 * len(directions))
        return slopes_along(self.subject, directions, self._measured)

    def columns(self, places: Array) -> tuple[Array, Array]:
        """Measure the columns of the Jacobian for some inputs; return them as rows, with their bars."""
        steps = self.direction(0)[places]
        steps = self.xp.where(steps == 0, 0 * steps + self.step, steps)[:, None]
        slopes, bars = self.slopes(steps * units(self.xp, self.subject.point, places))
        return slopes / steps, bars / abs(steps)

    def quick_slopes(self, direction: Array) -> tuple[Array, Array]:
        """Measure slopes along one direction with two evaluations, and bars from the difference of the two sides."""
        self._spend(2)
        ahead, behind = self.subject.evaluate(direction, 1.0), self.subject.evaluate(direction, -1.0)
        return self._quick(ahead, behind, self.subject.centre)

    def quick_column(self, direction: Array) -> tuple[Array, Array, Array]:
        """Measure the same for the outputs that move or are unknown; return these, their slopes and bars."""
        self._spend(2)
        ahead, behind = self.subject.evaluate(direction, 1.0), self.subject.evaluate(direction, -1.0)
        centre = self.subject.centre
        moving = self.xp.where((ahead != behind) | ~self.xp.isfinite(ahead))[0]
        return moving, *self._quick(ahead[moving], behind[moving], centre[moving])

    def _quick(self, ahead: Array, behind: Array, centre: Array) -> tuple[Array, Array]:
        bars = abs(ahead + behind - 2 * centre) * (TRACE / 2)
        bars += (2 * ROUNDING * self.subject.numbers.precision) * abs(centre)
        return (ahead - behind) * 0.5, self.xp.where(self.xp.isnan(bars), math.inf, bars)

    def rough_slopes(self, directions: Array, place: Array | None = None) -> Array:
        """Measure slopes along each direction with two evaluations, without bars, at the point plus `place`."""
        if place is None and self._measured:
            return self._measured.along(directions)[0]
        self._spend(2 * len(directions))
        if place is None:
            ahead, behind = (self.subject.evaluate_many(directions, t) for t in (1.0, -1.0))
        else:
            ahead, behind = (self.subject.evaluate_many(place + sign * directions, 1.0) for sign in (1.0, -1.0))
        return (ahead - behind) * 0.5

    def value_at(self, place: Array) -> Array:
        """Evaluate the function at the point plus `place`."""
        self._spend(1)
        return self.subject.evaluate(place, 1.0)

    def evaluate_elsewhere(self) -> None:
        """Call the function at another point. Its derivative at the point must not change by this."""
        self._spend(1)
        self.subject.evaluate(self.subject.direction(self._seed + 71, Step(ALIKE)), 1.0)

    def _spend(self, evaluations: int) -> None:
        if evaluations > self._left:
            raise OutOfBudgetError
        self._left -= evaluations

    def zeros(self, parts: list[Part]) -> Array:
        """Return a vector of zeros over all inputs or all outputs."""
        return self.xp.zeros_like(self.subject.centre if parts is self.outputs else self.subject.point)

    def directions(self, part: Part, rows: Sequence[Array]) -> Array:
        """Return stacked directions that are the given rows in one tensor, and zero in all others."""
        vectors = self.xp.stack([self.zeros(self.inputs)] * len(rows))
        vectors[:, part.start : part.stop] = self.xp.stack(list(rows))
        return vectors


def units(xp: Any, like: Array, places: Array) -> Array:
    """Return the unit vectors of some coordinates as rows."""
    rows = xp.zeros_like(xp.stack([like] * places.shape[0]))
    rows[xp.arange(0, places.shape[0], device=like.device), places] = 1.0
    return rows


def norm_of(vectors: Iterable[Array]) -> float:
    """Return the 2-norm of some vectors together; infinite if an entry is not finite."""
    total = sum(float((vector * vector).sum()) for vector in vectors)
    return math.sqrt(total) if math.isfinite(total) else math.inf


def multiple_of(terms: Sequence[Array], targets: Iterable[Array]) -> float:
    """Return the factor by which `terms` come closest to `targets` in least squares; zero if it is not finite."""
    square = sum(float((term * term).sum()) for term in terms)
    over = sum(float((term * target).sum()) for term, target in zip(terms, targets, strict=True))
    size = over / square if square > 0 else 0.0
    return size if math.isfinite(size) else 0.0
