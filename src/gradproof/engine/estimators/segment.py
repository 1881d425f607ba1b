"""The segment test: the claimed gradient, integrated along a segment, against the change in value.

For end points a and b around the point, and a cotangent u, the fundamental theorem of calculus says

    ⟨u, f(b) − f(a)⟩ = ∫₀¹ ⟨Jᵀ(p(s)) u, b − a⟩ ds,   p(s) = a + s (b − a).

The left side needs no small step, so the test is the second opinion on functions whose values are quantised, noisy or
oscillating on small steps. What is verified is the rule in a neighbourhood of the point, of the half-width that the
result states.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof.engine.estimators.noise import (
    bias_of_claims,
    effective_count,
    noise_of_claims,
    on_a_grid,
    scatter_around,
)
from gradproof.engine.estimators.panels import NODES, PANEL_ENDS, SMOOTH, Segment, Unsmooth, claims_along, values_along
from gradproof.engine.estimators.problem import Alignment, Problem, alignment_of
from gradproof.engine.estimators.roughness import holds_on_fine_steps, is_rough_at_the_ends
from gradproof.engine.results import UNMEASURED, Resolution, least_error
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import (
    ALIKE,
    CLEARLY,
    FEW,
    MANY,
    MARGIN,
    MEANINGFUL,
    SAMPLE,
    SHARE,
)

WIDEST = 0.3  # half-width of the first segment, relative to the point's scale: wide against the rounding of values
SHRINK = 8.0  # from one half-width to the next, squared where rounding leaves room: fourth differences fall by 8⁴
NARROWEST = 32.0  # units in the last place of the inputs in a half-width, so that the ends of four panels differ
SEARCH = 30  # calls of the function and its derivative, after which no other half-width is tried


class SegmentOutcome(enum.Enum):
    """What the segments say of the rule."""

    AGREES = "agrees"
    WEAK = "agrees, within bars too wide to verify a single entry"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentResult:
    """What was claimed and measured on the segment that decided, and how far the two may differ.

    `half_width` is relative to the point's scale. Where nothing was measured the numbers are NaN. `unsmooth` is the
    part of a bar that truncation and roughness make, `shows_a_tenth` says that an error of
    a tenth in all entries would have been seen, and `moving` is one for coordinates that moved.
    """

    outcome: SegmentOutcome
    claimed: float = math.nan
    measured: float = math.nan
    bar: float = math.nan
    resolution: Resolution = UNMEASURED
    half_width: float = math.nan
    unsmooth: Unsmooth = SMOOTH
    shows_a_tenth: bool = False
    moving: Array = None


def segment_test(
    subject: Subject,
    *,
    seed: int,
    rtol: float = 0.0,
    atol: float = 0.0,
    moving: Array = None,
    alignment: Alignment = Alignment.CLAIMED,
) -> SegmentResult:
    """Hold the claimed gradient against the change in value along random segments through the point.

    `moving` is one for the input coordinates that the segments move, and zero for the others; `alignment` is that of
    every second segment, or of all where it is MEASURED. `rtol` and `atol` are errors of an entry that are tolerated.

    AGREES says that the bar would have shown an error of a tenth in the largest contribution. DISAGREES says that the
    rule is wrong and the function is not rough: two segments are clearly outside their bars, the residual is spread
    along them, and it does not vanish on fine steps.
    """
    return segment_test_of(replace(problem_of(subject, seed, rtol, atol, moving), alignment=alignment), seed)


def segment_test_of(problem: Problem, seed: int) -> SegmentResult:
    """Do the same for a problem, whose noise is measured already."""
    first = _best_width(problem, seed)
    segments = _segments(problem, seed, first) if first else []
    if not segments:
        return SegmentResult(outcome=SegmentOutcome.UNDECIDED)
    worst = max(segments, key=lambda segment: segment.excess)
    return SegmentResult(
        outcome=_outcome(problem, segments),
        claimed=worst.claimed,
        measured=worst.measured,
        bar=worst.bar + worst.tolerated,
        resolution=_resolution(segments),
        half_width=worst.values.width,
        unsmooth=Unsmooth.of(segments),
        shows_a_tenth=any(segment.bar <= SHARE * abs(segment.claimed) for segment in segments),
        moving=problem.moving,
    )


def problem_of(subject: Subject, seed: int, rtol: float, atol: float, moving: Array = None) -> Problem:
    """Measure the noise of values and claims, and return all that the segment test needs."""
    problem = Problem(subject=subject, moving=moving, rtol=rtol, atol=atol)
    return replace(
        problem,
        scatter=scatter_around(problem, seed),
        claim_noise=noise_of_claims(problem, seed),
        bias=bias_of_claims(subject),
    )


def _best_width(problem: Problem, seed: int) -> Segment | None:
    """Shrink the first segment until its bar is narrow or rounding dominates it; return the one with the best bar.

    Steps below the quantum of a function do not change its values, and show no noise: a segment that contradicts a
    wider one is not taken. A few outputs may all be constant between two jumps: for them a segment cannot disagree if
    the function was rough on a wider one.
    """
    width, spent, skipped = WIDEST, 0, False
    tried: list[Segment] = []
    while spent < SEARCH and width >= NARROWEST * problem.subject.numbers.precision:
        values = values_along(problem, seed, width, alignment_of(problem, 0))
        spent += len(PANEL_ENDS) - 1
        shrink = SHRINK
        if values is not None:
            noise, rough = CLEARLY * math.sqrt(values.noise), CLEARLY * math.sqrt(values.rough)
            if rough > max(values.size, SHRINK**2 * noise):
                shrink, skipped = SHRINK**2, True
            elif segment := claims_along(problem, values):
                spent += len(NODES)
                if not all(_consistent(segment, wider) for wider in tried):
                    break
                tried.append(segment)
                narrow = MEANINGFUL / 4 * segment.largest_contribution
                if segment.smooth_part <= max(narrow, SHRINK * noise, segment.rounded_part):
                    break
                shrink = SHRINK**2 if segment.smooth_part > SHRINK**2 * noise else SHRINK
        width /= shrink
    best = min(tried, key=lambda segment: segment.bar / _size(segment), default=None)
    if best and skipped and effective_count(best.values.ends[-1] - best.values.ends[0]) < MANY:
        return replace(best, beyond_doubt=False)
    return best


def _consistent(segment: Segment, wider: Segment) -> bool:
    """Return True if the outputs and the residual behave on a part of a segment as on all of it.

    Half a bar of the wider segment, two standard deviations, is enough: where it errs, the wider segment is kept.
    """
    near, far = segment.values, wider.values
    (a, *_, b), (c, *_, d) = near.ends, far.ends
    apart = far.chord.cotangent * ((b - a) * (far.width / near.width) - (d - c))
    allowed = ALIKE * far.size + CLEARLY / 2 * math.sqrt(far.rough + far.noise)
    residuals = [(each.measured - each.claimed) / _size(each) for each in (segment, wider)]
    bars = segment.bar / _size(segment) + wider.bar / _size(wider) / 2
    return math.sqrt(float(apart @ apart)) <= allowed and abs(residuals[0] - residuals[1]) <= bars


def _size(segment: Segment) -> float:
    return max(segment.size, segment.values.size) or 1.0


def _segments(problem: Problem, seed: int, first: Segment) -> list[Segment]:
    """Test further segments as wide as the first; return none where the function is undefined on one of them.

    Of three segments two confirm each other, and one may be blind to an error.
    """
    segments = [first]
    for number in range(1, 2 * FEW - 1):
        if number >= FEW and (first.values.width < WIDEST or not _doubtful(pooled(segments))):
            break
        values = values_along(problem, seed + number, first.values.width, alignment_of(problem, number))
        segment = claims_along(problem, values) if values else None
        if segment is None:
            return []
        segments.append(segment)
    return pooled(segments)


def _doubtful(segments: Sequence[Segment]) -> bool:
    """Return True if a segment is near or outside its bar, and no other confirms it."""
    return len(_outside(segments)) < 2 and any(segment.excess > 1 / MARGIN for segment in segments)


def pooled(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments with variances and sizes no less than the mean of all: one may be small by chance.

    Claims that add up scatter by a share of their sum, and others by one of their root mean square. So the scatter of a
    segment counts for another by no more than its share.
    """
    size = math.sqrt(math.fsum(segment.values.size**2 for segment in segments) / len(segments))
    rough = math.fsum(segment.values.rough for segment in segments) / len(segments)
    others = []
    for segment in segments:
        shares = (min(1.0, segment.together / (each.together or 1.0)) ** 2 for each in segments)
        scatter = math.fsum(map(float.__mul__, shares, (each.scatter for each in segments))) / len(segments)
        values = replace(segment.values, rough=max(segment.values.rough, rough), size=max(segment.values.size, size))
        others.append(replace(segment, values=values, scatter=max(segment.scatter, scatter)))
    return others


def _outside(segments: Sequence[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.excess > 1]


def _outcome(problem: Problem, segments: Sequence[Segment]) -> SegmentOutcome:
    if all(segment.excess <= 1 for segment in segments):
        return SegmentOutcome.AGREES if all(map(_meaningful, segments)) else SegmentOutcome.WEAK
    if not segments[0].beyond_doubt:
        return SegmentOutcome.UNDECIDED
    unsteady = math.fsum(segment.unsteadiness for segment in segments) / len(segments)
    many = all(effective_count(each.values.ends[-1] - each.values.ends[0]) >= MANY for each in segments)
    chance = 0.0 if many else CLEARLY * math.sqrt(max(0.0, unsteady))
    outside = [each for each in _outside(segments) if _spread(each) and _smooth(each) and each.residual > chance]
    if (
        len(outside) < 2
        or max(each.excess for each in outside) < MARGIN
        or (_zero(segments) and _on_a_grid(problem.subject.arrays, segments))
    ):
        return SegmentOutcome.UNDECIDED
    if is_rough_at_the_ends(problem, outside[0]) or holds_on_fine_steps(problem, outside[0]):
        return SegmentOutcome.UNDECIDED
    return SegmentOutcome.DISAGREES


def _on_a_grid(xp: Array, segments: Sequence[Segment]) -> bool:
    """Return True if the values at all ends are on a grid: a single value may be a whole number by chance."""
    ends = (end for each in segments for end in each.values.ends)
    return bool(on_a_grid(xp, xp.concatenate([end[:: max(1, end.shape[0] // SAMPLE)] for end in ends])))


def _meaningful(segment: Segment) -> bool:
    """Return True if the bar would have shown an error of a tenth in the largest contribution of an entry."""
    return segment.largest_entry > 0 and segment.bar <= max(
        MEANINGFUL / 2 * segment.largest_contribution, segment.tolerated
    )


def _spread(segment: Segment) -> bool:
    """Return True if one panel holds no more of the residual than all others would if it were spread evenly.

    Where the function jumps once, it lies in one panel.
    """
    parts = [abs(part) for part in segment.parts]
    return max(parts) <= (1 - 1 / len(parts)) * math.fsum(parts)


def _smooth(segment: Segment) -> bool:
    """Return True if the values change by more than they are rough, so that they have a slope to disagree with."""
    return CLEARLY * math.sqrt(segment.values.noise + segment.values.rough) <= segment.values.size


def _zero(segments: Sequence[Segment]) -> bool:
    return not any(segment.largest_entry for segment in segments)


def error_needed(segment: Segment) -> float:
    """Return the error in one entry that would have been clearly outside on this segment."""
    return float(least_error(MARGIN * (segment.bar + segment.tolerated), segment.residual, segment.shortest))


def _resolution(segments: Sequence[Segment]) -> Resolution:
    """Return the error in one entry that would have been clearly outside on two segments."""
    absolute, entry = sorted(map(error_needed, segments))[1], max(segment.largest_entry for segment in segments)
    return Resolution.of(absolute, entry)
