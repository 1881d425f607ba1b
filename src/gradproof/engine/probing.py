"""Probing: compare the slope that a gradient claims along a random direction with the measured one.

Four evaluations beside the point and one pullback are enough if the two agree within a narrow bar. Otherwise the ladder
of step sizes is refined.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gradproof.engine.contraction import (
    CAUTION,
    Contraction,
    claim_of,
    claimed,
    contract,
    contract_each,
    contract_with_sampled_bars,
    restricted,
    rounding_of_claims,
)
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.refinement import grow, most_informative_bar, outliers
from gradproof.engine.estimators.steps import BOTTOM, FINEST, RATIO, first_step
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe, can_be_narrowed, rounding_floor, says_nothing
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CALLS, ENOUGH, GROSS, LARGE, SAMPLE, SLIGHT, WORK
from gradproof.engine.views import OutputSubset

MANY_OUTPUTS = 1000  # outputs from which on a few outliers are probed by themselves


def probe_direction(
    subject: Subject,
    seed: int,
    options: Probing,
    span: tuple[int, int] | None = None,
    *,
    confirming: bool = False,
) -> list[Probe]:
    """Probe along one random direction of all inputs, or of a span of them.

    A large gradient is probed with two cotangents and the same slopes: an entry that is small under one of them hides
    a relative error there. If only a few outputs have wide bars, near a kink or an edge, the result is two probes: one
    of the other outputs and one of those few. A pushforward that agrees is also compared output by output.

    A probe of a large function that is `confirming` the disagreement of another, whose ladder is complete, ends after
    four evaluations if it disagrees by far more than its bar.
    """
    first = options.first(subject)
    step, whole = first.length, subject.direction(seed, first)
    ladder = Ladder(subject, whole) if span is None else Ladder(subject, restricted(subject, whole, *span), whole)
    held = SAMPLE if subject.outputs.gathered else WORK // 16
    if confirming or subject.outputs.size < held or subject.mode == "forward":
        ladder.add(*BOTTOM)
    probes = _probes_on(ladder, step, seed, options, confirming=confirming)
    if subject.mode == "forward" and all(probe.agrees for probe in probes):
        probes += _outside_their_bars(ladder, step, seed, options)
    return probes


def _probes_on(ladder: Ladder, step: float, seed: int, options: Probing, *, confirming: bool) -> list[Probe]:
    """Contract the slopes on a ladder with one cotangent or two, and refine the first probe that leaves a doubt."""
    subject = ladder.subject
    seeds = [seed, seed + 1] if subject.inputs.size >= LARGE and subject.mode == "reverse" else [seed]
    vast, probes = _is_vast(subject), list[Probe]()
    if vast and subject.scale.finite and not confirming:
        probes = _with_sampled_bars(ladder, seeds, seed, options)
    if probes:
        return probes
    if not ladder.samples:
        ladder.add(*BOTTOM)
    for together in [[each] for each in seeds] if vast else [seeds]:  # one vast cotangent is held at a time
        cotangents = [subject.cotangent(each) for each in together]
        for cotangent, contraction in zip(cotangents, contract_each(ladder, cotangents), strict=True):
            probe = _claimed(ladder, cotangent, contraction, seed, options)
            refined = _by_blocks(probe, options) if _clear(probe) else probe
            if confirming and subject.inputs.size >= LARGE and _is_gross(probe):
                return [probe]
            if not (_clear(probe) and refined.agrees):
                return _doubted(refined, cotangent, step, options)
            if subject.inputs.size >= LARGE or vast:  # vectors are large
                refined = replace(refined, claimed=None, cotangent=None if vast else refined.cotangent)
            probes.append(refined)
            if _suffices(refined, options):
                return probes
    return probes


def _suffices(probe: Probe, options: Probing) -> bool:
    """Return True if one cotangent is enough, where errors of less than `enough` of an entry need not be found.

    The bar hides larger ones only in entries that are under a hundredth of the largest for this cotangent by chance.
    """
    largest = probe.claim.largest_contribution
    return options.enough > ENOUGH and (not largest or probe.bar <= SLIGHT * options.enough * largest)


def _is_vast(subject: Subject) -> bool:
    """Return True if the outputs are too many for their values at several steps to be held without need."""
    return subject.outputs.size >= (SAMPLE if subject.outputs.gathered else 4 * LARGE)


def _is_gross(probe: Probe) -> bool:
    """Return True if two samples leave no doubt that claim and slope differ.

    The slope is known well and the error is many bars. No output is constant on the coarser sample: quantised values
    may be, and need coarser steps.
    """
    centre, sample, contraction = probe.ladder.subject.centre, probe.ladder.samples[-1], probe.contraction
    if not GROSS * probe.bar < probe.excess < math.inf or contraction.bar > SLIGHT * contraction.size:
        return False
    return not bool(((sample.plus == centre) & (sample.minus == centre)).any())


def _with_sampled_bars(ladder: Ladder, seeds: list[int], seed: int, options: Probing) -> list[Probe]:
    """Probe with bars from a sample of the outputs; return nothing unless all probes agree within narrow bars.

    The second of two cotangents is not even drawn where the first is likely to suffice: vectors are large.
    """
    subject, probes = ladder.subject, list[Probe]()
    drawn = seeds if options.enough <= ENOUGH else seeds[:1]
    cotangents = [subject.cotangent(each) for each in drawn]
    for contraction in contract_with_sampled_bars(ladder, cotangents):
        probe = _claimed(ladder, cotangents.pop(0), contraction, seed, options)
        largest = probe.claim.largest_contribution
        if not _clear(probe) or probe.bar > (SLIGHT * largest if largest else GROSS * contraction.floor):
            return []
        if len(drawn) < len(seeds) and not _suffices(probe, options):
            return []
        if largest:  # of a claim of zero the values are asked how much they change on the coarsest sample
            probe = replace(probe, ladder=ladder.without_values(), claimed=None, cotangent=None)
        probes.append(probe)
    return probes


def _outside_their_bars(ladder: Ladder, step: float, seed: int, options: Probing) -> list[Probe]:
    """Compare every claimed slope with the measured one, and probe the outputs outside their bars by themselves."""
    subject = ladder.subject
    pushed, estimates = subject.pushforward(ladder.direction), ladder.estimates()
    caution = CAUTION if len(ladder.samples) < 3 else CAUTION**2
    rounding = rounding_of_claims(subject.numbers.precision)
    change = float(subject.arrays.where(subject.arrays.isnan(pushed), 0.0, abs(pushed)).max())
    left = rounding_floor(ladder, subject.scale.entry or change / ladder.shortest, subject.scale.change or change)
    slack = left + caution * subject.numbers.precision * _cancelled_sizes(ladder)
    allowed = caution * estimates.bar + rounding * abs(pushed) + slack
    outside = subject.arrays.where(~(abs(pushed - estimates.value) <= allowed))[0]
    if not outside.shape[0]:
        return []
    few = ladder.of_outputs(OutputSubset(subject, outside))
    return [_refined(_compare(few, few.subject.cotangent(seed), seed, options), step, options)]


def _cancelled_sizes(ladder: Ladder) -> Array:
    """Return the size of the numbers whose difference an output may be, after cancellation.

    They are rounded as numbers of their size, and their difference may look smooth all the same. They may be as large
    as the inputs, or as the outputs if these are smaller; and an output may depend on a small difference of inputs.
    """
    xp, sizes = ladder.subject.arrays, abs(ladder.subject.centre)
    sizes = xp.where(xp.isfinite(sizes), sizes, 0.0)
    inputs = float(abs(ladder.direction).max()) / first_step(ladder.subject.numbers.precision)
    return (sizes * inputs).clip(min(float(sizes.max()), inputs))


def _doubted(probe: Probe, cotangent: Array, step: float, options: Probing) -> list[Probe]:
    """Refine a probe: of a few outliers by themselves if all other outputs agree, else of all outputs."""
    ladder, subject = probe.ladder, probe.ladder.subject
    few = _outliers(ladder) if probe.coarse else None
    if few is not None:
        rest = cotangent * 1.0
        rest[few] = 0.0
        contraction = contract(ladder, rest)
        if not can_be_narrowed(contraction, probe.claim, options.enough):
            others = _claimed(ladder, rest, contraction, probe.seed, options)
            others = _by_blocks(others, options) if _clear(others) else others
            if _clear(others):
                alone = ladder.of_outputs(OutputSubset(subject, few))
                return [others, _refined(_compare(alone, cotangent[few], probe.seed, options), step, options)]
    return [_refined(probe, step, options)]


def _clear(probe: Probe) -> bool:
    return probe.agrees and not probe.coarse


def _outliers(ladder: Ladder) -> Array | None:
    """Return the outputs whose bars are outliers, if there are some and they are few."""
    if ladder.subject.outputs.size < MANY_OUTPUTS:
        return None
    found = ladder.subject.arrays.where(outliers(ladder.estimates()))[0]
    return found if 0 < found.shape[0] <= SLIGHT * ladder.subject.outputs.size else None


def _refined(probe: Probe, step: float, options: Probing) -> Probe:
    """Repeat a probe with more samples: until it agrees within a meaningful bar, or with all that there are."""
    ladder, cotangent = probe.ladder, probe.cotangent
    repeatable = repeats(ladder.subject, ladder.direction, options.nondet_tol)
    for complete in (False, True) if probe.agrees else (True,):
        if options.step is None:
            grow(ladder, cotangent, step, math.inf if complete else options.enough * probe.claim.largest_contribution)
        probe = _resolved(probe, cotangent, options)
        if probe.agrees and not says_nothing(probe):
            break
    if not probe.agrees and options.step is None and _finer_steps_differ(probe):
        probe = _resolved(probe, cotangent, options)
    return replace(probe, repeatable=repeatable, complete=complete)


def repeats(subject: Subject, direction: Array, tolerance: float) -> bool:
    """Return True if another call at the point gives the same values, or if two calls without a graph do.

    Some functions compute other values with a graph than without.
    """
    again = subject.evaluate(direction, 0.0)
    if not bool((abs(again - subject.centre) > tolerance).any()):
        return True
    return not bool((abs(again - subject.evaluate(direction, 0.0)) > tolerance).any())


def _finer_steps_differ(probe: Probe) -> bool:
    """Add all finer samples and return True if the finest that can resolve the disagreement contradict the slope.

    A function may look smooth at every step so far and change on a smaller scale: sin(x) at 10⁶, the inverse of a
    nearly singular matrix.
    """
    ladder = probe.ladder
    gap = abs(probe.error)
    finest = contract(ladder.between(0), probe.cotangent)
    noise = max(finest.bar, finest.floor)
    if not 0 < noise < math.inf or not gap < math.inf:
        return False
    spare = math.floor(math.log(min(max(1.0, gap / (10 * noise)), 1e30), RATIO))
    lowest = max(FINEST, ladder.lowest - spare)
    if lowest >= ladder.lowest - 1:
        return False
    seen = contract(ladder.aside(lowest, lowest + 1), probe.cotangent)
    if abs(seen.slope - probe.contraction.slope) <= seen.bar + probe.bar:
        return False
    ladder.add(*range(lowest, ladder.lowest))
    return True


def _compare(ladder: Ladder, cotangent: Array, seed: int, options: Probing) -> Probe:
    return _claimed(ladder, cotangent, contract(ladder, cotangent), seed, options)


def _claimed(ladder: Ladder, cotangent: Array, contraction: Contraction, seed: int, options: Probing) -> Probe:
    vector, weights = claimed(ladder.subject, ladder.direction, cotangent)
    apart = ladder.whole is not None and ladder.subject.mode == "reverse"
    return Probe(
        seed=seed,
        ladder=ladder,
        cotangent=cotangent,
        claimed=vector,
        contraction=contraction,
        enough=options.enough,
        held_change=float(abs(vector * ladder.whole).max()) if apart else 0.0,
        claim=claim_of(ladder.subject, vector, weights, options.along(ladder.subject, ladder.direction)),
    )


def _resolved(probe: Probe, cotangent: Array, options: Probing) -> Probe:
    """Compare again without the outputs that are unresolved or that jump, and find the outputs with a kink."""
    ladder, xp = probe.ladder, probe.ladder.subject.arrays
    estimates = ladder.estimates()
    informative = estimates.bar <= SLIGHT * abs(estimates.value)  # however wide its bar is beside those of others
    useless = ~(estimates.bar <= most_informative_bar(ladder, estimates)) | (outliers(estimates) & ~informative)
    if len(ladder.samples) > 2:
        useless = useless | ladder.jumps()
    unresolved = int(useless.sum())
    found = _compare(ladder, xp.where(useless, 0.0, cotangent) if unresolved else cotangent, probe.seed, options)
    kinks: tuple[int, ...] = ()
    if len(ladder.samples) > 2:
        largest = max(found.claim.largest_contribution, probe.claim.largest_contribution)
        hides = ladder.kinks(estimates.bar) & (abs(cotangent) * estimates.bar > SLIGHT * largest)
        kinks = tuple(xp.where(hides)[0][:10].tolist())
    found = replace(found, kinks=kinks, unresolved=unresolved)
    return _by_blocks(found, options) if found.agrees else found


def _by_blocks(probe: Probe, options: Probing) -> Probe:
    """Contract blocks of outputs one by one, if the bars of all outputs add up to a wide one.

    That takes only pullbacks, since the slopes of all outputs are known. The block that disagrees most is returned,
    or, if all agree, the one with the widest bar.
    """
    subject, size = probe.ladder.subject, probe.cotangent.shape[0]
    largest = probe.claim.largest_contribution
    if not largest or probe.bar <= SLIGHT * largest or size < 2:
        return probe
    affordable = max(1, WORK // subject.inputs.size)
    wanted = min(CALLS, (min(probe.bar / largest, 1.0) / SLIGHT) ** 2)
    count = min(size, affordable, math.ceil(wanted))
    tolerated = options.along(subject, probe.ladder.direction)
    blocks = []
    for number in range(count):
        low, high = size * number // count, size * (number + 1) // count
        cotangent = restricted(subject, probe.cotangent, low, high)
        vector, weights = claimed(subject, probe.ladder.direction, cotangent)
        claim = claim_of(subject, vector, weights, tolerated)
        contraction = contract(probe.ladder, cotangent, low, high)
        blocks.append(replace(probe, cotangent=cotangent, claimed=vector, claim=claim, contraction=contraction))
    wrong = [block for block in blocks if not block.agrees]
    if wrong:
        return max(wrong, key=lambda block: block.excess)
    widest = max(blocks, key=lambda block: block.bar)
    entry = max(block.claim.largest_entry for block in blocks)
    largest = max(block.claim.largest_contribution for block in blocks)
    return replace(widest, claim=replace(widest.claim, largest_entry=entry, largest_contribution=largest))
