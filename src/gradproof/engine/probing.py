"""Asking a subject whether its claimed gradient predicts a slope, with no more care than it takes.

The common case is four evaluations beside the point itself and one pullback. Only on doubt (claim and slope disagree,
or the bar is wide) does the ladder grow.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gradproof.engine.contraction import (
    CAUTION,
    CLAIM_ACCURACY,
    CLAIM_ROUNDING,
    Contraction,
    claim_of,
    claimed,
    contract,
    contract_each,
    glance,
    restricted,
)
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.refinement import grow, most_informative_bar, outliers
from gradproof.engine.estimators.steps import BOTTOM, FINEST, RATIO, first_step
from gradproof.engine.options import Probing
from gradproof.engine.probe import ENOUGH, NEAR_FLOOR, Probe, rounding_floor, says_nothing, wide
from gradproof.engine.subject import Array, Subject
from gradproof.engine.views import OutputSubset

FINE = 5e-3  # a bar above this fraction of the largest contribution is narrowed by asking about blocks of outputs
BLOCKS = 256  # at most
WORK = 1 << 25  # gradient entries that blocks may cost at most, all together
LARGE = 50_000  # inputs from which on a second incoming gradient is asked about
VAST = 500_000  # outputs from which on a glance at their bars comes first
HELD = 1 << 21  # outputs up to which the values at the first steps are kept: four vectors of 16 MiB
GATHERED = 1 << 12  # the same where each holds several times its memory: a doubt then costs evaluations, not the rest
MANY = 1000  # outputs from which on a few odd ones are worth looking at by themselves
FEW = 0.01  # of the outputs
GROSS = 30.0  # bars beyond the bar: ten times the bar with the caution of a longer ladder
MATERIAL = 1e-2  # of the largest contribution: a kink that hides more than this is in the way


def ask(
    subject: Subject,
    seed: int,
    options: Probing,
    span: tuple[int, int] | None = None,
    *,
    confirming: bool = False,
) -> list[Probe]:
    """Probe once, all inputs or a span of them: cheaply, and with more care where that leaves a doubt.

    Of a large gradient two incoming gradients are asked about, from the same slopes: an entry that happens to be small
    under one of them hides a relative error there. Where the doubt comes from a few outputs, near a kink or an edge,
    they are looked at by themselves: the answer is then two probes along one direction, of the calm outputs and of
    those few. A pushforward is then held against the slopes output by output.

    A probe of a large function that is `confirming` another, of which the ladder was grown, is done after four
    evaluations if it disagrees by far more than its bar.
    """
    first = options.first(subject)
    step, whole = first.length, subject.direction(seed, first)
    ladder = Ladder(subject, whole) if span is None else Ladder(subject, restricted(subject, whole, *span), whole)
    if confirming or not _is_vast(subject) or _can_be_held(subject) or subject.mode == "forward":
        ladder.add(*BOTTOM)
    probes = _asked(ladder, step, seed, options, confirming)
    if subject.mode == "forward" and all(probe.agrees for probe in probes):
        probes += _strays(ladder, step, seed, options)
    return probes


def _asked(ladder: Ladder, step: float, seed: int, options: Probing, confirming: bool) -> list[Probe]:
    subject = ladder.subject
    seeds = [seed, seed + 1] if subject.inputs.size >= LARGE and subject.mode == "reverse" else [seed]
    vast = _is_vast(subject)
    probes = _seen_at_a_glance(ladder, seeds, seed, options) if vast and subject.scale.finite and not confirming else []
    if probes:
        return probes
    if not ladder.samples:
        ladder.add(*BOTTOM)
    for together in [[each] for each in seeds] if vast else [seeds]:  # of vast ones, one at a time is held
        cotangents = [subject.cotangent(each) for each in together]
        for cotangent, sums in zip(cotangents, contract_each(ladder, cotangents), strict=True):
            probe = _claimed(ladder, cotangent, sums, seed, options)
            refined = _by_blocks(probe, options) if _clear(probe) else probe
            clearly = GROSS * probe.bar < probe.excess < math.inf and probe.sums.bar <= FINE * probe.sums.size
            if confirming and subject.inputs.size >= LARGE and clearly and _all_move(ladder):
                return [probe]
            if not (_clear(probe) and refined.agrees):
                return _doubted(refined, cotangent, step, options)
            kept = None if vast else refined.cotangent  # of no further use, and large
            probes.append(replace(refined, claimed=None, cotangent=kept))
    return probes


def _is_vast(subject: Subject) -> bool:
    """Whether the values of all outputs are too much to be held at several steps without need."""
    return subject.outputs.size >= (GATHERED if subject.outputs.gathered else VAST)


def _all_move(ladder: Ladder) -> bool:
    """Return True if no output is constant on the coarsest sample: quantised values may be, and need coarser ones."""
    centre, sample = ladder.subject.centre, ladder.samples[-1]
    return not bool(((sample.plus == centre) & (sample.minus == centre)).any())


def _can_be_held(subject: Subject) -> bool:
    """Return True if the values at the first steps may be kept, so that a doubt does not evaluate them again."""
    return subject.outputs.size <= HELD and not subject.outputs.gathered


def _seen_at_a_glance(ladder: Ladder, seeds: list[int], seed: int, options: Probing) -> list[Probe]:
    """The answers for very many outputs, held for no longer than they are needed; none where one leaves a doubt."""

    def answer(cotangent: Array, sums: Contraction) -> Probe | None:
        probe = _claimed(ladder, cotangent, sums, seed, options)
        largest = probe.claim.largest_contribution
        narrow = probe.bar <= (FINE * largest if largest else NEAR_FLOOR * sums.floor)
        light = replace(probe, ladder=ladder.spent(), claimed=None, cotangent=None)
        return light if _clear(probe) and narrow else None

    subject, probes = ladder.subject, []
    for each, sums in zip(seeds, glance(ladder, [subject.cotangent(each) for each in seeds]), strict=True):
        probe = answer(subject.cotangent(each), sums)
        if probe is None:
            return []
        probes.append(probe)
    return probes


def _strays(ladder: Ladder, step: float, seed: int, options: Probing) -> list[Probe]:
    """Every claimed slope beside the measured one; those that lie outside their bars are looked at by themselves."""
    subject = ladder.subject
    pushed, estimates = subject.pushforward(ladder.direction), ladder.estimates()
    caution = CAUTION if len(ladder.samples) < 3 else CAUTION**2
    rounding = CLAIM_ROUNDING * subject.numbers.precision + CLAIM_ACCURACY
    change = float(subject.arrays.where(pushed == pushed, abs(pushed), 0.0).max())
    left = rounding_floor(ladder, subject.scale.entry or change / ladder.shortest, subject.scale.change or change)
    slack = left + caution * subject.numbers.precision * _hidden(ladder)
    allowed = caution * estimates.bar + rounding * abs(pushed) + slack
    astray = subject.arrays.where(~(abs(pushed - estimates.value) <= allowed))[0]
    if not astray.shape[0]:
        return []
    few = ladder.watching(OutputSubset(subject, astray))
    return [_look_closer(_compare(few, few.subject.cotangent(seed), seed, options), step, options)]


def _hidden(ladder: Ladder) -> Array:
    """How large the numbers may be that an output is left of, when they cancel.

    They are rounded as numbers of their size, and what is left may look smooth all the same. They may be as large as
    the inputs, or as the outputs if these are smaller; and an output may be a function of a small difference of inputs.
    """
    xp, sizes = ladder.subject.arrays, abs(ladder.subject.centre)
    sizes = xp.where(xp.isfinite(sizes), sizes, 0.0)
    inputs = float(abs(ladder.direction).max()) / first_step(ladder.subject.numbers.precision)
    return (sizes * inputs).clip(min(float(sizes.max()), inputs))


def _doubted(probe: Probe, cotangent: Array, step: float, options: Probing) -> list[Probe]:
    """Look closer: at a few suspects by themselves where the others are calm, or at all outputs."""
    ladder, subject = probe.ladder, probe.ladder.subject
    suspects = _suspects(ladder) if probe.coarse else None
    if suspects is not None:
        rest = _without(cotangent, suspects)
        sums = contract(ladder, rest)
        if not wide(sums, probe.claim):
            calm = _claimed(ladder, rest, sums, probe.seed, options)
            calm = _by_blocks(calm, options) if _clear(calm) else calm
            if _clear(calm):
                few = _compare(
                    ladder.watching(OutputSubset(subject, suspects)), cotangent[suspects], probe.seed, options
                )
                return [calm, _look_closer(few, step, options)]
    return [_look_closer(probe, step, options)]


def _clear(probe: Probe) -> bool:
    return probe.agrees and not probe.coarse


def _suspects(ladder: Ladder) -> Array | None:
    """The outputs whose bars stick out, if there are some and they are few."""
    if ladder.subject.outputs.size < MANY:
        return None
    odd_ones_out = ladder.subject.arrays.where(outliers(ladder.estimates()))[0]
    return odd_ones_out if 0 < odd_ones_out.shape[0] <= FEW * ladder.subject.outputs.size else None


def _without(vector: Array, coordinates: Array) -> Array:
    rest = vector * 1.0
    rest[coordinates] = 0.0
    return rest


def _look_closer(probe: Probe, step: float, options: Probing) -> Probe:
    ladder, cotangent = probe.ladder, probe.cotangent
    repeatable = repeats(ladder.subject, ladder.direction, options.nondet_tol)
    for thorough in (False, True) if probe.agrees else (True,):
        if options.step is None:
            grow(ladder, cotangent, step, math.inf if thorough else ENOUGH * probe.claim.largest_contribution)
        probe = _settled(probe, cotangent, options)
        if probe.agrees and not says_nothing(probe):
            break
    if not probe.agrees and options.step is None and _deeper(probe):
        probe = _settled(probe, cotangent, options)
    return replace(probe, repeatable=repeatable, thorough=thorough)


def repeats(subject: Subject, direction: Array, tolerance: float) -> bool:
    """Whether the function gives the same values again: those at the point, or those of another call without a graph.

    Not every function takes the same way with a graph and without.
    """
    again = subject.evaluate(direction, 0.0)
    if not bool((abs(again - subject.centre) > tolerance).any()):
        return True
    return not bool((abs(again - subject.evaluate(direction, 0.0)) > tolerance).any())


def _settled(probe: Probe, cotangent: Array, options: Probing) -> Probe:
    probe = _settle(probe, cotangent, options)
    return _by_blocks(probe, options) if probe.agrees else probe


def _deeper(probe: Probe) -> bool:
    """Whether finer steps, as fine as can still tell, contradict the slope; then the ladder reaches down to them.

    A function may look smooth at every step so far and change on a smaller scale: sin(x) at 10⁶, the inverse of a
    nearly singular matrix. Before a claim is called wrong, the finest steps at which it could be right are asked.
    """
    ladder = probe.ladder
    gap = abs(probe.claim.slope - probe.sums.slope)
    finest = contract(ladder.between(0), probe.cotangent)
    noise = max(finest.bar, finest.floor)
    if not 0 < noise < math.inf or not gap < math.inf:
        return False
    spare = math.floor(math.log(min(max(1.0, gap / (10 * noise)), 1e30), RATIO))
    lowest = max(FINEST, ladder.lowest - spare)
    if lowest >= ladder.lowest - 1:
        return False
    seen = contract(ladder.aside(lowest, lowest + 1), probe.cotangent)
    if abs(seen.slope - probe.sums.slope) <= seen.bar + probe.bar:
        return False
    ladder.add(*range(lowest, ladder.lowest))
    return True


def _compare(ladder: Ladder, cotangent: Array, seed: int, options: Probing) -> Probe:
    return _claimed(ladder, cotangent, contract(ladder, cotangent), seed, options)


def _claimed(ladder: Ladder, cotangent: Array, sums: Contraction, seed: int, options: Probing) -> Probe:
    vector, weights = claimed(ladder.subject, ladder.direction, cotangent)
    apart = ladder.whole is not None and ladder.subject.mode == "reverse"
    return Probe(
        seed=seed,
        ladder=ladder,
        cotangent=cotangent,
        claimed=vector,
        sums=sums,
        aside=float(abs(vector * ladder.whole).max()) if apart else 0.0,
        claim=claim_of(
            vector,
            weights,
            ladder.subject.numbers.precision,
            options.along(ladder.subject, ladder.direction),
        ),
    )


def _settle(probe: Probe, cotangent: Array, options: Probing) -> Probe:
    """Set aside the outputs that say nothing, and hold the rest against the claim for them alone."""
    ladder, xp = probe.ladder, probe.ladder.subject.arrays
    estimates = ladder.estimates()
    telling = estimates.bar <= FINE * abs(estimates.value)  # by itself, however wide its bar is beside the others'
    useless = ~(estimates.bar <= most_informative_bar(ladder, estimates)) | (outliers(estimates) & ~telling)
    if len(ladder.samples) > 2:
        useless = useless | ladder.jumps()
    unresolved = int(useless.sum())
    settled = _compare(ladder, xp.where(useless, 0.0, cotangent) if unresolved else cotangent, probe.seed, options)
    kinks: tuple[int, ...] = ()
    if len(ladder.samples) > 2:
        largest = max(settled.claim.largest_contribution, probe.claim.largest_contribution)
        hides = ladder.bends(estimates.bar) & (abs(cotangent) * estimates.bar > MATERIAL * largest)
        kinks = tuple(int(output) for output in xp.where(hides)[0][:10])
    return replace(settled, kinks=kinks, unresolved=unresolved)


def _by_blocks(probe: Probe, options: Probing) -> Probe:
    """Where the bars of many outputs add up to a wide one, ask about fewer outputs at a time.

    It costs pullbacks alone: the slopes of all outputs are known. Of the blocks the one that disagrees most is kept,
    or, where all agree, the one with the widest bar.
    """
    subject, size = probe.ladder.subject, probe.cotangent.shape[0]
    largest = probe.claim.largest_contribution
    if not largest or probe.bar <= FINE * largest or size < 2:
        return probe
    affordable = max(1, WORK // subject.inputs.size)
    wanted = min(BLOCKS, (min(probe.bar / largest, 1.0) / FINE) ** 2)
    count = min(size, affordable, math.ceil(wanted))
    tolerated = options.along(subject, probe.ladder.direction)
    blocks = []
    for number in range(count):
        low, high = size * number // count, size * (number + 1) // count
        cotangent = restricted(subject, probe.cotangent, low, high)
        vector, weights = claimed(subject, probe.ladder.direction, cotangent)
        claim = claim_of(vector, weights, subject.numbers.precision, tolerated)
        sums = contract(probe.ladder, cotangent, low, high)
        blocks.append(replace(probe, cotangent=cotangent, claimed=vector, claim=claim, sums=sums))
    wrong = [block for block in blocks if not block.agrees]
    if wrong:
        return max(wrong, key=lambda block: block.excess)
    widest = max(blocks, key=lambda block: block.bar)
    entry = max(block.claim.largest_entry for block in blocks)
    largest = max(block.claim.largest_contribution for block in blocks)
    return replace(widest, claim=replace(widest.claim, largest_entry=entry, largest_contribution=largest))
