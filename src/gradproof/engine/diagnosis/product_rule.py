"""Terms of a product rule along the input itself, where they are known without knowing the factors.

Let y = s(x)·x. Along x, the term in which s is held constant is y, and the other term is what remains of the slope. A
claimed slope along x is compared with the two: one of them is missing, or is there with a factor. If the slope is zero
along x, or along a shift of all entries (as of a softmax), the two terms cancel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradproof.engine.diagnosis.case import CERTAIN, SAME, ZERO, Case
from gradproof.engine.diagnosis.scale import named
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, TRACE

Numbers = Sequence[float]

PRODUCT = (
    "Look for a term of the product rule that is missing: every factor that depends on the input is differentiated."
)


def held_constant(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product y = s(x)·x of which a term is missing, or has a wrong sign or factor."""
    if not case.reverse or case.degrees_of_freedom < 2:
        return
    values = case.measurements.subject.centre
    expected = [float((operand * values).sum()) for operand in case.operands]
    point = case.result_part.of(case.measurements.subject.point)
    for along in (point, 1.0 + 0.0 * point)[: 1 if case.result_part.is_complex else 2]:
        claimed = [float((claim * along).sum()) for claim in case.claims]
        right = _along(case, along)
        size, scale = _norm([one - other for one, other in zip(right, claimed, strict=True)]), _norm(expected)
        if not scale > ZERO * size or not size > SAME * scale:
            continue
        factor = (_factor if along is point else _factor_of_balance)(case, claimed, right, expected)
        if factor is not None:
            yield wrong_term(case, "in which a factor of the value is differentiated", factor, CERTAIN)
            return
        if along is point:
            yield from _missing(case, claimed, right, expected)


def held_constant_beside(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product of which a term is missing, where the function adds another input to it, y = x + s(v)·v."""
    output = case.only_operand_part
    if not case.reverse or case.degrees_of_freedom < 2 or output is None or output.is_complex:
        return
    subject, own = case.measurements.subject, case.result_part
    for other in case.measurements.inputs:
        if other.path != own.path and other.shape == output.shape and not other.is_complex:
            rest = output.of(subject.centre) - other.of(subject.point)
            expected = [float((output.of(operand) * rest).sum()) for operand in case.operands]
            point = own.of(subject.point)
            claimed, right = [float((claim * point).sum()) for claim in case.claims], _along(case, point)
            if _norm([one - two for one, two in zip(right, claimed, strict=True)]) > SAME * _norm(expected) > 0:
                yield from _missing(case, claimed, right, expected)


def counted(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that lack some of several terms, where the slopes of each along (1, 1, …) add up to one."""
    output = case.only_operand_part
    if not case.reverse or case.degrees_of_freedom < FEW or output is None or output.is_complex or output.size < 2:
        return
    expected = [float(output.of(operand).sum()) for operand in case.operands]
    ones = 1.0 + 0.0 * case.result_part.of(case.measurements.subject.point)
    (claimed, left), (right, rest) = (
        _multiple(each, expected) for each in ([float(claim.sum()) for claim in case.claims], _along(case, ones))
    )
    whole = SAME * _norm(expected)
    if (
        max(left, rest) > whole
        or not 1 <= round(claimed) < round(right)
        or max(abs(claimed - round(claimed)), abs(right - round(right))) > SAME * right
    ):
        return
    yield Diagnosis(
        name="missing-term",
        message=f"{case.subject_line} has {round(claimed)} of {round(right)} terms: its entries add up to "
        f"{round(claimed)} where they should add up to {round(right)}.",
        fit=CERTAIN,
        hint="Look for a step of a loop, a recursion or a sum that the backward leaves out.",
    )


def wrong_term(case: Case, which: str, factor: float | None, fit: float) -> Diagnosis:
    """Return the diagnosis of a term that is there with a factor; with one that varies if it is None."""
    if factor is None:
        how = "has a factor that varies from group to group"
    elif math.isclose(factor, -1, rel_tol=TRACE):
        how = "has the wrong sign"
    else:
        how = f"is {named(factor, case, TRACE) or f'{factor:.5g}'} times the right one"
    return Diagnosis(
        name="wrong-term",
        message=f"{case.subject_line} has all its terms, but the one {which} {how}.",
        fit=CERTAIN * fit,
        hint="Look at this term's sign, at a sum for a mean in it, at its power of a norm or a standard deviation, "
        "and at its inner derivative.",
    )


def _missing(case: Case, claimed: Numbers, right: Numbers, expected: Numbers) -> Iterator[Diagnosis]:
    gaps = [one - other for one, other in zip(right, claimed, strict=True)]
    forms = (
        ("is right if one factor of the value is treated as a constant", claimed),
        ("lacks the term in which the input itself is the factor", gaps),
    )
    for text, observed in forms:
        multiple, left = _multiple(observed, expected)
        degree, rest = _multiple(right, expected)  # where the right slope is a multiple too, both terms are parts of it
        if rest <= TRACE * _norm(right) and not TRACE < multiple / degree < 1 - TRACE:
            continue
        if named(multiple, case):
            yield Diagnosis(
                name="missing-term",
                message=f"{case.subject_line} {text}: a term of a product rule is missing.",
                fit=CERTAIN * max(0.0, 1 - left / (TRACE * abs(multiple) * _norm(expected))),
                hint=PRODUCT,
            )


def _factor(case: Case, claimed: Numbers, right: Numbers, expected: Numbers) -> float | None:
    """Return the factor b if the claimed slopes are a·y + b·(right − a·y), where it is neither zero nor one."""
    _, left = _multiple(right, expected)
    if left <= TRACE * _norm(expected):
        return _factor_of_balance(case, claimed, right, expected)
    rest, apart = _without(claimed, expected), _without(right, expected)
    factor, unexplained = _multiple(rest, apart)
    multiple, _ = _multiple([one - factor * other for one, other in zip(claimed, right, strict=True)], expected)
    if unexplained > TRACE * _norm(rest) or _is_close(factor, 0) or _is_close(factor, 1):
        return None
    plausible = len(claimed) > FEW and (_is_short(factor) or _is_short(1 / factor) or named(factor, case))
    return factor if plausible and named(multiple / (1 - factor), case, TRACE) else None


def _factor_of_balance(case: Case, claimed: Numbers, right: Numbers, expected: Numbers) -> float | None:
    """Return the factor b where the terms are y and −y, the right slope is zero, and the claimed one is y − b·y."""
    multiple, left = _multiple(claimed, expected)
    scale = _norm(expected)
    if _norm(right) > TRACE * scale or left > TRACE * abs(multiple) * scale:
        return None
    if any(_is_close(multiple, each) for each in (-1, 0, 1)):  # a term is missing, or none
        return None
    return 1 - multiple if named(1 - multiple, case, TRACE) else None


def _along(case: Case, vector: Array) -> list[float]:
    """Return the slope along a vector, contracted with each operand."""
    if case.full:
        return [float((right * vector).sum()) for right in case.right_values]
    direction = case.measurements.directions(case.result_part, [case.measurements.step * vector])
    slopes = (
        case.measurements.rough_slopes(direction) if case.measurements.large else case.measurements.slopes(direction)[0]
    )
    return [float((slopes[0] * operand).sum()) / case.measurements.step for operand in case.operands]


def _multiple(observed: Numbers, expected: Numbers) -> tuple[float, float]:
    """Return the multiple of the expected numbers that is closest to the observed ones, and how much it leaves."""
    square = sum(each * each for each in expected)
    multiple = sum(one * other for one, other in zip(observed, expected, strict=True)) / square if square > 0 else 0.0
    return multiple, _norm([one - multiple * other for one, other in zip(observed, expected, strict=True)])


def _without(numbers: Numbers, other: Numbers) -> list[float]:
    """Return what is left of some numbers without their multiple of others."""
    multiple, _ = _multiple(numbers, other)
    return [one - multiple * two for one, two in zip(numbers, other, strict=True)]


def _norm(numbers: Numbers) -> float:
    return math.sqrt(sum(each * each for each in numbers))


def _is_short(number: float) -> bool:
    """Return True if a number has two digits, as constants in programs often do."""
    return math.isclose(number, float(f"{number:.2g}"), rel_tol=SAME)


def _is_close(number: float, other: float) -> bool:
    return abs(number - other) <= TRACE
