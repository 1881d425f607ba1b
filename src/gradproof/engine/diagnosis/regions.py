"""Mistakes in some of the entries: a tensor detached, one block alone, a mask that is wrong or missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import comb

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, LEAST_FIT, SAME, ZERO, Case
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY, FEW, MANY, SLIGHT

Describe = Callable[[Case, Array, Array], str | None]

MISSING = "A mask of the forward (of a relu, a clamp, a dropout, an index) is missing in the backward."


def wrongly_zero(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that are wrongly zero in some or all entries and right in the others."""
    zero = case.claimed_zero
    count = int(zero.sum())
    if not count:
        return
    if count == case.result_part.size:
        yield _detached(case)
        return
    kept = ~zero
    if case.full:
        relevant = _not_small(case, case.right_values)
        missing, kept = zero & relevant, kept & relevant
        fit = case.fit(error * ~missing for error in case.errors)
    elif case.sample is not None:
        missing, mask = zero, case.observed(1.0 * kept)
        fit = case.fit_claims(right * mask for right in case.right_values)
    else:
        missing, mask = zero, 1.0 * kept
        fit = case.fit_claims(case.right_after(lambda product: product * mask, lambda test: test * mask))
    if int(missing.sum()) and int(kept.sum()):
        yield from _partly_lost(case, missing, kept, fit)
    elif int(missing.sum()) and not (case.full and bool(_not_small(case, case.claimed).any())):
        yield _detached(case)


def inverted(case: Case, _block: Block) -> Iterator[Diagnosis]:
    """Diagnose claims that are zero in all entries in which they should not be, and not zero in others."""
    if not case.full:
        return
    relevant, claimed = _not_small(case, case.right_values), _not_small(case, case.claimed)
    if bool(relevant.any()) and bool(claimed.any()) and not bool((relevant & claimed).any()):
        yield _inverted(case, int(relevant.sum()), int(claimed.sum()))


def missing_mask(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that are right where the function depends on the input, but not zero where it does not."""
    found = wrong_entries(case)
    if found is None:
        return
    wrong, relevant = found
    nothing = ~_not_small(case, case.right_values)
    extra, right = nothing & _not_small(case, case.claimed), relevant & ~wrong & ~nothing
    if int(extra.sum()) < 2 or int(right.sum()) < 2:
        return
    where = described(case, extra, right)
    yield Diagnosis(
        name="mask",
        message=f"{case.subject_line} should be zero in {int(extra.sum())} entries"
        + (f", those {where}," if where else "")
        + " and is not; elsewhere it is right.",
        fit=case.fit(error * ~extra for error in case.errors),
        hint=MISSING,
    )


def of_one_sign(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that are wrong for inputs of one sign, and right for others."""
    found = wrong_entries(case)
    if found is not None:
        yield from _one_sided(case, *found, _of_sign)


def beyond_a_threshold(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that are wrong for inputs on one side of a threshold, and right for others."""
    found = wrong_entries(case)
    if found is not None:
        yield from _one_sided(case, *found, _beside)


def _one_sided(case: Case, wrong: Array, relevant: Array, describe: Describe) -> Iterator[Diagnosis]:
    where = describe(case, wrong, relevant & ~wrong)
    if where:
        yield Diagnosis(
            name="mask",
            message=f"{case.subject_line} is wrong in the entries {where}, {int(wrong.sum())} of "
            f"{int(relevant.sum())}, and right in the others.",
            fit=LEAST_FIT,  # to say where entries are wrong is less than to say how
            hint="Look at the branch of the backward for these inputs: the mask, or what is done where it is off.",
            also=("wrong-factor",),
        )


def missing_mask_in_columns(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a missing mask from some columns: entries are right, or should be zero and are not."""
    if not block.products:
        return
    slack = float(block.slack.max())
    extra = right = missing = 0
    for column in range(len(block.complete)):
        pairs = [(float(claim[column]), float(truth[column])) for claim, truth in block.products]
        close = all(abs(claim - truth) <= slack + SAME * abs(truth) for claim, truth in pairs)
        nothing = all(abs(truth) <= slack for _, truth in pairs)
        if not close and not nothing:
            if any(abs(claim) > slack for claim, _ in pairs):
                return
            missing += 1
        extra, right = extra + (nothing and not close), right + (close and not nothing)
    if missing and not right and min(extra, missing) >= FEW:
        yield _inverted(case, missing, extra)
    elif not missing and min(extra, right) >= FEW:
        yield Diagnosis(
            name="mask",
            message=f"{case.subject_line} is right in the entries that the function depends on, and not zero in those "
            f"that it does not depend on: {extra} of {extra + right} that were examined.",
            fit=CERTAIN,
            hint=MISSING,
        )


def extra_entries(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a Jacobian whose entries are right, but for some that should be zero and are not."""
    should, wrong = abs(block.right) > block.slack, block.wrong
    extra, right = wrong & ~should, should & ~wrong
    if block.rows is not None and min(int(extra.sum()), int(right.sum())) >= FEW and not bool((wrong & should).any()):
        yield Diagnosis(
            name="mask",
            message=f"Every entry of the Jacobian for {case.what} is right, but for {int(extra.sum())} of "
            f"{int((should | extra).sum())} that should be zero and are not.",
            fit=LEAST_FIT,
            hint=MISSING,
        )


def wrong_entries(case: Case) -> tuple[Array, Array] | None:
    """Return masks of the wrong entries and of the nonzero ones; None unless every entry is measured."""
    if not case.full:
        return None
    wrong = _not_small(case, [error * known.weight for error, known in zip(case.errors, case.known, strict=True)])
    return wrong, wrong | _not_small(case, case.right_values)


def described(case: Case, chosen: Array, others: Array) -> str | None:
    """Describe what separates the chosen entries from the others: a range of indices, or a sign of the input."""
    return _slab(case, chosen, others) or _beside(case, chosen, others)


def _not_small(case: Case, vectors: list[Array]) -> Array:
    found = abs(vectors[0]) < 0
    for vector, known in zip(vectors, case.known, strict=True):
        found = found | (abs(vector) > CLEARLY * known.bar + ZERO * float(abs(known.value).max()))
    return found


def _detached(case: Case) -> Diagnosis:
    return Diagnosis(
        name="detached",
        message=f"{case.subject_line} is zero throughout, and should not be.",
        fit=case.fit(error * 0.0 for error in case.errors),
        hint="Look for a detach(), .data, no_grad() or conversion to a number on the way, a None or zeros that the "
        "backward returns, or a result that is not multiplied by the incoming gradient.",
    )


def _inverted(case: Case, missing: int, extra: int) -> Diagnosis:
    return Diagnosis(
        name="mask",
        message=f"{case.subject_line} is zero in all {missing} entries in which it should not be, and not zero in "
        f"{extra} in which it should, among the entries examined: a mask is inverted, or is another one than the "
        "function's.",
        fit=CERTAIN,
        hint="Look at the condition of the mask (of a relu, a clamp, a dropout), and whether forward and backward "
        "have the same.",
        also=("misplaced",),
    )


def _partly_lost(case: Case, missing: Array, kept: Array, fit: float) -> Iterator[Diagnosis]:
    if _are_stored(case, kept, stored=True) and _are_stored(case, missing, stored=False):
        yield Diagnosis(
            name="mask",
            message=f"{case.subject_line} is zero wherever nothing is stored, and right where something is.",
            fit=fit,
            hint="It is the gradient with respect to the stored entries: pass masked=True if that is what it should "
            "be, or compute it where nothing is stored too.",
        )
        return
    slab = _slab(case, kept, missing)
    if slab:
        yield Diagnosis(
            name="block",
            message=f"{case.subject_line} is right {slab} alone, and zero elsewhere.",
            fit=fit,
            hint="Look for a loop, a slice or a chunk whose range ends early or starts late, and for a result that "
            "is overwritten where it should be put together.",
        )
    where = _beside(case, missing, kept)
    if int(missing.sum()) < FEW or int(kept.sum()) < 2 or (slab and not where):
        return
    yield Diagnosis(
        name="mask",
        message=f"{case.subject_line} is zero in {int(missing.sum())} entries where it should not be"
        + (f", those {where}" if where else "")
        + "; elsewhere it is right.",
        fit=fit,
        hint="The backward masks entries that the forward does not: compare the two masks.",
    )


def _are_stored(case: Case, chosen: Array, *, stored: bool) -> bool:
    """Return True if the chosen entries, as far as a sample shows, are all stored, or all not stored."""
    places = case.xp.arange(0, case.result_part.size, device=chosen.device)[chosen]
    few = places[:: max(1, len(places) // MANY)]
    frame = case.measurements.subject.inputs
    return case.reverse and all(frame.locate(case.result_part.start + int(place)).stored is stored for place in few)


def _slab(case: Case, chosen: Array, others: Array) -> str | None:
    """Describe where the chosen entries lie, if all are before, or all after, the others along a dimension."""
    part = case.result_part
    if part.is_complex:
        imaginary = case.xp.arange(0, part.size, device=chosen.device) % 2 == 1
        if not bool((chosen & imaginary).any()) and not bool((others & ~imaginary).any()):
            return "in the real parts"
        if not bool((chosen & ~imaginary).any()) and not bool((others & imaginary).any()):
            return "in the imaginary parts"
    for axis in part.axes:
        index = axis.indices(case.xp, part.size, chosen)
        inside, outside = index[chosen], index[others]
        along = "" if len(part.shape) == 1 else f" along dimension {axis.number}"
        if int(inside.max()) < int(outside.min()):
            return f"in the first {int(inside.max()) + 1} of {axis.length}{along}"
        if int(inside.min()) > int(outside.max()):
            return f"in the last {axis.length - int(inside.min())} of {axis.length}{along}"
    return None


def _beside(case: Case, chosen: Array, others: Array) -> str | None:
    """Describe the inputs of the chosen entries, if a sign or a threshold separates them from the others."""
    counts = (int(chosen.sum()), int(others.sum()))
    if found := _of_sign(case, chosen, others):
        return found
    accident = sum(counts) < MANY and SLIGHT * comb(sum(counts), counts[0]) < 1
    if not case.reverse or case.result_part.is_complex or min(counts) < FEW or accident:
        return None
    return _threshold(case.result_part.of(case.measurements.subject.point), chosen, others)


def _of_sign(case: Case, chosen: Array, others: Array) -> str | None:
    """Describe the inputs of the chosen entries, if their sign separates them from the others."""
    if not case.reverse or case.result_part.is_complex:
        return None
    point = case.result_part.of(case.measurements.subject.point)
    inside, outside = point[chosen], point[others]
    counts = (int(inside.shape[0]), int(outside.shape[0]))
    if min(counts) < 2 or max(counts) < FEW:
        return None
    if float(inside.max()) < 0 < float(outside.min()):
        return "where the input is negative"
    return "where the input is positive" if float(outside.max()) < 0 < float(inside.min()) else None


def _threshold(point: Array, chosen: Array, others: Array) -> str | None:
    """Describe the threshold of the inputs, or of their sizes, that separates the chosen entries from the others."""
    for what, numbers in (("input", point), ("input's size", abs(point))):
        for side, below, above in (("below", chosen, others), ("above", others, chosen)):
            low, high = float(numbers[below].max()), float(numbers[above].min())
            if low < high:
                return f"where the {what} is {side} {_between(low, high)}"
    return None


def _between(low: float, high: float) -> str:
    """Return the number between two that has the fewest digits."""
    for digits in range(1, 8):
        for text in (f"{(low + high) / 2:.{digits}g}", f"{high:.{digits}g}", f"{low:.{digits}g}"):
            if low <= float(text) <= high:
                return text
    return f"{low:.8g}"
