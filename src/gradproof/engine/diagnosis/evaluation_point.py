"""Derivatives at the wrong point (saved tensors overwritten, or the wrong tensor saved), and approximate ones."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from itertools import islice

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, LEAST_FIT, OPERANDS, SAME, Case
from gradproof.engine.diagnosis.measurements import norm_of
from gradproof.engine.estimators.noise import SINGLE
from gradproof.engine.options import tolerance_hint
from gradproof.engine.parts import Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, CLEARLY, FEW, MANY, SHARE, SLIGHT, TRACE, TWO_DIGITS

CAST = "Look for a cast to a lower precision in the backward."
DIFFERENT = (
    "Look for an approximation, a constant with too few digits, an eps or a clamp that forward and backward do not "
    "share, or a backward by finite differences."
)
ADVICE = (
    "Look for an in-place change of what the forward saved (x.mul_(…), out=, a buffer used again), and for a saved "
    "tensor that is not the one meant."
)

TURNED = "Look at the signs of the terms that this input is in, and for a saved tensor that is negated."
BRANCHES = "Look at the condition of the mask, and at which branch it takes on which side."
LEFT_OUT = "Look for a weight, a scale or a norm of the forward that the backward does not multiply or divide by."
INNER = (math.sqrt(2), 3, 4, 5, 8, 10, 100)  # constants that the inputs of an inner function are often multiplied by


class _Instead(enum.Enum):
    """What stands in the place of a tensor at the point of a mistaken derivative."""

    ONE = "one"
    VALUE = "value"
    TRANSPOSE = "transpose"
    INNER = "inner"  # a large multiple, at which terms may vanish
    TURNED = "turned"  # another input with the other sign
    OTHER = "other"


def overwritten_state(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a derivative at the point that changes when the function is called at another point."""
    before, again = case.claim(case.operands[0]), case.claim(case.operands[0])
    case.measurements.evaluate_elsewhere()
    after = case.claim(case.operands[0])
    allowed = SAME * norm_of([before])
    if norm_of([again - before]) <= allowed < norm_of([after - before]):  # it does not change by itself
        yield Diagnosis(
            name="stale",
            message=f"Calling the function at another point changes {case.what} at this one: the derivative reads "
            "something that every call overwrites.",
            fit=CERTAIN,
            hint="Save what the backward needs with ctx.save_for_backward, or in tensors of its own for every call; "
            "a buffer, a global or an attribute is overwritten by the next call.",
        )


def wrong_point(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a claim that is the right derivative at another point."""
    if not case.reverse:
        return
    outputs = sum(part.size for part in case.operand_parts)
    for instead, text, place in islice(_places(case), MANY if case.measurements.large else None):
        left = _off(case, 0, place)
        if left > (TRACE if instead is _Instead.INNER else SLIGHT) or (
            outputs < OPERANDS and _off(case, 1, place) > SLIGHT
        ):  # few numbers may agree by chance
            continue
        name, also, hint = _cause(case, instead)
        if instead is _Instead.TURNED:
            name, also, hint = "wrong-term", ", as if a term with it had the wrong sign", TURNED
        if instead is _Instead.OTHER and _is_branch(case):
            name, also, hint = "mask", ", as if the branches that it chooses from were exchanged", BRANCHES
        message = f"{case.subject_line} is right for another point: for {text}{also}."
        yield Diagnosis(name=name, message=message, fit=CERTAIN * (1 - left), hint=hint)


def _off(case: Case, number: int, place: Array) -> float:
    """Return how far claims are off at the point plus `place`, along a direction, relative to how far they are here."""
    part, direction = case.result_part, case.result_part.alone(case.measurements.direction(number))
    if case.sample is not None:  # move the sampled inputs only: the right products are known there
        drawn, places = direction, part.start + case.sample
        direction = 0.0 * drawn
        direction[places] = drawn[places]
    along = part.of(direction)
    if case.test_vectors is None:
        whole = norm_of(case.observed(along) @ error for error in case.errors)
    else:
        whole = norm_of(error[number] for error in case.errors)
    slopes = case.measurements.rough_slopes(direction[None], place)[0]
    left = norm_of(along @ claim - slopes @ operand for claim, operand in zip(case.claims, case.operands, strict=True))
    return left / whole if 0 < whole < math.inf else math.inf


def _is_branch(case: Case) -> bool:
    """Return True if the slopes of each output along one input are one of two constants, as of a mask."""
    if not case.full or not case.reverse:
        return False
    slopes, bars = case.slopes, case.bars
    largest = float(abs(slopes).max())
    there = abs(slopes) > CLEARLY * bars + TRACE * largest
    if case.result_part.size <= MANY // 2 or int(there.sum(0).max()) > 1 or int(there.sum(1).max()) > 1:
        return False
    found: list[float] = []
    for slope in sorted(slopes[there].tolist()):
        if not found or slope - found[-1] > SAME * largest:
            found.append(slope)
    return len(found) == 2


def _cause(case: Case, instead: _Instead) -> tuple[str, str, str]:
    """Return a name, what the message adds, and a hint, for a claim that is right at another point."""
    if instead is _Instead.TRANSPOSE:
        return "transposed", "", "Look for a transpose of this matrix that is missing or one too many."
    if instead is _Instead.ONE:
        return "wrong-factor", ", as if this factor were left out", LEFT_OUT
    if instead is _Instead.VALUE and _is_normalization(case):
        return "wrong-factor", ", as if a norm or a deviation that it divides by were left out", LEFT_OUT
    return "stale", "", ADVICE


def approximate(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose claims that are close to the right ones in all entries, but exact in hardly any."""
    counts = abs(block.right) > SLIGHT * float(abs(block.right).max())
    number = int(counts.sum())
    if number < FEW:
        return
    relative = ((block.claimed - block.right) / case.xp.where(counts, block.right, 1.0 + 0 * block.right))[counts]
    off = int(((abs(block.claimed - block.right) > block.slack / CLEARLY) & counts).sum())  # by more than the bar
    largest = float(abs(relative).max())
    usual = math.sqrt(float((relative * relative).sum()) / number)
    if largest > ALIKE or usual > SHARE / 2 or 2 * off < number:
        return
    size = f"{100 * usual:.2g} %" if usual > CLEARLY * SINGLE else f"{usual:.1e}"
    single = SINGLE / TWO_DIGITS < usual < CLEARLY * SINGLE
    yield Diagnosis(
        name="approximation",
        message=f"{case.subject_line} is off by some {size} nearly everywhere: it is the derivative of a slightly "
        "different function." + (" Computing in single precision leaves errors of this size." if single else ""),
        fit=LEAST_FIT - usual,
        hint=(CAST if single else DIFFERENT) + tolerance_hint(largest, SLIGHT),
    )


def _places(case: Case) -> Iterator[tuple[_Instead, str, Array]]:
    """Yield points at which a derivative may be taken by mistake: how they arise, in words, and their difference."""
    measurements, part = case.measurements, case.result_part
    point, values = measurements.subject.point, measurements.subject.centre
    own = part.of(point)
    found: list[tuple[_Instead, str, Part, Array]] = [
        (_Instead.VALUE, f"the function's value {output.path} in place of {part.path}", part, output.of(values))
        for output in measurements.outputs[:2]
        if _is_like(part, output)
    ]
    for other in [other for other in measurements.inputs if other != part and _is_like(part, other)][:2]:
        found.append((_Instead.OTHER, f"{other.path} in place of {part.path}", part, other.of(point)))
        found.append((_Instead.OTHER, f"{part.path} in place of {other.path}", other, own))
    for other in [each for each in measurements.inputs[:FEW] if each != part and not each.is_complex]:
        for pair in other.swaps()[-1:]:
            if other.shape[pair[0]] == other.shape[pair[1]]:
                turned = other.swapped(case.xp, other.of(point), pair=pair)
                found.append((_Instead.TRANSPOSE, f"{other.path} transposed", other, turned))
        found.append((_Instead.ONE, f"1 in place of {other.path}", other, 1.0 + 0.0 * other.of(point)))
    for other in [part, *(each for each in measurements.inputs[:3] if each.path != part.path)]:
        changes = _changes(other, other.of(point))
        found += [(_Instead.OTHER, text.format(other.path), other, value) for text, value in changes]
        turned = _Instead.OTHER if other == part else _Instead.TURNED
        found.append((turned, f"−{other.path}", other, -other.of(point)))
        if other == part or not case.full:  # else what is left out with the other input may be a term or a factor
            found.append((_Instead.OTHER, f"0 in place of {other.path}", other, 0.0 * other.of(point)))
    if not part.is_complex:
        found += [(_Instead.INNER, f"{size:.5g} {part.path}", part, size * own) for size in INNER]
        found += [(_Instead.INNER, f"{part.path} / {size:.5g}", part, own / size) for size in INNER]
    for instead, text, other, value in found:
        if other.is_complex or not _leaves_the_domain(other.of(point), value):
            yield instead, text, measurements.directions(other, [value - other.of(point)])[0]


def _is_normalization(case: Case) -> bool:
    """Return True if the function does not change its own value, as a normalisation to a unit of size."""
    subject, part = case.measurements.subject, case.only_operand_part
    if part is None:
        return False
    value = part.of(subject.centre)
    place = case.measurements.directions(case.result_part, [value - case.result_part.of(subject.point)])[0]
    return norm_of([part.of(case.measurements.value_at(place)) - value]) <= TRACE * norm_of([value])


def _is_like(part: Part, other: Part) -> bool:
    return part.shape == other.shape and part.is_complex == other.is_complex


def _leaves_the_domain(x: Array, value: Array) -> bool:
    """Return True if the numbers of a tensor all have one sign, and the new ones do not.

    The function may be defined for that sign alone. For other numbers an iteration may never converge.
    """
    return any(bool((side * x > 0).all()) and not bool((side * value > 0).all()) for side in (1, -1))


def _changes(part: Part, x: Array) -> list[tuple[str, Array]]:
    """Return what a tensor may be after a change in place, each with a pattern for its name."""
    found = [("2 {}", 2 * x), ("{} / 2", x / 2)]
    found += [("{} + 1", _plus(part, x, 1.0)), ("{} − 1", _plus(part, x, -1.0))]
    if not part.is_complex:
        found += [("|{}|", abs(x)), ("{}²", x * x), ("relu({})", (x + abs(x)) / 2)]
    return found


def _plus(part: Part, x: Array, number: float) -> Array:
    shifted = x * 1.0
    shifted[:: 2 if part.is_complex else 1] += number
    return shifted
