"""Slopes from function values alone, each with its own error bar.

A ladder holds the values of a function on both sides of a point, at steps t = …, ¼, 1, 4, 16, … along one direction:
its rungs. Two neighbouring rungs give an extrapolated slope (Richardson, 1911), three give one of the next order. Each
comes with a bar made of three parts:

- truncation: how far the slopes on the rungs differ from each other;
- noise: the even fourth difference of the values, which for a smooth function is rounding noise amplified 38-fold, and
  at a kink is proportional to the jump of the slope. The largest one seen at this step or a smaller one counts;
- a floor: the rounding of values that are as accurate as their type allows.

With `BEND` = 1/20 the bar covers the one-sided slopes of any function with one kink within the rungs, wherever it lies:
writing θ for the kink's distance over the lower step and J for the jump, the error is at most J(1/2 − 21θ/40) and
the bar at least J(3θ/8 + |12 − 15θ|/20).

Nothing in this module knows about autograd, layouts or reports; all of it works on whole vectors of outputs at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gradproof.engine.subject import Array, Subject, Watched

RATIO = 4.0  # between the steps of neighbouring rungs
BEND = 0.05  # how much of the even fourth difference enters the bar
ROUNDING = 0.75  # units of rounding in the slope from values that are rounded correctly: 0.54, and some to spare
CHUNK = 1 << 16  # entries worked on at once: small enough for the processor's cache, large enough to amortise a call
SMOOTH = 0.3  # a slope whose bar is below this fraction of it looks smooth
CLIMB = 0.5  # the largest step, relative to the point's own scale


def first_step(precision: float) -> float:
    """The lowest rung's step, relative to the point's scale: near the cube root of the precision.

    There truncation and noise are about equal for a function of order one, so that the bar, which takes truncation at
    its full unextrapolated size, is near its smallest.

    >>> f"{first_step(2.2e-16):.1e}", f"{first_step(1.2e-7):.1e}"
    ('3.6e-06', '2.9e-03')
    """
    return min(precision ** (1 / 3) / 1.7, CLIMB / RATIO)


@dataclass(frozen=True, slots=True)
class Rung:
    """The function's values at one step, on both sides."""

    t: float
    minus: Array
    plus: Array


@dataclass(frozen=True, slots=True)
class Estimates:
    """A slope and its bar for every output. An infinite bar: nothing is known.

    `floor` is the part of the bar at t = 1 that no function of this precision can be without.
    """

    value: Array
    bar: Array
    floor: Array


def slices(low: int, high: int) -> Iterator[slice]:
    """A range, cut into pieces of at most `CHUNK`."""
    return (slice(start, min(start + CHUNK, high)) for start in range(low, high, CHUNK))


class Ladder:
    """The values of a subject along one direction, at growing and shrinking steps."""

    def __init__(self, subject: Subject, direction: Array) -> None:
        self.subject = subject
        self.direction = direction
        self.rungs: list[Rung] = []
        self.precision = subject.precision
        self._known: Estimates | None = None

    @property
    def lowest(self) -> int:
        """The exponent of the finest rung."""
        return round(math.log(self.rungs[0].t, RATIO))

    @property
    def highest(self) -> int:
        """The exponent of the coarsest rung."""
        return round(math.log(self.rungs[-1].t, RATIO))

    def add(self, exponent: int) -> None:
        """Evaluate the rung at t = 4^exponent."""
        t = RATIO**exponent
        rung = Rung(t, self.subject.evaluate(self.direction, -t), self.subject.evaluate(self.direction, t))
        self.rungs = sorted([*self.rungs, rung], key=lambda rung: rung.t)
        self._known = None

    def between(self, k: int) -> Ladder:
        """The ladder of two neighbouring rungs alone."""
        pair = Ladder(self.subject, self.direction)
        pair.rungs = self.rungs[k : k + 2]
        return pair

    def sampled(self, stride: int) -> Ladder:
        """The same ladder, for every so many outputs."""
        xp = self.subject.arrays
        every = xp.arange(0, self.subject.outputs.size, stride, device=self.subject.centre.device)
        return self.watching(Watched(self.subject, every))

    def watching(self, few: Watched) -> Ladder:
        """The same ladder, for some of the outputs alone."""
        cut = Ladder(few, self.direction)
        cut.rungs = [Rung(rung.t, rung.minus[few.chosen], rung.plus[few.chosen]) for rung in self.rungs]
        return cut

    def pieces(self, low: int, high: int) -> Iterator[tuple[slice, Estimates]]:
        """The best slopes of a range of outputs, chunk by chunk, so that nothing of the outputs' size is held."""
        xp, centre, known = self.subject.arrays, self.subject.centre, self._known
        for where in slices(low, high):
            if known is not None:
                yield where, Estimates(known.value[where], known.bar[where], known.floor[where])
            else:
                rungs = self.rungs if where.stop - where.start == self.subject.outputs.size else self._cut(where)
                yield where, best_slopes(xp, centre[where], rungs, self.precision)

    def estimates(self) -> Estimates:
        """The best slope of every output, and its bar."""
        if self._known is None:
            xp, centre = self.subject.arrays, self.subject.centre
            whole = Estimates(xp.empty_like(centre), xp.empty_like(centre), xp.empty_like(centre))
            for where, piece in self.pieces(0, self.subject.outputs.size):
                whole.value[where], whole.bar[where], whole.floor[where] = piece.value, piece.bar, piece.floor
            self._known = whole
        return self._known

    def _cut(self, where: slice) -> list[Rung]:
        return [Rung(rung.t, rung.minus[where], rung.plus[where]) for rung in self.rungs]

    def bends(self, bar: Array) -> Array:
        """Which outputs have a kink at the point itself, given the bars of their slopes.

        A jump of the slope is told from curvature and from noise by its size on the three lowest rungs: of a smooth
        function it shrinks with the step, of noise it grows as the step shrinks, of a kink it stays. Only a jump that
        makes up most of the bar matters.
        """
        before, after = zip(*(self.sides(rung) for rung in self.rungs[:3]), strict=True)
        jumps = [right - left for left, right in zip(before, after, strict=True)]
        steady = abs(jumps[0]) > bar
        for finer, coarser in pairwise(jumps):
            steady = steady & (abs(finer - coarser) <= 0.25 * abs(finer))
        return steady

    def jumps(self) -> list[int]:
        """Some outputs whose value leaps at the point itself: it differs from its surroundings by what no step changes."""
        xp, centre = self.subject.arrays, self.subject.centre
        leaps = [(rung.plus - centre) - (centre - rung.minus) for rung in self.rungs[:3]]
        steady = abs(leaps[0]) > 1e3 * self.precision * abs(centre)
        for finer, coarser in pairwise(leaps):
            steady = steady & (abs(finer - coarser) <= 0.25 * abs(finer))
        return [int(output) for output in xp.where(steady)[0][:10]]

    def sides(self, rung: Rung) -> tuple[Array, Array]:
        """The slopes on the two sides of the point, at one step."""
        centre = self.subject.centre
        return (centre - rung.minus) / rung.t, (rung.plus - centre) / rung.t


def best_slopes(xp: Array, centre: Array, rungs: list[Rung], precision: float) -> Estimates:
    """For each output the estimate with the smallest bar, over all neighbouring rungs from the finest up."""
    candidates, floor = _central_slopes(xp, centre, rungs, precision)
    value, bar = candidates[0].value, candidates[0].bar
    for candidate in candidates[1:]:
        better = candidate.bar < bar
        value, bar = xp.where(better, candidate.value, value), xp.where(better, candidate.bar, bar)
    if not math.isfinite(float(bar.sum())):
        unknown = ~xp.isfinite(bar)
        for value_beside, bar_beside in _one_sided_slopes(xp, centre, rungs, precision):
            better = unknown & (bar_beside < bar)
            value, bar = xp.where(better, value_beside, value), xp.where(better, bar_beside, bar)
    return Estimates(value, bar, floor)


@dataclass(slots=True)
class _Candidate:
    value: Array
    bar: Array
    flat: Array | None = None  # where no value on these rungs differs from the centre's


def _central_slopes(
    xp: Array, centre: Array, rungs: list[Rung], precision: float
) -> tuple[list[_Candidate], Array]:
    odd, even = zip(*(_split(centre, rung) for rung in rungs), strict=True)
    rounding = abs(centre)
    rounding *= ROUNDING * precision
    noise: Array = None
    pairs: list[_Candidate] = []
    triples: list[_Candidate] = []
    for k, lower in enumerate(rungs[:-1]):
        drop = odd[k] - odd[k + 1]
        fourth = RATIO**2 * even[k]
        fourth -= even[k + 1]
        fourth = abs(fourth)
        noise = fourth if noise is None else xp.maximum(noise, fourth)
        uncertain = noise * (BEND / lower.t)
        uncertain += rounding if lower.t == 1 else rounding / lower.t
        value = drop * (1 / (RATIO**2 - 1))
        value += odd[k]
        pair = _Candidate(value, abs(drop))
        pair.bar += uncertain
        if len(rungs) > 2:
            pair.flat = (odd[k] == 0) & (even[k] == 0) & (odd[k + 1] == 0) & (even[k + 1] == 0)
        if pairs:
            turn = pairs[-1].value - pair.value
            triples.append(_Candidate(pairs[-1].value + turn * (1 / (RATIO**4 - 1)), abs(turn) + last_uncertain))
        pairs.append(pair)
        last_uncertain = uncertain
    candidates = pairs + triples
    for candidate in candidates:
        if not math.isfinite(float(candidate.bar.sum())):
            candidate.bar = xp.where(xp.isfinite(candidate.bar), candidate.bar, math.inf)
            candidate.value = xp.where(xp.isfinite(candidate.bar), candidate.value, 0.0)
    if len(rungs) > 2:
        _mind_the_stairs(xp, centre, rungs, pairs, triples)
    return candidates, rounding


def _split(centre: Array, rung: Rung) -> tuple[Array, Array]:
    """The odd part of the change about the centre, as a slope, and the even part, as a difference."""
    after, before = rung.plus - centre, centre - rung.minus
    odd = after + before
    odd *= 0.5 / rung.t
    after -= before
    return odd, after


def _mind_the_stairs(
    xp: Array, centre: Array, rungs: list[Rung], pairs: list[_Candidate], triples: list[_Candidate]
) -> None:
    """Where values stand still on small steps and rise smoothly on large ones, they are stairs: small steps lie.

    The smallest change that was seen is the height of a stair, and every value is uncertain by as much. A dead region
    that ends in a kink is not mistaken for stairs: a bar that reaches across a kink covers the slope zero, so it is
    not small beside the value.
    """
    if not bool(pairs[0].flat.any()):
        return
    rises = pairs[0].flat & False
    for pair in pairs[1:]:
        rises = rises | ((pair.bar < SMOOTH * abs(pair.value)) & ~pair.flat)
    stairs = pairs[0].flat & rises
    changing = pairs[0].flat & ~pairs[-1].flat
    if not bool(stairs.any()):
        return
    if int(stairs.sum()) > 0.5 * int(changing.sum()):  # where most are stairs, so are those with no slope to show it
        stairs = changing
    height = xp.where(stairs, math.inf, centre)
    for rung in rungs:
        for side in (rung.minus, rung.plus):
            change = abs(side - centre)
            height = xp.where((change > 0) & (change < height), change, height)
    height = xp.where(stairs, height, 0.0)
    for lower, upper, pair in zip(rungs, rungs[1:], pairs, strict=False):
        # The plain slope of the upper rung errs more by truncation than the extrapolated one, and less by stairs.
        plain = (upper.plus - upper.minus) * (0.5 / upper.t)
        drop = abs((lower.plus - lower.minus) * (0.5 / lower.t) - plain)
        bar = drop * (RATIO**2 / (RATIO**2 - 1)) + height * (1 / lower.t + 0.5 / upper.t)
        pair.value = xp.where(stairs, plain, pair.value)
        pair.bar = xp.where(stairs, xp.where(pair.flat, math.inf, bar), pair.bar)
    for triple in triples:
        triple.bar = xp.where(stairs, math.inf, triple.bar)


def _one_sided_slopes(
    xp: Array, centre: Array, rungs: list[Rung], precision: float
) -> Iterator[tuple[Array, Array]]:
    """Slopes from one side only, for outputs at the edge of the function's domain."""
    for lower, upper in pairwise(rungs):
        for sign, near, far in ((1.0, lower.plus, upper.plus), (-1.0, lower.minus, upper.minus)):
            fine, coarse = (near - centre) * (sign / lower.t), (far - centre) * (sign / upper.t)
            drop = fine - coarse
            rounding = precision * (abs(centre) + abs(near) + abs(far))
            bar = abs(drop) + rounding * (4 / lower.t)
            known = xp.isfinite(bar)
            yield xp.where(known, fine + drop * (1 / (RATIO - 1)), 0.0), xp.where(known, bar, math.inf)
