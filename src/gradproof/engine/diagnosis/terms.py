"""Missing terms: of a product rule, of a sum or norm that all entries share, of a residual connection."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, LEAST_FIT, SAME, Case
from gradproof.engine.diagnosis.measurements import multiple_of
from gradproof.engine.diagnosis.outer_products import crossed, groups
from gradproof.engine.diagnosis.product_rule import PRODUCT, wrong_term
from gradproof.engine.parts import Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, TRACE


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
    """Diagnose a term of rank one or two, as from a norm or a mean that all entries share.

    It is missing, or the entries that it alone makes are all the same multiple of the right ones.
    """
    missing = case.xp.where(block.wrong, block.right - block.claimed, 0.0 * block.right)
    explained, examined, whole, ratios = 0.0, 0.0, 0.0, []
    for rows, columns in groups(missing != 0):
        piece, slack = missing[rows][:, columns], block.slack[rows][:, columns]
        square = float((piece * piece).sum())
        whole += square
        width = min(len(rows), len(columns))
        if width < FEW:
            continue
        examined += square
        rest = piece - crossed(piece)
        if width >= 2 * FEW - 1:
            rest = rest - crossed(rest)
        left = abs(rest) - slack
        left = case.xp.where(left > 0, left, 0.0 * left)
        explained += square - min(square, float((left * left).sum()))
        ratios.append(_usual_ratio(block.claimed[rows][:, columns], block.right[rows][:, columns], slack))
    fit = max(0.0, 1 - math.sqrt(max(0.0, 1 - explained / examined))) if 2 * examined > whole else 0.0
    if not ratios or fit <= CERTAIN or not bool((abs(block.claimed) > block.slack).any()):
        return
    if all(abs(ratio) > TRACE for ratio in ratios):
        alike = max(ratios) - min(ratios) <= SAME * max(map(abs, ratios))
        yield wrong_term(case, "through something that all entries share", ratios[0] if alike else None, fit)
        return
    yield Diagnosis(
        name="missing-term",
        message=f"What is missing in {case.what} is an outer product"
        + (f" in each of {len(ratios)} groups of entries" if len(ratios) > 1 else "")
        + ": the term through something that all entries share"
        + (" is left out." if bool(block.dropped.any()) else ", which is left out or has another factor."),
        fit=CERTAIN * fit,
        hint="Look at what the forward shares between entries, a sum, mean, norm, maximum or a softmax's "
        "denominator: it depends on every input, and its derivative is a term of its own.",
    )


def _usual_ratio(claimed: Array, right: Array, slack: Array) -> float:
    """Return the ratio to the right ones that most of the wrong entries have; zero if they have none in common."""
    wrong = abs(claimed - right) > slack
    counted = wrong & (abs(right) > slack)
    ratios = sorted((claimed[counted] / right[counted]).tolist())
    if not ratios:
        return 0.0
    ratio: float = ratios[len(ratios) // 2]
    alike = counted & (abs(claimed - ratio * right) <= slack * max(1.0, abs(ratio)))
    return ratio if int(alike.sum()) >= FEW and 2 * int(alike.sum()) > int(wrong.sum()) else 0.0


def dropped_entries(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a Jacobian with some entries wrongly zero and all others right."""
    wrong, gone = block.wrong, block.dropped
    right = ~wrong & (abs(block.right) > block.slack)
    if int(gone.sum()) < 2 or bool((wrong & ~gone).any()) or int(right.sum()) < FEW:
        return
    yield Diagnosis(
        name="missing-term",
        message=f"Every entry of the Jacobian for {case.what} is right or zero: {int(gone.sum())} of "
        f"{int(gone.sum() + right.sum())} that were examined are left out.",
        fit=LEAST_FIT,
        hint="Some outputs depend on entries that the backward does not connect them with: a sum, a "
        "normalisation or a neighbour is left out.",
    )


def _alike(case: Case) -> Part | None:
    """Return the only output if it has the shape of the input and both are real, else None."""
    part, own = case.only_operand_part, case.result_part
    if not case.reverse or part is None or part.shape != own.shape or part.is_complex or own.is_complex:
        return None
    return part


def _mirrored(case: Case, fit: float) -> Diagnosis:
    return Diagnosis(
        name="missing-term",
        message=f"{case.subject_line} lacks a term: of two terms that are transposes of each other it has one.",
        fit=fit,
        hint="An argument that occurs twice, as in X Xᵀ, has a term for each place: the mirrored one is missing.",
    )
