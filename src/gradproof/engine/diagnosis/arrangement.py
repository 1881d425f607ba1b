"""Mistakes of arrangement: transposed, shifted, gradients of arguments exchanged, a conjugate left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations

from gradproof.engine.diagnosis.case import Case
from gradproof.engine.parts import Axis, Part, conjugated
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, MANY


def transposed(case: Case) -> Iterator[Diagnosis]:
    """Diagnose two dimensions exchanged in the product, or in the operand."""
    part, operand_part = case.result_part, case.only_operand_part
    hint = "Look for a transpose that is missing or one too many, and for a reshape where a transpose is meant."
    for pair in part.swaps():
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is right with its dimensions {pair[0]} and {pair[1]} exchanged.",
            fit=case.fit_as_right(part.swapped(case.xp, claim, pair=pair) for claim in case.claims),
            hint=hint,
        )
    if operand_part is None:
        return
    for pair in operand_part.swaps() if operand_part.size == part.size and operand_part.shape != part.shape else ():
        laid = operand_part.exchanged(pair)
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is right after dimensions {pair[0]} and {pair[1]} of {operand_part.path} are "
            "exchanged.",
            fit=case.fit_as_right(laid.swapped(case.xp, claim, pair=pair) for claim in case.claims),
            hint=hint,
        )
    for pair in operand_part.swaps():
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is that of {_a(case.given)} with dimensions {pair[0]} and {pair[1]} of "
            f"{operand_part.path} exchanged.",
            fit=case.fit_changed_operand(partial(operand_part.swapped, case.xp, pair=pair), operand_part),
            hint="Look for a transpose that is missing or one too many, and for a sum over the wrong dimension.",
        )


def adjoint(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a backward that applies the Jacobian where it should apply its transpose."""
    operand_part = case.only_operand_part
    if not case.reverse or operand_part is None or operand_part.size != case.result_part.size or operand_part.size < 2:
        return
    if operand_part.is_complex != case.result_part.is_complex:
        return
    step = float(abs(case.result_part.of(case.measurements.direction(0))).max()) or case.measurements.step
    operands = case.operands[:1] if case.measurements.large else case.operands
    directions = case.measurements.directions(
        case.result_part, [step * operand_part.of(operand) for operand in operands]
    )
    pushed = list(operand_part.of(case.measurements.rough_slopes(directions)) / step)
    variants = [("", pushed)]
    for pair in case.result_part.swaps()[:1]:
        exchanged = [case.result_part.swapped(case.xp, row, pair=pair) for row in pushed]
        variants.append((" with its dimensions exchanged", exchanged))
    if operand_part.is_complex:
        variants.append((" without a conjugate", [conjugated(row) for row in pushed]))
    for also, rows in variants:
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is the Jacobian times the incoming gradient{also}, where it should be "
            "the transposed Jacobian times it.",
            fit=case.fit_claims(map(case.observed, rows)),
            hint="A matrix in the backward is not transposed: y = A x needs Aᵀ (for complex A its conjugate too).",
        )


def conjugate(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a conjugate that is missing, or one too many: of the product, of the operand, or of a factor."""
    operand_part = [part for part in case.operand_parts if part.is_complex and case.operand_part in (None, part)]
    result_part = case.result_part.is_complex
    forms = []
    if result_part:
        forms.append(("the conjugate of the right one", [conjugated(claim) for claim in case.claims]))
    if operand_part:
        claims = []
        for operand in case.operands:
            vector = operand
            for part in operand_part:
                vector = part.changed(vector, conjugated)
            claims.append(case.claim(vector))
        forms.append((f"that of the conjugate of the {case.given}", claims))
        if result_part:
            both = [conjugated(claim) for claim in claims]
            forms.append(("right with the factors in it conjugated", both))
    for text, products in forms:
        yield Diagnosis(
            name="conjugate",
            message=f"{case.subject_line} is {text}.",
            fit=case.fit_as_right(products),
            hint="A gradient of a holomorphic f is the incoming gradient times the conjugate of f′: look for a "
            ".conj() that is missing or one too many.",
        )


def exchanged_tensors(case: Case) -> Iterator[Diagnosis]:
    """Diagnose gradients that are claimed for the wrong tensor."""
    own = case.input
    for other in [part for part in case.measurements.inputs if part != own and part.size == own.size][:MANY]:
        products = map(other.of, case.full_claims) if case.reverse else _claims_for(case, other)
        yield _mixed(
            f"What is claimed for {other.path} is right for {own.path}.",
            case.fit_as_right(products),
            "The results of the rule are in the wrong order. Return them in the order of the forward's arguments, one "
            "for each.",
        )
    if case.only_operand_part is None and case.reverse:
        yield from _mixed_outputs(case)


def _mixed_outputs(case: Case) -> Iterator[Diagnosis]:
    pairs = [(one, other) for one, other in combinations(case.measurements.outputs, 2) if one.size == other.size]
    for one, other in pairs[:MANY]:
        products = []
        for operand in case.operands:
            vector = operand * 1.0
            vector[one.start : one.stop] = other.of(operand)
            vector[other.start : other.stop] = one.of(operand)
            products.append(case.claim(vector))
        yield _mixed(
            f"{case.subject_line} takes the incoming gradients of {one.path} and {other.path} for each other.",
            case.fit_as_right(products),
            "The backward's arguments are in the order of the forward's results.",
        )


def _mixed(message: str, fit: float, hint: str) -> Diagnosis:
    return Diagnosis(name="mixed", message=message, fit=fit, hint=hint)


def shifted(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product, or an operand, that is shifted by one along a dimension."""
    for axis in (axis for axis in case.result_part.axes if axis.length >= FEW):
        for offset in (1, -1):
            back = "" if offset > 0 else " back"
            fit = _fit_of_shifted_product(case, axis, offset)
            yield _shift(f"{case.subject_line} is shifted by one{back}", axis.number, fit)
    operand_part = case.only_operand_part
    if operand_part is None:
        return
    for axis in (axis for axis in operand_part.axes if axis.length >= FEW):
        for offset in (1, -1):
            changes = (partial(move, case.xp, offset=offset) for move in (axis.shifted, axis.rolled))
            fit = max(case.fit_changed_operand(change, operand_part) for change in changes)
            yield _shift(f"{case.subject_line} is that of {_a(case.given)} shifted by one", axis.number, fit)


def flipped(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product, or an operand, that is reversed along some of its dimensions."""
    part, operand_part = case.result_part, case.only_operand_part
    for axes in _some(part.axes):
        flipped = [_reversed(case, axes, claim) for claim in case.claims]
        yield _flip(f"{case.subject_line} is reversed", axes, case.fit_as_right(flipped))
    for axes in _some(operand_part.axes) if operand_part is not None else ():
        fit = case.fit_changed_operand(partial(_reversed, case, axes), operand_part) if operand_part else 0.0
        yield _flip(f"{case.subject_line} is that of {_a(case.given)} reversed", axes, fit)


def flipped_throughout(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product that is right with itself and its operand reversed, as of a kernel that is not flipped."""
    part, operand_part = case.result_part, case.only_operand_part
    if operand_part is None:
        return
    for last in range(1, min(len(part.axes), len(operand_part.axes), FEW) + 1):
        axes, change = tuple(part.axes[-last:]), partial(_reversed, case, tuple(operand_part.axes[-last:]))
        pairs = list(zip(case.operands, case.claims, strict=True))
        rights = (case.right(operand_part.changed(operand, change)).value for operand, _ in pairs)
        claims = (case.observed(_reversed(case, axes, claim)) for _, claim in pairs)
        fit = case.fit(claim - right for claim, right in zip(claims, rights, strict=True))
        yield _flip(f"{case.subject_line} is right with itself and the {case.given} reversed", axes, fit)


def _some(axes: list[Axis]) -> Iterator[tuple[Axis, ...]]:
    """Yield every selection of up to three dimensions."""
    for count in range(1, FEW + 1):
        yield from combinations(axes, count)


def _reversed(case: Case, axes: tuple[Axis, ...], vector: Array) -> Array:
    for axis in axes:
        vector = case.xp.flip(axis.split(vector), (1,)).reshape(vector.shape)
    return vector


def _flip(what: str, axes: tuple[Axis, ...], fit: float) -> Diagnosis:
    return Diagnosis(
        name="flipped",
        message=f"{what} along dimension {' and '.join(str(axis.number) for axis in axes)}.",
        fit=fit,
        hint="Look for a flip that is missing or one too many: of a kernel, of a running sum, of a reversed sequence.",
    )


def _fit_of_shifted_product(case: Case, axis: Axis, offset: int) -> float:
    """Return how well a shift of the right products fits the claims, except in entries shifted in from outside."""
    xp = case.xp
    if case.sample is not None:
        last = axis.length - 1 if offset > 0 else 0  # shifted out of range
        kept = case.sample // axis.below % axis.length != last
        return case.fit_as_right((axis.shifted(xp, claim, offset=-offset) for claim in case.claims), 1.0 * kept)
    index = axis.indices(xp, case.result_part.size, case.claims[0])
    inner = (index > 0 if offset > 0 else index < axis.length - 1) * 1.0
    explained = case.right_after(
        partial(axis.shifted, xp, offset=offset), lambda test: axis.shifted(xp, test * inner, offset=-offset)
    )
    if case.test_vectors is None:
        return case.fit_claims(explained, inner)
    test_vectors = case.test_vectors[: explained[0].shape[0]] * inner
    return case.fit(test_vectors @ claim - right for claim, right in zip(case.claims, explained, strict=True))


def _shift(what: str, axis: int, fit: float) -> Diagnosis:
    return Diagnosis(
        name="shifted",
        message=f"{what} along dimension {axis}.",
        fit=fit,
        hint="Look for an index that is off by one, a range that starts or ends one too early, an exclusive sum "
        "where an inclusive one is meant, padding on the wrong side.",
    )


def _claims_for(case: Case, other: Part) -> Iterator[Array]:
    """Yield the claims for operands that are moved to another tensor."""
    for operand in case.operands:
        vector = case.xp.zeros_like(operand)
        vector[other.start : other.stop] = case.input.of(operand)
        yield case.claim(vector)


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
