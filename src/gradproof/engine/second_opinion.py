"""A second opinion by the segment test, where values are too rough on small steps for a slope."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

from gradproof.engine.diagnosis.along_segments import diagnoses
from gradproof.engine.estimators.noise import SINGLE, binades, on_a_grid
from gradproof.engine.estimators.rounding import precision_shown
from gradproof.engine.estimators.segment import (
    SegmentOutcome,
    SegmentResult,
    problem_of,
    segment_test,
    segment_test_of,
)
from gradproof.engine.estimators.steps import FINEST, RATIO, first_step
from gradproof.engine.localisation.segment_blocks import in_parts
from gradproof.engine.localisation.segment_region import Region, region_of
from gradproof.engine.options import Probing
from gradproof.engine.results import Finding, Obstacle, Reason, Resolution
from gradproof.engine.subject import Array, DerivativeError, Step, Subject
from gradproof.engine.thresholds import CALLS, COARSEST, ENOUGH, MANY, ROUNDINGS, SHARE, TWO_DIGITS
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import rule_of, subset

WEAK = "In this precision small steps show an error in one entry only if it is a large one."
HIDDEN = Obstacle(
    Reason.QUANTISED,
    "Next to no change is claimed, and the values change by no more than rounding in this precision may hide.",
    "Let the function return its values in a higher precision, or check it at inputs where they change by more.",
)
ROUGH = frozenset({Reason.QUANTISED, Reason.NOISE, Reason.STEP_SIZE, Reason.CONDITIONING})


def with_second_opinion(judgement: Judgement, subject: Subject, seed: int, options: Probing) -> Judgement:
    """Return a judgement that is inconclusive for roughness as the segment test decides it, where it can.

    So is a pass in low precision that would have missed an error of a tenth in an entry. Parts of the inputs are tested
    too, but for a quantiser, whose values are on a grid: its straight-through estimator is a choice. Parts alone do
    not accuse in double precision.
    """
    obstacle = judgement.obstacle
    rough = obstacle is not None and obstacle.reason in ROUGH
    weak = obstacle is None and subject.numbers.precision > ENOUGH and judgement.resolution.relative > SHARE
    if judgement.findings or not (rough or weak) or options.step is not None:
        return judgement
    try:
        problem = problem_of(subject, seed, options.rtol, options.atol)
        result = segment_test_of(problem, seed)
    except DerivativeError:  # away from the point
        return judgement
    if _is_open(result) and not on_a_grid(subject.arrays, subject.centre):
        result = in_parts(problem, result, seed, options)
        if result.outcome is SegmentOutcome.DISAGREES and subject.numbers.precision <= ENOUGH:
            return judgement  # one part crosses so few plateaus of a cast that their noise is not seen
    if result.outcome is SegmentOutcome.DISAGREES:
        quantised = _quantisers(subject, seed, result.half_width)
        if bool(quantised.any()):
            rest = subject.arrays.where(~quantised)[0]
            again = segments_of(subset(subject, rest), seed, options, result.moving) if rest.shape[0] else None
            if again is None or again.outcome is not SegmentOutcome.DISAGREES:
                return judgement
            result = again
        region = region_of(problem, result, seed)
        finding = segment_finding(subject, result, region)
        with suppress(DerivativeError):  # a diagnosis that fails must not lose the finding
            finding = replace(finding, diagnoses=diagnoses(problem, result, region, seed))
        return replace(judgement, findings=(finding,))
    if result.outcome is not SegmentOutcome.AGREES:
        return judgement if rough or not _is_empty(subject, result, seed) else _hidden(judgement)
    why = obstacle.message if obstacle else WEAK
    note = (
        f"{why} So the rule was verified on segments of {result.half_width:.1g} of the point's scale to either side: "
        "the claimed gradient, integrated along them, is the change in value."
    )
    resolution = result.resolution if rough else _finer(judgement.resolution, result.resolution)
    return replace(judgement, obstacle=None, resolution=resolution, notes=(*judgement.notes, note))


def _is_empty(subject: Subject, result: SegmentResult, seed: int) -> bool:
    """Return True if the values change along a segment in 16 bits, and next to nothing is claimed of any segment.

    Then small steps agreed with a claim of zero because values were rounded. That of a quantiser is right.
    """
    if subject.numbers.precision < COARSEST / TWO_DIGITS or result.shows_a_tenth:
        return False
    if abs(result.claimed) > SHARE * abs(result.measured):
        return False
    return _moves(subject, seed, result.half_width) and not bool(_quantisers(subject, seed, result.half_width).any())


def _moves(subject: Subject, seed: int, width: float) -> bool:
    """Return True if one of many random steps of this width changes a value."""
    for number in range(MANY):
        ends = subject.evaluate_along(subject.direction(seed + number, Step(width)), (1.0, -1.0))
        if any(bool((end != subject.centre).any()) for end in ends):
            return True
    return False


def _hidden(judgement: Judgement) -> Judgement:
    return replace(judgement, obstacle=HIDDEN)


def _finer(one: Resolution, other: Resolution) -> Resolution:
    return one if one.relative < other.relative else other


def segments_of(subject: Subject, seed: int, options: Probing, moving: Array = None) -> SegmentResult | None:
    """Run the segment test; return None where the derivative raises away from the point."""
    try:
        return segment_test(subject, seed=seed, rtol=options.rtol, atol=options.atol, moving=moving)
    except DerivativeError:
        return None


def _is_open(result: SegmentResult) -> bool:
    """Return True if segments were measured, and do not disagree."""
    return result.outcome is not SegmentOutcome.DISAGREES and not math.isnan(result.half_width)


def _quantisers(subject: Subject, seed: int, width: float) -> Array:
    """Return which outputs are constant on a fine step, and are claimed to be; none if they show a cast.

    The gradient of a quantiser is zero almost everywhere, whatever its values do along a segment. A cast is
    piecewise constant too, and is differentiated as if it were not there. An output that changes by less than the
    spacing of its numbers on the fine step, if its slope is that of the segment, is constant for no other reason.
    """
    xp = subject.arrays
    precision, centre = subject.numbers.precision, subject.centre
    fine = max(RATIO**FINEST * first_step(precision), ROUNDINGS * precision)  # too short for most jumps
    direction = subject.direction(seed, Step(fine))
    ahead, behind = subject.evaluate_along(direction, (1.0, -1.0))
    far, opposite = subject.evaluate_along(subject.direction(seed, Step(width)), (1.0, -1.0))
    slight = abs(far - opposite) * fine / (2 * width) < precision * binades(xp, centre)
    constant = (ahead == centre) & (behind == centre) & ~slight
    if subject.mode == "forward":
        quantised = constant & (subject.pushforward(direction) == 0)
    else:
        quantised = _claimed_constant(subject, constant, seed)
    values = subject.centre[quantised]
    shown, grid = precision_shown(xp, [values]), on_a_grid(xp, values)
    cast = shown > subject.numbers.precision and (grid is False or (grid is None and shown <= SINGLE))
    return quantised & (not cast)  # no quantiser has as many levels as single precision


def _claimed_constant(subject: Subject, constant: Array, seed: int) -> Array:
    """Return which of these outputs have a claimed gradient of zero, or an unknown one: they are found by bisection."""
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
    return ~claimed


def segment_finding(subject: Subject, result: SegmentResult, region: Region) -> Finding:
    """Describe a rule that does not integrate to the change in value, and where."""
    part = region.count < subject.inputs.size
    return Finding(
        kind="wrong-gradient",
        message=f"The claimed gradient, integrated along a segment of {result.half_width:.1g} of the point's scale to "
        f"either side, predicts a change of {result.claimed:.6g}; the values change by {result.measured:.6g} ± "
        f"{result.bar:.2g}." + (f" The disagreement lies within {region}." if part else ""),
        argument=region.first.path,
        entries=(region.entry,) if region.entry else (),
        hint=f"Compare the {rule_of(subject)} with the derivative of the function without its rounding.",
    )
