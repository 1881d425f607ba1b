"""A second opinion by the segment test, where values are too rough on small steps for a slope."""

from __future__ import annotations

from dataclasses import replace

from gradproof.engine.estimators.segment import Outcome, SegmentResult, second_opinion
from gradproof.engine.options import Probing
from gradproof.engine.results import Finding, Reason
from gradproof.engine.subject import DerivativeError, Subject
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import rule_of

ROUGH = frozenset({Reason.QUANTISED, Reason.NOISE, Reason.STEP_SIZE, Reason.CONDITIONING})


def seconded(judgement: Judgement, subject: Subject, seed: int, options: Probing) -> Judgement:
    """Return a judgement that is inconclusive for roughness as the segment test decides it, where it can."""
    obstacle = judgement.obstacle
    if judgement.findings or obstacle is None or obstacle.reason not in ROUGH or options.step is not None:
        return judgement
    result = asked(subject, seed, options)
    if result is None or result.outcome is Outcome.UNDECIDED:
        return judgement
    if result.outcome is Outcome.DISAGREES and not result.claimed:  # a quantiser's gradient is zero almost everywhere
        return judgement
    if result.outcome is Outcome.DISAGREES:
        return replace(judgement, findings=(segment_finding(subject, result),))
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


def segment_finding(subject: Subject, result: SegmentResult) -> Finding:
    """Describe a rule that does not integrate to the change in value."""
    return Finding(
        kind="wrong-gradient",
        message=f"The claimed gradient, integrated along a segment of {result.half_width:.1g} of the point's scale to "
        f"either side, predicts a change of {result.claimed:.6g}; the values change by {result.measured:.6g} ± "
        f"{result.bar:.2g}.",
        hint=f"Compare the {rule_of(subject)} with the derivative of the function without its rounding.",
    )
