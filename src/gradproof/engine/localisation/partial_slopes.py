"""Contracted slopes along parts of a direction, without bars, from one evaluation or two.

The residual of a range of coordinates needs ⟨u, f(x + t·part)⟩ alone. One evaluation is enough if the error is far
larger than the curvature along the direction; two evaluations cancel the curvature.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradproof.engine.contraction import SPREAD, contract, inner
from gradproof.engine.estimators.rounding import ROUNDING
from gradproof.engine.estimators.sample import Sample
from gradproof.engine.estimators.steps import RATIO, first_step
from gradproof.engine.pieces import columns, piece_of, slices
from gradproof.engine.probe import Probe
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import GROSS, SAMPLE, TRACE


class PartialSlopes:
    """⟨u, slope⟩ of a range of outputs along parts of a probe's direction.

    `error` is the disagreement to be located: it decides whether one side of the point is enough, unless `two_sided`
    asks for both. `noise` is the error that the slope along a part may have.
    """

    def __init__(self, probe: Probe, outputs: slice, *, error: float, two_sided: bool = False) -> None:
        self._subject, self._outputs = probe.ladder.subject, outputs
        self._weights, self._centre = probe.cotangent[outputs], probe.ladder.subject.centre[outputs]
        self.t, self.noise = self._best_step(probe.ladder.samples[0])
        self.one_sided = not two_sided and GROSS * self.noise < abs(error)
        if not self.one_sided:
            self.t = RATIO ** best_exponent(probe)
            self.noise = probe.bar
            if self._weights.shape[0] == probe.cotangent.shape[0]:
                sample = next(sample for sample in probe.ladder.samples if sample.t == self.t)
                self.noise += abs(self._between(sample.plus, sample.minus) / (2 * self.t) - probe.contraction.slope)
        self.evaluations = 0

    def slope(self, piece: Array) -> float:
        """Return the contracted slope along a part of the direction; NaN where the function is not defined."""
        ahead = self._subject.evaluate(piece, self.t)
        self.evaluations += 1
        if self.one_sided:
            return self._between(ahead, self._subject.centre) / self.t
        self.evaluations += 1
        return self._between(ahead, self._subject.evaluate(piece, -self.t)) / (2 * self.t)

    def _between(self, after: Array, before: Array) -> float:
        """Return ⟨u, after − before⟩ without the outputs that have no weight, finite or not."""
        after, before = after[self._outputs], before[self._outputs]
        pieces = self._pieces()
        (parts,) = columns(self._subject.arrays, ([self._weights[k] @ (after[k] - before[k])] for k in pieces))
        total = sum(parts)
        return total if math.isfinite(total) else inner(self._subject, self._weights, after - before)

    def _pieces(self) -> Iterator[slice]:
        return slices(0, self._weights.shape[0], piece_of(self._weights))

    def _best_step(self, sample: Sample) -> tuple[float, float]:
        """Return the step on which curvature and rounding change a one-sided slope by the least, and that error.

        The error by curvature grows with the step, as the finest sample shows it; the error by rounding falls with it.
        Both are roots of sums of squares over the outputs: under random weights parts of a sum may exceed the whole.
        """
        plus, minus, rows = sample.plus[self._outputs], sample.minus[self._outputs], []
        for where in self._pieces():
            u, centre = self._weights[where], self._centre[where]
            bend, value = (plus[where] + minus[where] - 2 * centre) * u, centre * u
            rows.append([bend @ bend, value @ value])
        curved, rounded = columns(self._subject.arrays, rows)
        unit = self._subject.numbers.precision
        curvature = math.sqrt(sum(curved)) / (2 * sample.t**2)
        rounding = ROUNDING * unit * math.sqrt(sum(rounded)) + self._subject.numbers.tiny
        if not math.isfinite(curvature + rounding):
            return sample.t, math.inf
        least = 4 * unit / first_step(unit) / TRACE
        balanced = math.sqrt(rounding / curvature) if curvature else sample.t
        t = max(least, min(balanced, sample.t))
        return t, SPREAD * (curvature * t + rounding / t)


def best_exponent(probe: Probe) -> int:
    """Return the exponent of the sample that, with the next one, has the narrowest bar; from a sample of outputs."""
    ladder, cotangent = probe.ladder, probe.cotangent
    stride = ladder.subject.outputs.size // SAMPLE
    if stride > 1:
        ladder, cotangent = ladder.sampled(stride), cotangent[::stride]
    slope = contract(ladder, cotangent).slope if stride > 1 else probe.contraction.slope
    bars = []
    for k in range(len(ladder.samples) - 1):
        contraction = contract(ladder.between(k), cotangent)
        bars.append(contraction.bar + abs(contraction.slope - slope))
    best = min(range(len(bars)), key=lambda k: bars[k] if math.isfinite(bars[k]) else math.inf)
    return round(math.log(ladder.samples[best].t, RATIO))


class Piece:
    """Parts of a direction in one buffer: each is valid until the next is made."""

    def __init__(self, subject: Subject, direction: Array) -> None:
        self._direction, self._memory = direction, subject.arrays.zeros_like(direction)
        self._last: Array | slice = slice(0, 0)

    def of(self, where: Array | slice) -> Array:
        """Return the direction at some coordinates and zero elsewhere, as a new object: subjects cache by identity."""
        self._memory[self._last] = 0.0
        self._memory[where] = self._direction[where]
        self._last = where
        return self._memory[:]
