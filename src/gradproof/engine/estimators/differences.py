"""Slopes from function values alone, each with its own error bar.

Two neighbouring samples of a ladder give an extrapolated slope (Richardson, 1911), three give one of the next order.
Each comes with a bar made of three parts:

- truncation: how far the slopes on the samples differ from each other;
- noise: the even fourth difference of the values, which for a smooth function is rounding noise amplified 38-fold, and
  at a kink is proportional to the jump of the slope. The largest one seen at this step or a smaller one counts;
- a floor: the rounding of the values, as fine as their type allows, or as coarse as most outputs show it to be.

With `BEND` = 1/20 the bar covers the one-sided slopes of any function with one kink within the samples, wherever it
lies: writing θ for the kink's distance over the lower step and J for the jump, the error is at most J(1/2 − 21θ/40) and
the bar at least J(3θ/8 + |12 − 15θ|/20).

Everything here is pure and works on whole vectors of outputs at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from gradproof.engine.estimators.steps import RATIO
from gradproof.engine.subject import Array

ROUNDING = 0.75  # units of rounding in the slope from values that are rounded correctly: 0.54, and some to spare
CURVED = 3.0  # times as uneven as on a quarter of the step, below which it is no curvature that is uneven
BEND = 0.05  # how much of the even fourth difference enters the bar
FOURTH = 37.6  # standard deviations of noise in the even fourth difference, for one in each value
DEVIATIONS = 4.0  # standard deviations of the noise that is usual, granted to every value in proportion to its size
BACKGROUND = 2.5  # medians of the even fourth differences, granted to every output
COARSEST = 0.05  # relative noise at the most; beyond it is no noise but a function that changes too fast
COMPANY = 0.5  # of the outputs must change for the rest to be told by them
STRUCTURE = 30.0  # times the noise on the finest steps
TALLEST = 2.0**-5  # of a value: no half precision leaves stairs as high
CASTS = (8, 11, 24)  # binary digits of bfloat16, float16 and float32
FEWER = 2  # binary digits, which would do for one number of four by accident, and for several hardly ever
SMOOTH = 0.3  # a slope whose bar is below this fraction of it looks smooth


@dataclass(frozen=True, slots=True)
class Sample:
    """The function's values at one step, on both sides."""

    t: float
    minus: Array
    plus: Array

    def split(self, centre: Array) -> tuple[Array, Array]:
        """The odd part of the change about the centre, as a slope, and the even part, as a difference."""
        after, before = self.plus - centre, centre - self.minus
        odd = after + before
        odd *= 0.5 / self.t
        after -= before
        return odd, after


@dataclass(frozen=True, slots=True)
class Estimates:
    """A slope and its bar for every output. An infinite bar: nothing is known.

    `floor` is the part of the bar at t = 1 that no function of this precision can be without.
    """

    value: Array
    bar: Array
    floor: Array


@dataclass(slots=True)
class _Candidate:
    value: Array
    bar: Array
    flat: Array = None  # where no value on these samples differs from the centre's
    partial: bool = False  # some outputs have no finite bar


@dataclass(frozen=True, slots=True)
class Noise:
    """What is known of the noise in values beyond what one output shows by itself.

    One output shows its noise in one number for each pair of samples, which is small by accident now and then; the
    outputs together do not.

    - `rounding`: the rounding of values, relative, that their type allows; `shown`: the rounding that they show;
    - `tiny`: the distance between the smallest numbers;
    - `step_rounding`: the rounding of a step below t = 1, relative to that of t = 1;
    - `background`: for each pair of samples the even fourth difference that is usual among the outputs;
    - `wide`: the step from which on no half precision rounds it away;
    - `share`: the rounding of values that are cast, relative to their change: that is their size if they start at zero.
    """

    rounding: float
    shown: float
    tiny: float
    step_rounding: float
    background: tuple[float, ...] = ()
    wide: float = math.inf
    share: float = 0.0


def best_slopes(xp: Array, centre: Array, samples: list[Sample], around: Noise) -> Estimates:
    """For each output the estimate with the smallest bar, from the finest samples up.

    A coarser estimate is taken only where it is consistent with the finer ones, and where the finest show no kink:
    what looks smooth on coarse steps may be made of many kinks.
    """
    floor = abs(centre)
    floor *= around.rounding
    if around.tiny:
        floor += around.tiny
    candidates = _central_slopes(xp, centre, samples, floor, around)
    value, bar = candidates[0].value, candidates[0].bar
    trusted: Array = None if len(samples) < 3 else ~_bent(centre, samples, bar)
    for candidate in candidates[1:]:
        trusted = trusted & (abs(candidate.value - value) <= candidate.bar + bar)
        better = trusted & (candidate.bar < bar)
        value, bar = xp.where(better, candidate.value, value), xp.where(better, candidate.bar, bar)
    if candidates[0].partial and not math.isfinite(float(bar.sum())):
        unknown = ~xp.isfinite(bar)
        for value_beside, bar_beside in _one_sided_slopes(xp, centre, samples, around):
            better = unknown & (bar_beside < bar)
            value, bar = xp.where(better, value_beside, value), xp.where(better, bar_beside, bar)
    return Estimates(value, bar, floor)


def extrapolated(near: float, far: float) -> float:
    """The slope at no step at all, from those at one step and at `RATIO` times it."""
    return near + (near - far) / (RATIO**2 - 1)


def _bent(centre: Array, samples: list[Sample], bar: Array) -> Array:
    """Where the slopes on the two sides differ by as much on the finest steps as on the next two."""
    jumps = [sample.split(centre)[1] / sample.t for sample in samples[:3]]
    bent = abs(jumps[0]) > 0.4 * bar
    for finer, coarser in pairwise(jumps):
        bent = bent & (abs(finer - coarser) <= 0.25 * abs(finer))
    return bent


def noise_around(centre: Array, samples: list[Sample], least: Noise) -> Noise:
    """The noise that is usual among these outputs: medians, of those that change at all."""
    sizes = abs(centre).tolist()
    evens = [sample.split(centre)[1] for sample in samples]
    fourths = [abs(RATIO**2 * lower - upper).tolist() for lower, upper in pairwise(evens)]
    shares = sorted(fourth / size for fourth, size in zip(fourths[0], sizes, strict=True) if size > 0 and fourth >= 0)
    shown = DEVIATIONS * shares[len(shares) // 2] / (0.67 * FOURTH) if shares else 0.0
    return replace(least, shown=max(least.shown, min(shown, COARSEST)), background=tuple(map(_usual, fourths)))


def precision_shown(xp: Array, values: list[Array]) -> float:
    """The unit of the lowest precision that all of these values fit into, and just so; zero where there is none.

    Values that were cast to a lower precision at the last are rounded as its numbers are, whatever their type. What
    fits into fewer digits still is a count, or a table's entry, and tells of no cast.
    """
    parts = [xp.frexp(each)[0] for each in values]

    def fit(digits: int) -> bool:
        return all(not bool((part * 2.0**digits != xp.round(part * 2.0**digits)).any()) for part in parts)

    lowest = next(filter(fit, CASTS), None)
    return 2.0 ** (1 - lowest) if lowest and not fit(lowest - FEWER) else 0.0


def _usual(fourths: list[float]) -> float:
    changing = sorted(fourth for fourth in fourths if fourth > 0)
    if len(changing) < COMPANY * len(fourths) or len(fourths) < 2:
        return 0.0
    return BACKGROUND * changing[len(changing) // 2]


def _central_slopes(xp: Array, centre: Array, samples: list[Sample], floor: Array, around: Noise) -> list[_Candidate]:
    """The pairs of samples and the triples, in the order of the steps that they reach out to."""
    odd, even = zip(*(sample.split(centre) for sample in samples), strict=True)
    noise: Array = None
    last: Array = None
    fourths: list[Array] = []
    pairs: list[_Candidate] = []
    triples: list[_Candidate] = []
    for k, lower in enumerate(samples[:-1]):
        drop = odd[k] - odd[k + 1]
        fourth = RATIO**2 * even[k]
        fourth -= even[k + 1]
        fourth = abs(fourth)
        noise = fourth if noise is None else xp.maximum(noise, fourth)
        fourths.append(fourth)
        if around.background and around.background[k] > 0:
            noise = noise.clip(around.background[k])
        uncertain = noise * (BEND / lower.t)
        uncertain += floor if lower.t == 1 else floor * (around.shown / around.rounding / lower.t)
        if lower.t < 1:
            uncertain += abs(odd[k]) * (around.step_rounding / lower.t)
        if around.share:
            uncertain += abs(odd[k]) * around.share
        value = drop * (1 / (RATIO**2 - 1))
        value += odd[k]
        pair = _Candidate(value, abs(drop))
        pair.bar += uncertain
        if pairs:
            turn = pairs[-1].value - value
            triples.append(_Candidate(pairs[-1].value + turn * (1 / (RATIO**4 - 1)), abs(turn) + last))
        pairs.append(pair)
        last = uncertain
    for candidate in (*pairs, *triples):
        if not math.isfinite(float(candidate.bar.sum())):
            candidate.bar = xp.where(xp.isfinite(candidate.bar), candidate.bar, math.inf)
            candidate.value = xp.where(xp.isfinite(candidate.bar), candidate.value, 0.0)
            candidate.partial = True
    if len(samples) > 2:
        for k, pair in enumerate(pairs):
            pair.flat = (odd[k] == 0) & (even[k] == 0) & (odd[k + 1] == 0) & (even[k + 1] == 0)
            # A value that stays exactly zero is what is left of a difference: one rounding of one is lost in it.
            lost = (pair.flat & (centre == 0)) * (around.shown / samples[k].t)
            pair.bar += lost
            if k < len(triples):
                triples[k].bar += lost
        _distrust_structure(
            xp,
            fourths,
            (FOURTH * around.shown / around.rounding) * floor + (around.background[0] if around.background else 0.0),
            pairs,
            triples,
        )
        hums = around.background or (0.0,) * len(pairs)
        unsteady = [fourth.clip(background) for fourth, background in zip(fourths, hums, strict=True)]
        _mind_the_stairs(xp, centre, samples, unsteady, pairs, triples, around)
    upward = [pairs[0]]
    for pair, triple in zip(pairs[1:], triples, strict=True):
        upward += [pair, triple]
    return upward


def _distrust_structure(
    xp: Array, fourths: list[Array], usual: Array, pairs: list[_Candidate], triples: list[_Candidate]
) -> None:
    """Roughness that finer steps do not show is no noise but structure: there the coarse steps have nothing to say.

    A bounded function that oscillates between the steps gives small slopes with small bars on coarse ones, for the
    same reason that noise does; but noise is there on the finest steps too.
    """
    quiet = STRUCTURE * xp.maximum(fourths[0], usual)
    for k, pair in enumerate(pairs[1:], start=1):
        hidden = (fourths[k] > quiet) & (pair.bar > SMOOTH * abs(pair.value)) & ~pairs[0].flat
        pair.bar = xp.where(hidden, math.inf, pair.bar)
        if k < len(triples):
            triples[k].bar = xp.where(hidden, math.inf, triples[k].bar)


def _mind_the_stairs(
    xp: Array,
    centre: Array,
    samples: list[Sample],
    unsteady: list[Array],
    pairs: list[_Candidate],
    triples: list[_Candidate],
    around: Noise,
) -> None:
    """Where values stand still on small steps and rise smoothly on large ones, they are stairs: small steps lie.

    The smallest change that was seen is the height of a stair, and every value is uncertain by as much, and by the
    unsteadiness at its own step, since stairs may be higher further up. A dead region
    that ends in a kink is not mistaken for stairs: its values rise on one side alone, and do not stand still again.
    Nor are treads that are wider and stairs that are higher than those of any half precision: there the slope is zero.
    """
    if not bool(pairs[0].flat.any()):
        return
    signs = pairs[0].flat & False
    slopes = [sample.split(centre) for sample in samples]
    for (below, _), (slope, bend), upper in zip(slopes[1:], slopes[2:], samples[2:], strict=False):
        steady = abs(below - slope) < SMOOTH * abs(slope)
        signs = signs | (steady & (abs(bend) < SMOOTH * 2 * upper.t * abs(slope)))  # an even rise on both sides
    for lower, upper in pairwise(samples):
        for near, far in ((lower.minus, upper.minus), (lower.plus, upper.plus)):
            signs = signs | ((near == far) & (near != centre))  # another tread
    if not bool((pairs[0].flat & signs).any()):
        return
    stairs = pairs[0].flat & ~pairs[-1].flat  # where there are stairs, the other outputs that start flat are stairs too
    height = xp.where(stairs, math.inf, centre)
    for sample in samples:
        for side in (sample.minus, sample.plus):
            change = abs(side - centre)
            height = xp.where((change > 0) & (change < height), change, height)
    for sample in samples:
        if sample.t >= around.wide:
            stairs = stairs & ~((sample.plus == centre) & (sample.minus == centre) & (height > TALLEST * abs(centre)))
    height = xp.where(stairs, height, 0.0)
    for lower, upper, rough, pair in zip(samples, samples[1:], unsteady, pairs, strict=False):
        # The plain slope of the upper sample errs more by truncation than the extrapolated one, and less by stairs.
        plain = (upper.plus - upper.minus) * (0.5 / upper.t)
        drop = abs((lower.plus - lower.minus) * (0.5 / lower.t) - plain)
        bar = drop * (RATIO**2 / (RATIO**2 - 1)) + height * (1 / lower.t + 0.5 / upper.t) + rough * (BEND / upper.t)
        near, far = (abs(sample.split(centre)[1]) * (0.5 / sample.t) for sample in (lower, upper))
        bar = bar + xp.where(far < CURVED * near, far, 0.0)  # how much one side alone differs, by a kink on the other
        bar = bar + abs(plain) * around.share
        pair.value = xp.where(stairs, plain, pair.value)
        pair.bar = xp.where(stairs, xp.where(pair.flat, math.inf, bar), pair.bar)
    for triple in triples:
        triple.bar = xp.where(stairs, math.inf, triple.bar)


def _one_sided_slopes(xp: Array, centre: Array, samples: list[Sample], around: Noise) -> Iterator[tuple[Array, Array]]:
    """Slopes from one side only, for outputs at the edge of the function's domain."""
    for lower, upper in pairwise(samples):
        for sign, near, far in ((1.0, lower.plus, upper.plus), (-1.0, lower.minus, upper.minus)):
            fine, coarse = (near - centre) * (sign / lower.t), (far - centre) * (sign / upper.t)
            drop = fine - coarse
            rounding = around.shown * (abs(centre) + abs(near) + abs(far)) + around.tiny
            bar = abs(drop) + (rounding * 4 + around.step_rounding * abs(fine)) * (1 / lower.t)
            known = xp.isfinite(bar)
            yield xp.where(known, fine + drop * (1 / (RATIO - 1)), 0.0), xp.where(known, bar, math.inf)
