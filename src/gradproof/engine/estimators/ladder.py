"""A ladder: the values of a function on both sides of a point, at steps t = …, ¼, 1, 4, 16, … along one direction.

It grows by a sample at a time, remembers the values, and knows what they say: slopes, kinks, jumps.
Nothing in this module knows about autograd, layouts or reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise

from gradproof.engine.estimators.differences import (
    ROUNDING,
    Estimates,
    Noise,
    Sample,
    best_slopes,
    noise_around,
    precision_shown,
)
from gradproof.engine.estimators.steps import BOTTOM, RATIO, first_step
from gradproof.engine.subject import Array, Subject
from gradproof.engine.views import OutputSubset

CHUNK = 1 << 16  # entries worked on at once: small enough for the processor's cache, large enough to amortise a call
WIDE = 2.0**-5  # to either side, relative to the point's own scale: no half precision rounds so much away
ULPS = 8  # units of rounding by which a value that stands still may waver
SAMPLE = 1 << 12  # outputs that stand for all when noise is told


def slices(low: int, high: int) -> Iterator[slice]:
    """A range, cut into pieces of at most `CHUNK`."""
    return (slice(start, min(start + CHUNK, high)) for start in range(low, high, CHUNK))


class Ladder:
    """The values of a subject along one direction, at growing and shrinking steps."""

    def __init__(self, subject: Subject, direction: Array, whole: Array = None) -> None:
        """`whole` is the direction that this one is a part of, if it is."""
        self.subject, self.direction, self.whole = subject, direction, whole
        self.samples: list[Sample] = []
        self._fetched: dict[int, Sample] = {}
        self._known: Estimates | None = None
        self._noise: Noise | None = None
        self._farthest: tuple[Array, Array] | None = None
        self._shortest: float | None = None
        self._reach: float | None = None
        self._moved: int | None = None

    @property
    def shortest(self) -> float:
        """The shortest step that a coordinate takes at t = 1, of those that move; of very many, among a sample."""
        if self._shortest is None:
            reach = abs(self.direction[:: max(1, self.direction.shape[0] // CHUNK)])
            moving = reach[reach > 0]
            self._shortest = float(moving.min()) if moving.shape[0] else math.inf
        return self._shortest

    @property
    def reach(self) -> float:
        """The length of the step at t = 1; of several directions the longest."""
        if self._reach is None:
            v = self.direction
            self._reach = math.sqrt(float(v @ v if len(v.shape) == 1 else (v * v).sum(1).max()))
        return self._reach

    @property
    def moved(self) -> int:
        """The number of coordinates that the direction moves; of several directions one."""
        if self._moved is None:
            v = self.direction
            self._moved = int((v != 0).sum()) if len(v.shape) == 1 else 1
        return self._moved

    def farthest(self) -> tuple[Array, Array]:
        """How far each output has gone from its value at the point on the coarsest sample on which it is defined.

        The larger change of the two sides, and the step; NaN where it is defined on no sample, on both sides.
        """
        if self._farthest is not None:
            return self._farthest
        xp, centre = self.subject.arrays, self.subject.centre
        change, step = math.nan * xp.ones_like(centre), xp.ones_like(centre)
        for sample in reversed(self.samples):
            seen = xp.maximum(abs(sample.plus - centre), abs(sample.minus - centre))
            known = xp.isfinite(seen)
            change, step = xp.where(known, seen, change), xp.where(known, sample.t, step)
            if bool(known.all()):
                break
        self._farthest = change, step
        return self._farthest

    def coarse_slopes(self) -> Array:
        """How steeply each output leaves its value at the point, on the coarsest step."""
        change, step = self.farthest()
        return self.subject.arrays.where(change == change, change / step, 0.0)

    @property
    def lowest(self) -> int:
        """The exponent of the finest sample."""
        return round(math.log(self.samples[0].t, RATIO))

    @property
    def highest(self) -> int:
        """The exponent of the coarsest sample."""
        return round(math.log(self.samples[-1].t, RATIO))

    def fetch(self, *exponents: int) -> None:
        """Evaluate the samples at t = 4^exponent together, to be added later."""
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
        """A ladder of these samples alone, which are kept for when they are added to this one."""
        self.fetch(*exponents)
        other = Ladder(self.subject, self.direction)
        other.samples = [self._fetched[exponent] for exponent in sorted(exponents)]
        return other

    def noise(self) -> Noise:
        """The noise of values: what their type allows, or, on three samples or more, what the outputs usually show."""
        if self._noise is None:
            unit = self.subject.numbers.precision
            every = slice(None, None, max(1, self.subject.outputs.size // SAMPLE))
            cast = 0.0 if len(self.samples) < 3 else self._cast(every)
            rounding = ROUNDING * max(unit, cast)
            least = Noise(
                rounding=rounding,
                shown=rounding,
                tiny=self.subject.numbers.tiny,
                step_rounding=4 * unit / first_step(unit),
                wide=math.inf if cast > unit else WIDE / first_step(unit),
                share=rounding if cast > unit else 0.0,
            )
            if len(self.samples) < 3:
                return least
            self._noise = noise_around(self.subject.centre[every], self._cut(every), least)
        return self._noise

    def _cast(self, where: slice) -> float:
        """The precision that values show on the coarsest and the finest sample and at the point, if it is a low one."""
        seen = [
            side for sample in (self.samples[0], self.samples[-1]) for side in (sample.minus[where], sample.plus[where])
        ]
        return precision_shown(self.subject.arrays, [self.subject.centre[where], *seen])

    def values(self, t: float) -> Array:
        """The values at one step, of either sign, which are not kept if they are not there."""
        known = next((sample for sample in self.samples if sample.t == abs(t)), None)
        if known is None:
            return self.subject.evaluate(self.direction, t)
        return known.plus if t > 0 else known.minus

    def spent(self) -> Ladder:
        """The two samples that a ladder begins with, without their values: they are of no further use, and large."""
        other = Ladder(self.subject, self.direction)
        other.samples = [Sample(RATIO**exponent, None, None) for exponent in BOTTOM]
        return other

    def between(self, k: int) -> Ladder:
        """The ladder of two neighbouring samples alone."""
        pair = Ladder(self.subject, self.direction)
        pair.samples = self.samples[k : k + 2]
        return pair

    def sampled(self, stride: int) -> Ladder:
        """The same ladder, for every so many outputs."""
        xp = self.subject.arrays
        every = xp.arange(0, self.subject.outputs.size, stride, device=self.subject.centre.device)
        return self.watching(OutputSubset(self.subject, every))

    def watching(self, few: OutputSubset) -> Ladder:
        """The same ladder, for some of the outputs alone."""
        cut = Ladder(few, self.direction, self.whole)
        cut.samples = [Sample(sample.t, sample.minus[few.chosen], sample.plus[few.chosen]) for sample in self.samples]
        return cut

    def pieces(self, low: int, high: int) -> Iterator[tuple[slice, Estimates]]:
        """The best slopes of a range of outputs, chunk by chunk, so that nothing of the outputs' size is held."""
        known = self.estimates() if self.subject.outputs.size <= CHUNK else self._known
        for where in slices(low, high):
            if known is not None:
                yield where, Estimates(known.value[where], known.bar[where], known.floor[where])
            else:
                yield where, self._best(where)

    def estimates(self) -> Estimates:
        """The best slope of every output, and its bar."""
        size = self.subject.outputs.size
        if self._known is None and size <= CHUNK:
            self._known = best_slopes(self.subject.arrays, self.subject.centre, self.samples, self.noise())
        elif self._known is None:
            xp, centre = self.subject.arrays, self.subject.centre
            whole = Estimates(xp.empty_like(centre), xp.empty_like(centre), xp.empty_like(centre))
            for where in slices(0, size):
                piece = self._best(where)
                whole.value[where], whole.bar[where], whole.floor[where] = piece.value, piece.bar, piece.floor
            self._known = whole
        return self._known

    def _best(self, where: slice) -> Estimates:
        return best_slopes(self.subject.arrays, self.subject.centre[where], self._cut(where), self.noise())

    def _cut(self, where: slice) -> list[Sample]:
        return [Sample(sample.t, sample.minus[where], sample.plus[where]) for sample in self.samples]

    def bends(self, bar: Array) -> Array:
        """Which outputs have a kink at the point itself, given the bars of their slopes.

        A jump of the slope is told from curvature and from noise by its size on the three lowest samples: of a smooth
        function it shrinks with the step, of noise it grows as the step shrinks, of a kink it stays. Only a jump that
        makes up much of the bar matters.
        """
        grainy = 20 * self.noise().rounding / self.samples[0].t

        def bend(where: slice) -> Array:
            centre, samples = self.subject.centre[where], self._cut(where)[:3]
            jumps = [sample.split(centre)[1] * (1 / sample.t) for sample in samples]
            clear = (abs(jumps[0]) > 0.4 * bar[where]) & (abs(jumps[0]) > grainy * abs(centre))
            return _stays(clear, jumps, 0.25)

        return self._flags(bend)

    def jumps(self) -> Array:
        """Which outputs leap at the point itself: they differ from their surroundings by as much, whatever the step."""
        least = self._least_leap

        def leap(where: slice) -> Array:
            centre, samples = self.subject.centre[where], self._cut(where)[:3]
            leaps = [sample.split(centre)[1] for sample in samples]
            finest, size = samples[0], abs(leaps[0])
            clear = (size > least * abs(centre)) & (size > 0.5 * abs(finest.plus - finest.minus))
            return _stays(clear, leaps, 0.02)

        return self._flags(leap)

    def cliffs(self) -> Array:
        """Which outputs lie as far apart on the two sides of the point, whatever the step."""
        least = self._least_leap

        def fall(where: slice) -> Array:
            falls = [sample.plus - sample.minus for sample in self._cut(where)[:3]]
            clear = abs(falls[0]) > least * abs(self.subject.centre[where])
            return _stays(clear, falls, 0.02)

        return self._flags(fall)

    @property
    def _least_leap(self) -> float:
        """What is a leap, relative to a value: more than rounding, and than that of a cast."""
        return max(1e3 * self.subject.numbers.precision, 4 * self.noise().rounding)

    def plateaus(self) -> Array:
        """Which outputs do not change at all on the two finest samples, and do on the coarsest."""

        if len(self.samples) < 3:
            return self.subject.centre != self.subject.centre
        moves = ~self.wavers()

        def still(where: slice) -> Array:
            centre, (finest, next_one, *_) = self.subject.centre[where], self._cut(where)
            calm = (finest.plus == centre) & (finest.minus == centre)
            return calm & (next_one.plus == centre) & (next_one.minus == centre) & moves[where]

        return self._flags(still)

    def wavers(self) -> Array:
        """Which outputs have gone no farther than rounding takes them, as far as they are defined."""
        return self.farthest()[0] <= ULPS * self.subject.numbers.precision * abs(self.subject.centre)

    def _flags(self, flag: Callable[[slice], Array]) -> Array:
        """A yes or no for every output, found chunk by chunk."""
        size = self.subject.outputs.size
        if size <= CHUNK:
            return flag(slice(0, size))
        flags = self.subject.centre != self.subject.centre
        for where in slices(0, size):
            flags[where] = flag(where)
        return flags

    def sides(self, sample: Sample) -> tuple[Array, Array]:
        """The slopes on the two sides of the point, at one step."""
        centre = self.subject.centre
        return (centre - sample.minus) / sample.t, (sample.plus - centre) / sample.t


def _stays(clear: Array, jumps: list[Array], within: float) -> Array:
    """Where a jump that is clear on the finest sample is as large on the next ones."""
    for finer, coarser in pairwise(jumps):
        clear = clear & (abs(finer - coarser) <= within * abs(finer))
    return clear
