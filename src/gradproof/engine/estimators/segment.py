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

from gradproof.engine.estimators.panels import (
    DEVIATIONS,
    NODES,
    PANEL_ENDS,
    SAMPLE,
    Question,
    Segment,
    claim_at,
    claims_along,
    deviations,
    place_of,
    scatter_nearby,
    value_at,
    values_along,
)
from gradproof.engine.results import Resolution
from gradproof.engine.subject import Array, Subject

WIDEST = 0.3  # half-width of the first segment, relative to the point's scale: wide against the rounding of values
SHRINK = 8.0  # from one half-width to the next; a fourth difference falls by 8⁴ where the function is smooth
LEAP = 64.0  # the same where values change no more smoothly than at random
SEARCH = 30  # calls of the function and its derivative, after which no other half-width is tried
SEGMENTS = 3  # random segments: two confirm each other, and one may be blind to an error
MORE = 2  # further segments, asked for if one of the three stands alone
CLEARLY = 1.3  # bars beyond which a claim is outside: the standard deviations are estimates, good to a fifth or so
MEANINGFUL = 0.1  # of the largest contribution of one entry: a wider bar verifies no single entry
LONE = 0.75  # of the residuals of four panels in one of them: concentrated, as by a jump in the function
FEWER = 3  # binary digits that numbers below an eighth of the largest lack on a fixed grid, and not in a float format
FELT = 32.0  # standard deviations of their noise by which outputs move on the finest step that still shows their slope
INPUT_STEPS = 64.0  # units in the last place of the inputs that this step has at least


class Outcome(enum.Enum):
    """What the segments say of the rule.

    >>> Outcome("agrees") is Outcome.AGREES
    True
    """

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentResult:
    """What was claimed and measured on the segment that decided, and how far the two may lie apart.

    `half_width` is relative to the point's scale. Where nothing was measured the numbers are NaN.
    """

    outcome: Outcome
    claimed: float
    measured: float
    bar: float
    resolution: Resolution
    half_width: float


NOTHING = SegmentResult(
    outcome=Outcome.UNDECIDED,
    claimed=math.nan,
    measured=math.nan,
    bar=math.nan,
    resolution=Resolution(absolute=math.inf, relative=math.inf),
    half_width=math.nan,
)


def second_opinion(
    subject: Subject, *, seed: int, rtol: float = 0.0, atol: float = 0.0, low: int = 0, high: int | None = None
) -> SegmentResult:
    """Hold the claimed gradient against the change in value along random segments through the point.

    `low` and `high` restrict the segments to a range of input coordinates. `rtol` and `atol` are errors of an entry
    that are tolerated. AGREES says that the bar would have shown an error of a tenth in the largest contribution.
    DISAGREES says that the rule is wrong, and not the function rough: two segments are clearly outside their bars, the
    residual is spread along them, and it does not vanish on fine steps.
    """
    stop = subject.inputs.size if high is None else high
    question = Question(subject=subject, low=low, high=stop, rtol=rtol, atol=atol)
    question = replace(question, scatter=scatter_nearby(question, seed))
    first = _best_width(question, seed)
    segments = _segments(question, seed, first) if first else []
    if not segments:
        return NOTHING
    worst = max(segments, key=lambda segment: segment.excess)
    return SegmentResult(
        outcome=_outcome(question, segments),
        claimed=worst.claimed,
        measured=worst.measured,
        bar=worst.bar + worst.tolerated,
        resolution=_resolution(segments),
        half_width=worst.values.width,
    )


def _best_width(question: Question, seed: int) -> Segment | None:
    """Shrink the first segment until its bar is narrow or rounding dominates it; return the one with the best bar."""
    width, spent = WIDEST, 0
    tried: list[Segment] = []
    while spent < SEARCH:
        values = values_along(question, seed, width)
        spent += len(PANEL_ENDS) - 1
        shrink = SHRINK
        if values is not None:
            noise, rough = DEVIATIONS * math.sqrt(values.noise), DEVIATIONS * math.sqrt(values.rough)
            if rough > max(values.size, LEAP * noise):
                shrink = LEAP
            elif segment := claims_along(question, values):
                spent += len(NODES)
                tried.append(segment)
                narrow = MEANINGFUL / 2 * segment.largest_contribution
                if segment.smooth_part <= max(narrow, SHRINK * noise, segment.rounded_part):
                    break
        width /= shrink
    return min(tried, key=lambda segment: segment.bar / max(segment.size, segment.values.size, 1e-300), default=None)


def _segments(question: Question, seed: int, first: Segment) -> list[Segment]:
    """Ask along further segments as wide as the first; return none where the function is undefined on one of them."""
    segments = [first]
    for number in range(1, SEGMENTS + MORE):
        if number >= SEGMENTS and len(_outside(_pooled(segments))) != 1:
            break
        values = values_along(question, seed + number, first.values.width)
        segment = claims_along(question, values) if values else None
        if segment is None:
            return []
        segments.append(segment)
    return _pooled(segments)


def _pooled(segments: Sequence[Segment]) -> list[Segment]:
    """Return the segments with variances no less than the mean of all: one difference may be small by chance."""
    rough = math.fsum(segment.values.rough for segment in segments) / len(segments)
    scatter = math.fsum(segment.scatter for segment in segments) / len(segments)
    pooled = []
    for segment in segments:
        values = replace(segment.values, rough=max(segment.values.rough, rough))
        pooled.append(replace(segment, values=values, scatter=max(segment.scatter, scatter)))
    return pooled


def _outside(segments: Sequence[Segment]) -> list[Segment]:
    return [segment for segment in segments if segment.excess > CLEARLY]


def _outcome(question: Question, segments: Sequence[Segment]) -> Outcome:
    if all(segment.excess <= 1 for segment in segments):
        return Outcome.AGREES if all(map(_meaningful, segments)) else Outcome.UNDECIDED
    outside = [segment for segment in _outside(segments) if _spread(segment)]
    if len(outside) < 2 or (_zero(segments) and _on_a_grid(question.subject.arrays, outside[0].values.ends)):
        return Outcome.UNDECIDED
    return Outcome.UNDECIDED if _holds_on_fine_steps(question, outside[0]) else Outcome.DISAGREES


def _meaningful(segment: Segment) -> bool:
    """Return True if the bar would have shown an error of a tenth in the largest contribution of an entry."""
    return segment.largest_entry > 0 and segment.bar <= max(
        MEANINGFUL * segment.largest_contribution, segment.tolerated
    )


def _spread(segment: Segment) -> bool:
    """Return True if the residual is not in one panel alone, as it is where the function jumps once."""
    parts = [abs(part) for part in segment.parts]
    return max(parts) <= LONE * math.fsum(parts)


def _zero(segments: Sequence[Segment]) -> bool:
    return not any(segment.largest_entry for segment in segments)


def _resolution(segments: Sequence[Segment]) -> Resolution:
    """Return the error in one entry that would have been clearly outside on two segments."""
    needed = [(CLEARLY * (each.bar + each.tolerated) + each.residual) / each.shortest for each in segments]
    absolute, entry = sorted(needed)[1], max(segment.largest_entry for segment in segments)
    return Resolution(absolute=absolute, relative=absolute / entry if entry else math.inf)


def _holds_on_fine_steps(question: Question, segment: Segment) -> bool:
    """Return True if the function is rough on the finest steps that show a slope, and the claim is right on them.

    A staircase, a sawtooth or a ripple has one slope almost everywhere and another one from afar. Outputs that jump on
    the fine step are left out; the others follow the slope almost everywhere.
    """
    subject, step, cotangent = question.subject, segment.values.step, segment.values.cotangent
    xp, ends = subject.arrays, segment.values.ends
    change, noise = ends[-1] - ends[0], deviations(question, ends[2])
    moved = abs(change) > 0
    t = FELT * float(xp.median((noise / abs(change))[moved]))
    t = max(t, INPUT_STEPS * subject.precision / segment.values.width)
    if not t < 0.25:  # there is no finer step
        return False
    fine = value_at(subject, cotangent, t * step) - value_at(subject, cotangent, -t * step)
    apart = (abs(fine - t * change) > 0.5 * t * abs(change))[moved]
    if 2 * int(apart.sum()) <= apart.shape[0]:  # the function is as smooth as it looks
        return False
    still = abs(fine) <= 4 * t * abs(change) + 8 * noise
    rest = xp.where(still, cotangent, 0.0)
    across = place_of(subject, t * step) - place_of(subject, -t * step)
    claimed = claim_at(subject, rest, 0 * step, across).change
    bar = DEVIATIONS * math.sqrt(2 * float((rest * noise) @ (rest * noise)))
    return abs(float(rest @ fine) - claimed) <= max(0.5 * abs(claimed), bar)


def _on_a_grid(xp: Array, values: Sequence[Array]) -> bool:
    """Return True if the values are counts: multiples of one number, small ones of fewer binary digits than large."""
    every = xp.concatenate([abs(value[:: max(1, value.shape[0] // SAMPLE)]) for value in values])
    small = every[every < every.max() / 2**FEWER]
    if not bool((small > 0).any()):
        return bool((every == xp.round(every)).all())
    return _digits(xp, small) <= max(_digits(xp, every) - FEWER, FEWER)


def _digits(xp: Array, values: Array) -> int:
    """Return the number of binary digits that these values need."""
    mantissa = xp.frexp(values)[0]
    fitting = (n for n in range(53) if not bool((mantissa * 2.0**n != xp.round(mantissa * 2.0**n)).any()))
    return next(fitting, 53)
