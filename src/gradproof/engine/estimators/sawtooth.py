"""Test whether fine steps show the slope of a function's graph, or that of teeth which jumps separate.

The change in value along a segment is the integral of the slope, for a function without jumps. Both the slopes on fine
steps and the claims are integrated along the same segment; if only the claims add up, the rule may be right.
"""

from __future__ import annotations

from gradproof.engine.estimators.panels import NODES, Segment, claims_along, values_along
from gradproof.engine.estimators.problem import Problem, alignment_of
from gradproof.engine.estimators.segment import SHRINK, WIDEST, pooled, problem_of
from gradproof.engine.estimators.steps import SHORT, first_step
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import SHARE


def is_sawtooth(subject: Subject, seed: int, moving: Array = None) -> bool:
    """Return True if the claims add up to the change in value along two segments, and the slopes on fine steps do not.

    Wide segments have more jumps, and short ones less curvature.
    """
    problem = problem_of(subject, seed, 0.0, 0.0, moving)
    return any(_only_claims_add_up(problem, seed, width) for width in (WIDEST, WIDEST / SHRINK))


def _only_claims_add_up(problem: Problem, seed: int, width: float) -> bool:
    """Return True if the claims are within the bars, or hardly off, and slopes on fine steps are not."""
    segments = []
    for number in range(2):
        values = values_along(problem, seed + number, width, alignment_of(problem, number))
        segment = claims_along(problem, values) if values else None
        if segment is None:
            return False
        segments.append(segment)
    segments = pooled(segments)
    jumps = [abs(_jumps_along(each)) for each in segments]
    slight = (SHARE * min(off, each.values.size) for each, off in zip(segments, jumps, strict=True))
    hold = all(each.residual <= max(each.bar, least) for each, least in zip(segments, slight, strict=True))
    return hold and all(off > max(each.bar, 2 * each.residual) for each, off in zip(segments, jumps, strict=True))


def _jumps_along(segment: Segment) -> float:
    """Return the part of the contracted change along a segment that slopes on fine steps do not add up to."""
    chord = segment.values.chord
    fine = SHORT * first_step(chord.subject.numbers.precision) / segment.values.width
    slopes = sum(chord.value(t + fine) - chord.value(t - fine) for t in NODES)
    return segment.measured - float(chord.cotangent @ slopes) / (len(NODES) * fine)
