"""Mistakes of size: a constant factor, a sign, everywhere or in some of the entries."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradproof.engine.diagnosis.case import CERTAIN, SAME, Case
from gradproof.engine.diagnosis.measurements import multiple_of
from gradproof.engine.diagnosis.regions import described, wrong_entries
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW


def factor(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that are a multiple of the right products."""
    size = multiple_of(case.right_values, case.claimed)
    if size == 0:
        return
    fit = case.fit_claims(size * right for right in case.right_values)
    known = named(size, case)
    if known or (fit > CERTAIN and case.degrees_of_freedom >= FEW):
        yield _diagnosis(size, known, case, fit, "")


def complex_factor(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims that are a multiple of the right products which is not real."""
    operand_part, part = case.only_operand_part, case.result_part
    if operand_part is None or not (part.is_complex or operand_part.is_complex):
        return
    if part.is_complex:
        turned = [_turned(claim) for claim in case.claims]
    else:
        turned = [case.claim(operand_part.changed(operand, _turned)) for operand in case.operands]
    real, imaginary = _combination(case.claimed, list(map(case.observed, turned)), case.right_values)
    if abs(imaginary) <= SAME * abs(real):
        return
    yield Diagnosis(
        name="factor",
        message=f"{case.subject_line} has to be multiplied by {_in_words(real, imaginary)} to be the right one.",
        fit=case.fit_as_right(
            real * claim + imaginary * other for claim, other in zip(case.claims, turned, strict=True)
        ),
        hint="Look for an imaginary unit, or a phase, that the backward leaves out or does not conjugate.",
    )


def _combination(first: list[Array], second: list[Array], targets: list[Array]) -> tuple[float, float]:
    """Return the multiples of two lists of vectors whose sum comes closest to the targets; zeros if there are none."""
    lists = ((first, first), (first, second), (second, second), (first, targets), (second, targets))
    (a, b, c, x, y) = (sum(float((u * v).sum()) for u, v in zip(*pair, strict=True)) for pair in lists)
    determinant = a * c - b * b
    if not determinant > SAME * a * c:
        return 0.0, 0.0
    return (c * x - b * y) / determinant, (a * y - b * x) / determinant


def _in_words(real: float, imaginary: float) -> str:
    """Return a complex number in words.

    >>> _in_words(0.0, -1.0), _in_words(0.5, 2.0)
    ('−i', '(0.5 + 2i)')
    """
    size = "" if math.isclose(abs(imaginary), 1, rel_tol=SAME) else f"{abs(imaginary):.4g}"
    if abs(real) <= SAME * abs(imaginary):
        return f"{'−' if imaginary < 0 else ''}{size}i"
    return f"({real:.4g} {'−' if imaginary < 0 else '+'} {size}i)"


def _turned(vector: Array) -> Array:
    """Return a vector that holds complex entries as pairs, times the imaginary unit."""
    result = vector * 1.0
    result[..., ::2], result[..., 1::2] = -vector[..., 1::2], vector[..., ::2]
    return result


def factor_somewhere(case: Case) -> Iterator[Diagnosis]:
    """Diagnose claims whose wrong entries are all the same multiple of the right ones."""
    found = wrong_entries(case)
    if found is None:
        return
    wrong, relevant = found
    count, whole = int(wrong.sum()), int(relevant.sum())
    if count < FEW or count == whole:
        return
    mask = 1.0 * wrong
    size = multiple_of([right * mask for right in case.right_values], case.claimed)
    if size == 0:
        return
    fit = case.fit_claims(right * (1 + (size - 1) * mask) for right in case.right_values)
    where = described(case, wrong, relevant & ~wrong)
    place = f" in {count} of {whole} entries" + (f", those {where}" if where else "")
    yield _diagnosis(size, named(size, case), case, fit, place)


def _diagnosis(size: float, known: str | None, case: Case, fit: float, place: str) -> Diagnosis:
    near_one = math.isclose(size, 1, rel_tol=SAME)
    times = f"{size:.10g}" if near_one else known or f"{size:.6g}"
    if math.isclose(size, -1, rel_tol=SAME):
        return Diagnosis(
            name="sign",
            message=f"{case.subject_line} has the wrong sign{place}.",
            fit=fit,
            hint="Look for a minus that is missing or one too many: a subtraction, an inverse, a cosine, a quotient.",
        )
    return Diagnosis(
        name="factor",
        message=f"{case.subject_line} is {times} times the right one{place}.",
        fit=fit,
        hint=_advice(size, known),
    )


def _advice(size: float, known: str | None) -> str:
    if known and "(" in known:
        return "Look for a sum where a mean is meant, or the other way round, and for a division that is done twice."
    if math.isclose(abs(size), 2, rel_tol=SAME) or math.isclose(abs(size), 0.5, rel_tol=SAME):
        return "Look for the 2 of a square, a term that is counted twice, or one of two equal terms left out."
    return "Look for a constant of the forward that the backward leaves out, inverts or applies twice."


def named(size: float, case: Case, accuracy: float = SAME) -> str | None:
    """Return a factor in words if it is a usual one (2, ½, π, the number of entries, …), else None."""
    magnitude, sign = abs(size), "−" if size < 0 else ""
    slack = accuracy + case.noise / max(case.disagreement, 1e-300)
    for number, text in _expected(case):
        if math.isclose(magnitude, number, rel_tol=slack):
            return sign + text
    return None


def _expected(case: Case) -> Iterator[tuple[float, str]]:
    """Yield the factors that mistakes often have, the simplest first, each with its name."""
    pi, two, ten = math.pi, math.log(2), math.log(10)
    yield from [(1, "1"), (2, "2"), (1 / 2, "½"), (10, "10"), (1 / 10, "1/10"), (pi, "π"), (1 / pi, "1/π")]
    yield from [(2 * pi, "2π"), (two, "ln 2"), (1 / two, "1/ln 2"), (ten, "ln 10"), (1 / ten, "1/ln 10")]
    yield from [(math.sqrt(2), "√2"), (math.sqrt(1 / 2), "1/√2")]
    yield from [(math.sqrt(2 * pi), "√2π"), (1 / math.sqrt(2 * pi), "1/√2π")]
    yield from [(2 / math.sqrt(pi), "2/√π"), (math.sqrt(pi) / 2, "√π/2")]
    yield from [(4, "4"), (1 / 4, "¼"), (100, "100"), (1 / 100, "1/100")]
    for count, text in _counts(case).items():
        yield from [(count, f"{count} ({text})"), (1 / count, f"1/{count} ({text})")]
        yield from [(math.sqrt(count), f"√{count} ({text})"), (1 / math.sqrt(count), f"1/√{count} ({text})")]
        yield count / (count - 1), f"{count}/{count - 1} ({text}, and one less)"
        yield (count - 1) / count, f"{count - 1}/{count} ({text}, and one less)"
    for number in range(3, 13):
        yield from [(number, f"{number}"), (1 / number, f"1/{number}")]


def _counts(case: Case) -> dict[int, str]:
    """Return the factors that sums and means bring in (numbers of entries, lengths of dimensions) with their names."""
    found: dict[int, str] = {}
    for part in (*case.measurements.inputs, *case.measurements.outputs):
        found.setdefault(part.entries, f"the number of entries of {part.path}")
        for axis in part.axes:
            found.setdefault(axis.length, f"the length of dimension {axis.number} of {part.path}")
    return {number: text for number, text in found.items() if number > 2}
