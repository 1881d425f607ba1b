"""A second opinion by the segment test, where values are too rough on small steps for a slope."""

from __future__ import annotations

from dataclasses import replace

from gradproof.engine.estimators.segment import Outcome, SegmentResult, second_opinion
from gradproof.engine.estimators.steps import FINEST, RATIO, first_step
from gradproof.engine.options import Probing
from gradproof.engine.results import Finding, Reason
from gradproof.engine.subject import Array, DerivativeError, Step, Subject
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import rule_of, subset

FINE = RATIO**FINEST  # of the first step: a few units of rounding of the point, too short for most jumps
CALLS = 256  # pullbacks that tell quantisers from other outputs; what they do not reach is left out
ROUGH = frozenset({Reason.QUANTISED, Reason.NOISE, Reason.STEP_SIZE, Reason.CONDITIONING})


def seconded(judgement: Judgement, subject: Subject, seed: int, options: Probing) -> Judgement:
    """Return a judgement that is inconclusive for roughness as the segment test decides it, where it can."""
    obstacle = judgement.obstacle
    if judgement.findings or obstacle is None or obstacle.reason not in ROUGH or options.step is not None:
        return judgement
    result = asked(subject, seed, options)
    if result is not None and result.outcome is Outcome.DISAGREES:
        chosen = _not_quantisers(subject, seed)
        if chosen.shape[0] < subject.outputs.size:
            result = asked(subset(subject, chosen), seed, options) if chosen.shape[0] else None
        if result is None or result.outcome is not Outcome.DISAGREES or not result.claimed:
            return judgement
        return replace(judgement, findings=(segment_finding(subject, result),))
    if result is None or result.outcome is Outcome.UNDECIDED:
        return judgement
    note = (
        f"{obstacle.message} So the rule was verified on segments of {result.half_width:.1g} of the point's scale to "
        "either side: the claimed gradient, integrated along them, is the change in value."
    )
    return replace(judgement, obstacle=None, resolution=result.resolution, notes=(*judgement.notes, note))


def asked(subject: Subject, seed: int, options: Probing) -> SegmentResult | None:
    """Ask the segment test; None where the derivative raises away from the point."""
    try:
        return second_opinion(subject, seed=seed, rtol=options.rtol, atol=options.atol)
    except DerivativeError:
        return None


def _not_quantisers(subject: Subject, seed: int) -> Array:
    """Return the outputs that move on a fine step, or that are claimed to.

    The others are quantisers: their gradient is zero almost everywhere, whatever their values do along a segment.
    """
    direction = subject.direction(seed, Step(first_step(subject.numbers.precision)))
    (ahead, behind), centre = subject.evaluate_along(direction, (FINE, -FINE)), subject.centre
    constant = (ahead == centre) & (behind == centre)
    if subject.mode == "forward":
        return subject.arrays.where(~constant | (subject.pushforward(direction) != 0))[0]
    cotangent, claimed = subject.cotangent(seed), ~constant
    groups, calls = [subject.arrays.where(constant)[0]], 0
    while groups and calls < CALLS:
        group = groups.pop()
        alone = subject.arrays.zeros_like(cotangent)
        alone[group] = cotangent[group]
        calls += 1
        if not bool((subject.pullback(alone) != 0).any()):
            continue
        if group.shape[0] == 1:
            claimed[group] = True
        else:
            half = group.shape[0] // 2
            groups += [group[:half], group[half:]]
    return subject.arrays.where(claimed)[0]


def segment_finding(subject: Subject, result: SegmentResult) -> Finding:
    """Describe a rule that does not integrate to the change in value."""
    return Finding(
        kind="wrong-gradient",
        message=f"The claimed gradient, integrated along a segment of {result.half_width:.1g} of the point's scale to "
        f"either side, predicts a change of {result.claimed:.6g}; the values change by {result.measured:.6g} ± "
        f"{result.bar:.2g}.",
        hint=f"Compare the {rule_of(subject)} with the derivative of the function without its rounding.",
    )
