"""Slopes from function values alone, each with its own error bar.

Two neighbouring samples of a ladder give an extrapolated slope (Richardson, 1911), three give one of the next order.
Each has a bar of three parts:

- truncation: the difference between the slopes on the samples;
- noise: the even fourth difference of the values. For a smooth function it is rounding noise amplified 38-fold, at a
  kink it is proportional to the jump of the slope. The largest one at this step or a finer one counts;
- a floor: the rounding of the values, that of their type or the one that most outputs show.

With `KINK_WEIGHT` = 1/20 the bar covers the one-sided slopes of any function with one kink within the samples,
wherever it lies: writing θ for the kink's distance over the lower step and J for the jump, the error is at most
J(1/2 − 21θ/40) and the bar at least J(3θ/8 + |12 − 15θ|/20).

The functions are pure and work on whole vectors of outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gradproof.engine.estimators.rounding import FOURTH, Noise
from gradproof.engine.estimators.sample import Sample
from gradproof.engine.estimators.steps import RATIO
from gradproof.engine.pieces import columns
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, COARSEST, GROSS

KINK_WEIGHT = 0.05  # of the even fourth difference in the bar: the bound for a kink, derived above
KINK_SHARE = 0.4  # of the bar: the least jump of the slope that is a kink; one at the point makes up half of its bar


@dataclass(frozen=True, slots=True)
class Estimates:
    """A slope and its bar for every output; the bar is infinite where the slope is unknown.

    `floor` is the rounding of the values at t = 1: no function of this precision has a narrower bar.
    """

    value: Array
    bar: Array
    floor: Array


@dataclass(slots=True)
class _Candidate:
    value: Array
    bar: Array
    flat: Array = None  # flags of the outputs that are constant on these samples
    partial: bool = False  # whether some outputs have no finite bar

    def mark_unknown(self, xp: Array) -> None:
        """Give the outputs whose bar is not finite an infinite bar and a slope of zero."""
        if not math.isfinite(float(self.bar.sum())):
            self.bar = xp.where(xp.isfinite(self.bar), self.bar, math.inf)
            self.value = xp.where(xp.isfinite(self.bar), self.value, 0.0)
            self.partial = True


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of some outputs at the point and on all samples, and their noise; `xp` is the array library."""

    xp: Array
    centre: Array
    samples: list[Sample]
    noise: Noise


def best_slopes(xp: Array, centre: Array, samples: list[Sample], around: Noise) -> Estimates:
    """Return for each output the estimate with the narrowest bar, from the finest samples up.

    A coarser estimate is taken only where it is consistent with the finer ones, and where the finest show no kink:
    many small kinks look smooth on coarse steps.
    """
    floor = abs(centre)
    floor *= around.rounding
    if around.tiny:
        floor += around.tiny
    candidates = _central_slopes(_Values(xp, centre, samples, around), floor)
    value, bar = candidates[0].value, candidates[0].bar
    trusted: Array = None if len(samples) < 3 else ~kinked(centre, samples, KINK_SHARE * bar)
    for candidate in _without_wide_ones(xp, candidates)[1:]:
        trusted = trusted & (abs(candidate.value - value) <= candidate.bar + bar)
        better = trusted & (candidate.bar < bar)
        value, bar = xp.where(better, candidate.value, value), xp.where(better, candidate.bar, bar)
    if candidates[0].partial and not math.isfinite(float(bar.sum())):
        unknown = ~xp.isfinite(bar)
        for value_beside, bar_beside in _one_sided_slopes(xp, centre, samples, around):
            better = unknown & (bar_beside < bar)
            value, bar = xp.where(better, value_beside, value), xp.where(better, bar_beside, bar)
    return Estimates(value, bar, floor)


def _without_wide_ones(xp: Array, candidates: list[_Candidate]) -> list[_Candidate]:
    """Leave out the coarsest candidates, as far as no output has a narrower bar than on the finest samples."""
    if len(candidates) == 1:
        return candidates
    finest = candidates[0].bar
    narrower = columns(xp, [[(each.bar < finest).any() for each in candidates]])
    return candidates[: 1 + max(k for k, (some,) in enumerate(narrower) if some or k == 0)]


def extrapolated(near: float, far: float) -> float:
    """Extrapolate the slopes at one step and at `RATIO` times it to a step of zero."""
    return near + (near - far) / (RATIO**2 - 1)


def kinked(centre: Array, samples: list[Sample], least: Array) -> Array:
    """Flag where the slopes on the two sides differ, by more than `least` and by as much on the three finest steps.

    From a step to the next curvature multiplies their difference by `RATIO`, and noise divides it by `RATIO`.
    """
    jumps = (sample.split(centre)[1] / sample.t for sample in samples[:3])
    first = next(jumps)
    clear = abs(first) > least
    return is_steady(clear, [first, *jumps], 1 / RATIO) if bool(clear.any()) else clear


def is_steady(clear: Array, jumps: list[Array], within: float) -> Array:
    """Flag where jumps that are `clear` on the finest sample change by at most a fraction from sample to sample."""
    for finer, coarser in pairwise(jumps):
        clear = clear & (abs(finer - coarser) <= within * abs(finer))
    return clear


def _central_slopes(values: _Values, floor: Array) -> list[_Candidate]:
    """Return the estimates from pairs and triples of samples, in the order of their coarsest steps."""
    xp, centre, samples, around = values.xp, values.centre, values.samples, values.noise
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
        uncertain = noise * (KINK_WEIGHT / lower.t)
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
        candidate.mark_unknown(xp)
    if len(samples) > 2:
        for pair, flat in zip(pairs, _flat(centre, odd, even), strict=True):
            pair.flat = flat
        _widen_for_doubts(values, floor, fourths, pairs, triples)
    by_step = [pairs[0]]
    for pair, triple in zip(pairs[1:], triples, strict=True):
        by_step += [pair, triple]
    return by_step


def _flat(centre: Array, odd: Sequence[Array], even: Sequence[Array]) -> list[Array]:
    """Flag the outputs that are constant on each two neighbouring samples.

    If none is constant on the finest two, and no value is zero, it does not matter which are constant on coarser ones.
    """

    def both(k: int) -> Array:
        return (odd[k] == 0) & (even[k] == 0) & (odd[k + 1] == 0) & (even[k + 1] == 0)

    finest, count = both(0), len(odd) - 1
    if not bool((finest | (centre == 0)).any()):
        return [finest] * count
    return [finest, *map(both, range(1, count))]


def _widen_for_doubts(
    values: _Values, floor: Array, fourths: list[Array], pairs: list[_Candidate], triples: list[_Candidate]
) -> None:
    """Widen the bars of three samples or more: for cancellation, for sub-step oscillation and for quantised values."""
    around, zero = values.noise, values.centre == 0
    for k, pair in enumerate(pairs if bool(zero.any()) else ()):
        # A value that stays exactly zero is a difference of equal numbers, of which a rounding of one is lost.
        lost = (pair.flat & zero) * (around.shown / values.samples[k].t)
        pair.bar += lost
        if k < len(triples):
            triples[k].bar += lost
    usual = (FOURTH * around.shown / around.rounding) * floor + (around.background[0] if around.background else 0.0)
    _discard_oscillation(values.xp, fourths, usual, pairs, triples)
    backgrounds = around.background or (0.0,) * len(pairs)
    rough = [fourth.clip(background) for fourth, background in zip(fourths, backgrounds, strict=True)]
    _widen_for_quanta(values, rough, pairs, triples)


def _discard_oscillation(
    xp: Array, fourths: list[Array], usual: Array, pairs: list[_Candidate], triples: list[_Candidate]
) -> None:
    """Discard the estimates on coarse steps that are rough while the finest are not: noise is the same on all steps.

    A bounded function that oscillates between the steps gives small slopes with narrow bars on coarse ones, as noise
    does.
    """
    noise = GROSS * xp.maximum(fourths[0], usual)
    for k, pair in enumerate(pairs[1:], start=1):
        rough = fourths[k] > noise
        if not bool(rough.any()):
            continue
        hidden = rough & (pair.bar > ALIKE * abs(pair.value)) & ~pairs[0].flat
        pair.bar = xp.where(hidden, math.inf, pair.bar)
        if k < len(triples):
            triples[k].bar = xp.where(hidden, math.inf, triples[k].bar)


def _widen_for_quanta(values: _Values, rough: list[Array], pairs: list[_Candidate], triples: list[_Candidate]) -> None:
    """Widen the bars of quantised outputs: constant on the finest steps, rising smoothly on coarse ones.

    Every value is uncertain by a quantum, and by the roughness at its own step, since quanta may grow with the value.
    """
    found = _quantised(values, pairs)
    if found is None:
        return
    xp, centre, samples = values.xp, values.centre, values.samples
    quantised, quantum = found
    for lower, upper, fourth, pair in zip(samples, samples[1:], rough, pairs, strict=False):
        # The central slope of the upper sample has more truncation error than the extrapolated one, and less of quanta.
        central = (upper.plus - upper.minus) * (0.5 / upper.t)
        drop = abs((lower.plus - lower.minus) * (0.5 / lower.t) - central)
        bar = drop * (RATIO**2 / (RATIO**2 - 1)) + quantum * (1 / lower.t + 0.5 / upper.t)
        bar = bar + fourth * (KINK_WEIGHT / upper.t)
        near, far = (abs(sample.split(centre)[1]) * (0.5 / sample.t) for sample in (lower, upper))
        # The distance of the two sides' slopes: curvature multiplies it by RATIO from step to step, a kink by one.
        bar = bar + xp.where(far < (RATIO - 1) * near, far, 0.0)
        bar = bar + abs(central) * values.noise.share
        pair.value = xp.where(quantised, central, pair.value)
        pair.bar = xp.where(quantised, xp.where(pair.flat, math.inf, bar), pair.bar)
    for triple in triples:
        triple.bar = xp.where(quantised, math.inf, triple.bar)


def _quantised(values: _Values, pairs: list[_Candidate]) -> tuple[Array, Array] | None:
    """Return flags of the quantised outputs and the quantum of each, or None if no output is quantised.

    The quantum is the smallest change on any sample. A region of slope zero that ends in a kink is not a plateau: its
    values rise on one side alone, and are not constant again further on. Plateaus that are wider, with quanta that are
    larger, than those of any half precision do not count either: there the slope is zero.
    """
    xp, centre, samples, flat = values.xp, values.centre, values.samples, pairs[0].flat
    if not bool(flat.any()) or not bool((flat & (_rises_evenly(values) | _has_another_plateau(values))).any()):
        return None
    quantised = flat & ~pairs[-1].flat  # if one output is quantised, so are the others that begin flat
    quantum = xp.where(quantised, math.inf, centre)
    for sample in samples:
        for side in (sample.minus, sample.plus):
            change = abs(side - centre)
            quantum = xp.where((change > 0) & (change < quantum), change, quantum)
    for sample in samples:
        if sample.t >= values.noise.survives_cast:
            constant = (sample.plus == centre) & (sample.minus == centre)
            quantised = quantised & ~(constant & (quantum > COARSEST * abs(centre)))
    return quantised, xp.where(quantised, quantum, 0.0)


def _rises_evenly(values: _Values) -> Array:
    """Flag the outputs that have about the same slope on two neighbouring coarse steps and on both sides."""
    slopes = [sample.split(values.centre) for sample in values.samples]
    even = values.centre != values.centre
    for (below, _), (slope, second), upper in zip(slopes[1:], slopes[2:], values.samples[2:], strict=False):
        alike = abs(below - slope) < ALIKE * abs(slope)
        even = even | (alike & (abs(second) < ALIKE * 2 * upper.t * abs(slope)))
    return even


def _has_another_plateau(values: _Values) -> Array:
    """Flag the outputs that have one value on two neighbouring samples, and another at the point."""
    found = values.centre != values.centre
    for lower, upper in pairwise(values.samples):
        for near, far in ((lower.minus, upper.minus), (lower.plus, upper.plus)):
            found = found | ((near == far) & (near != values.centre))
    return found


def _one_sided_slopes(xp: Array, centre: Array, samples: list[Sample], around: Noise) -> Iterator[tuple[Array, Array]]:
    """Yield slopes from one side of the point, for outputs at the edge of the function's domain."""
    for lower, upper in pairwise(samples):
        for sign, near, far in ((1.0, lower.plus, upper.plus), (-1.0, lower.minus, upper.minus)):
            fine, coarse = (near - centre) * (sign / lower.t), (far - centre) * (sign / upper.t)
            drop = fine - coarse
            rounding = around.shown * (abs(centre) + abs(near) + abs(far)) + around.tiny
            bar = abs(drop) + (rounding * 4 + around.step_rounding * abs(fine)) * (1 / lower.t)
            known = xp.isfinite(bar)
            yield xp.where(known, fine + drop * (1 / (RATIO - 1)), 0.0), xp.where(known, bar, math.inf)
