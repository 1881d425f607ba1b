"""Mistakes of the point: what the derivative is taken from was changed later, or is another tensor; approximations."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradproof.engine.diagnosis.bench import size_of
from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import Case
from gradproof.engine.diagnosis.parts import Part
from gradproof.engine.options import tolerance_hint
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array

CHANGED = 1e-6  # relative: an answer that differs by more from what it was has changed
DIRECTIONS = 2
PLACES = 14
FEW_PLACES = 3  # of a large function
NEAR = 0.15  # relative: the largest error of an approximation in any entry that counts
COUNTS = 0.02  # of the largest entry
MOST = 0.6  # of those entries must be off for the error to be everywhere
ENOUGH = 4
SLIGHT = 1e-3  # relative: an approximation so near may be meant
SINGLE = (1e-9, 1e-6)  # relative errors that computing in single precision leaves
CAST = "Look for a cast to a lower precision in the backward."
DIFFERENT = (
    "Look for an approximation, a constant with too few digits, an eps or a clamp that forward and backward do not "
    "share, or a backward by finite differences."
)
ADVICE = (
    "Look for an in-place change of what the forward saved (x.mul_(…), out=, a buffer used again), and for a saved "
    "tensor that is not the one meant."
)


def unsteady(case: Case) -> Iterator[Diagnosis]:
    """A call of the function elsewhere changes what the derivative answers here."""
    before, again = case.claim(case.questions[0]), case.claim(case.questions[0])
    case.bench.disturb()
    after = case.claim(case.questions[0])
    size = size_of(case.xp, [before])
    if size_of(case.xp, [again - before]) > CHANGED * size:  # it changes by itself
        return
    if size_of(case.xp, [after - before]) > CHANGED * size:
        yield Diagnosis(
            name="stale",
            message=f"Calling the function at another point changes {case.what} at this one: the derivative reads "
            "something that every call overwrites.",
            fit=0.99,
            hint="Save what the backward needs with ctx.save_for_backward, or in tensors of its own for every call; "
            "a buffer, a global or an attribute is overwritten by the next call.",
        )


def moved(case: Case) -> Iterator[Diagnosis]:
    """The claim is the right derivative at another point."""
    if not case.reverse:
        return
    xp, bench, part = case.xp, case.bench, case.answered
    directions = _directions(case)
    claimed = [part.of(directions) @ claim for claim in case.claims]
    if case.sample is not None:
        errors = [(case.seen(part.of(directions[0])) * error).sum() for error in case.errors]
    else:
        here = bench.rough_slopes(directions)
        errors = [claim - here @ question for claim, question in zip(claimed, case.questions, strict=True)]
    whole = size_of(xp, errors)
    if not 0 < whole < math.inf:
        return
    for text, place in _places(case)[: PLACES if case.sample is None else FEW_PLACES]:
        there = bench.rough_slopes(directions, place)
        left = size_of(xp, [claim - there @ question for claim, question in zip(claimed, case.questions, strict=True)])
        fit = max(0.0, 1 - left / whole) if math.isfinite(left) else 0.0
        yield Diagnosis(
            name="stale",
            message=f"{case.subject_line} is right for another point: for {text}.",
            fit=0.98 * fit,
            hint=ADVICE,
        )


def _directions(case: Case) -> Array:
    """Directions along which other points are compared with this one: of a sample one, within it."""
    xp, bench, part = case.xp, case.bench, case.answered
    drawn = [bench.direction(20 + k) for k in range(DIRECTIONS if case.sample is None else 1)]
    directions = xp.zeros_like(xp.stack(drawn))
    where = slice(part.start, part.stop) if case.sample is None else part.start + case.sample
    directions[:, where] = xp.stack([each[where] for each in drawn])
    return directions


def approximate(case: Case, block: Block) -> Iterator[Diagnosis]:
    """The claim is near the right one everywhere and right nowhere."""
    counts = abs(block.right) > COUNTS * float(abs(block.right).max())
    number = int(counts.sum())
    if number < ENOUGH:
        return
    relative = ((block.claimed - block.right) / case.xp.where(counts, block.right, 1.0 + 0 * block.right))[counts]
    off = int((block.wrong & counts).sum())
    largest = float(abs(relative).max())
    usual = math.sqrt(float((relative * relative).sum()) / number)
    if largest > NEAR or off < MOST * number:
        return
    size = f"{100 * usual:.2g} %" if usual > 1e-6 else f"{usual:.1e}"
    single = SINGLE[0] < usual < SINGLE[1]
    yield Diagnosis(
        name="approximation",
        message=f"{case.subject_line} is off by some {size} nearly everywhere: it is the derivative of a slightly "
        "different function." + (" Computing in single precision leaves errors of this size." if single else ""),
        fit=0.95 - usual,
        hint=(CAST if single else DIFFERENT) + tolerance_hint(largest, SLIGHT),
    )


def _places(case: Case) -> list[tuple[str, Array]]:
    """Other points, as differences from this one, each in words."""
    bench, part = case.bench, case.answered
    point, values = bench.subject.point, bench.subject.centre
    own = part.of(point)
    found: list[tuple[str, Part, Array]] = []
    for output in bench.outputs[:2]:
        if output.shape == part.shape and output.is_complex == part.is_complex:
            found.append((f"the function's value {output.path} in place of {part.path}", part, output.of(values)))
    same = [other for other in bench.inputs if other.path != part.path and other.shape == part.shape][:2]
    for other in same:
        if other.is_complex == part.is_complex:
            found.append((f"{other.path} in place of {part.path}", part, other.of(point)))
            found.append((f"{part.path} in place of {other.path}", other, own))
    for other in [part, *(each for each in bench.inputs[:3] if each.path != part.path)]:
        found += [(text.format(other.path), other, value) for text, value in _changes(other, other.of(point))]
    places = []
    for text, other, value in found:
        if not other.is_complex and _leaves_the_domain(other.of(point), value):
            continue
        difference = bench.zeros(bench.inputs)
        difference[other.start : other.stop] = value - other.of(point)
        places.append((text, difference))
    return places


def _leaves_the_domain(x: Array, value: Array) -> bool:
    """Whether numbers that are all of one sign would not stay so: a function may be for such numbers alone.

    Elsewhere it may not only be undefined: one that iterates until it converges may never end.
    """
    return any(bool((side * x > 0).all()) and not bool((side * value > 0).all()) for side in (1, -1))


def _changes(part: Part, x: Array) -> list[tuple[str, Array]]:
    """What becomes of a tensor that is changed in place."""
    found = [("2 {}", 2 * x), ("{} / 2", x / 2), ("−{}", -x), ("0 in place of {}", 0 * x)]
    found += [("{} + 1", _plus(part, x, 1.0)), ("{} − 1", _plus(part, x, -1.0))]
    if not part.is_complex:
        found += [("|{}|", abs(x)), ("{}²", x * x), ("relu({})", (x + abs(x)) / 2)]
    return found


def _plus(part: Part, x: Array, number: float) -> Array:
    shifted = x * 1.0
    shifted[:: 2 if part.is_complex else 1] += number
    return shifted
