"""Slopes of inner outputs along parts of a direction: no bars, one number each, from as few values as will do.

The residual of a range of coordinates needs ⟨u, f(x + t·part)⟩ alone. One evaluation gives it where what is looked for
is far larger than the function's curvature along the direction, and two, which cancel the curvature, elsewhere.
"""

from __future__ import annotations

import math

from gradproof.engine.contraction import SPREAD, contract, inner
from gradproof.engine.estimators.differences import ROUNDING, Sample
from gradproof.engine.estimators.ladder import SAMPLE, slices
from gradproof.engine.estimators.steps import RATIO, first_step
from gradproof.engine.probe import Probe
from gradproof.engine.subject import Array, Subject

SAFE = 16.0  # times curvature and rounding that an error must be for one side to do
SLIP = 1e-3  # of a step at the most: so much of it may be lost in the rounding of the point


class PartialSlopes:
    """⟨u, slope⟩ of a range of outputs along parts of a probe's direction.

    `error` is what is looked for: it decides whether one side of the point will do, unless `two_sided` asks for both.
    `noise` is how far the slope along a part may be off.
    """

    def __init__(self, probe: Probe, outputs: slice, *, error: float, two_sided: bool = False) -> None:
        self._subject, self._outputs = probe.ladder.subject, outputs
        self._weights, self._centre = probe.cotangent[outputs], probe.ladder.subject.centre[outputs]
        self.t, self.noise = self._best_step(probe.ladder.samples[0])
        self.one_sided = not two_sided and SAFE * self.noise < abs(error)
        if not self.one_sided:
            self.t = RATIO ** best_exponent(probe)
            self.noise = probe.bar
            if self._weights.shape[0] == probe.cotangent.shape[0]:
                sample = next(sample for sample in probe.ladder.samples if sample.t == self.t)
                self.noise += abs(self._between(sample.plus, sample.minus) / (2 * self.t) - probe.sums.slope)
        self.evaluations = 0

    def slope(self, piece: Array) -> float:
        """The inner slope along a part of the direction; NaN where the function is not defined."""
        ahead = self._subject.evaluate(piece, self.t)
        self.evaluations += 1
        if self.one_sided:
            return self._between(ahead, self._subject.centre) / self.t
        self.evaluations += 1
        return self._between(ahead, self._subject.evaluate(piece, -self.t)) / (2 * self.t)

    def _between(self, after: Array, before: Array) -> float:
        """⟨u, after − before⟩, leaving out what has no weight, finite or not."""
        total = 0.0
        for where in slices(0, self._weights.shape[0]):
            change = after[self._outputs][where] - before[self._outputs][where]
            total += float(self._weights[where] @ change)
        if math.isfinite(total):
            return total
        return inner(self._subject, self._weights, after[self._outputs] - before[self._outputs])

    def _best_step(self, sample: Sample) -> tuple[float, float]:
        """The step on which curvature and rounding set a one-sided slope off by the least, and by how much.

        Curvature grows with the step as the finest sample shows it, rounding falls with it. Both are roots of sums of
        squares over the outputs: under random weights parts of the sums may be larger than the whole.
        """
        curved = rounded = 0.0
        for where in slices(0, self._weights.shape[0]):
            u, centre = self._weights[where], self._centre[where]
            bend = (sample.plus[self._outputs][where] + sample.minus[self._outputs][where] - 2 * centre) * u
            grain = centre * u
            curved, rounded = curved + float(bend @ bend), rounded + float(grain @ grain)
        unit = self._subject.numbers.precision
        curvature = math.sqrt(curved) / (2 * sample.t**2)
        rounding = ROUNDING * unit * math.sqrt(rounded) + self._subject.numbers.tiny
        if not math.isfinite(curvature + rounding):
            return sample.t, math.inf
        least = 4 * unit / first_step(unit) / SLIP
        balanced = math.sqrt(rounding / curvature) if curvature else sample.t
        t = max(least, min(balanced, sample.t))
        return t, SPREAD * (curvature * t + rounding / t)


def best_exponent(probe: Probe) -> int:
    """Return the exponent of the step whose slope, with its upper neighbour's, has the narrowest bar."""
    ladder, cotangent = probe.ladder, probe.cotangent
    stride = ladder.subject.outputs.size // SAMPLE
    if stride > 1:
        ladder, cotangent = ladder.sampled(stride), cotangent[::stride]
    slope = contract(ladder, cotangent).slope if stride > 1 else probe.sums.slope
    bars = []
    for k in range(len(ladder.samples) - 1):
        sums = contract(ladder.between(k), cotangent)
        bars.append(sums.bar + abs(sums.slope - slope))
    best = min(range(len(bars)), key=lambda k: bars[k] if math.isfinite(bars[k]) else math.inf)
    return round(math.log(ladder.samples[best].t, RATIO))


class Piece:
    """Parts of a direction, one after the other in the same memory; each is to be used before the next is asked for."""

    def __init__(self, subject: Subject, direction: Array) -> None:
        self._direction, self._memory = direction, subject.arrays.zeros_like(direction)
        self._last: Array | slice = slice(0, 0)

    def of(self, where: Array | slice) -> Array:
        """The direction at some coordinates, and zero elsewhere: a new object, by which a subject knows it as new."""
        self._memory[self._last] = 0.0
        self._memory[where] = self._direction[where]
        self._last = where
        return self._memory[:]
