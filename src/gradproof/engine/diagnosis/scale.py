"""Mistakes of size: a constant factor, a sign, everywhere or in some of the entries."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradproof.engine.diagnosis.case import Case
from gradproof.engine.diagnosis.regions import described, wrong_entries
from gradproof.engine.results import Diagnosis

CLOSE = 1e-5  # relative: a factor this near a number is that number
ENOUGH = 4  # independent numbers that a factor without a name must explain
FEW = 3  # wrong entries, from which on a factor common to them is no accident


def factor(case: Case) -> Iterator[Diagnosis]:
    """The claim is a multiple of the right answer."""
    over = sum(float((claim * right).sum()) for claim, right in zip(case.claimed, case.right_values, strict=True))
    square = sum(float((right * right).sum()) for right in case.right_values)
    size = over / square if square > 0 else 0.0
    if size == 0 or not math.isfinite(size):
        return
    fit = case.fit_claims([size * right for right in case.right_values])
    known = named(size, case)
    if fit and (known or case.freedom >= ENOUGH):
        yield _diagnosis(size, known, case, fit, "")


def factor_somewhere(case: Case) -> Iterator[Diagnosis]:
    """The entries that are wrong are a multiple of the right ones, and the others are right."""
    found = wrong_entries(case)
    if found is None:
        return
    wrong, relevant = found
    count, whole = int(wrong.sum()), int(relevant.sum())
    if count < FEW or count == whole:
        return
    mask = 1.0 * wrong
    pairs = list(zip(case.claimed, case.right_values, strict=True))
    square = sum(float((right * right * mask).sum()) for _, right in pairs)
    size = sum(float((claim * right * mask).sum()) for claim, right in pairs) / square if square else 0.0
    if size == 0 or not math.isfinite(size):
        return
    fit = case.fit_claims([right * (1 + (size - 1) * mask) for _, right in pairs])
    where = described(case, wrong, relevant & ~wrong)
    place = f" in {count} of {whole} entries" + (f", those {where}" if where else "")
    yield _diagnosis(size, named(size, case), case, fit, place)


def _diagnosis(size: float, known: str | None, case: Case, fit: float, place: str) -> Diagnosis:
    near_one = math.isclose(size, 1, rel_tol=CLOSE)
    times = f"{size:.10g}" if near_one else known or f"{size:.6g}"
    if math.isclose(size, -1, rel_tol=CLOSE):
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
    if math.isclose(abs(size), 2, rel_tol=CLOSE) or math.isclose(abs(size), 0.5, rel_tol=CLOSE):
        return "Look for the 2 of a square, a term that is counted twice, or one of two equal terms left out."
    return "Look for a constant of the forward that the backward leaves out, inverts or applies twice."


def named(size: float, case: Case) -> str | None:
    """A factor in words, where it is a number that one would expect: 2, ½, the number of entries, and so on."""
    magnitude, sign = abs(size), "−" if size < 0 else ""
    slack = CLOSE + case.noise / max(case.disagreement, 1e-300)
    for number, text in _plain().items():
        if math.isclose(magnitude, number, rel_tol=slack):
            return sign + text
    for number, text in _counts(case).items():
        for value, form in ((number, f"{number}"), (1 / number, f"1/{number}"), (math.sqrt(number), f"√{number}")):
            if math.isclose(magnitude, value, rel_tol=slack):
                return f"{sign}{form} ({text})"
        if math.isclose(magnitude, 1 / math.sqrt(number), rel_tol=slack):
            return f"{sign}1/√{number} ({text})"
        if number > 2 and math.isclose(magnitude, number / (number - 1), rel_tol=slack):
            return f"{sign}{number}/{number - 1} ({text}, and one less)"
        if number > 2 and math.isclose(magnitude, (number - 1) / number, rel_tol=slack):
            return f"{sign}{number - 1}/{number} ({text}, and one less)"
    for number in range(3, 13):
        for value, form in ((number, f"{number}"), (1 / number, f"1/{number}")):
            if math.isclose(magnitude, value, rel_tol=slack):
                return sign + form
    return None


def _plain() -> dict[float, str]:
    return {
        1.0: "1",
        2.0: "2",
        0.5: "½",
        10.0: "10",
        0.1: "1/10",
        math.pi: "π",
        1 / math.pi: "1/π",
        2 * math.pi: "2π",
        math.log(2): "ln 2",
        1 / math.log(2): "1/ln 2",
        math.log(10): "ln 10",
        1 / math.log(10): "1/ln 10",
        math.sqrt(2): "√2",
        math.sqrt(0.5): "1/√2",
        math.sqrt(2 * math.pi): "√2π",
        1 / math.sqrt(2 * math.pi): "1/√2π",
        2 / math.sqrt(math.pi): "2/√π",
        math.sqrt(math.pi) / 2: "√π/2",
        4.0: "4",
        0.25: "¼",
        100.0: "100",
        0.01: "1/100",
    }


def _counts(case: Case) -> dict[int, str]:
    """Numbers of entries and lengths of dimensions, which sums and means bring in."""
    found: dict[int, str] = {}
    for part in (*case.bench.inputs[:8], *case.bench.outputs[:8]):
        found.setdefault(part.entries, f"the number of entries of {part.path}")
        for axis in part.axes:
            found.setdefault(axis.length, f"the length of dimension {axis.number} of {part.path}")
    return {number: text for number, text in found.items() if number > 2}
