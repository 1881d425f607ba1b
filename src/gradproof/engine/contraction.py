"""Slopes of weighed outputs along parts of a direction: no bars, one number each, from as few values as will do.

The residual of a range of coordinates needs ⟨u, f(x + t·part)⟩ alone. One evaluation gives it where what is looked for
is far larger than the function's curvature along the direction, and two, which cancel the curvature, elsewhere.
"""

from __future__ import annotations

import math

from gradproof.engine.ladder import ROUNDING, SAMPLE, first_step, slices
from gradproof.engine.probe import Probe
from gradproof.engine.slopes import RATIO, Rung
from gradproof.engine.subject import Array, Subject
from gradproof.engine.weighing import SPREAD, combine, weighed

SAFE = 16.0  # times curvature and rounding that an error must be for one side to do
SLIP = 1e-3  # of a step at the most: so much of it may be lost in the rounding of the point


class Contraction:
    """⟨u, slope⟩ of a range of outputs along parts of a probe's direction.

    `error` is what is looked for: it decides whether one side of the point will do, unless `two_sided` asks for both.
    `noise` is how far the slope along a part may be off.
    """

    def __init__(self, probe: Probe, outputs: slice, *, error: float, two_sided: bool = False) -> None:
        self._subject, self._outputs = probe.ladder.subject, outputs
        self._weights, self._centre = probe.cotangent[outputs], probe.ladder.subject.centre[outputs]
        self.t, self.noise = self._best_step(probe.ladder.rungs[0])
        self.one_sided = not two_sided and SAFE * self.noise < abs(error)
        if not self.one_sided:
            self.t = RATIO ** best_exponent(probe)
            self.noise = probe.bar
            if self._weights.shape[0] == probe.cotangent.shape[0]:
                rung = next(rung for rung in probe.ladder.rungs if rung.t == self.t)
                self.noise += abs(self._between(rung.plus, rung.minus) / (2 * self.t) - probe.sums.slope)
        self.evaluations = 0

    def slope(self, piece: Array) -> float:
        """The weighed slope along a part of the direction; NaN where the function is not defined."""
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
        return weighed(self._subject, self._weights, after[self._outputs] - before[self._outputs])

    def _best_step(self, rung: Rung) -> tuple[float, float]:
        """The step on which curvature and rounding set a one-sided slope off by the least, and by how much.

        Curvature grows with the step as the finest rung shows it, rounding falls with it. Both are roots of sums of
        squares over the outputs: under random weights parts of the sums may be larger than the whole.
        """
        curved = rounded = 0.0
        for where in slices(0, self._weights.shape[0]):
            u, centre = self._weights[where], self._centre[where]
            bend = (rung.plus[self._outputs][where] + rung.minus[self._outputs][where] - 2 * centre) * u
            grain = centre * u
            curved, rounded = curved + float(bend @ bend), rounded + float(grain @ grain)
        unit = self._subject.precision
        curvature = math.sqrt(curved) / (2 * rung.t**2)
        rounding = ROUNDING * unit * math.sqrt(rounded) + self._subject.tiny
        if not math.isfinite(curvature + rounding):
            return rung.t, math.inf
        least = 4 * unit / first_step(unit) / SLIP
        balanced = math.sqrt(rounding / curvature) if curvature else rung.t
        t = max(least, min(balanced, rung.t))
        return t, SPREAD * (curvature * t + rounding / t)


def best_exponent(probe: Probe) -> int:
    """The rung whose slope, with its upper neighbour's, has the narrowest bar for the whole; of a sample of outputs."""
    ladder, cotangent = probe.ladder, probe.cotangent
    stride = ladder.subject.outputs.size // SAMPLE
    if stride > 1:
        ladder, cotangent = ladder.sampled(stride), cotangent[::stride]
    slope = combine(ladder, cotangent).slope if stride > 1 else probe.sums.slope
    bars = []
    for k in range(len(ladder.rungs) - 1):
        sums = combine(ladder.between(k), cotangent)
        bars.append(sums.bar + abs(sums.slope - slope))
    best = min(range(len(bars)), key=lambda k: bars[k] if math.isfinite(bars[k]) else math.inf)
    return round(math.log(ladder.rungs[best].t, RATIO))


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
