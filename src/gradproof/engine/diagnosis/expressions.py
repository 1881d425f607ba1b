"""Terms that are simple expressions of inputs and outputs, such as 2·x·y² or cos(x): what claims lack, or have instead.

The error of each wrong entry of the Jacobian is compared with products of powers of two tensors, laid along the
dimensions of output and input. If each output depends on one input, common functions of the tensors are tried too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import LEAST_FIT, Case
from gradproof.engine.diagnosis.index_maps import whole_of
from gradproof.engine.diagnosis.monomials import Form, in_words
from gradproof.engine.diagnosis.product_rule import PRODUCT
from gradproof.engine.diagnosis.scale import named
from gradproof.engine.diagnosis.tensor_factors import functions_of, spread_over
from gradproof.engine.diagnosis.terms import SHARES
from gradproof.engine.parts import Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, HANDFUL, TRACE

POWERS = (1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
EXACT = TRACE**2 * 10  # relative, of an expression: 1e-5
WRITTEN_DOWN = LEAST_FIT + (1 - LEAST_FIT) / 4  # more than what says where entries are wrong, less than what fits a law
FORMULA = "Differentiate the forward term by term, and compare each with the backward: its factors, and their sums."


@dataclass(frozen=True, slots=True)
class Entries:
    """The wrong entries of a block: what is claimed, what is right, and tensors that may be in both."""

    xp: Any
    claimed: Array
    right: Array
    forms: list[Form]


def left_out(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose errors that are a usual multiple of a product of tensors, where outputs depend on several inputs."""
    yield from _left_out(case, _entries(case, block, alone=False))


def left_out_of_each(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose errors that are a usual multiple of a product of functions, where each output depends on one input."""
    yield from _left_out(case, _entries(case, block, alone=True))


def _left_out(case: Case, entries: Entries | None) -> Iterator[Diagnosis]:
    found = _product(entries, entries.right - entries.claimed) if entries else None
    if entries is None or found is None:
        return
    text, multiple, values = found
    times = named(abs(multiple), case) if abs(abs(multiple) - 1) > EXACT else ""
    part = _share(entries, values) or 0.0
    if times is None or abs(part + multiple) <= TRACE * abs(multiple):  # it should not be there at all
        return
    term = f"{'−' if multiple < 0 else ''}{times + ' times ' if times else ''}{text}"
    missing = abs(part) <= TRACE * abs(multiple)
    how = f"lacks a term: the slopes are off by {term}"
    if not missing:
        how = f"has {part:.4g} times {text} as a term, where it should be {part + multiple:.4g} times"
    yield Diagnosis(
        name="missing-term" if missing else "wrong-term",
        message=f"{case.subject_line} {how}.",
        fit=WRITTEN_DOWN,
        hint=PRODUCT if missing else FORMULA,
    )


def along_tensors(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose errors that are a tensor times a factor for each output, or each input, as of a shared norm or sum."""
    parts = whole_of(case, block)
    if parts is None or not case.reverse or not bool(block.wrong.any()):
        return
    output, own = parts
    shape = (output.size, own.size)
    places = case.xp.arange(0, output.size * own.size, device=block.right.device)
    forms = [(text, values.reshape(shape)) for text, values in _different(case.xp, _laid(case, output, own, places))]
    for axis in (1, 0):
        found = [
            text
            for text, values in forms
            if _is_along(block, block.right - block.claimed, values, axis)
            and not _is_along(block, block.right, values, axis)  # else it is a factor
        ]
        if not found:
            continue
        pure = [text for text, values in forms if text not in found and _is_along(block, block.claimed, values, axis)]
        each = "output" if axis else "input"
        cause = "it is left out" if pure else "it is left out, or has another factor"
        yield Diagnosis(
            name="missing-term" if pure else "wrong-term",
            message=f"{case.subject_line} is off by a term, a multiple of {found[0]} for each {each}: {cause}.",
            fit=WRITTEN_DOWN,
            hint=SHARES,
        )
        return


def _is_along(block: Block, numbers: Array, values: Array, axis: int) -> bool:
    """Return True if some numbers, in the wrong entries, are multiples of the values along one axis."""
    wrong = 1.0 * block.wrong
    counts, squares = wrong.sum(axis), (values * values * wrong).sum(axis)
    sums = (values * wrong).sum(axis)
    lines = (counts > 1) & (squares * counts - sums * sums > TRACE**2 * squares * counts)  # along which values vary
    multiples = (numbers * values * wrong).sum(axis) / (squares + (squares == 0))
    spread = multiples[:, None] * values if axis else multiples[None] * values
    allowed = block.slack + EXACT * float(abs(numbers).max())
    surplus = float(counts[lines].sum()) - float(lines.sum())
    enough = surplus >= 2 * FEW and FEW * surplus >= float(counts.sum())
    return enough and not bool(((abs(numbers - spread) > allowed) & block.wrong).any())


def of_two_terms(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose slopes a + b·f that have another a or b, for a function f of a tensor."""
    entries = _entries(case, block, alone=True, whole=True)
    if entries is None:
        return
    for text, values in entries.forms:
        claimed, right = _line(values, entries.claimed), _line(values, entries.right)
        if claimed is None or right is None:
            continue
        (constant, slope), (other, steepness) = claimed, right
        unit = float(abs(values).max())
        largest = max(abs(other), unit * abs(steepness))
        same = [abs(constant - other) <= TRACE * largest, unit * abs(slope - steepness) <= TRACE * largest]
        if sum(same) != 1 or unit * abs(steepness) <= TRACE * largest:
            continue
        absent = unit * abs(slope) <= TRACE * largest if same[0] else abs(constant) <= TRACE * largest
        yield Diagnosis(
            name="missing-term" if absent else "wrong-term",
            message=f"{case.subject_line} is {constant:.4g} {_signed(slope)}·{text} times the incoming gradient, where "
            f"it should be {other:.4g} {_signed(steepness)}·{text} times.",
            fit=WRITTEN_DOWN,
            hint=FORMULA,
        )
        return


def _entries(case: Case, block: Block, *, alone: bool, whole: bool = False) -> Entries | None:
    """Return the wrong entries, or all, with forms for the tensors; None if they are too few, or not known well enough.

    `alone` says whether each output has to depend on one input.
    """
    output, own = case.only_operand_part, case.input
    if not case.reverse or output is None or output.is_complex or own.is_complex or block.rows is None:
        return None
    if not block.holds_the_errors(case.operands):
        return None
    there = (abs(block.right) > block.slack) | block.wrong
    if (int(there.sum(1).max()) <= 1) is not alone or not (alone or whole_of(case, block)):
        return None
    xp, chosen = case.xp, there if whole else block.wrong
    claimed, right = block.claimed[chosen], block.right[chosen]
    scale = abs(right) + float(abs(right).max()) if whole else abs(right - claimed)
    known = block.slack[chosen] <= EXACT * scale
    if int(known.sum()) < 2 * FEW or 2 * int((~known).sum()) > int(known.sum()):
        return None
    rows, columns = (block.rows - output.start)[:, None], (block.columns - own.start)[None]
    places = (rows * own.size + columns)[chosen][known]
    few = slice(None, None, max(1, int(places.shape[0]) // HANDFUL))
    tensors = spread_over(case, output, (places // own.size)[few]) if alone else _laid(case, output, own, places[few])
    forms = _different(xp, functions_of(xp, tensors) if alone else tensors)
    return Entries(xp, claimed[known][few], right[known][few], forms)


def _laid(case: Case, output: Part, own: Part, places: Array) -> Iterator[Form]:
    """Yield tensors laid along the dimensions of output and input, in this order or the other, at some entries."""
    rows, columns = places // own.size, places % own.size
    for first, then, index in ((output, own, places), (own, output, columns * output.size + rows)):
        joint = Part("", 0, output.size * own.size, (*first.shape, *then.shape), is_complex=False)
        yield from spread_over(case, joint, index)


def _different(xp: Any, forms: Iterator[Form]) -> list[Form]:
    """Return forms that vary, without zeros and without repetitions."""
    kept: list[Form] = []
    for name, values in forms:
        if not bool((xp.isfinite(values) & (values != 0)).all()) or float(abs(values - values[0]).max()) <= TRACE:
            continue
        if not any(float(abs(values - other).max()) <= EXACT * float(abs(values).max()) for _, other in kept):
            kept.append((name, values))
        if len(kept) == HANDFUL:
            break
    return kept


def _product(entries: Entries, numbers: Array) -> tuple[str, float, Array] | None:
    """Return a product of powers of one or two forms, in words, that some numbers are a multiple of; the simplest."""
    xp, forms = entries.xp, entries.forms
    distinct = len({f"{number:.4e}" for number in numbers.tolist()})
    if not forms or bool((numbers == 0).any()) or distinct <= FEW:
        return None
    wanted = xp.log(abs(numbers))
    wanted = wanted - wanted[0]
    logarithms = xp.stack([xp.log(abs(values)) for _, values in forms])
    powers = [(k, power) for power in POWERS for k in range(len(forms))]
    table = xp.stack([power * (logarithms[k] - logarithms[k][0]) for k, power in powers])
    ones = [
        ((k, power),)
        for (k, power), off in zip(powers, xp.amax(abs(table - wanted), 1).tolist(), strict=True)
        if off <= EXACT
    ]
    twos = []
    for number, first in enumerate(powers if distinct >= 2 * FEW else ()):
        left = table[: number + 1] + table[number] - wanted
        near = [k for k, off in enumerate(xp.amax(abs(left), 1).tolist()) if off <= 2 * EXACT]
        twos += [(powers[k], first) for k in near if powers[k][0] != first[0]]
    for chosen in [*ones, *sorted(twos, key=_weight)]:
        values = math.prod((_power(forms[k][1], power) for k, power in chosen), start=1.0 + 0.0 * numbers)
        ratio = numbers / values
        multiple = float(ratio.sum()) / len(ratio)
        if multiple and float(abs(ratio - multiple).max()) <= 2 * EXACT * abs(multiple):
            return in_words([forms[k][0] for k, _ in chosen], [power for _, power in chosen]), multiple, values
    return None


def _weight(chosen: Sequence[tuple[int, float]]) -> float:
    """Return how complicated a product is."""
    return sum(abs(power) + (power != round(power)) for _, power in chosen)


def _power(values: Array, power: float) -> Array:
    return values**power if power == round(power) else abs(values) ** power


def _share(entries: Entries, values: Array) -> float | None:
    """Return the multiple of some values in the claims, if they are a sum of it and of multiples of two other forms."""
    if len(values) <= 2 * FEW:
        return None
    unit = values / float(values @ values) ** 0.5
    table = _without(entries.xp.stack([each for _, each in entries.forms]), unit)
    claimed = entries.claimed - unit * float(unit @ entries.claimed)
    for number in range(len(table)):
        length = float(table[number] @ table[number]) ** 0.5
        first = table[number] / length
        others, rest = _without(table[number:], first), claimed - first * float(first @ claimed)
        squares = (others * others).sum(1)
        multiples = (others @ rest) / (squares + (squares <= TRACE**2 * float(length)))
        off = entries.xp.amax(abs(rest - multiples[:, None] * others), 1).tolist()
        second = min(range(len(off)), key=off.__getitem__)
        if off[second] <= EXACT * float(abs(entries.claimed).max()):
            names = (entries.forms[number][1], entries.forms[number + second][1])
            stacked = entries.xp.stack([values, *names]).T
            return float((entries.xp.linalg.pinv(stacked) @ entries.claimed)[0])
    return None


def _without(rows: Array, unit: Array) -> Array:
    """Return vectors without their parts along a unit vector."""
    return rows - (rows @ unit)[:, None] * unit


def _line(values: Array, numbers: Array) -> tuple[float, float] | None:
    """Return a and b if numbers are a + b·values, else None."""
    return _sum_of_two(1.0 + 0.0 * values, values, numbers)


def _sum_of_two(one: Array, two: Array, numbers: Array) -> tuple[float, float] | None:
    """Return the multiples of two vectors that some numbers are the sum of, else None."""
    (a, b, c), (x, y) = (one @ one, one @ two, two @ two), (one @ numbers, two @ numbers)
    determinant = float(a * c - b * b)
    if not determinant > TRACE**2 * float(a * c) or len(numbers) < 2 * FEW:
        return None
    first, second = float(c * x - b * y) / determinant, float(a * y - b * x) / determinant
    off = float(abs(first * one + second * two - numbers).max())
    return (first, second) if off <= EXACT * float(abs(numbers).max()) else None


def _signed(number: float) -> str:
    return f"{'−' if number < 0 else '+'} {abs(number):.4g}"
