"""A claimed NaN or infinity: wrong where the function has a finite slope, and in the way where it has none."""

from __future__ import annotations

import math

from gradproof.engine.ladder import Ladder
from gradproof.engine.obstacles import Obstacle
from gradproof.engine.probe import MEANINGFUL, Probe
from gradproof.engine.results import Entry, Finding, Place
from gradproof.engine.subject import Subject
from gradproof.engine.weighing import combine, restricted


def not_finite(probe: Probe) -> Finding | Obstacle:
    """A claimed NaN or infinity is wrong where the function's own slope is finite."""
    subject, xp = probe.ladder.subject, probe.ladder.subject.arrays
    broken = ~xp.isfinite(probe.claimed * (probe.ladder.direction if subject.mode == "reverse" else probe.cotangent))
    first = int(xp.where(broken)[0][0])
    frame = subject.inputs if subject.mode == "reverse" else subject.outputs
    low, high = next((low, high) for low, high in frame.spans if low <= first < high)
    count = int(broken[low:high].sum())
    if subject.mode == "forward":
        return _in_output(probe, first, count)
    place = subject.inputs.locate(first)
    ladder = Ladder(subject, restricted(subject, probe.ladder.direction, first, first + 1))
    ladder.add(0, 1, -1, -2)
    estimates = ladder.estimates()
    sums = combine(ladder, subject.cotangent(probe.seed))
    bent = bool(ladder.bends(estimates.bar).any())
    undefined = not bool(xp.isfinite(subject.centre).all())
    if bent or undefined or not math.isfinite(sums.bar) or not _small(subject, ladder, sums.bar):
        return _no_clear_slope(count, place)
    step = float(ladder.direction[first])
    entry = Entry(
        index=place.index,
        part=place.part,
        stored=place.stored,
        claimed=float(probe.claimed[first]),
        numerical=sums.slope / step,
        bar=sums.bar / abs(step),
    )
    return _finding(f"The gradient with respect to {place.path}", place, count, entry)


def _in_output(probe: Probe, first: int, count: int) -> Finding | Obstacle:
    """The same for a slope that a pushforward claims of one output."""
    subject, ladder = probe.ladder.subject, probe.ladder
    estimates, place = ladder.estimates(), subject.outputs.locate(first)
    value, bar = float(estimates.value[first]), float(estimates.bar[first])
    bent = len(ladder.rungs) > 2 and bool(ladder.bends(estimates.bar)[first])
    undefined = not math.isfinite(float(subject.centre[first]))
    if bent or undefined or not math.isfinite(bar) or not _small(subject, ladder, bar):
        return _no_clear_slope(count, place)
    step, cause = subject.moved_by(ladder.direction, first) or (1.0, place)
    entry = Entry(
        index=cause.index,
        part=cause.part,
        stored=cause.stored,
        claimed=float(probe.claimed[first]) / step,
        numerical=value / step,
        bar=bar / abs(step),
        output=place,
    )
    what = f"The tangent of {place.path}" if cause is place else f"The gradient with respect to {cause.path}"
    return _finding(what, cause, count, entry)


def _no_clear_slope(count: int, place: Place) -> Obstacle:
    return Obstacle(
        f"non-finite: the claimed derivative is not finite in {count} entries ({place} first), and the function "
        "has no clear slope there either",
        "Choose a point inside the function's domain.",
    )


def _finding(what: str, place: Place, count: int, entry: Entry) -> Finding:
    return Finding(
        kind="non-finite-gradient",
        message=f"{what} is NaN or infinite in {count} {'entry' if count == 1 else 'entries'}, where the function has "
        "a finite slope.",
        argument=place.path,
        entries=(entry,),
        advice="Look for 0·inf or 0/0 in the derivative, often a where() whose unused branch divides by zero.",
    )


def _small(subject: Subject, ladder: Ladder, bar: float) -> bool:
    """Whether a bar is small beside the change of values along the ladder, or their own size times the step."""
    xp = subject.arrays
    values = xp.where(xp.isfinite(subject.centre), abs(subject.centre), 0.0)
    step = float(abs(ladder.direction).max())
    return bar <= MEANINGFUL * max(step, step * float(values.max()))
