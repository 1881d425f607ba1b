"""Slopes along several directions at once, each with its bar: from values or from a measured Jacobian."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof.engine.estimators.differences import best_slopes
from gradproof.engine.estimators.rounding import Noise
from gradproof.engine.estimators.sample import Sample
from gradproof.engine.estimators.steps import RATIO
from gradproof.engine.subject import Array, Subject


@dataclass(frozen=True, slots=True)
class Measured:
    """A Jacobian from values, with a row for every output and a column for every input, and the bars of its entries."""

    slopes: Array
    bars: Array

    def along(self, directions: Array) -> tuple[Array, Array]:
        """Return the slopes of all outputs along each direction, and upper bounds on their bars."""
        return directions @ self.slopes.T, abs(directions) @ self.bars.T


def slopes_along(subject: Subject, directions: Array, measured: Measured | None = None) -> tuple[Array, Array]:
    """Return the slopes of all outputs along each of some directions, and their bars.

    That takes four evaluations a direction, or none if the Jacobian was `measured`.
    """
    if measured is not None:
        return measured.along(directions)
    xp, count = subject.arrays, directions.shape[0]
    centre = xp.concatenate([subject.centre] * count) if count > 1 else subject.centre
    samples = []
    for t in (1.0, RATIO):
        minus, plus = (subject.evaluate_many(directions, sign * t).reshape(-1) for sign in (-1.0, 1.0))
        samples.append(Sample(t, minus, plus))
    found = best_slopes(xp, centre, samples, Noise.of_type(subject.numbers))
    return found.value.reshape(count, -1), found.bar.reshape(count, -1)
