"""Which entries of the Jacobian are wrong: left out, added, or off by a constant, while the others are right.

An entry is left out if it is claimed to be zero and is not, and added if it is not claimed to be zero and is. A block
in which each output depends on one input has no terms to lose: what is left out there is a mask.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import LEAST_FIT, SAME, Case
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW

HINT = (
    "Some outputs depend on entries that the backward does not connect them with: a sum, a normalisation or a "
    "neighbour is left out."
)


def dropped_entries(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a Jacobian with some entries wrongly zero, and all others right, or most of them."""
    gone, added, changed, right = _counts(block)
    if gone < 2 or added or right + changed < FEW or (changed and (changed > gone or not _sums_up(block))):
        return
    if changed:
        others = f"{changed} others have lost a part"
    elif right >= FEW:
        others = "all others are right"
    else:
        return
    yield _missing(case, gone, right + changed, others)


def other_entries(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a Jacobian whose entries are right, left out or added: some are connected with the wrong ones.

    Where a term is missing that cancels others, a few entries seem to be added. Of a term that goes elsewhere, as many
    are added as are left out.
    """
    gone, added, changed, right = _counts(block)
    if changed or min(gone, added) < 2 or block.rows is None:
        return
    if min(gone, added, right) >= FEW and has_sums(block):
        if gone >= 2 * added:
            yield _missing(case, gone, right, f"{added} that should be zero are not, and all others are right")
            return
        yield Diagnosis(
            name="wrong-term",
            message=f"{case.subject_line} is right but for a term that connects other entries than it should: {gone} "
            f"entries of the Jacobian are left out and {added} are added, while {right} are right.",
            fit=LEAST_FIT,
            hint="Look at the dimension, the segments or the indices over which this term sums.",
        )
    elif not right:
        yield Diagnosis(
            name="mask",
            message=f"{case.subject_line} is zero in all {gone} entries of the Jacobian in which it should not be, and "
            f"not zero in {added} in which it should, of those examined.",
            fit=LEAST_FIT,
            hint="Look at the condition of the mask, and at the indices (of a maximum, a sort, a top-k) that say where "
            "gradients go.",
            also=("misplaced",),
        )


def constants(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose entries of various values that are all off by the same constant, by one of two, or by multiples."""
    wrong = block.wrong
    number = int(wrong.sum())
    if number < 2 * FEW:
        return
    offsets = _distinct((block.claimed - block.right)[wrong], block.slack)
    values = _distinct(block.right[wrong], block.slack)
    if 2 * len(values) < number or number < FEW * len(offsets):
        return
    least = min(map(abs, offsets))
    whole = all(abs(offset / least - round(offset / least)) <= SAME for offset in offsets)
    if len(offsets) > 2 and not whole:
        return
    counted = whole and not min(offsets) < 0 < max(offsets)
    among = "" if number == int((wrong | (abs(block.right) > block.slack)).sum()) else f", in {number} of its entries"
    sizes = " or ".join(f"{size:.5g}" for size in offsets) if len(offsets) <= 2 else f"{least:.5g}, or multiples of it"
    yield Diagnosis(
        name="missing-term" if counted else "wrong-term",
        message=f"{case.subject_line} is off by the constant {sizes}{among}, whatever the values are.",
        fit=LEAST_FIT,
        hint="Look for a term of the forward that is linear in these entries, such as that of a target, a count or "
        "of an entry itself, for the constants that it is multiplied by, and for a rounding or a period.",
    )


def _missing(case: Case, gone: int, there: int, others: str) -> Diagnosis:
    return Diagnosis(
        name="missing-term",
        message=f"{gone} of {gone + there} entries of the Jacobian that were examined for {case.what} are left out; "
        f"{others}.",
        fit=LEAST_FIT,
        hint=HINT,
        also=("wrong-term",),
    )


def _counts(block: Block) -> tuple[int, int, int, int]:
    """Return how many entries are left out, added, wrong in another way, and right though not zero."""
    wrong, gone, should = block.wrong, block.dropped, abs(block.right) > block.slack
    added = wrong & ~should
    changed, right = wrong & ~gone & ~added, should & ~wrong
    return int(gone.sum()), int(added.sum()), int(changed.sum()), int(right.sum())


def has_sums(block: Block) -> bool:
    """Return True if some outputs depend on several of the inputs, and some inputs influence several outputs."""
    should = abs(block.right) > block.slack
    return int(should.sum(0).max()) > 1 and int(should.sum(1).max()) > 1


def _sums_up(block: Block) -> bool:
    """Return True if every output that depends on the inputs depends on several of them."""
    number = (abs(block.right) > block.slack).sum(1)
    return not bool((number == 1).any())


def _distinct(numbers: Array, slack: Array) -> list[float]:
    """Return numbers that differ by more than the slack, one for each group of equal ones."""
    least = float(slack.max())
    found: list[float] = []
    for number in sorted(numbers.tolist()):
        if not found or abs(number - found[-1]) > least + SAME * abs(number):
            found.append(number)
    return found
