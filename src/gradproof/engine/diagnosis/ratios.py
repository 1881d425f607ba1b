"""Patterns in the ratios of claimed and right entries of the Jacobian: of a factor in blocks, of weights, of a term.

Entries of different values whose ratios agree to five digits do not do so by chance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, SAME, Case
from gradproof.engine.diagnosis.product_rule import wrong_term
from gradproof.engine.diagnosis.supports import has_sums
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, FEW, SHARE, TRACE

Entry = tuple[float, float]  # the ratio of a claimed entry to the right one, and the right one

WEIGHTS = "Look for a softmax, responsibilities or shares that the backward does not multiply by, or divides by."
BLOCKS = (
    "Look for a factor that the backward computes from a part of the entries: in a chunk, a tile, a group or a window."
)


def in_blocks(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose factors that several entries of a row, or of a column, of the Jacobian share, where others differ."""
    ratios = _ratios(block)
    if ratios is None or bool((block.wrong & ~_clear(block)).any()):
        return
    for table, right, wrong in ((ratios, block.right, block.wrong), (ratios.T, block.right.T, block.wrong.T)):
        lines = zip(table.tolist(), right.tolist(), wrong.tolist(), strict=True)
        found = [_alike([each[:2] for each in zip(*line, strict=True) if each[2]]) for line in lines]
        groups = [group for line in found for group in line]
        if 2 * sum(len(line) > 1 for line in found) < sum(map(bool, found)):  # then it is a factor for each line
            continue
        sizes = [len(_distinct([right for _, right in group])) for group in groups]
        number, surplus = sum(map(len, groups)), sum(size - 1 for size in sizes)
        if min(sizes, default=0) > 1 and 2 * surplus >= number and surplus >= 2 * FEW:
            factors = sorted(group[0][0] for group in groups)
            is_approximation = max(abs(ratio - 1) for ratio in factors) <= ALIKE
            if len(_distinct(factors)) > 1 and not is_approximation:
                yield Diagnosis(
                    name="wrong-factor",
                    message=f"{case.subject_line} has wrong factors, from {factors[0]:.4g} to {factors[-1]:.4g} of the "
                    "right ones. They are the same for several entries of an output, in blocks.",
                    fit=CERTAIN,
                    hint=BLOCKS,
                )
                return


def weights(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose weights that the claims lack, or have twice: numbers between zero and one that add up to one."""
    ratios = _ratios(block)
    if ratios is None or block.columns.shape[0] != case.input.size or case.input.is_complex:
        return
    there = _clear(block)
    if bool((block.wrong & ~there).any()):
        return
    for text, table in (
        ("lacks weights", case.xp.where(there, 1 / ratios, 0.0 * ratios)),
        ("has weights too many", ratios),
    ):
        values = table[there]
        if bool((values < 0).any()) or bool((values > 1 + SAME).any()) or len(_distinct(values.tolist())) <= FEW:
            continue
        for axis in case.input.axes:
            shares, counts = (each.reshape(-1, axis.length, axis.below).sum(1) for each in (table * there, 1 * there))
            used = counts > 0
            several = int((counts > 1).sum())
            if several >= FEW and bool((abs(shares[used] - 1) <= TRACE * SAME**0.5).all()):
                yield Diagnosis(
                    name="wrong-factor",
                    message=f"{case.subject_line} {text} that add up to one along dimension {axis.number} of "
                    f"{case.input.path}.",
                    fit=CERTAIN,
                    hint=WEIGHTS,
                )
                return


def of_a_term(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a term with a wrong factor, which some entries consist of alone: these share a ratio, others do not."""
    ratios = _ratios(block)
    if ratios is None or not has_sums(block):
        return
    wrong = block.wrong & _clear(block)
    entries = list(zip(ratios[wrong].tolist(), block.right[wrong].tolist(), strict=True))
    groups = sorted(_alike(entries), key=len)
    if not groups or abs(groups[-1][0][0] - 1) <= SHARE / 2:  # then it is an approximation
        return
    *_, most = groups
    others = int(block.wrong.sum()) - len(most)
    if others:
        shown = others > 1 and len(most) >= max(FEW, others // 2) and len(groups) > 1 and len(groups[-2]) < len(most)
    else:
        shown = min(len(most), int((~block.wrong & (abs(block.right) > block.slack)).sum())) >= 2 * FEW
    if shown:
        yield wrong_term(case, "that some entries of the Jacobian consist of alone", most[0][0], CERTAIN)


def masked(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose claims that are zero in some entries and the same multiple of the right ones in all others."""
    ratios = _ratios(block)
    should = abs(block.right) > block.slack
    gone = block.dropped
    if ratios is None or has_sums(block) or bool(((abs(block.claimed) > block.slack) & ~should).any()):
        return
    kept = should & ~gone
    if min(int(gone.sum()), int(kept.sum())) < FEW or bool((kept & ~block.wrong).any()):
        return
    groups = _alike(list(zip(ratios[kept].tolist(), block.right[kept].tolist(), strict=True)))
    if len(groups) == 1:
        yield Diagnosis(
            name="mask",
            message=f"{case.subject_line} is zero in {int(gone.sum())} entries in which it should not be, and "
            f"{groups[0][0][0]:.5g} times the right one in all others.",
            fit=CERTAIN,
            hint="Look for a mask and its scale, as of a dropout, that the forward does not apply to this input.",
        )


def _clear(block: Block) -> Array:
    """Return a mask of the entries whose ratio is known to three digits, and is not zero."""
    largest = abs(block.right).max() * TRACE**2
    return (abs(block.right) > block.slack / TRACE + largest) & (abs(block.claimed) > block.slack / TRACE)


def _ratios(block: Block) -> Array | None:
    """Return the ratios of claimed and right entries, one where they are not known; None if single ones are not."""
    if block.rows is None:
        return None
    clear = _clear(block)
    one = 1.0 + 0.0 * block.right
    return (clear * block.claimed + ~clear * one) / (clear * block.right + ~clear * one)


def _alike(entries: Sequence[tuple[float, ...]]) -> list[list[Entry]]:
    """Return entries in groups of the same ratio."""
    groups: list[list[Entry]] = []
    for ratio, right, *_ in sorted(entries):
        if groups and abs(ratio - groups[-1][-1][0]) <= SAME * abs(ratio):
            groups[-1].append((ratio, right))
        else:
            groups.append([(ratio, right)])
    return groups


def _distinct(numbers: Sequence[float]) -> list[float]:
    """Return numbers of which none equals another."""
    found: list[float] = []
    for number in sorted(numbers):
        if not found or abs(number - found[-1]) > SAME * abs(number):
            found.append(number)
    return found
