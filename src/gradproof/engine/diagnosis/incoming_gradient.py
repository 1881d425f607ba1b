"""Mistakes with the incoming gradient: ignored, assumed to be ones, reduced to one number, passed on as it is."""

from __future__ import annotations

from collections.abc import Iterator

from gradproof.engine.diagnosis.case import CERTAIN, ZERO, Case
from gradproof.engine.diagnosis.measurements import norm_of
from gradproof.engine.parts import Axis, Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array

OMITTED = "The derivative of the function itself is not multiplied in: a straight-through rule, or a factor left out."


def ignored(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that do not depend on the operand."""
    first, *others = case.claims
    size = norm_of([first])
    if not size > 0 or any(norm_of([first - other]) > ZERO * size for other in others):
        return
    multiply = f"Multiply by the {case.given}, also where it has one entry: it is not always one."
    size = 1.0 if case.reverse else case.measurements.step  # a direction is as long as a step
    ones = size * _ones(case)
    right = case.right(case.operand_part.alone(ones) if case.operand_part else ones).value / size
    assumed = case.fit_claims([right] * len(case.claims))
    yield Diagnosis(
        name="incoming-ignored",
        message=f"{case.subject_line} does not change with the {case.given}, and is right where that is all ones.",
        fit=assumed,
        hint=multiply,
    )
    yield Diagnosis(
        name="incoming-ignored",
        message=f"{case.subject_line} does not change with the {case.given}.",
        fit=CERTAIN,
        hint=multiply,
    )


def reduced(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that depend on the sum of the operand's entries alone."""
    part = case.only_operand_part
    if part is None or part.entries < 2:
        return
    rights = []
    for operand, claim in zip(case.operands, case.claims, strict=True):
        vector = part.changed(operand, lambda row: _averaged(part, row))
        if norm_of([case.claim(vector) - claim]) > ZERO * norm_of([claim]):
            return
        rights.append(case.right(vector).value)
    yield Diagnosis(
        name="incoming-ignored",
        message=f"{case.subject_line} depends on the sum of the {case.given} alone, and is right where its entries "
        "are all the same.",
        fit=case.fit_claims(rights),
        hint=f"Multiply entry by entry before summing: the {case.given} is a tensor, not a single number.",
    )


def passed_through(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that equal the operand itself."""
    part = case.only_operand_part
    if part is None or part.size != case.result_part.size:
        return
    yield Diagnosis(
        name="pass-through",
        message=f"{case.subject_line} is the {case.given} itself.",
        fit=case.fit_claims([case.observed(part.of(operand)) for operand in case.operands]),
        hint=OMITTED,
    )


def repeated(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that are the operand itself, repeated along a dimension that the function reduces."""
    part, own, xp = case.only_operand_part, case.result_part, case.xp
    if part is None or part.is_complex or own.is_complex:
        return
    for axis in own.axes:
        if part.size * axis.length == own.size:
            spread = [
                axis.split(xp.zeros_like(claim)) + _thin(axis, part.of(operand))
                for claim, operand in zip(case.claims, case.operands, strict=True)
            ]
            yield Diagnosis(
                name="pass-through",
                message=f"{case.subject_line} is the {case.given} itself, repeated along dimension {axis.number}.",
                fit=case.fit_claims(case.observed(each.reshape(-1)) for each in spread),
                hint=OMITTED,
            )


def _thin(axis: Axis, operand: Array) -> Array:
    """Return an operand in the shape of a tensor whose dimension `axis` has one entry."""
    return operand.reshape(-1, 1, axis.below)


def _averaged(part: Part, row: Array) -> Array:
    """Return a tensor with all entries replaced by their mean."""
    pieces = row.reshape(-1, 2 if part.is_complex else 1)
    return (0.0 * pieces + pieces.sum(0) / part.entries).reshape(-1)


def _ones(case: Case) -> Array:
    """Return an operand whose entries are all one."""
    vector = case.xp.zeros_like(case.operands[0])
    for part in case.operand_parts:
        piece = part.of(vector)
        piece[:: 2 if part.is_complex else 1] = 1.0
    return vector
