"""One question to a subject: does the claimed gradient predict the slope along a random direction?

A probe draws a direction v in the inputs and a direction u in the outputs, and compares ⟨Jᵀu, v⟩, which the pullback
claims, with ⟨u, Jv⟩, which the ladder measures. The common case is four evaluations beside the point itself and one
pullback. Only on doubt (the two disagree, or the bar is wide) does the ladder grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gradproof.engine.ladder import CLIMB, RATIO, Estimates, Ladder, first_step, slices
from gradproof.engine.subject import Array, Subject

SPREAD = 2.0  # bars of many outputs add like independent errors; this many of their root-sum-squares count
ENOUGH = 1e-8  # a bar below this fraction of the largest contribution to the slope needs no improvement
NEAR_FLOOR = 30.0  # nor does one within this multiple of what rounding alone would give
UNRESOLVED = 0.5  # an output whose bar is this fraction of the slope says nothing
FINEST = -6  # the lowest rung, as a power of `RATIO`
WORTH_IT = 1.3  # a new rung that narrows the bar by less than this is the last one
CLAIM_ROUNDING = 4.0  # units of rounding granted to every entry of a claimed gradient
CLAIM_ACCURACY = 3e-10  # and this much of it: special functions' series give some ten digits, whatever their type
FINE = 2e-3  # a bar above this fraction of the largest contribution is narrowed by asking about blocks of outputs
BLOCKS = 64  # at most
OUTLIER = 100.0  # times the bar that 99 % of the outputs keep to


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """How to probe: the options that travel together."""

    rtol: float = 0.0
    atol: float = 0.0
    nondet_tol: float = 0.0
    step: float | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    """⟨u, slope⟩, its bar, and the bar that rounding alone would give."""

    slope: float
    bar: float
    floor: float


@dataclass(frozen=True, slots=True)
class Claim:
    """⟨gradient, v⟩, how far rounding may have moved it, what the user forgives, and the sizes of its parts."""

    slope: float
    rounding: float
    forgiven: float
    largest_contribution: float
    largest_entry: float
    smallest_step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question and its answer, with what is needed to ask further."""

    seed: int
    ladder: Ladder
    cotangent: Array
    gradient: Array
    estimates: Estimates
    sums: Sums
    claim: Claim
    repeatable: bool = True
    kinks: tuple[int, ...] = ()
    unresolved: int = 0

    @property
    def bar(self) -> float:
        """How far the claim may lie from the measured slope."""
        return self.sums.bar + self.claim.rounding + self.claim.forgiven

    @property
    def excess(self) -> float:
        """How much of the disagreement the bar does not explain."""
        gap = abs(self.claim.slope - self.sums.slope)
        return gap - self.bar if math.isfinite(gap) else math.inf

    @property
    def agrees(self) -> bool:
        """Whether the claim lies within the bar."""
        return self.excess <= 0

    @property
    def coarse(self) -> bool:
        """Whether the bar is wide, and may be narrowed."""
        return self.bar > max(ENOUGH * self.claim.largest_contribution, NEAR_FLOOR * self.sums.floor)


def combine(xp: Array, cotangent: Array, estimates: Estimates) -> Sums:
    """Add the outputs' slopes, weighted by the cotangent.

    The cotangent's signs are drawn independently of the errors, so the errors add like a random walk: the bar is a
    multiple of the root of the sum of squares, and never more than the plain sum.
    """
    slope = plain = square = floor = 0.0
    for where in slices(cotangent.shape[0]):
        u, part = cotangent[where], estimates.part(where)
        weighted, ideal = abs(u) * part.bar, u * part.floor
        slope += float((u * part.value).sum())
        total = float(weighted.sum())
        if not math.isfinite(total):  # an unknown slope with no weight is no loss
            weighted = xp.where(u == 0, 0.0, weighted)
            total = float(weighted.sum())
        plain += total
        square += float((weighted * weighted).sum())
        floor += float((ideal * ideal).sum())
    return Sums(slope, min(plain, SPREAD * math.sqrt(square)), SPREAD * math.sqrt(floor))


def claim_of(gradient: Array, direction: Array, precision: float, options: Probing) -> Claim:
    """What a gradient predicts along a direction."""
    slope = square = largest = forgiven = entry = 0.0
    step = math.inf
    for where in slices(gradient.shape[0]):
        g, v = gradient[where], direction[where]
        contribution, reach = g * v, abs(v)
        slope += float(contribution.sum())
        square += float((contribution * contribution).sum())
        largest = max(largest, float(abs(contribution).max()))
        entry = max(entry, float(abs(g).max()))
        shortest = float(reach.min())
        if not shortest:  # coordinates that do not move are not asked about
            moving = reach[reach > 0]
            shortest = float(moving.min()) if moving.shape[0] else math.inf
        step = min(step, shortest)
        if options.rtol or options.atol:
            allowed = reach * (options.atol + options.rtol * abs(g))
            forgiven += float((allowed * allowed).sum())
    rounding = (CLAIM_ROUNDING * precision + CLAIM_ACCURACY) * math.sqrt(square) + precision * abs(slope)
    return Claim(slope, rounding, SPREAD * math.sqrt(forgiven), largest, entry, step)


def ask(subject: Subject, seed: int, options: Probing, span: tuple[int, int] | None = None) -> Probe:
    """Probe once, all inputs or a span of them: cheaply, and with more care where that leaves a doubt."""
    step = options.step or first_step(subject.precision)
    direction = subject.direction(seed, step, options.step is not None)
    if span is not None:
        direction = restricted(subject, direction, *span)
    ladder = Ladder(subject, direction)
    ladder.add(0)
    ladder.add(1)
    cotangent = subject.cotangent(seed)
    probe = _compare(subject, ladder, cotangent, subject.pullback(cotangent), seed, options)
    if probe.agrees and not probe.coarse:
        probe = _by_blocks(subject, probe, options)
        if probe.agrees:
            return probe
    again = subject.evaluate(ladder.direction, 0.0)
    repeatable = not bool((abs(again - subject.centre) > options.nondet_tol).any())
    if options.step is None:
        _grow(ladder, probe, step)
    probe = replace(_settle(subject, probe, options), repeatable=repeatable)
    return _by_blocks(subject, probe, options) if probe.agrees else probe


def restricted(subject: Subject, vector: Array, low: int, high: int) -> Array:
    """The vector within a range of coordinates, and zero elsewhere."""
    piece = subject.arrays.zeros_like(vector)
    piece[low:high] = vector[low:high]
    return piece


def _compare(
    subject: Subject, ladder: Ladder, cotangent: Array, gradient: Array, seed: int, options: Probing
) -> Probe:
    estimates = ladder.estimates()
    return Probe(
        seed=seed,
        ladder=ladder,
        cotangent=cotangent,
        gradient=gradient,
        estimates=estimates,
        sums=combine(subject.arrays, cotangent, estimates),
        claim=claim_of(gradient, ladder.direction, subject.gradient_precision, options),
    )


def _grow(ladder: Ladder, probe: Probe, step: float) -> None:
    """Add rungs below, against truncation, kinks and edges, and above, against noise, while they help.

    Where claim and slope disagree, a few rungs are added in any case, and above all of them: values may stand still
    on small steps.
    """
    disagree = not probe.agrees
    score = _score(ladder, probe.cotangent)
    for exponent in range(-1, FINEST - 1, -1):
        ladder.add(exponent)
        last, score = score, _score(ladder, probe.cotangent)
        settled = score * WORTH_IT > last and (exponent <= -2 or not disagree)
        if settled and not _edge(ladder):
            break
    exponent = 2
    while step * RATIO**exponent <= CLIMB:
        ladder.add(exponent)
        last, score = score, _score(ladder, probe.cotangent)
        if score * WORTH_IT > last and not disagree:
            break
        exponent += 1


def _score(ladder: Ladder, cotangent: Array) -> float:
    """The bar of the whole, an output that says nothing counting no more than its slope could."""
    estimates = ladder.estimates()
    most = _most_informative_bar(ladder, estimates)
    clipped = ladder.subject.arrays.where(estimates.bar < most, estimates.bar, most)
    return combine(ladder.subject.arrays, cotangent, Estimates(estimates.value, clipped, estimates.floor)).bar


def _most_informative_bar(ladder: Ladder, estimates: Estimates) -> Array:
    xp = ladder.subject.arrays
    typical = math.sqrt(float((estimates.value * estimates.value).sum()) / max(1, ladder.subject.outputs.size))
    slope = abs(estimates.value)
    return xp.maximum(UNRESOLVED * xp.where(slope > typical, slope, typical), NEAR_FLOOR * estimates.floor)


def _edge(ladder: Ladder) -> bool:
    """Whether the function is undefined somewhere beside the point, even on the finest rung."""
    finest = ladder.rungs[0]
    return not math.isfinite(float((finest.plus - finest.minus).sum()))


def _settle(subject: Subject, probe: Probe, options: Probing) -> Probe:
    """Set aside the outputs that say nothing, and hold the rest against the claim for them alone."""
    xp, ladder = subject.arrays, probe.ladder
    estimates = ladder.estimates()
    useless = ~(estimates.bar <= _most_informative_bar(ladder, estimates)) | _outliers(estimates)
    kinks = tuple(int(k) for k in xp.where(ladder.bends(estimates.bar))[0][:10]) if len(ladder.rungs) > 2 else ()
    unresolved = int(useless.sum())
    cotangent, gradient = probe.cotangent, probe.gradient
    if unresolved:
        cotangent = xp.where(useless, 0.0, cotangent)
        gradient = subject.pullback(cotangent)
        estimates = Estimates(estimates.value, xp.where(useless, 0.0, estimates.bar), estimates.floor)
    return replace(
        probe,
        cotangent=cotangent,
        gradient=gradient,
        estimates=estimates,
        sums=combine(xp, cotangent, estimates),
        claim=claim_of(gradient, ladder.direction, subject.gradient_precision, options),
        kinks=kinks,
        unresolved=unresolved,
    )


def _outliers(estimates: Estimates) -> Array:
    """The few outputs, near a kink or an edge, whose bars would drown those of all others."""
    sample = sorted(estimates.bar[:: max(1, estimates.bar.shape[0] // 4096)].tolist())
    usual = sample[math.ceil(0.99 * len(sample)) - 1]
    return estimates.bar > OUTLIER * usual


def _by_blocks(subject: Subject, probe: Probe, options: Probing) -> Probe:
    """Where the bars of many outputs add up to a wide one, ask about fewer outputs at a time.

    It costs pullbacks alone: the slopes of all outputs are known. Of the blocks the one that disagrees most is kept,
    or, where all agree, the one with the widest bar.
    """
    size = probe.cotangent.shape[0]
    largest = probe.claim.largest_contribution
    if not largest or probe.bar <= FINE * largest or size < 2:
        return probe
    count = min(BLOCKS, size, math.ceil((probe.bar / (FINE * largest)) ** 2))
    blocks = []
    for number in range(count):
        low, high = size * number // count, size * (number + 1) // count
        cotangent = restricted(subject, probe.cotangent, low, high)
        gradient = subject.pullback(cotangent)
        claim = claim_of(gradient, probe.ladder.direction, subject.gradient_precision, options)
        sums = combine(subject.arrays, cotangent, probe.estimates)
        blocks.append(replace(probe, cotangent=cotangent, gradient=gradient, claim=claim, sums=sums))
    wrong = [block for block in blocks if not block.agrees]
    if wrong:
        return max(wrong, key=lambda block: block.excess)
    widest = max(blocks, key=lambda block: block.bar)
    entry = max(block.claim.largest_entry for block in blocks)
    largest = max(block.claim.largest_contribution for block in blocks)
    return replace(widest, claim=replace(widest.claim, largest_entry=entry, largest_contribution=largest))
