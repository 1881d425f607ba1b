"""Mistakes with the incoming gradient: ignored, assumed to be ones, reduced to one number, passed on as it is."""

from __future__ import annotations

from collections.abc import Iterator

from gradproof.engine.diagnosis.bench import size_of
from gradproof.engine.diagnosis.case import Case
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array

SAME = 1e-9  # relative


def ignored(case: Case) -> Iterator[Diagnosis]:
    """The claim does not change with what it is asked."""
    first, *others = case.claims
    size = size_of(case.xp, [first])
    if not size > 0 or any(size_of(case.xp, [first - other]) > SAME * size for other in others):
        return
    given = "incoming gradient" if case.reverse else "tangent"
    multiply = f"Multiply by the {given}, also where it has one entry: it is not always one."
    size = 1.0 if case.reverse else case.bench.step  # a direction is as long as a step
    right = case.right(case.restricted(size * _ones(case))).value / size
    assumed = case.fit_claims([right] * len(case.claims))
    yield Diagnosis(
        name="incoming-ignored",
        message=f"{case.subject_line} does not change with the {given}, and is right where that is all ones.",
        fit=assumed,
        hint=multiply,
    )
    yield Diagnosis(
        name="incoming-ignored",
        message=f"{case.subject_line} does not change with the {given}.",
        fit=0.97,
        hint=multiply,
    )


def reduced(case: Case) -> Iterator[Diagnosis]:
    """The claim depends on the sum of what it is asked alone."""
    parts = [case.asked] if case.asked else case.asked_parts
    if len(parts) != 1 or parts[0].entries < 2:
        return
    (part,) = parts
    rights = []
    for question, claim in zip(case.questions, case.claims, strict=True):
        vector = question * 1.0
        pieces = part.of(question).reshape(-1, 2 if part.is_complex else 1)
        flat = case.xp.zeros_like(pieces) + pieces.sum(0) / part.entries
        vector[part.start : part.stop] = flat.reshape(-1)
        if size_of(case.xp, [case.claim(vector) - claim]) > SAME * size_of(case.xp, [claim]):
            return
        rights.append(case.right(vector).value)
    given = "incoming gradient" if case.reverse else "tangent"
    yield Diagnosis(
        name="incoming-ignored",
        message=f"{case.subject_line} depends on the sum of the {given} alone, and is right where its entries "
        "are all the same.",
        fit=case.fit_claims(rights),
        hint=f"Multiply entry by entry before summing: the {given} is no single number.",
    )


def passed_through(case: Case) -> Iterator[Diagnosis]:
    """The incoming gradient itself is claimed."""
    parts = [case.asked] if case.asked else case.asked_parts
    if len(parts) != 1 or parts[0].size != case.answered.size:
        return
    given = "incoming gradient" if case.reverse else "tangent"
    (part,) = parts
    yield Diagnosis(
        name="pass-through",
        message=f"{case.subject_line} is the {given} itself.",
        fit=case.fit_claims([case.seen(part.of(question)) for question in case.questions]),
        hint="The derivative of the function itself is not multiplied in: a straight-through rule, or a factor left "
        "out.",
    )


def _ones(case: Case) -> Array:
    """A question of ones."""
    vector = case.xp.zeros_like(case.questions[0])
    for part in case.asked_parts:
        piece = part.of(vector)
        piece[:: 2 if part.is_complex else 1] = 1.0
    return vector
