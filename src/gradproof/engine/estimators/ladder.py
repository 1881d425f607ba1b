"""Ladders of step sizes: the values of a function on both sides of a point, at steps t = …, ¼, 1, 4, 16, ….

A ladder is sampled at one step size after the other, keeps the values, and derives slopes, kinks and jumps from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from gradproof.engine.estimators.differences import KINK_SHARE, Estimates, best_slopes, is_steady, kinked
from gradproof.engine.estimators.extent import Extent, Lengths
from gradproof.engine.estimators.rounding import Noise, noise_around, precision_shown
from gradproof.engine.estimators.sample import Sample
from gradproof.engine.estimators.steps import BOTTOM, RATIO
from gradproof.engine.pieces import piece_of, slices
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CLEARLY, GROSS, ROUNDINGS, SAMPLE, STEADY
from gradproof.engine.views import OutputSubset

JUMP = 1e3  # units of rounding that a jump of a value must exceed: a long sum loses some hundred


class Ladder:
    """The values of a subject along one direction at several step sizes.

    `whole` is the direction of which `direction` is a part, if it is one.
    """

    def __init__(
        self, subject: Subject, direction: Array, whole: Array = None, extent: Extent | Lengths | None = None
    ) -> None:
        self.subject, self.direction, self.whole = subject, direction, whole
        self.samples: list[Sample] = []
        self._piece = piece_of(subject.centre)
        self._fetched: dict[int, Sample] = {}
        self._known: Estimates | None = None
        self._noise: Noise | None = None
        self._farthest: tuple[Array, Array] | None = None
        self._extent = extent or Extent(subject.arrays, direction)

    @property
    def shortest(self) -> float:
        """The shortest step of a coordinate that moves, at t = 1; of many coordinates a sample is looked at."""
        return self._extent.shortest

    @property
    def reach(self) -> float:
        """The length of the step at t = 1; of several directions the longest."""
        return self._extent.reach

    @property
    def moved(self) -> int:
        """The number of coordinates that the direction moves; of several directions one."""
        return self._extent.moved

    def farthest(self) -> tuple[Array, Array | float]:
        """Return for each output the larger of its two changes on the coarsest sample with finite values, and its step.

        The change is NaN where there is no such sample.
        """
        if self._farthest is not None:
            return self._farthest
        xp = self.subject.arrays
        change, step = self._change(self.samples[-1]), self.samples[-1].t
        for sample in reversed(self.samples[:-1]):
            unknown = ~xp.isfinite(change)
            if not bool(unknown.any()):
                break
            change, step = xp.where(unknown, self._change(sample), change), xp.where(unknown, sample.t, step)
        else:
            change = xp.where(xp.isfinite(change), change, math.nan)
        self._farthest = change, step
        return self._farthest

    def _change(self, sample: Sample) -> Array:
        """Return the larger of each output's changes to both sides of the point."""
        centre = self.subject.centre
        return self.subject.arrays.maximum(abs(sample.plus - centre), abs(sample.minus - centre))

    def coarse_slopes(self) -> Array:
        """Return the slope of each output on the coarsest sample with finite values; zero if there is none."""
        change, step = self.farthest()
        return self.subject.arrays.where(self.subject.arrays.isnan(change), 0.0, change / step)

    @property
    def lowest(self) -> int:
        """The exponent of the finest sample."""
        return round(math.log(self.samples[0].t, RATIO))

    @property
    def highest(self) -> int:
        """The exponent of the coarsest sample."""
        return round(math.log(self.samples[-1].t, RATIO))

    def fetch(self, *exponents: int) -> None:
        """Evaluate the samples at t = 4^exponent together, and keep them until they are added."""
        wanted = [exponent for exponent in exponents if exponent not in self._fetched]
        values = self.subject.evaluate_along(
            self.direction, [sign * RATIO**exponent for exponent in wanted for sign in (-1.0, 1.0)]
        )
        for number, exponent in enumerate(wanted):
            self._fetched[exponent] = Sample(RATIO**exponent, values[2 * number], values[2 * number + 1])

    def add(self, *exponents: int) -> None:
        """Add the samples at t = 4^exponent."""
        self.fetch(*exponents)
        samples = [*self.samples, *map(self._fetched.pop, exponents)]
        self.samples = sorted(samples, key=lambda sample: sample.t)
        self._known = self._noise = self._farthest = None

    def aside(self, *exponents: int) -> Ladder:
        """Return a ladder of these samples alone; they are kept until they are added to this one."""
        self.fetch(*exponents)
        other = Ladder(self.subject, self.direction, extent=self._extent)
        other.samples = [self._fetched[exponent] for exponent in sorted(exponents)]
        return other

    def noise(self) -> Noise:
        """Return the noise of the values: the rounding of their dtype, or the median on three or more samples."""
        if self._noise is None:
            every = slice(None, None, max(1, self.subject.outputs.size // SAMPLE))
            cast = 0.0 if len(self.samples) < 3 else self._cast(every)
            least = Noise.of_type(self.subject.numbers, cast)
            if len(self.samples) < 3:
                return least
            self._noise = noise_around(self.subject.arrays, self.subject.centre[every], self._cut(every), least)
        return self._noise

    def _cast(self, where: slice) -> float:
        """Return the rounding unit of the precision that the values were cast to; zero if they show no cast.

        Outputs that do not move have the digits of the point, which may be few. If a sample shows a cast, the output
        that moves most has to show it too.
        """
        xp, centre = self.subject.arrays, self.subject.centre
        sides = [side for sample in (self.samples[0], self.samples[-1]) for side in (sample.minus, sample.plus)]
        shown = precision_shown(xp, [values[where] for values in (centre, *sides)])
        if not shown or where.step == 1:
            return shown
        most = int(xp.argmax(abs(sides[-1] - centre)))
        return precision_shown(
            xp, [values[part] for values in (centre, *sides) for part in (where, slice(most, most + 1))]
        )

    def values(self, t: float) -> Array:
        """Return the values at a step of either sign; those that are not sampled are evaluated and not kept."""
        known = next((sample for sample in self.samples if sample.t == abs(t)), None)
        if known is None:
            return self.subject.evaluate(self.direction, t)
        return known.plus if t > 0 else known.minus

    def without_values(self) -> Ladder:
        """Return a ladder of the two first steps that holds no values, which may be large."""
        other = Ladder(self.subject, self.direction, extent=self._extent)
        other.samples = [Sample(RATIO**exponent, None, None) for exponent in BOTTOM]
        return other

    def between(self, k: int) -> Ladder:
        """Return a ladder of the samples `k` and `k + 1`."""
        pair = Ladder(self.subject, self.direction, extent=self._extent)
        pair.samples = self.samples[k : k + 2]
        return pair

    def sampled(self, stride: int) -> Ladder:
        """Return the ladder of every `stride`-th output."""
        xp = self.subject.arrays
        every = xp.arange(0, self.subject.outputs.size, stride, device=self.subject.centre.device)
        return self.of_outputs(OutputSubset(self.subject, every))

    def of_outputs(self, few: OutputSubset) -> Ladder:
        """Return the ladder of some of the outputs."""
        cut = Ladder(few, self.direction, self.whole, self._extent)
        cut.samples = [Sample(sample.t, sample.minus[few.chosen], sample.plus[few.chosen]) for sample in self.samples]
        return cut

    def pieces(self, low: int, high: int) -> Iterator[tuple[slice, Estimates]]:
        """Yield the best slopes of a range of outputs piece by piece: no vector of the outputs' size is held."""
        size = self.subject.outputs.size
        known = self.estimates() if size <= self._piece else self._known
        for where in slices(low, high, self._unknown_piece if known is None else self._piece):
            if known is None:
                yield where, self._best(where)
            elif where == slice(0, size):
                yield where, known
            else:
                yield where, Estimates(known.value[where], known.bar[where], known.floor[where])

    def estimates(self) -> Estimates:
        """Return the best slope of every output and its bar."""
        size = self.subject.outputs.size
        if self._known is None and size <= self._unknown_piece:
            self._known = best_slopes(self.subject.arrays, self.subject.centre, self.samples, self.noise())
        elif self._known is None:
            xp, centre = self.subject.arrays, self.subject.centre
            whole = Estimates(xp.empty_like(centre), xp.empty_like(centre), xp.empty_like(centre))
            for where in slices(0, size, self._unknown_piece):
                piece = self._best(where)
                whole.value[where], whole.bar[where], whole.floor[where] = piece.value, piece.bar, piece.floor
            self._known = whole
        return self._known

    @property
    def _unknown_piece(self) -> int:
        """The length of pieces whose slopes are unknown: to compute them takes several vectors for every sample."""
        return piece_of(self.subject.centre, len(self.samples))

    def _best(self, where: slice) -> Estimates:
        return best_slopes(self.subject.arrays, self.subject.centre[where], self._cut(where), self.noise())

    def _cut(self, where: slice) -> list[Sample]:
        return [Sample(sample.t, sample.minus[where], sample.plus[where]) for sample in self.samples]

    def kinks(self, bar: Array) -> Array:
        """Flag the outputs that have a kink at the point, given the bars of their slopes.

        The difference of the slopes on the two sides shrinks with the step if the function is smooth, grows as the
        step shrinks if it is noise, and stays the same on the three finest samples at a kink. Only a kink that makes
        up much of the bar counts.
        """
        xp, noise = self.subject.arrays, GROSS * self.noise().rounding / self.samples[0].t

        def kink(where: slice) -> Array:
            centre = self.subject.centre[where]
            return kinked(centre, self._cut(where), xp.maximum(KINK_SHARE * bar[where], noise * abs(centre)))

        return self._flags(kink)

    def jumps(self) -> Array:
        """Flag the outputs that jump at the point: they differ from the values on both sides by as much at any step."""
        least = self._least_jump

        def jump(where: slice) -> Array:
            centre, (finest, *others) = self.subject.centre[where], self._cut(where)[:3]
            first = finest.split(centre)[1]
            clear = (abs(first) > least(centre)) & (abs(first) > 0.5 * abs(finest.plus - finest.minus))
            if not bool(clear.any()):
                return clear
            return is_steady(clear, [first, *(sample.split(centre)[1] for sample in others)], STEADY)

        return self._flags(jump)

    def side_jumps(self) -> Array:
        """Flag the outputs whose values on the two sides of the point differ by as much at any step."""
        least = self._least_jump

        def jump(where: slice) -> Array:
            jumps = [sample.plus - sample.minus for sample in self._cut(where)[:3]]
            clear = abs(jumps[0]) > least(self.subject.centre[where])
            return is_steady(clear, jumps, STEADY)

        return self._flags(jump)

    def _least_jump(self, values: Array) -> Array:
        """Return the smallest changes of values that count as jumps: more than rounding, or a cast, explains."""
        relative = max(JUMP * self.subject.numbers.precision, 4 * self.noise().rounding)
        return relative * abs(values) + CLEARLY * self.subject.numbers.tiny

    def plateaus(self) -> Array:
        """Flag the outputs that are constant on the two finest samples and change on the coarsest."""
        if len(self.samples) < 3:
            return self.subject.arrays.zeros_like(self.subject.centre, dtype=bool)
        changes = ~self.constant()

        def plateau(where: slice) -> Array:
            centre, (finest, second, *_) = self.subject.centre[where], self._cut(where)
            constant = (finest.plus == centre) & (finest.minus == centre)
            return constant & (second.plus == centre) & (second.minus == centre) & changes[where]

        return self._flags(plateau)

    def constant(self) -> Array:
        """Flag the outputs that change by no more than rounding on the coarsest sample on which they are finite."""
        numbers = self.subject.numbers
        return self.farthest()[0] <= ROUNDINGS * numbers.precision * abs(self.subject.centre) + CLEARLY * numbers.tiny

    def _flags(self, flag: Callable[[slice], Array]) -> Array:
        """Return a flag for every output, found piece by piece."""
        size = self.subject.outputs.size
        if size <= self._piece:
            return flag(slice(0, size))
        flags = self.subject.centre != self.subject.centre
        for where in slices(0, size, self._piece):
            flags[where] = flag(where)
        return flags

    def sides(self, sample: Sample) -> tuple[Array, Array]:
        """Return the slopes on the two sides of the point at one step."""
        centre = self.subject.centre
        return (centre - sample.minus) / sample.t, (sample.plus - centre) / sample.t
