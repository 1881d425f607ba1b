"""Growing a ladder: samples below and above, for as long as they tell more."""

from __future__ import annotations

import math

from gradproof.engine.contraction import CAUTION, SPREAD
from gradproof.engine.estimators.differences import Estimates
from gradproof.engine.estimators.ladder import SAMPLE, Ladder
from gradproof.engine.estimators.steps import FINEST, LONGEST, RATIO
from gradproof.engine.probe import NEAR_FLOOR
from gradproof.engine.subject import Array

UNRESOLVED = 0.5  # an output whose bar is this fraction of the slope says nothing
STILL = 1e-3  # of the step: a bar below this tells a value that stands still
FALLEN = 1e-3  # of the slope that far steps show: a bar below this tells that the slope falls to nothing
MOST = 0.1  # of the outputs saying nothing is reason enough to go on
WORTH_IT = 1.3  # a new sample that narrows the bar by less than this is the last one
OUTLIER = 100.0  # times the bar that 99 % of the outputs keep to


def grow(ladder: Ladder, cotangent: Array, step: float, enough: float) -> None:
    """Add samples below, against truncation, kinks and edges, and above, against noise, while they help.

    That is until the bar is narrow enough. Where no bar is, the ladder is to be thorough: it gets a few samples
    below in any case, and above all that there are, since values may be constant on small steps.
    """
    stride = max(1, ladder.subject.outputs.size // SAMPLE)
    thorough = enough == math.inf
    enough = 0.0 if thorough else enough / math.sqrt(stride) / CAUTION
    if thorough:
        ladder.fetch(*_certain(ladder, step))
    start, lost = _score(ladder, cotangent, stride)
    score = start
    while (exponent := ladder.lowest - 1) >= FINEST:
        ladder.add(exponent)
        last, (score, lost) = score, _score(ladder, cotangent, stride)
        if score < enough and lost == 0:
            return
        if score * WORTH_IT > last and lost < MOST and not _edge(ladder) and (exponent <= -2 or not thorough):
            break
    if score * WORTH_IT < start and lost < MOST and not thorough:
        return
    while step * RATIO ** (exponent := ladder.highest + 1) <= LONGEST:
        ladder.add(exponent)
        if thorough:
            continue
        last, (score, lost) = score, _score(ladder, cotangent, stride)
        if score * WORTH_IT > last and lost < MOST:
            return


def most_informative_bar(ladder: Ladder, estimates: Estimates) -> Array:
    """How wide the bar of each output may be before the output says nothing."""
    xp = ladder.subject.arrays
    slope = abs(estimates.value)
    largest = float(slope.max())
    if not largest:  # nothing changes at all: a bar is then held against the step itself
        return (STILL * ladder.shortest + 0 * slope) + NEAR_FLOOR * estimates.floor
    share = slope / largest
    typical = largest * math.sqrt(float(share @ share) / max(1, ladder.subject.outputs.size))
    enough = xp.maximum(UNRESOLVED * xp.where(slope > typical, slope, typical), NEAR_FLOOR * estimates.floor)
    if len(ladder.samples) < 3:
        return enough
    return xp.maximum(enough, xp.where(ladder.wavers(), STILL * ladder.shortest, FALLEN * ladder.coarse_slopes()))


def outliers(estimates: Estimates) -> Array:
    """The few outputs, near a kink or an edge, whose bars would drown those of all others."""
    sample = sorted(estimates.bar[:: max(1, estimates.bar.shape[0] // SAMPLE)].tolist())
    usual = sample[math.ceil(0.99 * len(sample)) - 1]
    return estimates.bar > OUTLIER * usual


def _certain(ladder: Ladder, step: float) -> list[int]:
    """The samples that a thorough ladder gets in any case."""
    below = range(max(FINEST, min(ladder.lowest - 1, -2)), ladder.lowest)
    above = range(ladder.highest + 1, ladder.highest + 1 + math.ceil(-math.log(step, RATIO)))
    return [*below, *(exponent for exponent in above if step * RATIO**exponent <= LONGEST)]


def _score(ladder: Ladder, cotangent: Array, stride: int) -> tuple[float, float]:
    """The bar of a sample of outputs, one that says nothing counting no more than its slope could; and their share."""
    if stride > 1:
        ladder, cotangent = ladder.sampled(stride), cotangent[::stride]
    estimates = ladder.estimates()
    most = most_informative_bar(ladder, estimates)
    telling = estimates.bar < most
    weighted = abs(cotangent) * ladder.subject.arrays.where(telling, estimates.bar, most)
    score = min(float(weighted.sum()), SPREAD * math.sqrt(float(weighted @ weighted)))
    if len(ladder.samples) > 2:
        telling = telling | ladder.bends(estimates.bar) | ladder.jumps()  # they say all that they will ever say
    return score, 1 - float(telling.sum()) / ladder.subject.outputs.size


def _edge(ladder: Ladder) -> bool:
    """Whether the function is undefined somewhere beside the point, even on the finest sample."""
    finest = ladder.samples[0]
    return not math.isfinite(float((finest.plus - finest.minus).sum()))
