"""A derivative in low precision beside the same one in double precision, entry by entry.

The effect of rounding on an entry is estimated from three quantities: the change of the gradient when the point moves
by a unit of rounding, the size of the entry for other incoming gradients (it may cancel for this one), and the size of
the values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from gradproof.engine.allowances import allowances
from gradproof.engine.options import Probing
from gradproof.engine.perturbed import product, random_operand, scatter
from gradproof.engine.pieces import columns, extremes
from gradproof.engine.results import Entry, Finding, Place, Resolution, least_error
from gradproof.engine.subject import Array, Frame, Subject
from gradproof.engine.thresholds import (
    ALIKE,
    CALLS,
    CLEARLY,
    COARSEST,
    FEW,
    GROSS,
    HANDFUL,
    MANY,
    ROUNDINGS,
    SHOWN,
    SLIGHT,
)
from gradproof.engine.trust import below_rounding
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import rule_of


@dataclass(frozen=True, kw_only=True)
class PrecisionComparison:
    """A derivative in low precision beside the one in double precision, entry by entry, for one operand.

    `allowed` is the difference that rounding alone explains. `finite` says that all claimed entries are finite. Where
    only some entries are compared, `among` flags them.
    """

    subject: Subject
    operand: Array
    claimed: Array
    truth: Array
    allowed: Array
    seed: int
    finite: bool
    among: Array = None

    @cached_property
    def gap(self) -> Array:
        """The distance of each entry from its value in double precision; infinite where it is NaN in this one alone."""
        xp, gap = self.subject.arrays, self.claimed - self.truth
        xp.abs(gap, out=gap)
        if self.finite:
            return gap
        return xp.where(xp.isnan(self.claimed) & xp.isfinite(self.truth), math.inf, gap)

    @cached_property
    def wrong(self) -> Array:
        """Flags of the entries that differ by more than is allowed."""
        wrong = ~(self.gap <= self.allowed)
        return wrong if self.among is None else wrong & self.among

    @cached_property
    def differs(self) -> bool:
        """Whether some entries differ by more than is allowed."""
        return bool(self.wrong.any())

    @property
    def worst(self) -> Place:
        """The entry with the largest distance."""
        return _frame(self.subject).locate(int(self.subject.arrays.argmax(self.gap)))

    def worst_tensors(self, flags: Array) -> Sequence[tuple[int, int]]:
        """Return the ranges of the few tensors with flagged entries that differ most."""
        spans = [span for span in _frame(self.subject).spans if bool(flags[slice(*span)].any())]
        return sorted(spans, key=lambda span: -float(self.gap[slice(*span)].max()))[:FEW]

    @cached_property
    def scattered(self) -> Array:
        """The measured effect of rounding on each entry."""
        return scatter(self.subject, self.operand, self.claimed, self.seed + 2 + FEW)

    @cached_property
    def large(self) -> Array:
        """Flags of the entries that differ by more than is allowed, and by more than a hundredth of the largest."""
        return self.wrong & ~(self.gap <= SLIGHT * float(abs(self.truth).max()))

    @cached_property
    def material(self) -> Array:
        """Flags of the large differences that the measured effect of rounding does not explain either."""
        return self.large & ~(self.gap <= self.allowed + ROUNDINGS * self.scattered)

    @cached_property
    def gross(self) -> Array:
        """Flags of the entries that differ by many times what rounding does.

        Lone entries need not differ by so many times what is allowed, where all others use little of it.
        """
        lone = int(self.wrong.sum()) <= COARSEST * self.gap.shape[0]
        times = min(CLEARLY, GROSS * self._used_by_others) if lone else GROSS
        return (
            self.material
            & (self.gap > times * self.allowed)
            & (self.gap > GROSS * self.scattered)
            & ~below_rounding(self.allowed, _frame(self.subject), self.subject.numbers.precision)
        )

    @property
    def _used_by_others(self) -> float:
        """The largest share of what is allowed by which an entry differs that is not wrong."""
        xp = self.subject.arrays
        known = ~self.wrong & (self.allowed > 0)
        return float(xp.where(known, self.gap / xp.where(known, self.allowed, 1.0), 0.0).max())


def operand_of(subject: Subject, wide: Subject, seed: int) -> Array:
    """Draw an operand that low precision can hold, as every incoming gradient of a reference is."""
    operand = random_operand(wide, seed)
    return operand if subject.mode == "reverse" else subject.inputs.rounded(operand)


def compared(
    subject: Subject,
    wide: Subject,
    operand: Array,
    seed: int,
    options: Probing,
    *,
    products: tuple[Array, Array],
    among: Array = None,
) -> PrecisionComparison:
    """Compare the products of both precisions with one operand. An intermediate infinity may become NaN.

    What rounding explains is estimated no further than the entries need.
    """
    claimed, truth = products
    accepted = options.along(subject, operand)
    finite = math.isfinite(float(claimed.sum()))
    for allowed, is_last in allowances(subject, wide, operand, truth, seed):
        if accepted.atol or accepted.rtol:
            allowed += accepted.atol + accepted.rtol * abs(truth)
        comparison = PrecisionComparison(
            subject=subject,
            operand=operand,
            claimed=claimed if finite else _without_overflow(subject, claimed, truth, allowed),
            truth=truth,
            allowed=allowed,
            seed=seed,
            finite=finite,
            among=among,
        )
        if is_last or not comparison.differs:
            return comparison
        del comparison, allowed  # long vectors
    raise AssertionError("one of the bounds is the last")


def _without_overflow(subject: Subject, claimed: Array, truth: Array, allowed: Array) -> Array:
    """Return the claims, with the true numbers in place of those that this precision cannot hold."""
    overflow = ~subject.arrays.isfinite(claimed) & (abs(truth) + allowed > 0.5 * subject.numbers.largest)
    return subject.arrays.where(overflow, truth, claimed)


def confirmed_entries(comparison: PrecisionComparison, wide: Subject, options: Probing) -> Array:
    """Return flags of the entries that differ by more than rounding does, for this operand and for another one.

    Both bounds on rounding come from a few samples. Among millions of entries some have bounds that are too small for
    one operand. The same entry hardly has them for two, while a wrong rule is wrong for both, unless it claims a small
    number by chance; a third operand covers that.
    """
    subject, seed, suspects = comparison.subject, comparison.seed, comparison.large
    confirmed = suspects
    for again in (seed + HANDFUL, seed + 2 * HANDFUL):
        if not bool(suspects.any()):
            return suspects
        operand = operand_of(subject, wide, again)
        products = product(subject, operand), product(wide, operand)
        other = compared(subject, wide, operand, again, options, products=products, among=suspects)
        confirmed = other.wrong
        if bool(confirmed.any()):  # the effect of rounding is measured only where it decides
            suspects = comparison.material
            confirmed = confirmed & suspects
        if bool(confirmed.any()):
            confirmed = confirmed & other.material
        if bool(confirmed.any()):
            break
    return confirmed


def is_off_by_a_factor(comparison: PrecisionComparison, confirmed: Array) -> bool:
    """Return True if the derivative of a tensor is a multiple of the right one, which rounding does not cause.

    The factor has to explain most of the error, and to be further from one than rounding takes a single entry; where
    there are few entries, further still.
    """
    rounding = ROUNDINGS * comparison.subject.numbers.precision
    for low, high in _frame(comparison.subject).spans:
        claimed, truth = comparison.claimed[low:high], comparison.truth[low:high]
        square = float(truth @ truth)
        if not square or not bool(confirmed[low:high].any()):
            continue
        off = float(claimed @ truth) / square - 1
        rest = claimed - (1 + off) * truth
        least, most = rounding if high - low >= MANY else ALIKE, min(abs(off) / 2, 0.1 * abs(1 + off))
        if abs(off) > least and float(rest @ rest) < most**2 * square:
            return True
    return False


def resolution_of(comparison: PrecisionComparison, judgement: Judgement, found: Array = None) -> Resolution:
    """Return the larger of two errors: the largest that rounding hides, and the resolution in double precision.

    The distances of entries that were `found` to be wrong hide nothing.
    """
    xp = comparison.subject.arrays
    apart = comparison.gap if found is None else xp.where(found, 0.0, comparison.gap)
    hidden = least_error(comparison.allowed, apart)
    (least,), (greatest,), (most,) = columns(xp, [[*extremes(xp, comparison.truth), hidden.max()]])
    size = max(-least, greatest)
    if not math.isfinite(most):
        most = float(xp.where(xp.isfinite(hidden), hidden, 0.0).max())
    widest = max(most, judgement.resolution.absolute)
    return Resolution.of(widest, size)


def finding_of(comparison: PrecisionComparison, wide: Subject) -> Finding:
    """Describe the entries that are wrong in this precision, the worst first, or values that are not finite in it."""
    subject = comparison.subject
    what = "gradient with respect to" if subject.mode == "reverse" else "tangent of"
    wrong = subject.arrays.where(comparison.wrong)[0]
    count = wrong.shape[0]
    ranked = wrong[(-comparison.gap[wrong]).argsort()[:CALLS]]
    rows = zip(
        *(
            each.tolist()
            for each in (
                ranked,
                *(vector[ranked] for vector in (comparison.claimed, comparison.truth, comparison.allowed)),
            )
        ),
        strict=True,
    )
    argument = _frame(subject).locate(int(ranked[0])).path
    entries = [
        Entry.at(place, claimed=claim, numerical=truth, bar=bar)
        for coordinate, claim, truth, bar in rows
        if (place := _frame(subject).locate(coordinate)).path == argument
    ]
    among, culprit = f"in {count} {'entry' if count == 1 else 'entries'}", rule_of(subject)
    message = f"The {what} {argument} is right in double precision and wrong in this precision, {among}."
    if not bool(subject.arrays.isfinite(comparison.claimed[wrong]).any()) and (broken := _broken_value(subject, wide)):
        message = (
            f"{broken} is NaN or infinite in this precision and finite in double precision, and with it the {what} "
            f"{argument}, {among}."
        )
        culprit = "function"
    return Finding(
        kind="wrong-gradient",
        message=message,
        argument=argument,
        entries=tuple(entries[:SHOWN]),
        hint=f"Look at what the {culprit} computes or stores in low precision.",
    )


def _broken_value(subject: Subject, wide: Subject) -> Place | None:
    """Return the first output that is NaN or infinite in low precision alone, if there is one."""
    xp = subject.arrays
    broken = xp.where(xp.isfinite(wide.centre) & ~xp.isfinite(subject.centre))[0]
    return subject.outputs.locate(int(broken[0])) if broken.shape[0] else None


def _frame(subject: Subject) -> Frame:
    """Return the frame that names the entries of the derivative: inputs in reverse mode, outputs in forward mode."""
    return subject.inputs if subject.mode == "reverse" else subject.outputs
