"""A claimed NaN or infinity: wrong where the function has a finite slope, and in the way where it has none."""

from __future__ import annotations

from gradproof.engine.contraction import contract, restricted
from gradproof.engine.estimators.ladder import Ladder, first_step
from gradproof.engine.explanations.obstacles import Obstacle
from gradproof.engine.jacobian.columns import Columns
from gradproof.engine.probe import MEANINGFUL, Probe
from gradproof.engine.results import Entry, Finding, Place
from gradproof.engine.subject import Array, Frame, Subject


def not_finite(probe: Probe) -> Finding | Obstacle:
    """A claimed NaN or infinity is wrong where the function's own slope is finite."""
    subject, xp = probe.ladder.subject, probe.ladder.subject.arrays
    broken = ~xp.isfinite(probe.claimed * (probe.ladder.direction if subject.mode == "reverse" else probe.cotangent))
    if subject.mode == "forward":
        return _in_outputs(probe, broken)
    first = int(xp.where(broken)[0][0])
    count = _count(subject.inputs, broken, first)
    place = subject.inputs.locate(first)
    ladder = Ladder(subject, restricted(subject, probe.ladder.direction, first, first + 1))
    ladder.add(0, 1, -1, -2)
    estimates = ladder.estimates()
    sums = contract(ladder, subject.cotangent(probe.seed))
    bent = bool(ladder.bends(estimates.bar).any())
    undefined = not bool(xp.isfinite(subject.centre).all())
    if bent or undefined or not sums.bar <= _most(subject, ladder):
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


def _in_outputs(probe: Probe, broken: Array) -> Finding | Obstacle:
    """The same for slopes that a pushforward claims of outputs, or a Jacobian of its columns."""
    subject, ladder, xp = probe.ladder.subject, probe.ladder, probe.ladder.subject.arrays
    estimates = ladder.estimates()
    unclear = broken & ~_have_slopes(ladder)
    excused = _beside(probe, subject, unclear) if isinstance(subject, Columns) else unclear
    wrong = xp.where(broken & ~excused)[0]
    first = int((wrong if wrong.shape[0] else xp.where(unclear if bool(unclear.any()) else broken)[0])[0])
    place, count = subject.outputs.locate(first), _count(subject.outputs, broken, first)
    step, cause = subject.moved_by(ladder.direction, first) or (1.0, place)
    if not wrong.shape[0]:
        return _no_clear_slope(count, cause)
    value, bar = float(estimates.value[first]), float(estimates.bar[first])
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


def _have_slopes(ladder: Ladder) -> Array:
    """Which outputs have a clear slope along a direction."""
    subject, bar = ladder.subject, ladder.estimates().bar
    clear = subject.arrays.isfinite(subject.centre) & (bar <= _most(subject, ladder))
    return clear & ~ladder.bends(bar) if len(ladder.samples) > 2 else clear


def _beside(probe: Probe, columns: Columns, unclear: Array) -> Array:
    """The entries beside one without a slope: nothing times infinity is NaN.

    A backward says so of all other outputs of its column, a pushforward of all other inputs of its row.
    """
    if columns.whole.mode == "reverse":
        return columns.whole_columns(unclear)
    subject = columns.whole
    ladder = Ladder(subject, subject.direction(probe.seed, first_step(subject.precision), False))
    ladder.add(0, 1, -1, -2)
    return unclear | columns.in_rows(~_have_slopes(ladder))


def _count(frame: Frame, broken: Array, first: int) -> int:
    """How many are broken of the tensor that the first belongs to."""
    return next(int(broken[low:high].sum()) for low, high in frame.spans if low <= first < high)


def _no_clear_slope(count: int, place: Place) -> Obstacle:
    return Obstacle(
        f"non-finite: the claimed derivative is not finite in {_entries(count)} ({place} first), and the function "
        "has no clear slope there either",
        "Choose a point inside the function's domain.",
    )


def _finding(what: str, place: Place, count: int, entry: Entry) -> Finding:
    return Finding(
        kind="non-finite-gradient",
        message=f"{what} is NaN or infinite in {_entries(count)}, where the function has a finite slope.",
        argument=place.path,
        entries=(entry,),
        advice="Look for 0·inf or 0/0 in the derivative, often a where() whose unused branch divides by zero.",
    )


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def _most(subject: Subject, ladder: Ladder) -> float:
    """The widest bar that is small beside the change of values along the ladder, or their own size times the step."""
    xp = subject.arrays
    values = xp.where(xp.isfinite(subject.centre), abs(subject.centre), 0.0)
    step = float(abs(ladder.direction).max())
    return MEANINGFUL * max(step, step * float(values.max()))
