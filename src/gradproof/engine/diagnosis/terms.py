"""Missing terms: of a product rule, of a sum or norm that all entries share, of a residual connection."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, LEAST_FIT, SAME, ZERO, Case
from gradproof.engine.diagnosis.measurements import multiple_of
from gradproof.engine.diagnosis.scale import named
from gradproof.engine.parts import Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, TRACE

PRODUCT = (
    "Look for a term of the product rule that is missing: every factor that depends on the input is differentiated."
)


def held_constant(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product y = s(x)·x of which only one factor is differentiated.

    If s is treated as a constant, the claimed derivative along x is y. If x is, the missing derivative along x is y.
    """
    if not case.reverse or case.degrees_of_freedom < 2:
        return
    values = case.measurements.subject.centre
    point = case.result_part.of(case.measurements.subject.point)
    expected = [float((operand * values).sum()) for operand in case.operands]
    claimed = [float((claim * point).sum()) for claim in case.claims]
    gaps = [right - claim for right, claim in zip(_along(case, point), claimed, strict=True)]
    size = math.sqrt(sum(gap * gap for gap in gaps))
    scale = math.sqrt(sum(each * each for each in expected))
    if not scale > ZERO * size or not size > SAME * scale:
        return
    forms = (
        ("is right if one factor of the value is treated as a constant", claimed),
        ("lacks the term in which the input itself is the factor", gaps),
    )
    for text, observed in forms:
        multiple = sum(one * other for one, other in zip(observed, expected, strict=True)) / scale**2
        left = math.sqrt(sum((one - multiple * other) ** 2 for one, other in zip(observed, expected, strict=True)))
        if named(multiple, case):
            yield Diagnosis(
                name="missing-term",
                message=f"{case.subject_line} {text}: a term of a product rule is missing.",
                fit=CERTAIN * max(0.0, 1 - left / (TRACE * abs(multiple) * scale)),
                hint=PRODUCT,
            )


def residual(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a missing term that is the incoming gradient times a constant, the value or the input."""
    part = _alike(case)
    if part is None or case.degrees_of_freedom < FEW:
        return
    values = part.of(case.measurements.subject.centre)
    point = case.result_part.of(case.measurements.subject.point)
    quotient = case.xp.where(point == 0, 0.0 * values, values / case.xp.where(point == 0, 1.0 + point, point))
    factors = {
        "the incoming gradient itself": 1.0 + 0.0 * values,
        "the incoming gradient times the function's value": values,
        "the incoming gradient times the value over the input": quotient,
        "the incoming gradient times the input": point,
    }
    operands = [part.of(operand) for operand in case.operands]
    for text, factor in factors.items():
        observed = [case.observed(operand * factor) for operand in operands]
        if multiple := multiple_of(observed, [-error for error in case.errors]):
            pairs = zip(case.errors, observed, strict=True)
            yield Diagnosis(
                name="missing-term",
                message=f"{case.subject_line} lacks a term: {_times(multiple)}{text}.",
                fit=case.fit(error + multiple * term for error, term in pairs),
                hint=PRODUCT
                if "value" in text
                else "Look for a connection around the function, y = x + f(x), or "
                "another term of the forward that the backward leaves out.",
            )
        if factor is values and (multiple := multiple_of(observed, case.claimed)):
            yield Diagnosis(
                name="missing-term",
                message=f"{case.subject_line} is {_times(multiple)}{text}, and nothing else.",
                fit=CERTAIN * case.fit_claims(multiple * term for term in observed),
                hint=PRODUCT,
            )


def _times(multiple: float) -> str:
    return "" if math.isclose(multiple, 1, rel_tol=SAME) else f"{multiple:.5g} times "


def symmetric(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a missing transposed term, as in the derivative of X Xᵀ, X + Xᵀ or a quadratic form."""
    part = case.result_part
    for pair in part.swaps():
        if part.shape[pair[0]] == part.shape[pair[1]]:
            products = (claim + part.swapped(case.xp, claim, pair=pair) for claim in case.claims)
            yield _mirrored(case, case.fit_as_right(products))
    operand_part = case.only_operand_part
    for pair in operand_part.swaps() if operand_part else []:
        if operand_part and operand_part.shape[pair[0]] == operand_part.shape[pair[1]]:
            swapped = partial(operand_part.swapped, case.xp, pair=pair)
            pairs = zip(case.claims, case.operands, strict=True)
            products = (claim + case.claim(operand_part.changed(operand, swapped)) for claim, operand in pairs)
            yield _mirrored(case, case.fit_as_right(products))


def outer_product(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a missing term of rank one or two, as from a norm or a mean that all entries share."""
    missing = case.xp.where(block.wrong, block.right - block.claimed, 0.0 * block.right)
    explained, whole, groups = 0.0, 0.0, 0
    for rows, columns in _groups(missing != 0):
        piece = missing[rows][:, columns]
        square = float((piece * piece).sum())
        whole += square
        width = min(len(rows), len(columns))
        if width < FEW:
            continue
        rest = piece - _through_largest(case, piece)
        if width >= 2 * FEW - 1:
            rest = rest - _through_largest(case, rest)
        left = abs(rest) - block.slack[rows][:, columns]
        left = case.xp.where(left > 0, left, 0.0 * left)
        explained += square - min(square, float((left * left).sum()))
        groups += 1
    fit = max(0.0, 1 - math.sqrt(max(0.0, 1 - explained / whole))) if whole > 0 else 0.0
    if groups and fit > CERTAIN and bool((abs(block.claimed) > block.slack).any()):
        yield Diagnosis(
            name="missing-term",
            message=f"What is missing in {case.what} is an outer product"
            + (f" in each of {groups} groups of entries" if groups > 1 else "")
            + ": the term through something that all entries share.",
            fit=CERTAIN * fit,
            hint="Look at what the forward shares between entries, a sum, mean, norm, maximum or a softmax's "
            "denominator: it depends on every input, and its derivative is a term of its own.",
        )


def dropped_entries(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a Jacobian with some entries wrongly zero and all others right."""
    wrong, gone = block.wrong, block.dropped
    right = ~wrong & (abs(block.right) > block.slack)
    if int(gone.sum()) < FEW or bool((wrong & ~gone).any()) or int(right.sum()) < FEW:
        return
    yield Diagnosis(
        name="missing-term",
        message=f"Every entry of the Jacobian for {case.what} is right or zero: {int(gone.sum())} of "
        f"{int(gone.sum() + right.sum())} that were examined are left out.",
        fit=LEAST_FIT,
        hint="Some outputs depend on entries that the backward does not connect them with: a sum, a "
        "normalisation or a neighbour is left out.",
    )


def _along(case: Case, point: Array) -> list[float]:
    """Return the slope along the point itself, contracted with each operand."""
    if case.full:
        return [float((right * point).sum()) for right in case.right_values]
    direction = case.measurements.directions(case.result_part, [case.measurements.step * point])
    slopes = (
        case.measurements.rough_slopes(direction) if case.measurements.large else case.measurements.slopes(direction)[0]
    )
    return [float((slopes[0] * operand).sum()) / case.measurements.step for operand in case.operands]


def _alike(case: Case) -> Part | None:
    """Return the only output if it has the shape of the input and both are real, else None."""
    part, own = case.only_operand_part, case.result_part
    if not case.reverse or part is None or part.shape != own.shape or part.is_complex or own.is_complex:
        return None
    return part


def _mirrored(case: Case, fit: float) -> Diagnosis:
    return Diagnosis(
        name="missing-term",
        message=f"{case.subject_line} lacks the mirror image of what is claimed: of two like terms one is there.",
        fit=fit,
        hint="An argument that occurs twice, as in X Xᵀ, has a term for each place: the mirrored one is missing.",
    )


def _groups(pattern: Array) -> list[tuple[list[int], list[int]]]:
    """Return the connected components of a sparsity pattern, each as its rows and its columns."""
    by_row = [{number for number, entry in enumerate(row) if entry} for row in pattern.tolist()]
    groups: list[tuple[list[int], set[int]]] = []
    for number, columns in enumerate(by_row):
        if not columns:
            continue
        rows, joined, apart = [number], set(columns), []
        for group in groups:
            if group[1] & joined:
                rows, joined = [*group[0], *rows], joined | group[1]
            else:
                apart.append(group)
        groups = [*apart, (sorted(rows), joined)]
    return [(rows, sorted(columns)) for rows, columns in groups]


def _through_largest(case: Case, piece: Array) -> Array:
    """Return the outer product that equals a matrix in the row and the column of its largest entry."""
    row, column = divmod(int(case.xp.argmax(abs(piece))), int(piece.shape[1]))
    if not float(abs(piece[row, column])) > 0:
        return piece
    return piece[:, column][:, None] * piece[row][None] / piece[row, column]
