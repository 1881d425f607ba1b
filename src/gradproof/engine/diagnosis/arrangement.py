"""Mistakes of arrangement: transposed, shifted, the wrong argument's gradient, a conjugate left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gradproof.engine.diagnosis.case import Case
from gradproof.engine.diagnosis.parts import Axis, Part, conjugated
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array

PARTS = 8  # tensors that an answer may have been mixed up with
LONG = 3  # entries along a dimension, from which on a shift can be told


def transposed(case: Case) -> Iterator[Diagnosis]:
    """The answer's dimensions, or the question's, are exchanged."""
    part, asked = case.answered, _asked(case)
    hint = "Look for a transpose that is missing or one too many, and for a reshape where a transpose is meant."
    for pair in part.swaps():
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is right with its dimensions {pair[0]} and {pair[1]} exchanged.",
            fit=case.fit_changed(partial(part.swapped, case.xp, pair=pair)),
            hint=hint,
        )
    if asked is None:
        return
    for pair in asked.swaps():
        given = "an incoming gradient" if case.reverse else "a tangent"
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is that of {given} with dimensions {pair[0]} and {pair[1]} of {asked.path} "
            "exchanged.",
            fit=case.fit_asked(partial(asked.swapped, case.xp, pair=pair), asked),
            hint="Look for a transpose that is missing or one too many, and for a sum over the wrong dimension.",
        )


def adjoint(case: Case) -> Iterator[Diagnosis]:
    """The backward applies the Jacobian where it should apply the transposed one: a matrix is not transposed."""
    asked = _asked(case)
    if not case.reverse or asked is None or asked.size != case.answered.size or asked.size < 2:
        return
    if asked.is_complex != case.answered.is_complex:
        return
    step = float(abs(case.answered.of(case.bench.direction(0))).max()) or case.bench.step
    questions = case.questions[:1] if case.bench.large else case.questions
    directions = case.xp.zeros_like(case.xp.stack([case.bench.subject.point] * len(questions)))
    asking = case.xp.stack([asked.of(question) for question in questions])
    directions[:, case.answered.start : case.answered.stop] = step * asking
    pushed = list(asked.of(case.bench.rough_slopes(directions)) / step)
    variants = [("", pushed)]
    for pair in case.answered.swaps()[:1]:
        exchanged = [case.answered.swapped(case.xp, row, pair=pair) for row in pushed]
        variants.append((" with its dimensions exchanged", exchanged))
    if asked.is_complex:
        variants.append((" without a conjugate", [conjugated(row) for row in pushed]))
    for also, rows in variants:
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is the Jacobian times the incoming gradient{also}, where it should be "
            "the transposed Jacobian times it.",
            fit=case.fit([claim - case.seen(row) for claim, row in zip(case.claimed, rows, strict=False)]),
            hint="A matrix in the backward is not transposed: y = A x needs Aᵀ (for complex A its conjugate too).",
        )


def conjugate(case: Case) -> Iterator[Diagnosis]:
    """A conjugate is missing, or one too many: of the answer, of the question, or of a factor."""
    asked = [part for part in case.asked_parts if part.is_complex and case.asked in (None, part)]
    answered = case.answered.is_complex
    forms = []
    if answered:
        forms.append(("the conjugate of the right one", [conjugated(claim) for claim in case.claims]))
    if asked:
        claims = []
        for question in case.questions:
            vector = question * 1.0
            for part in asked:
                vector[part.start : part.stop] = conjugated(part.of(question))
            claims.append(case.claim(vector))
        given = "incoming gradient" if case.reverse else "tangent"
        forms.append((f"that of the conjugate of the {given}", claims))
        if answered:
            both = [conjugated(claim) for claim in claims]
            forms.append(("right with the factors in it conjugated", both))
    for text, answers in forms:
        yield Diagnosis(
            name="conjugate",
            message=f"{case.subject_line} is {text}.",
            fit=case.fit_right(answers),
            hint="A gradient of a holomorphic f is the incoming gradient times the conjugate of f′: look for a "
            ".conj() that is missing or one too many.",
        )


def mixed(case: Case) -> Iterator[Diagnosis]:
    """What is claimed of one tensor belongs to another."""
    own, asked = case.input, _asked(case)
    same = [part for part in case.bench.inputs if own and part.path != own.path and part.size == own.size]
    for other in same[:PARTS]:
        if case.reverse:
            answers = [other.of(claim) for claim in case.whole_claims]
        else:
            answers = [case.claim(_moved(case, question, own, other)) for question in case.questions]
        yield Diagnosis(
            name="mixed",
            message=f"What is claimed for {other.path} is right for {own.path if own else ''}.",
            fit=case.fit_right(answers),
            hint="The results of the rule are in the wrong order: they are to be in the order of the forward's "
            "arguments, one for each.",
        )
    if case.asked is None and asked is None and case.reverse:
        yield from _mixed_outputs(case)


def _mixed_outputs(case: Case) -> Iterator[Diagnosis]:
    parts = case.bench.outputs[:PARTS]
    pairs = [(a, b) for k, a in enumerate(parts) for b in parts[k + 1 :] if a.size == b.size][:PARTS]
    for one, other in pairs:
        answers = []
        for question in case.questions:
            vector = question * 1.0
            vector[one.start : one.stop] = other.of(question)
            vector[other.start : other.stop] = one.of(question)
            answers.append(case.claim(vector))
        yield Diagnosis(
            name="mixed",
            message=f"{case.subject_line} takes the incoming gradients of {one.path} and {other.path} for each other.",
            fit=case.fit_right(answers),
            hint="The backward's arguments are in the order of the forward's results.",
        )


def shifted(case: Case) -> Iterator[Diagnosis]:
    """The answer, or the question, is moved by one along a dimension."""
    for axis in (axis for axis in case.answered.axes if axis.length >= LONG):
        for offset in (1, -1):
            fit = _shift_of_answer(case, axis, offset)
            yield _shift(case, f"{case.what} is shifted by one", "" if offset > 0 else "back ", axis.number, fit)
    asked = _asked(case)
    if asked is None:
        return
    given = "an incoming gradient" if case.reverse else "a tangent"
    for axis in (axis for axis in asked.axes if axis.length >= LONG):
        for offset in (1, -1):
            fit = max(
                case.fit_asked(change, asked)
                for change in (
                    partial(axis.shifted, case.xp, offset=offset),
                    partial(axis.rolled, case.xp, offset=offset),
                )
            )
            yield _shift(case, f"{case.what} is that of {given} shifted by one", "", axis.number, fit)


def _shift_of_answer(case: Case, axis: Axis, offset: int) -> float:
    """How well a shift explains the claims, but for the entries that came from beyond the end."""
    xp = case.xp
    if case.sample is not None:
        last = axis.length - 1 if offset > 0 else 0  # which fell off the end
        kept = case.sample // axis.below % axis.length != last
        return case.fit_changed(partial(axis.shifted, xp, offset=-offset), 1.0 * kept)
    index = axis.indices(xp, case.answered.size, case.claims[0])
    inner = (index > 0 if offset > 0 else index < axis.length - 1) * 1.0
    explained, count = case.through(
        partial(axis.shifted, xp, offset=offset), lambda test: axis.shifted(xp, test * inner, offset=-offset)
    )
    if case.tests is None:
        return case.fit_claims(explained, inner)
    seen = [(case.tests[:count] * inner) @ claim for claim in case.claims]
    return case.fit([claim - right for claim, right in zip(seen, explained, strict=True)])


def _shift(case: Case, what: str, back: str, axis: int, fit: float) -> Diagnosis:
    return Diagnosis(
        name="shifted",
        message=f"{what[0].upper()}{what[1:]} {back}along dimension {axis}.",
        fit=fit,
        hint="Look for an index that is off by one, a range that starts or ends one too early, an exclusive sum "
        "where an inclusive one is meant, padding on the wrong side.",
    )


def _moved(case: Case, question: Array, own: Part | None, other: Part) -> Array:
    vector = case.xp.zeros_like(question)
    if own is not None:
        vector[other.start : other.stop] = own.of(question)
    return vector


def _asked(case: Case) -> Part | None:
    """The tensor that questions are about, where there is one."""
    if case.asked is not None:
        return case.asked
    return case.asked_parts[0] if len(case.asked_parts) == 1 else None
