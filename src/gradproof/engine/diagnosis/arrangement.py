"""Mistakes of arrangement: transposed, shifted, the wrong argument's gradient, a conjugate left out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import combinations

from gradproof.engine.diagnosis.block import SOME
from gradproof.engine.diagnosis.case import Case
from gradproof.engine.diagnosis.parts import Axis, Part, conjugated
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW


def transposed(case: Case) -> Iterator[Diagnosis]:
    """The answer's dimensions, or the question's, are exchanged."""
    part, asked = case.answered, case.sole
    hint = "Look for a transpose that is missing or one too many, and for a reshape where a transpose is meant."
    for pair in part.swaps():
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is right with its dimensions {pair[0]} and {pair[1]} exchanged.",
            fit=case.fit_right(part.swapped(case.xp, claim, pair=pair) for claim in case.claims),
            hint=hint,
        )
    if asked is None:
        return
    for pair in asked.swaps():
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} is that of {_a(case.given)} with dimensions {pair[0]} and {pair[1]} of "
            f"{asked.path} exchanged.",
            fit=case.fit_asked(partial(asked.swapped, case.xp, pair=pair), asked),
            hint="Look for a transpose that is missing or one too many, and for a sum over the wrong dimension.",
        )


def adjoint(case: Case) -> Iterator[Diagnosis]:
    """The backward applies the Jacobian where it should apply the transposed one: a matrix is not transposed."""
    asked = case.sole
    if not case.reverse or asked is None or asked.size != case.answered.size or asked.size < 2:
        return
    if asked.is_complex != case.answered.is_complex:
        return
    step = float(abs(case.answered.of(case.bench.direction(0))).max()) or case.bench.step
    questions = case.questions[:1] if case.bench.large else case.questions
    directions = case.bench.directions(case.answered, [step * asked.of(question) for question in questions])
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
            fit=case.fit_claims(map(case.seen, rows)),
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
            vector = question
            for part in asked:
                vector = part.changed(vector, conjugated)
            claims.append(case.claim(vector))
        forms.append((f"that of the conjugate of the {case.given}", claims))
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
    own = case.input
    for other in [part for part in case.bench.inputs if part != own and part.size == own.size][:SOME]:
        answers = map(other.of, case.whole_claims) if case.reverse else _moved(case, other)
        yield Diagnosis(
            name="mixed",
            message=f"What is claimed for {other.path} is right for {own.path}.",
            fit=case.fit_right(answers),
            hint="The results of the rule are in the wrong order: they are to be in the order of the forward's "
            "arguments, one for each.",
        )
    if case.sole is None and case.reverse:
        yield from _mixed_outputs(case)


def _mixed_outputs(case: Case) -> Iterator[Diagnosis]:
    pairs = [(one, other) for one, other in combinations(case.bench.outputs, 2) if one.size == other.size]
    for one, other in pairs[:SOME]:
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
    for axis in (axis for axis in case.answered.axes if axis.length >= FEW):
        for offset in (1, -1):
            back = "" if offset > 0 else " back"
            fit = _shift_of_answer(case, axis, offset)
            yield _shift(f"{case.subject_line} is shifted by one{back}", axis.number, fit)
    asked = case.sole
    if asked is None:
        return
    for axis in (axis for axis in asked.axes if axis.length >= FEW):
        for offset in (1, -1):
            changes = (partial(move, case.xp, offset=offset) for move in (axis.shifted, axis.rolled))
            fit = max(case.fit_asked(change, asked) for change in changes)
            yield _shift(f"{case.subject_line} is that of {_a(case.given)} shifted by one", axis.number, fit)


def _shift_of_answer(case: Case, axis: Axis, offset: int) -> float:
    """How well a shift explains the claims, but for the entries that came from beyond the end."""
    xp = case.xp
    if case.sample is not None:
        last = axis.length - 1 if offset > 0 else 0  # which fell off the end
        kept = case.sample // axis.below % axis.length != last
        return case.fit_right((axis.shifted(xp, claim, offset=-offset) for claim in case.claims), 1.0 * kept)
    index = axis.indices(xp, case.answered.size, case.claims[0])
    inner = (index > 0 if offset > 0 else index < axis.length - 1) * 1.0
    explained = case.through(
        partial(axis.shifted, xp, offset=offset), lambda test: axis.shifted(xp, test * inner, offset=-offset)
    )
    if case.tests is None:
        return case.fit_claims(explained, inner)
    tests = case.tests[: explained[0].shape[0]] * inner
    return case.fit(tests @ claim - right for claim, right in zip(case.claims, explained, strict=True))


def _shift(what: str, axis: int, fit: float) -> Diagnosis:
    return Diagnosis(
        name="shifted",
        message=f"{what} along dimension {axis}.",
        fit=fit,
        hint="Look for an index that is off by one, a range that starts or ends one too early, an exclusive sum "
        "where an inclusive one is meant, padding on the wrong side.",
    )


def _moved(case: Case, other: Part) -> Iterator[Array]:
    """What is claimed where the questions are about another tensor."""
    for question in case.questions:
        vector = case.xp.zeros_like(question)
        vector[other.start : other.stop] = case.input.of(question)
        yield case.claim(vector)


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"
