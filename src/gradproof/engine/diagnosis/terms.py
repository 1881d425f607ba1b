"""Missing terms: of a product rule, of a sum or norm that all entries share, of a residual connection."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
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

LIKELY = (LEAST_FIT + CERTAIN) / 2
SHARED = "through something that all entries share"
SHARES = (
    "Look at what the forward shares between entries, a sum, mean, norm, maximum or a softmax's denominator: it "
    "depends on every input, and its derivative is a term of its own."
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
            fit = case.fit(error + multiple * term for error, term in pairs)
            part_of_a_product = bool((abs(quotient - multiple) <= SAME * abs(multiple)).all())
            if factor is point and (part_of := _multiple_in_claims(case, part, point)):
                yield _of_another_size(case, text, part_of, part_of + multiple, fit)
            else:
                yield _lacking(case, multiple, text, fit, added="value" not in text and not part_of_a_product)
        if factor is values and (multiple := multiple_of(observed, case.claimed)):
            yield Diagnosis(
                name="missing-term",
                message=f"{case.subject_line} is {_times(multiple)}{text}, and nothing else.",
                fit=LIKELY * case.fit_claims(multiple * term for term in observed),  # it may be a factor too
                hint=PRODUCT,
            )


def _multiple_in_claims(case: Case, part: Part, point: Array) -> float:
    """Return b if the claims of a function of single entries are a + b times the input; zero if they are not."""
    ones = part.changed(0.0 * case.operands[0], lambda piece: piece + 1.0)
    numbers = case.claim(ones)
    centred = point - point.sum() / len(point)
    square = float(centred @ centred)
    slope = float(centred @ numbers) / square if square > 0 else 0.0
    left = numbers - numbers.sum() / len(point) - slope * centred
    exact = float(abs(left).max()) <= SAME * float(abs(numbers).max())
    return slope if exact and len(point) > 2 * FEW and abs(slope) > SAME * float(abs(numbers).max()) else 0.0


def _of_another_size(case: Case, text: str, claimed: float, right: float, fit: float) -> Diagnosis:
    return Diagnosis(
        name="wrong-term",
        message=f"{case.subject_line} has {claimed:.4g} times {text} as a term, where it should be {right:.4g} times.",
        fit=fit,
        hint="Look for a factor of this term, such as the 2 of a square, that is left out or applied twice.",
    )


def _lacking(case: Case, multiple: float, text: str, fit: float, *, added: bool) -> Diagnosis:
    """Return the diagnosis of a term that is missing, or of one that is too large where it is `added` to another."""
    if added and multiple < 0 and not math.isclose(multiple, -1, rel_tol=SAME):
        return Diagnosis(
            name="wrong-term",
            message=f"{case.subject_line} has too much of a term: {_times(-multiple)}{text}.",
            fit=fit,
            hint="Look for a share, a rate or a step that the backward does not multiply this term by.",
        )
    return Diagnosis(
        name="missing-term",
        message=f"{case.subject_line} lacks a term: {_times(multiple)}{text}.",
        fit=fit,
        hint="Look for a connection around the function, y = x + f(x), or another term of the forward that the "
        "backward leaves out."
        if added
        else PRODUCT,
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
    """Diagnose an error of rank one or two, as of a term through a norm or a mean that all entries share.

    The term is missing, or it has another factor, or there is another one in its place.
    """
    errors = case.xp.where(block.wrong, block.right - block.claimed, 0.0 * block.right)
    explained, examined, whole = 0.0, 0.0, 0.0
    pieces = []
    for rows, columns in groups(errors != 0):
        error, claimed, right, slack = (
            each[rows][:, columns] for each in (errors, block.claimed, block.right, block.slack)
        )
        square = float((error * error).sum())
        whole += square
        width = min(len(rows), len(columns))
        if width < FEW:
            continue
        examined += square
        left = abs(_without_outer_products(error, 1 if width < 2 * FEW - 1 else 2)) - slack
        left = case.xp.where(left > 0, left, 0.0 * left)
        explained += square - min(square, float((left * left).sum()))
        pieces.append(_Piece(claimed, right, slack, _off_the_diagonal(case, block, rows, columns)))
    fit = max(0.0, 1 - math.sqrt(max(0.0, 1 - explained / examined))) if 2 * examined > whole else 0.0
    if not pieces or fit <= CERTAIN or not bool((abs(block.claimed) > block.slack).any()):
        return
    ratios = [piece.usual_ratio for piece in pieces]
    if all(abs(ratio) > TRACE for ratio in ratios):
        alike = max(ratios) - min(ratios) <= SAME * max(map(abs, ratios))
        yield wrong_term(case, SHARED, ratios[0] if alike else None, fit)
        return
    missing = all(piece.lacks_a_term for piece in pieces) or bool(block.dropped.any())
    found, cause = (
        (f"What is missing in {case.what} is", "is left out")
        if missing
        else (f"{case.subject_line} is off by", "is left out, has another factor, or is another one")
    )
    where = f" in each of {len(pieces)} groups of entries" if len(pieces) > 1 else ""
    yield Diagnosis(
        name="missing-term" if missing else "wrong-term",
        message=f"{found} an outer product{where}: the term {SHARED} {cause}.",
        fit=(CERTAIN if missing else LEAST_FIT / CERTAIN) * fit,  # to say that it may be either is less
        hint=SHARES,
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """A group of connected wrong entries, as a matrix: claimed, right, and how far an entry may be off.

    `corner` selects rows and columns between which no entry is on the diagonal of the Jacobian.
    """

    claimed: Array
    right: Array
    slack: Array
    corner: tuple[list[int], list[int]]

    @property
    def usual_ratio(self) -> float:
        """The ratio to the right ones that most of the wrong entries have; zero if they have none in common."""
        wrong = abs(self.claimed - self.right) > self.slack
        counted = wrong & (abs(self.right) > self.slack)
        ratios = sorted((self.claimed[counted] / self.right[counted]).tolist())
        if not ratios:
            return 0.0
        ratio: float = ratios[len(ratios) // 2]
        alike = counted & (abs(self.claimed - ratio * self.right) <= self.slack * max(1.0, abs(ratio)))
        return ratio if int(alike.sum()) >= FEW and 2 * int(alike.sum()) > int(wrong.sum()) else 0.0

    @property
    def lacks_a_term(self) -> bool:
        """Whether the claims have fewer shared terms, which are outer products, than the function."""
        rows, columns = self.corner
        claimed, right = (_rank(each[rows][:, columns], float(self.slack.max())) for each in (self.claimed, self.right))
        return claimed is not None and (right is None or claimed < right)


def _off_the_diagonal(case: Case, block: Block, rows: list[int], columns: list[int]) -> tuple[list[int], list[int]]:
    """Return rows and columns of a group between which no entry is a slope along an input of the output's own index."""
    if _alike(case) is None:
        return list(range(len(rows))), list(range(len(columns)))
    start = case.only_operand_part.start if case.only_operand_part else 0
    own = [int(place) - start for place in block.rows[rows]]
    others = [int(place) - case.input.start for place in block.columns[columns]]
    half = others[len(others) // 2 :]
    return [k for k, place in enumerate(own) if place not in half], list(range(len(others) - len(half), len(others)))


def _without_outer_products(matrix: Array, number: int) -> Array:
    """Return what is left of a matrix without so many outer products."""
    for _ in range(number):
        matrix = matrix - crossed(matrix)
    return matrix


def _rank(matrix: Array, slack: float) -> int | None:
    """Return the rank of a matrix; None if it is full, and may be so by the number of rows or columns alone."""
    for rank in range(min(matrix.shape)):
        if bool((abs(_without_outer_products(matrix, rank)) <= FEW * slack).all()):
            return rank
    return None


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
