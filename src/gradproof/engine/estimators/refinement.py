"""Refinement of a ladder: finer and coarser samples, for as long as they narrow the bar."""

from __future__ import annotations

import math

from gradproof.engine.contraction import CAUTION, SPREAD
from gradproof.engine.estimators.differences import Estimates
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.steps import FINEST, LONGEST, RATIO
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import GROSS, MARGIN, SAMPLE, SHARE, SLIGHT, TRACE, UNRESOLVED


def grow(ladder: Ladder, cotangent: Array, step: float, enough: float) -> None:
    """Add finer samples, against truncation, kinks and edges, and coarser ones, against noise, while they help.

    Refinement ends when the bar is below `enough`. If that is infinite the ladder is sampled in full: two finer samples
    in any case, and all coarser ones, since quantised values are constant on fine steps.
    """
    stride = max(1, ladder.subject.outputs.size // SAMPLE)
    in_full = enough == math.inf
    enough = 0.0 if in_full else enough / math.sqrt(stride) / CAUTION
    if in_full:
        ladder.fetch(*_full(ladder, step))
    start, lost = _score(ladder, cotangent, stride)
    score = start
    while (exponent := ladder.lowest - 1) >= FINEST:
        ladder.add(exponent)
        last, (score, lost) = score, _score(ladder, cotangent, stride)
        if score < enough and lost == 0:
            return
        if score * MARGIN > last and lost < SHARE and not _edge(ladder) and (exponent <= -2 or not in_full):
            break
    if score * MARGIN < start and lost < SHARE and not in_full:
        return
    while step * RATIO ** (exponent := ladder.highest + 1) <= LONGEST:
        ladder.add(exponent)
        if in_full:
            continue
        last, (score, lost) = score, _score(ladder, cotangent, stride)
        if score * MARGIN > last and lost < SHARE:
            return


def most_informative_bar(ladder: Ladder, estimates: Estimates) -> Array:
    """Return the bar of each output beyond which the output is unresolved."""
    xp = ladder.subject.arrays
    slope = abs(estimates.value)
    largest = float(slope.max())
    if not largest:  # all outputs are constant: a bar is then compared with the step itself
        return (TRACE * ladder.shortest + 0 * slope) + GROSS * estimates.floor
    share = slope / largest
    typical = largest * math.sqrt(float(share @ share) / max(1, ladder.subject.outputs.size))
    enough = xp.maximum(UNRESOLVED * xp.where(slope > typical, slope, typical), GROSS * estimates.floor)
    if len(ladder.samples) < 3:
        return enough
    return xp.maximum(enough, TRACE * xp.where(ladder.constant(), ladder.shortest, ladder.coarse_slopes()))


def outliers(estimates: Estimates) -> Array:
    """Flag the few outputs, near a kink or an edge, whose bars are far wider than those of all others."""
    sample = sorted(estimates.bar[:: max(1, estimates.bar.shape[0] // SAMPLE)].tolist())
    return SLIGHT * estimates.bar > sample[math.ceil((1 - SLIGHT) * len(sample)) - 1]


def _full(ladder: Ladder, step: float) -> list[int]:
    """Return the exponents that a ladder sampled in full gets in any case."""
    below = range(max(FINEST, min(ladder.lowest - 1, -2)), ladder.lowest)
    above = range(ladder.highest + 1, ladder.highest + 1 + math.ceil(-math.log(step, RATIO)))
    return [*below, *(exponent for exponent in above if step * RATIO**exponent <= LONGEST)]


def _score(ladder: Ladder, cotangent: Array, stride: int) -> tuple[float, float]:
    """Return the bar of a sample of the outputs, each bar clipped where it is unresolved, and the share of these."""
    if stride > 1:
        ladder, cotangent = ladder.sampled(stride), cotangent[::stride]
    estimates = ladder.estimates()
    most = most_informative_bar(ladder, estimates)
    resolved = estimates.bar < most
    weighted = abs(cotangent) * ladder.subject.arrays.where(resolved, estimates.bar, most)
    score = min(float(weighted.sum()), SPREAD * math.sqrt(float(weighted @ weighted)))
    if len(ladder.samples) > 2:
        resolved = resolved | ladder.kinks(estimates.bar) | ladder.jumps()  # other samples would not narrow their bars
    return score, 1 - float(resolved.sum()) / ladder.subject.outputs.size


def _edge(ladder: Ladder) -> bool:
    """Return True if the function is undefined beside the point, even on the finest sample."""
    finest = ladder.samples[0]
    return not math.isfinite(float((finest.plus - finest.minus).sum()))
