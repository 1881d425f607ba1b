"""Mistakes with the incoming gradient: ignored, assumed to be ones, reduced to one number, passed on as it is."""

from __future__ import annotations

from collections.abc import Iterator

from gradproof.engine.diagnosis.bench import size_of
from gradproof.engine.diagnosis.case import NOTHING, SURE, Case
from gradproof.engine.diagnosis.parts import Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array


def ignored(case: Case) -> Iterator[Diagnosis]:
    """The claim does not change with what it is asked."""
    first, *others = case.claims
    size = size_of([first])
    if not size > 0 or any(size_of([first - other]) > NOTHING * size for other in others):
        return
    multiply = f"Multiply by the {case.given}, also where it has one entry: it is not always one."
    size = 1.0 if case.reverse else case.bench.step  # a direction is as long as a step
    ones = size * _ones(case)
    right = case.right(case.asked.alone(ones) if case.asked else ones).value / size
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
        fit=SURE,
        hint=multiply,
    )


def reduced(case: Case) -> Iterator[Diagnosis]:
    """The claim depends on the sum of what it is asked alone."""
    part = case.sole
    if part is None or part.entries < 2:
        return
    rights = []
    for question, claim in zip(case.questions, case.claims, strict=True):
        vector = part.changed(question, lambda row: _levelled(part, row))
        if size_of([case.claim(vector) - claim]) > NOTHING * size_of([claim]):
            return
        rights.append(case.right(vector).value)
    yield Diagnosis(
        name="incoming-ignored",
        message=f"{case.subject_line} depends on the sum of the {case.given} alone, and is right where its entries "
        "are all the same.",
        fit=case.fit_claims(rights),
        hint=f"Multiply entry by entry before summing: the {case.given} is no single number.",
    )


def passed_through(case: Case) -> Iterator[Diagnosis]:
    """The incoming gradient itself is claimed."""
    part = case.sole
    if part is None or part.size != case.answered.size:
        return
    yield Diagnosis(
        name="pass-through",
        message=f"{case.subject_line} is the {case.given} itself.",
        fit=case.fit_claims([case.seen(part.of(question)) for question in case.questions]),
        hint="The derivative of the function itself is not multiplied in: a straight-through rule, or a factor left "
        "out.",
    )


def _levelled(part: Part, row: Array) -> Array:
    """A tensor with all entries replaced by their mean."""
    pieces = row.reshape(-1, 2 if part.is_complex else 1)
    return (0.0 * pieces + pieces.sum(0) / part.entries).reshape(-1)


def _ones(case: Case) -> Array:
    """A question of ones."""
    vector = case.xp.zeros_like(case.questions[0])
    for part in case.asked_parts:
        piece = part.of(vector)
        piece[:: 2 if part.is_complex else 1] = 1.0
    return vector
