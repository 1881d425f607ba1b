"""One question to a subject: does the claimed gradient predict the slope along a random direction?

A probe draws a direction v in the inputs and a direction u in the outputs, and compares ⟨Jᵀu, v⟩ or ⟨u, Jv⟩, which the
pullback or the pushforward claims, with ⟨u, Jv⟩, which the ladder measures. The common case is four evaluations beside
the point itself and one pullback. Only on doubt (the two disagree, or the bar is wide) does the ladder grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gradproof.engine.ladder import BOTTOM, CLIMB, SAMPLE, Ladder, first_step
from gradproof.engine.slopes import RATIO, Estimates
from gradproof.engine.subject import Array, Subject, Watched
from gradproof.engine.weighing import (
    CAUTION,
    CLAIM_ACCURACY,
    CLAIM_ROUNDING,
    SPREAD,
    Claim,
    Probing,
    Sums,
    claim_of,
    claimed,
    combine,
    combine_each,
    forgiving,
    glance,
    predicted,
    restricted,
    weighed,
)

DUST = 4e-12  # of the derivative's largest entry, or of the largest value, which rounding may leave in any entry
NOTHING = 1e-4  # of the largest value, over a step as long as the point: below it a derivative is as good as none
ENOUGH = 3e-8  # a bar below this fraction of the largest contribution to the slope needs no improvement
NEAR_FLOOR = 30.0  # nor does one within this multiple of what rounding alone would give
LOW = 1e-10  # precision, from which on values are too coarse for a bar to be all that stands between right and wrong
CLEARLY = 1.3  # bars beyond the bar are asked for then
UNRESOLVED = 0.5  # an output whose bar is this fraction of the slope says nothing
STILL = 1e-3  # of the step: a bar below this tells a value that stands still
FALLEN = 1e-3  # of the slope that far steps show: a bar below this tells that the slope falls to nothing
FINEST = -9  # the lowest rung, as a power of `RATIO`
MOST = 0.1  # of the outputs saying nothing is reason enough to go on
WORTH_IT = 1.3  # a new rung that narrows the bar by less than this is the last one
FINE = 5e-3  # a bar above this fraction of the largest contribution is narrowed by asking about blocks of outputs
BLOCKS = 256  # at most
WORK = 1 << 25  # gradient entries that blocks may cost at most, all together
OUTLIER = 100.0  # times the bar that 99 % of the outputs keep to
LARGE = 50_000  # inputs from which on a second incoming gradient is asked about
VAST = 500_000  # outputs from which on a glance at their bars comes first
GATHERED = 1 << 12  # the same where each holds several times its memory: a doubt then costs evaluations, not the rest
MANY = 1000  # outputs from which on a few odd ones are worth looking at by themselves
FEW = 0.01  # of the outputs
MATERIAL = 1e-2  # of the largest contribution: a kink that hides more than this is in the way


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question and its answer, with what is needed to ask further."""

    seed: int
    ladder: Ladder
    cotangent: Array
    claimed: Array
    sums: Sums
    claim: Claim
    aside: float = 0.0  # the largest change that is claimed of an input that stands still in this probe
    repeatable: bool = True
    kinks: tuple[int, ...] = ()
    unresolved: int = 0

    def predicted(self, piece: Array) -> float:
        """The slope that is claimed along a part of the direction."""
        subject = self.ladder.subject
        if subject.mode == "forward":
            return predicted(subject, piece, self.cotangent)
        return weighed(subject, piece, self.claimed)

    @property
    def largest_entry(self) -> float:
        """The size of the derivative: its largest entry, or a bound on it where only slopes are known."""
        known = self.ladder.subject.claim_size
        if self.ladder.subject.mode == "forward":
            return known or self.claim.largest_entry / self.ladder.shortest
        return max(known, self.claim.largest_entry)

    @property
    def largest_change(self) -> float:
        """The largest change that is claimed of one input, or where only slopes are known of one output."""
        known = self.ladder.subject.claim_change
        if self.ladder.subject.mode == "forward":
            return known or self.claim.largest_entry
        return max(known, self.claim.largest_contribution, self.aside)

    def dust(self, ladder: Ladder) -> float:
        """What rounding may leave in a slope along a direction, whatever its own size."""
        return dust(ladder, self.largest_entry, self.largest_change)

    @property
    def bar(self) -> float:
        """How far measuring and rounding may set claim and slope apart."""
        accumulated = CLAIM_ROUNDING * self.ladder.subject.gradient_precision * self.sums.size
        return self.sums.bar + self.claim.rounding + accumulated + self.dust(self.ladder)

    @property
    def resolution(self) -> float:
        """The smallest error in one entry that would have been called wrong.

        It is more than the bar: on doubt bars are taken with caution, and more so where noise makes them up, or where
        values are coarse; and an error counts no more than its output does, and may lie on the side of the claim's own
        distance from the slope.
        """
        if self.unresolved >= self.ladder.subject.outputs.size:
            return math.inf
        if len(self.ladder.rungs) == 2:
            caution = CAUTION**2 if self.sums.bar > 10 * self.sums.floor else CAUTION
        else:
            caution = (1 + min(1.0, self._distance / self.bar if self.bar else 0.0)) / self._least_weight
        if self.ladder.subject.precision > LOW:
            caution *= 1 + CLEARLY
        return (caution * self.bar + self.claim.forgiven) / self.ladder.shortest

    @property
    def _least_weight(self) -> float:
        """The least weight that the incoming gradient gives an output, of those that it gives any."""
        weights = abs(self.cotangent)
        return float(self.ladder.subject.arrays.where(weights > 0, weights, math.inf).min())

    @property
    def _distance(self) -> float:
        """How far claim and slope lie apart."""
        return abs(self.claim.slope - self.sums.slope)

    @property
    def excess(self) -> float:
        """How much of the disagreement the bar does not explain."""
        return self._distance - self.bar if math.isfinite(self._distance) else math.inf

    @property
    def agrees(self) -> bool:
        """Whether the claim lies within the bar."""
        return self.excess <= 0

    @property
    def coarse(self) -> bool:
        """Whether the bar is wide, and may be narrowed."""
        return _wide(self.sums, self.claim)


def dust(ladder: Ladder, entry: float, change: float) -> float:
    """What rounding may leave in a slope of a derivative with this largest entry, and this largest change by an entry.

    Inputs and outputs may be of very different units: between inputs entries do not compare, and changes do; between
    outputs it is the other way round. So the lesser counts. Where nothing moves, as in a saturated softmax, there are
    still the values, of which as much is left over a step as long as the point.
    """
    subject = ladder.subject
    many, values = math.sqrt(ladder.moved), first_step(subject.precision) * subject.value_size
    least = DUST * (values * many if change < NOTHING * values else min(entry * ladder.reach, change * many))
    return least if math.isfinite(least) else 0.0


def ask(subject: Subject, seed: int, options: Probing, span: tuple[int, int] | None = None) -> list[Probe]:
    """Probe once, all inputs or a span of them: cheaply, and with more care where that leaves a doubt.

    Of a large gradient two incoming gradients are asked about, from the same slopes: an entry that happens to be small
    under one of them hides a relative error there. Where the doubt comes from a few outputs, near a kink or an edge,
    they are looked at by themselves: the answer is then two probes along one direction, of the calm outputs and of
    those few. A pushforward is then held against the slopes output by output.
    """
    step = options.step or first_step(subject.precision)
    whole = subject.direction(seed, step, options.step is not None)
    ladder = Ladder(subject, whole) if span is None else Ladder(subject, restricted(subject, whole, *span), whole)
    if not _is_vast(subject) or subject.mode == "forward":
        ladder.add(*BOTTOM)
    probes = _asked(ladder, step, seed, options)
    if subject.mode == "forward" and all(probe.agrees for probe in probes):
        probes += _strays(ladder, step, seed, options)
    return probes


def _asked(ladder: Ladder, step: float, seed: int, options: Probing) -> list[Probe]:
    subject = ladder.subject
    seeds = [seed, seed + 1] if subject.inputs.size >= LARGE and subject.mode == "reverse" else [seed]
    vast = _is_vast(subject)
    probes = _seen_at_a_glance(ladder, seeds, seed, options) if vast and subject.finite else []
    if probes:
        return probes
    if not ladder.rungs:
        ladder.add(*BOTTOM)
    for together in [[each] for each in seeds] if vast else [seeds]:  # of vast ones, one at a time is held
        cotangents = [subject.cotangent(each) for each in together]
        for cotangent, sums in zip(cotangents, combine_each(ladder, cotangents), strict=True):
            probe = _claimed(ladder, cotangent, sums, seed, options)
            refined = _by_blocks(probe, options) if _clear(probe) else probe
            if not (_clear(probe) and refined.agrees):
                return _doubted(refined, cotangent, step, options)
            kept = None if vast else refined.cotangent  # of no further use, and large
            probes.append(replace(refined, claimed=None, cotangent=kept))
    return probes


def _is_vast(subject: Subject) -> bool:
    """Whether the values of all outputs are too much to be held at several steps without need."""
    return subject.outputs.size >= (GATHERED if subject.outputs.gathered else VAST)


def _seen_at_a_glance(ladder: Ladder, seeds: list[int], seed: int, options: Probing) -> list[Probe]:
    """The answers for very many outputs, held for no longer than they are needed; none where one leaves a doubt."""

    def answer(cotangent: Array, sums: Sums) -> Probe | None:
        probe = _claimed(ladder, cotangent, sums, seed, options)
        largest = probe.claim.largest_contribution
        narrow = probe.bar <= (FINE * largest if largest else NEAR_FLOOR * sums.floor)
        light = replace(probe, ladder=ladder.spent(), claimed=None, cotangent=None)
        return light if _clear(probe) and narrow else None

    subject, probes = ladder.subject, []
    for each, sums in zip(seeds, glance(ladder, [subject.weights(each) for each in seeds]), strict=True):
        probe = answer(subject.cotangent(each), sums)
        if probe is None:
            return []
        probes.append(probe)
    return probes


def _strays(ladder: Ladder, step: float, seed: int, options: Probing) -> list[Probe]:
    """Every claimed slope beside the measured one; those that lie outside their bars are looked at by themselves."""
    subject = ladder.subject
    pushed, estimates = subject.pushforward(ladder.direction), ladder.estimates()
    caution = CAUTION if len(ladder.rungs) < 3 else CAUTION**2
    rounding = CLAIM_ROUNDING * subject.gradient_precision + CLAIM_ACCURACY
    change = float(subject.arrays.where(pushed == pushed, abs(pushed), 0.0).max())
    left = dust(ladder, subject.claim_size or change / ladder.shortest, subject.claim_change or change)
    slack = left + caution * subject.precision * _hidden(ladder)
    allowed = caution * estimates.bar + rounding * abs(pushed) + slack
    astray = subject.arrays.where(~(abs(pushed - estimates.value) <= allowed))[0]
    if not astray.shape[0]:
        return []
    few = ladder.watching(Watched(subject, astray))
    return [_look_closer(_compare(few, few.subject.cotangent(seed), seed, options), step, options)]


def _hidden(ladder: Ladder) -> Array:
    """How large the numbers may be that an output is left of, when they cancel.

    They are rounded as numbers of their size, and what is left may look smooth all the same. They may be as large as
    the inputs, or as the outputs if these are smaller; and an output may be a function of a small difference of inputs.
    """
    xp, sizes = ladder.subject.arrays, abs(ladder.subject.centre)
    sizes = xp.where(xp.isfinite(sizes), sizes, 0.0)
    inputs = float(abs(ladder.direction).max()) / first_step(ladder.subject.precision)
    return (sizes * inputs).clip(min(float(sizes.max()), inputs))


def _doubted(probe: Probe, cotangent: Array, step: float, options: Probing) -> list[Probe]:
    """Look closer: at a few suspects by themselves where the others are calm, or at all outputs."""
    ladder, subject = probe.ladder, probe.ladder.subject
    suspects = _suspects(ladder) if probe.coarse else None
    if suspects is not None:
        rest = _without(cotangent, suspects)
        sums = combine(ladder, rest)
        if not _wide(sums, probe.claim):
            calm = _claimed(ladder, rest, sums, probe.seed, options)
            calm = _by_blocks(calm, options) if _clear(calm) else calm
            if _clear(calm):
                few = _compare(ladder.watching(Watched(subject, suspects)), cotangent[suspects], probe.seed, options)
                return [calm, _look_closer(few, step, options)]
    return [_look_closer(probe, step, options)]


def _wide(sums: Sums, claim: Claim) -> bool:
    """Whether a bar may be worth narrowing: it is more than a trifle, and more than rounding makes it."""
    return sums.bar > max(ENOUGH * claim.largest_contribution, NEAR_FLOOR * sums.floor)


def _clear(probe: Probe) -> bool:
    return probe.agrees and not probe.coarse


def _suspects(ladder: Ladder) -> Array | None:
    """The outputs whose bars stick out, if there are some and they are few."""
    if ladder.subject.outputs.size < MANY:
        return None
    odd_ones_out = ladder.subject.arrays.where(_outliers(ladder.estimates()))[0]
    return odd_ones_out if 0 < odd_ones_out.shape[0] <= FEW * ladder.subject.outputs.size else None


def _without(vector: Array, coordinates: Array) -> Array:
    rest = vector * 1.0
    rest[coordinates] = 0.0
    return rest


def _look_closer(probe: Probe, step: float, options: Probing) -> Probe:
    ladder, cotangent = probe.ladder, probe.cotangent
    repeatable = _repeats(ladder, options.nondet_tol)
    for thorough in (False, True) if probe.agrees else (True,):
        if options.step is None:
            _grow(ladder, cotangent, step, math.inf if thorough else ENOUGH * probe.claim.largest_contribution)
        probe = _settled(probe, cotangent, options)
        if probe.agrees:
            break
    if not probe.agrees and options.step is None and _deeper(probe):
        probe = _settled(probe, cotangent, options)
    return replace(probe, repeatable=repeatable)


def _repeats(ladder: Ladder, tolerance: float) -> bool:
    """Whether the function gives the same values again: those at the point, or those of another call without a graph.

    Not every function takes the same way with a graph and without.
    """
    again = ladder.subject.evaluate(ladder.direction, 0.0)
    if not bool((abs(again - ladder.subject.centre) > tolerance).any()):
        return True
    return not bool((abs(again - ladder.subject.evaluate(ladder.direction, 0.0)) > tolerance).any())


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
    finest = combine(ladder.between(0), probe.cotangent)
    noise = max(finest.bar, finest.floor)
    if not 0 < noise < math.inf or not gap < math.inf:
        return False
    spare = math.floor(math.log(min(max(1.0, gap / (10 * noise)), 1e30), RATIO))
    lowest = max(FINEST, ladder.lowest - spare)
    if lowest >= ladder.lowest - 1:
        return False
    seen = combine(ladder.aside(lowest, lowest + 1), probe.cotangent)
    if abs(seen.slope - probe.sums.slope) <= seen.bar + probe.bar:
        return False
    ladder.add(*range(lowest, ladder.lowest))
    return True


def _compare(ladder: Ladder, cotangent: Array, seed: int, options: Probing) -> Probe:
    return _claimed(ladder, cotangent, combine(ladder, cotangent), seed, options)


def _claimed(ladder: Ladder, cotangent: Array, sums: Sums, seed: int, options: Probing) -> Probe:
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
            ladder.subject.gradient_precision,
            forgiving(ladder.subject, ladder.direction, options),
        ),
    )


def _grow(ladder: Ladder, cotangent: Array, step: float, enough: float) -> None:
    """Add rungs below, against truncation, kinks and edges, and above, against noise, while they help.

    That is until the bar is narrow enough. Where no bar is, the ladder is to be thorough: it gets a few rungs below in
    any case, and above all that there are, since values may stand still on small steps.
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
    while step * RATIO ** (exponent := ladder.highest + 1) <= CLIMB:
        ladder.add(exponent)
        if thorough:
            continue
        last, (score, lost) = score, _score(ladder, cotangent, stride)
        if score * WORTH_IT > last and lost < MOST:
            return


def _certain(ladder: Ladder, step: float) -> list[int]:
    """The rungs that a thorough ladder gets in any case."""
    below = range(max(FINEST, min(ladder.lowest - 1, -2)), ladder.lowest)
    above = range(ladder.highest + 1, ladder.highest + 1 + math.ceil(-math.log(step, RATIO)))
    return [*below, *(exponent for exponent in above if step * RATIO**exponent <= CLIMB)]


def _score(ladder: Ladder, cotangent: Array, stride: int) -> tuple[float, float]:
    """The bar of a sample of outputs, one that says nothing counting no more than its slope could; and their share."""
    if stride > 1:
        ladder, cotangent = ladder.sampled(stride), cotangent[::stride]
    estimates = ladder.estimates()
    most = _most_informative_bar(ladder, estimates)
    telling = estimates.bar < most
    weighted = abs(cotangent) * ladder.subject.arrays.where(telling, estimates.bar, most)
    score = min(float(weighted.sum()), SPREAD * math.sqrt(float(weighted @ weighted)))
    if len(ladder.rungs) > 2:
        telling = telling | ladder.bends(estimates.bar) | ladder.jumps()  # they say all that they will ever say
    return score, 1 - float(telling.sum()) / ladder.subject.outputs.size


def _most_informative_bar(ladder: Ladder, estimates: Estimates) -> Array:
    xp = ladder.subject.arrays
    slope = abs(estimates.value)
    largest = float(slope.max())
    if not largest:  # nothing changes at all: a bar is then held against the step itself
        return (STILL * ladder.shortest + 0 * slope) + NEAR_FLOOR * estimates.floor
    share = slope / largest
    typical = largest * math.sqrt(float(share @ share) / max(1, ladder.subject.outputs.size))
    enough = xp.maximum(UNRESOLVED * xp.where(slope > typical, slope, typical), NEAR_FLOOR * estimates.floor)
    if len(ladder.rungs) < 3:
        return enough
    coarsest, centre = ladder.rungs[-1], ladder.subject.centre
    still = (coarsest.plus == centre) & (coarsest.minus == centre)
    return xp.maximum(enough, xp.where(still, STILL * ladder.shortest, FALLEN * ladder.afar()))


def _edge(ladder: Ladder) -> bool:
    """Whether the function is undefined somewhere beside the point, even on the finest rung."""
    finest = ladder.rungs[0]
    return not math.isfinite(float((finest.plus - finest.minus).sum()))


def _settle(probe: Probe, cotangent: Array, options: Probing) -> Probe:
    """Set aside the outputs that say nothing, and hold the rest against the claim for them alone."""
    ladder, xp = probe.ladder, probe.ladder.subject.arrays
    estimates = ladder.estimates()
    telling = estimates.bar <= FINE * abs(estimates.value)  # by itself, however wide its bar is beside the others'
    useless = ~(estimates.bar <= _most_informative_bar(ladder, estimates)) | (_outliers(estimates) & ~telling)
    if len(ladder.rungs) > 2:
        useless = useless | ladder.jumps()
    unresolved = int(useless.sum())
    settled = _compare(ladder, xp.where(useless, 0.0, cotangent) if unresolved else cotangent, probe.seed, options)
    kinks: tuple[int, ...] = ()
    if len(ladder.rungs) > 2:
        largest = max(settled.claim.largest_contribution, probe.claim.largest_contribution)
        hides = ladder.bends(estimates.bar) & (abs(cotangent) * estimates.bar > MATERIAL * largest)
        kinks = tuple(int(output) for output in xp.where(hides)[0][:10])
    return replace(settled, kinks=kinks, unresolved=unresolved)


def _outliers(estimates: Estimates) -> Array:
    """The few outputs, near a kink or an edge, whose bars would drown those of all others."""
    sample = sorted(estimates.bar[:: max(1, estimates.bar.shape[0] // SAMPLE)].tolist())
    usual = sample[math.ceil(0.99 * len(sample)) - 1]
    return estimates.bar > OUTLIER * usual


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
    forgiven = forgiving(subject, probe.ladder.direction, options)
    blocks = []
    for number in range(count):
        low, high = size * number // count, size * (number + 1) // count
        cotangent = restricted(subject, probe.cotangent, low, high)
        vector, weights = claimed(subject, probe.ladder.direction, cotangent)
        claim = claim_of(vector, weights, subject.gradient_precision, forgiven)
        sums = combine(probe.ladder, cotangent, low, high)
        blocks.append(replace(probe, cotangent=cotangent, claimed=vector, claim=claim, sums=sums))
    wrong = [block for block in blocks if not block.agrees]
    if wrong:
        return max(wrong, key=lambda block: block.excess)
    widest = max(blocks, key=lambda block: block.bar)
    entry = max(block.claim.largest_entry for block in blocks)
    largest = max(block.claim.largest_contribution for block in blocks)
    return replace(widest, claim=replace(widest.claim, largest_entry=entry, largest_contribution=largest))
