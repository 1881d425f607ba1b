"""Claimed derivatives that are NaN or infinite, compared with the measured slope of the same entry."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof.engine.contraction import contract, restricted
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.steps import BOTTOM, first_step
from gradproof.engine.jacobian.columns import Columns
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry, Finding, Place
from gradproof.engine.subject import Array, Frame, Step, Subject
from gradproof.engine.thresholds import MEANINGFUL


@dataclass(frozen=True, slots=True)
class BrokenClaim:
    """A claimed derivative that is NaN or infinite.

    `what` names the derivative, `place` is its first broken entry, and `count` says how many there are. `entry` has the
    measured slope there; it is None where the function has no clear slope either.
    """

    what: str
    place: Place
    count: str
    entry: Entry | None

    @property
    def finding(self) -> Finding:
        """The finding for a claim that is not finite although the function's slope is."""
        return Finding(
            kind="non-finite-gradient",
            message=f"{self.what} is NaN or infinite in {self.count}, where the function has a finite slope.",
            argument=self.place.path,
            entries=(self.entry,) if self.entry else (),
            hint="Look for 0·inf or 0/0 in the derivative, often a where() whose unused branch divides by zero.",
        )


def broken_claim(probe: Probe) -> BrokenClaim:
    """Describe a probe's claim that is not finite, and measure the slope in its place."""
    subject, xp = probe.ladder.subject, probe.ladder.subject.arrays
    weights = probe.ladder.direction if subject.mode == "reverse" else probe.cotangent
    broken = ~xp.isfinite(probe.claimed * weights)
    return _of_inputs(probe, broken) if subject.mode == "reverse" else _of_outputs(probe, broken)


def _of_inputs(probe: Probe, broken: Array) -> BrokenClaim:
    """Describe the first entry of a gradient that is not finite."""
    subject, xp = probe.ladder.subject, probe.ladder.subject.arrays
    first = int(xp.where(broken)[0][0])
    place, count = subject.inputs.locate(first), _count(subject.inputs, broken, first)
    what, cotangent = f"The gradient with respect to {place.path}", subject.cotangent(probe.seed)
    ladder = Ladder(subject, restricted(subject, probe.ladder.direction, first, first + 1))
    together = Ladder(subject, xp.where(broken, probe.ladder.direction, 0.0))  # along one entry a norm may be constant
    if not (_has_slope(ladder, cotangent) and _has_slope(together, cotangent)):
        return BrokenClaim(what, place, count, None)
    contraction = contract(ladder, cotangent)
    step = float(ladder.direction[first])
    numerical, bar = contraction.slope / step, contraction.bar / abs(step)
    return BrokenClaim(
        what, place, count, Entry.at(place, claimed=float(probe.claimed[first]), numerical=numerical, bar=bar)
    )


def _has_slope(ladder: Ladder, cotangent: Array) -> bool:
    """Return True if the contracted outputs have a clear slope along a ladder's direction."""
    subject = ladder.subject
    ladder.add(*BOTTOM, -1, -2)  # which distinguish a slope from a kink
    if not bool(subject.arrays.isfinite(subject.centre).all()) or bool(ladder.kinks(ladder.estimates().bar).any()):
        return False
    return contract(ladder, cotangent).bar <= float(_widest(subject, ladder).max())


def _of_outputs(probe: Probe, broken: Array) -> BrokenClaim:
    """Describe the first slope of a pushforward, or of a column of a Jacobian, that is not finite."""
    subject, ladder, xp = probe.ladder.subject, probe.ladder, probe.ladder.subject.arrays
    unclear = broken & ~_have_slopes(ladder)
    excused = _beside(probe, subject, unclear) if isinstance(subject, Columns) else unclear
    wrong = xp.where(broken & ~excused)[0]
    first = int((wrong if wrong.shape[0] else xp.where(unclear if bool(unclear.any()) else broken)[0])[0])
    place, count, step = subject.outputs.locate(first), _count(subject.outputs, broken, first), 1.0
    cause, what = place, f"The tangent of {place.path}"
    if isinstance(subject, Columns):
        column = subject.column_of(first)
        step, cause = float(ladder.direction[column].sum()), subject.inputs.locate(column)
        what = f"The gradient with respect to {cause.path}"
    if not wrong.shape[0]:
        return BrokenClaim(what, cause, count, None)
    estimates = ladder.estimates()
    claimed, numerical = float(probe.claimed[first]) / step, float(estimates.value[first]) / step
    bar = float(estimates.bar[first]) / abs(step)
    entry = Entry.at(cause, claimed=claimed, numerical=numerical, bar=bar, output=place)
    return BrokenClaim(what, cause, count, entry)


def _have_slopes(ladder: Ladder) -> Array:
    """Flag the outputs that have a clear slope along a ladder's direction."""
    subject, bar = ladder.subject, ladder.estimates().bar
    clear = subject.arrays.isfinite(subject.centre) & (bar <= _widest(subject, ladder))
    return clear & ~ladder.kinks(bar) if len(ladder.samples) > 2 else clear


def _beside(probe: Probe, columns: Columns, unclear: Array) -> Array:
    """Flag the entries that are NaN since another entry has no slope: 0·inf is NaN.

    A backward spreads the NaN to all other outputs of the column, a pushforward to all other inputs of the row.
    """
    subject = columns.whole
    if subject.mode == "reverse":
        return columns.whole_columns(unclear)
    ladder = Ladder(subject, subject.direction(probe.seed, Step(first_step(subject.numbers.precision))))
    ladder.add(*BOTTOM, -1, -2)  # which distinguish a slope from a kink
    return unclear | columns.in_rows(~_have_slopes(ladder))


def _count(frame: Frame, broken: Array, first: int) -> str:
    """Return, in words, how many entries are broken in the tensor that the first one belongs to."""
    count = next(int(broken[low:high].sum()) for low, high in frame.spans if low <= first < high)
    return f"{count} {'entry' if count == 1 else 'entries'}"


def _widest(subject: Subject, ladder: Ladder) -> Array:
    """Return the widest meaningful bar of each output: a share of the step, times the value's size if above one."""
    xp, step = subject.arrays, float(abs(ladder.direction).max())
    values = xp.where(xp.isfinite(subject.centre), abs(subject.centre), 0.0)
    return MEANINGFUL * step * xp.maximum(values, xp.ones_like(values))
