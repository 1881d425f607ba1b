"""Slopes from function values alone, each with its own error bar.

Two neighbouring rungs of a ladder give an extrapolated slope (Richardson, 1911), three give one of the next order. Each
comes with a bar made of three parts:

- truncation: how far the slopes on the rungs differ from each other;
- noise: the even fourth difference of the values, which for a smooth function is rounding noise amplified 38-fold, and
  at a kink is proportional to the jump of the slope. The largest one seen at this step or a smaller one counts;
- a floor: the rounding of the values, as fine as their type allows, or as coarse as most outputs show it to be.

With `BEND` = 1/20 the bar covers the one-sided slopes of any function with one kink within the rungs, wherever it lies:
writing θ for the kink's distance over the lower step and J for the jump, the error is at most J(1/2 − 21θ/40) and
the bar at least J(3θ/8 + |12 − 15θ|/20).

Everything here is pure and works on whole vectors of outputs at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from gradproof.engine.subject import Array

RATIO = 4.0  # between the steps of neighbouring rungs
BEND = 0.05  # how much of the even fourth difference enters the bar
FOURTH = 37.6  # standard deviations of noise in the even fourth difference, for one in each value
SMOOTH = 0.3  # a slope whose bar is below this fraction of it looks smooth


@dataclass(frozen=True, slots=True)
class Rung:
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
    flat: Array = None  # where no value on these rungs differs from the centre's


def best_slopes(xp: Array, centre: Array, rungs: list[Rung], grain: float) -> Estimates:
    """For each output the estimate with the smallest bar, from the finest rungs up.

    A coarser estimate is taken only where it is consistent with the finer ones: what looks smooth from afar may be
    made of many kinks. `grain` is the rounding of values, relative to their size.
    """
    floor = abs(centre)
    floor *= grain
    candidates = _central_slopes(xp, centre, rungs, floor, grain)
    value, bar = candidates[0].value, candidates[0].bar
    trusted: Array = None
    for candidate in candidates[1:]:
        consistent = abs(candidate.value - value) <= candidate.bar + bar
        trusted = consistent if trusted is None else trusted & consistent
        better = trusted & (candidate.bar < bar)
        value, bar = xp.where(better, candidate.value, value), xp.where(better, candidate.bar, bar)
    if not math.isfinite(float(bar.sum())):
        unknown = ~xp.isfinite(bar)
        for value_beside, bar_beside in _one_sided_slopes(xp, centre, rungs, grain):
            better = unknown & (bar_beside < bar)
            value, bar = xp.where(better, value_beside, value), xp.where(better, bar_beside, bar)
    return Estimates(value, bar, floor)


def noise_in(centre: Array, lower: Rung, upper: Rung) -> float:
    """How noisy most values are, relative to their size: the median over the outputs."""
    fourth = abs(RATIO**2 * lower.split(centre)[1] - upper.split(centre)[1])
    shares = sorted(x / y for x, y in zip(fourth.tolist(), abs(centre).tolist(), strict=True) if y > 0 and x == x)
    return shares[len(shares) // 2] / (0.67 * FOURTH) if shares else 0.0


def _central_slopes(xp: Array, centre: Array, rungs: list[Rung], floor: Array, grain: float) -> list[_Candidate]:
    """The pairs of rungs and the triples, in the order of the steps that they reach out to."""
    odd, even = zip(*(rung.split(centre) for rung in rungs), strict=True)
    noise: Array = None
    last: Array = None
    pairs: list[_Candidate] = []
    triples: list[_Candidate] = []
    for k, lower in enumerate(rungs[:-1]):
        drop = odd[k] - odd[k + 1]
        fourth = RATIO**2 * even[k]
        fourth -= even[k + 1]
        fourth = abs(fourth)
        noise = fourth if noise is None else xp.maximum(noise, fourth)
        uncertain = noise * (BEND / lower.t)
        uncertain += floor if lower.t == 1 else floor / lower.t
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
    if len(rungs) > 2:
        for k, pair in enumerate(pairs):
            pair.flat = (odd[k] == 0) & (even[k] == 0) & (odd[k + 1] == 0) & (even[k + 1] == 0)
            # A value that stays exactly zero is what is left of a difference: one rounding of one is lost in it.
            lost = (pair.flat & (centre == 0)) * (grain / rungs[k].t)
            pair.bar += lost
            if k < len(triples):
                triples[k].bar += lost
        _mind_the_stairs(xp, centre, rungs, pairs, triples)
    upward = [pairs[0]]
    for pair, triple in zip(pairs[1:], triples, strict=True):
        upward += [pair, triple]
    return upward


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


def _one_sided_slopes(xp: Array, centre: Array, rungs: list[Rung], grain: float) -> Iterator[tuple[Array, Array]]:
    """Slopes from one side only, for outputs at the edge of the function's domain."""
    for lower, upper in pairwise(rungs):
        for sign, near, far in ((1.0, lower.plus, upper.plus), (-1.0, lower.minus, upper.minus)):
            fine, coarse = (near - centre) * (sign / lower.t), (far - centre) * (sign / upper.t)
            drop = fine - coarse
            rounding = grain * (abs(centre) + abs(near) + abs(far))
            bar = abs(drop) + rounding * (4 / lower.t)
            known = xp.isfinite(bar)
            yield xp.where(known, fine + drop * (1 / (RATIO - 1)), 0.0), xp.where(known, bar, math.inf)
