"""Terms that are missing: of a product rule, of a sum that all entries meet in, of a connection around a function."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from gradproof.engine.diagnosis.bench import multiple_of
from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CLOSE, GOOD, NOTHING, SURE, Case
from gradproof.engine.diagnosis.parts import Part
from gradproof.engine.diagnosis.scale import named
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, TRACE

PRODUCT = (
    "Look for a term of the product rule that is missing: every factor that depends on the input is differentiated."
)


def held_constant(case: Case) -> Iterator[Diagnosis]:
    """Only one of two factors is differentiated.

    Where y = s(x)·x and s is held constant, the claimed derivative along x itself is the value y; where x is, what is
    missing along x is.
    """
    if not case.reverse or case.freedom < 2:
        return
    values = case.bench.subject.centre
    point = case.answered.of(case.bench.subject.point)
    expected = [float((question * values).sum()) for question in case.questions]
    claimed = [float((claim * point).sum()) for claim in case.claims]
    gaps = [right - claim for right, claim in zip(_along(case, point), claimed, strict=True)]
    size = math.sqrt(sum(gap * gap for gap in gaps))
    scale = math.sqrt(sum(each * each for each in expected))
    if not scale > NOTHING * size or not size > CLOSE * scale:
        return
    forms = (
        ("is right for a factor of the value held constant", claimed),
        ("lacks the term in which the input itself is the factor", gaps),
    )
    for text, seen in forms:
        multiple = sum(one * other for one, other in zip(seen, expected, strict=True)) / scale**2
        left = math.sqrt(sum((one - multiple * other) ** 2 for one, other in zip(seen, expected, strict=True)))
        if named(multiple, case):
            yield Diagnosis(
                name="missing-term",
                message=f"{case.subject_line} {text}: a term of a product rule is missing.",
                fit=SURE * max(0.0, 1 - left / (TRACE * abs(multiple) * scale)),
                hint=PRODUCT,
            )


def residual(case: Case) -> Iterator[Diagnosis]:
    """What is missing, or claimed, is the incoming gradient times something known: one, the value, the input."""
    part = _alike(case)
    if part is None or case.freedom < FEW:
        return
    values = part.of(case.bench.subject.centre)
    point = case.answered.of(case.bench.subject.point)
    quotient = case.xp.where(point == 0, 0.0 * values, values / case.xp.where(point == 0, 1.0 + point, point))
    factors = {
        "the incoming gradient itself": 1.0 + 0.0 * values,
        "the incoming gradient times the function's value": values,
        "the incoming gradient times the value over the input": quotient,
        "the incoming gradient times the input": point,
    }
    questions = [part.of(question) for question in case.questions]
    for text, factor in factors.items():
        seen = [case.seen(question * factor) for question in questions]
        if multiple := multiple_of(seen, [-error for error in case.errors]):
            pairs = zip(case.errors, seen, strict=True)
            yield Diagnosis(
                name="missing-term",
                message=f"{case.subject_line} lacks a term: {_times(multiple)}{text}.",
                fit=case.fit(error + multiple * term for error, term in pairs),
                hint=PRODUCT
                if "value" in text
                else "Look for a connection around the function, y = x + f(x), or "
                "another term of the forward that the backward leaves out.",
            )
        if factor is values and (multiple := multiple_of(seen, case.claimed)):
            yield Diagnosis(
                name="missing-term",
                message=f"{case.subject_line} is {_times(multiple)}{text}, and nothing else.",
                fit=SURE * case.fit_claims(multiple * term for term in seen),
                hint=PRODUCT,
            )


def _times(multiple: float) -> str:
    return "" if math.isclose(multiple, 1, rel_tol=CLOSE) else f"{multiple:.5g} times "


def symmetric(case: Case) -> Iterator[Diagnosis]:
    """Of two terms that mirror each other, one is missing: X Xᵀ, X + Xᵀ, a quadratic form."""
    part = case.answered
    for pair in part.swaps():
        if part.shape[pair[0]] == part.shape[pair[1]]:
            answers = (claim + part.swapped(case.xp, claim, pair=pair) for claim in case.claims)
            yield _mirrored(case, case.fit_right(answers))
    asked = case.sole
    for pair in asked.swaps() if asked else []:
        if asked and asked.shape[pair[0]] == asked.shape[pair[1]]:
            swapped = partial(asked.swapped, case.xp, pair=pair)
            pairs = zip(case.claims, case.questions, strict=True)
            answers = (claim + case.claim(asked.changed(question, swapped)) for claim, question in pairs)
            yield _mirrored(case, case.fit_right(answers))


def outer_product(case: Case, block: Block) -> Iterator[Diagnosis]:
    """What is missing is an outer product, or two: a term through something that all entries share."""
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
    if groups and fit > SURE and bool((abs(block.claimed) > block.slack).any()):
        yield Diagnosis(
            name="missing-term",
            message=f"What is missing in {case.what} is an outer product"
            + (f" in each of {groups} groups of entries" if groups > 1 else "")
            + ": the term through something that all entries share.",
            fit=SURE * fit,
            hint="Look at what the forward shares between entries, a sum, mean, norm, maximum or a softmax's "
            "denominator: it depends on every input, and its derivative is a term of its own.",
        )


def dropped(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Entries of the Jacobian are right or zero: some influences are left out."""
    wrong, gone = block.wrong, block.dropped
    right = ~wrong & (abs(block.right) > block.slack)
    if int(gone.sum()) < FEW or bool((wrong & ~gone).any()) or int(right.sum()) < FEW:
        return
    yield Diagnosis(
        name="missing-term",
        message=f"Every entry of the Jacobian for {case.what} is right or zero: {int(gone.sum())} of "
        f"{int(gone.sum() + right.sum())} that were examined are left out.",
        fit=GOOD,
        hint="Some outputs depend on entries that the backward does not connect them with: a sum, a "
        "normalisation or a neighbour is left out.",
    )


def _along(case: Case, point: Array) -> list[float]:
    """The slopes along the point itself, under each question."""
    if case.full:
        return [float((right * point).sum()) for right in case.right_values]
    direction = case.bench.directions(case.answered, [case.bench.step * point])
    slopes = case.bench.rough_slopes(direction) if case.bench.large else case.bench.slopes(direction)[0]
    return [float((slopes[0] * question).sum()) / case.bench.step for question in case.questions]


def _alike(case: Case) -> Part | None:
    """The output, where it has as many coordinates as the input and both are real."""
    part, own = case.sole, case.answered
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
    """Rows and columns that hang together through entries, as lists."""
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
    """The outer product that shares the largest entry's row and column with a matrix."""
    row, column = divmod(int(case.xp.argmax(abs(piece))), int(piece.shape[1]))
    if not float(abs(piece[row, column])) > 0:
        return piece
    return piece[:, column][:, None] * piece[row][None] / piece[row, column]
