"""The measuring bench of a diagnosis: claims for questions, and slopes along directions, each with its bar.

A derivative under test answers questions: a pullback is asked about an incoming gradient, a pushforward about a
direction. Everything here speaks of questions and answers, so that a diagnosis need not know the mode.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gradproof.engine.diagnosis.parts import Part, parts_of
from gradproof.engine.estimators.differences import ROUNDING
from gradproof.engine.estimators.directional import Measured, slopes_along
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import ALIKE, LARGE, TRACE

BUDGET = 24  # evaluations of a diagnosis of a large function at most; 13 where one mistake explains a whole answer


class OutOfBudgetError(Exception):
    """A question that would take more evaluations than are left."""


class Bench:
    """A subject and what can be asked of it. Random questions are drawn afresh, from seeds that no probe has used."""

    def __init__(self, subject: Subject, seed: int, measured: Measured | None = None) -> None:
        """Slopes come from the Jacobian, where it was `measured`."""
        self.subject, self.xp, self._seed = subject, subject.arrays, seed * 31 + 104_729
        self._measured = measured
        self.reverse = subject.mode == "reverse"
        self.inputs, self.outputs = parts_of(subject.inputs), parts_of(subject.outputs)
        self.step = first_step(subject.numbers.precision)
        self.large = max(subject.inputs.size, subject.outputs.size) > LARGE
        self._left = float(BUDGET) if self.large else math.inf

    def question(self, number: int) -> Array:
        """A random question."""
        return self.subject.cotangent(self._seed + number) if self.reverse else self.direction(number)

    def direction(self, number: int) -> Array:
        """A random direction, as long as the first step of a ladder."""
        return self.subject.direction(self._seed + number, Step(self.step))

    def claim(self, question: Array) -> Array:
        """What the derivative answers."""
        return self.subject.pullback(question) if self.reverse else self.subject.pushforward(question)

    def slopes(self, directions: Array) -> tuple[Array, Array]:
        """The slopes of all outputs along each of some directions, and their bars."""
        self._spend(4 * len(directions))
        return slopes_along(self.subject, directions, self._measured)

    def columns(self, places: Array) -> tuple[Array, Array]:
        """The columns of the Jacobian for some inputs, one in a row, and their bars."""
        steps = self.direction(0)[places]
        steps = self.xp.where(steps == 0, 0 * steps + self.step, steps)[:, None]
        slopes, bars = self.slopes(steps * units(self.xp, self.subject.point, places))
        return slopes / steps, bars / abs(steps)

    def quick_slopes(self, direction: Array) -> tuple[Array, Array]:
        """The slopes of all outputs along one direction from two evaluations, with bars from how their sides differ."""
        self._spend(2)
        ahead, behind = self.subject.evaluate(direction, 1.0), self.subject.evaluate(direction, -1.0)
        centre = self.subject.centre
        bars = abs(ahead + behind - 2 * centre) * (TRACE / 2)
        bars += (2 * ROUNDING * self.subject.numbers.precision) * abs(centre)
        return (ahead - behind) * 0.5, self.xp.where(self.xp.isnan(bars), math.inf, bars)

    def rough_slopes(self, directions: Array, place: Array | None = None) -> Array:
        """The same from two evaluations each, without bars; at the point plus `place`, where one is given."""
        if place is None and self._measured:
            return self._measured.along(directions)[0]
        self._spend(2 * len(directions))
        if place is None:
            ahead, behind = (self.subject.evaluate_many(directions, t) for t in (1.0, -1.0))
        else:
            ahead, behind = (self.subject.evaluate_many(place + sign * directions, 1.0) for sign in (1.0, -1.0))
        return (ahead - behind) * 0.5

    def evaluate_elsewhere(self) -> None:
        """Call the function at another point, which must not change its derivative at this one."""
        self._spend(1)
        self.subject.evaluate(self.subject.direction(self._seed + 71, Step(ALIKE)), 1.0)

    def _spend(self, evaluations: int) -> None:
        if evaluations > self._left:
            raise OutOfBudgetError
        self._left -= evaluations

    def zeros(self, parts: list[Part]) -> Array:
        """A vector of zeros over all inputs or all outputs."""
        return self.xp.zeros_like(self.subject.centre if parts is self.outputs else self.subject.point)

    def directions(self, part: Part, rows: Sequence[Array]) -> Array:
        """Stacked directions that move one tensor alone, by the given rows."""
        vectors = self.xp.stack([self.zeros(self.inputs)] * len(rows))
        vectors[:, part.start : part.stop] = self.xp.stack(list(rows))
        return vectors


def units(xp: Any, like: Array, places: Array) -> Array:
    """Unit vectors at some places, one in a row."""
    rows = xp.zeros_like(xp.stack([like] * places.shape[0]))
    rows[xp.arange(0, places.shape[0], device=like.device), places] = 1.0
    return rows


def size_of(vectors: Iterable[Array]) -> float:
    """The root of the sum of squares over some vectors; infinite where an entry is not finite."""
    total = sum(float((vector * vector).sum()) for vector in vectors)
    return math.sqrt(total) if math.isfinite(total) else math.inf


def multiple_of(terms: Sequence[Array], targets: Iterable[Array]) -> float:
    """The multiple of some vectors that is nearest to others; zero where there is none."""
    square = sum(float((term * term).sum()) for term in terms)
    over = sum(float((term * target).sum()) for term, target in zip(terms, targets, strict=True))
    size = over / square if square > 0 else 0.0
    return size if math.isfinite(size) else 0.0
