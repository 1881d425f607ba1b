"""A factor that is a tensor: forgotten, applied twice, or another in its place.

A claimed Jacobian may be the right one with its columns, or its rows, multiplied by factors. That is named if the
factors are those of a known tensor, or if they explain several entries each. Where inputs influence outputs one by one,
or all in the same proportion, factors of the inputs explain nothing: any wrong slope looks like one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, SAME, Case
from gradproof.engine.diagnosis.measurements import norm_of
from gradproof.engine.diagnosis.monomials import Form, monomial
from gradproof.engine.diagnosis.outer_products import factors_out
from gradproof.engine.diagnosis.scale import named
from gradproof.engine.parts import Axis, Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, FEW, MANY, TRACE

HINT = (
    "Look for a factor of the forward (a weight, a scale, a degree, a norm) that the backward leaves out, inverts "
    "or applies twice."
)


@dataclass(frozen=True, slots=True)
class Scaling:
    """The factors of some columns or rows of a block, where they are known to a few digits.

    `part` is the tensor that they belong to, and `places` are their coordinates in it.
    """

    part: Part | None
    places: Array
    factors: Array
    spread: float
    fit: float
    surplus: int  # entries that the factors explain and were not fitted to; 0 if that proves nothing


def forgotten(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a factor that is missing, inverted or applied twice: a power of a tensor, or one for each row."""
    for on_inputs in (True, False):
        scaling = _scaling(case, block, on_inputs=on_inputs)
        if scaling is None:
            continue
        if times := _as_power(case, scaling):
            yield _scaled(case, scaling, times, on_inputs=on_inputs)
        elif scaling.surplus >= FEW and _is_plausible(scaling.factors):
            own = f"a factor of its own for every {'entry' if on_inputs else 'output'}, from "
            sizes = f"{float(scaling.factors.min()):.4g} to {float(scaling.factors.max()):.4g}"
            yield _scaled(case, scaling, own + sizes, on_inputs=on_inputs)


def _scaled(case: Case, scaling: Scaling, times: str, *, on_inputs: bool) -> Diagnosis:
    what = "the right one times" if on_inputs else f"that of an {case.given} multiplied by"
    return Diagnosis(
        name="wrong-factor",
        message=f"{case.subject_line} is {what} {times}.",
        fit=scaling.fit,
        hint=HINT,
    )


def function_left_out(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a factor that is missing: a common function of a tensor, such as its logarithm or its cosine."""
    for on_inputs in (True, False):
        scaling = _scaling(case, block, on_inputs=on_inputs)
        if scaling is None or len(scaling.factors) <= 2 * FEW:
            continue
        outputs = [part.path for part in case.measurements.outputs]
        for text, values in functions_of(case.xp, _tensors(case, scaling)):
            own = text.startswith("√") or not any(path in text for path in outputs)  # else the value at another point
            if own and not text.startswith("(") and _multiple(scaling, 1 / values) == 1.0:
                yield Diagnosis(
                    name="wrong-factor",
                    message=f"{case.subject_line} lacks the factor {text}.",
                    fit=scaling.fit,
                    hint=HINT,
                )
                return


def exchanged(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a factor in the place of another: of a tensor, and of common functions of it."""
    for on_inputs in (True, False):
        scaling = _scaling(case, block, on_inputs=on_inputs)
        if scaling is None or len(scaling.factors) <= FEW + 1:
            continue
        found = monomial(case.xp, scaling.factors, list(_tensors(case, scaling)), scaling.spread)
        if found and (times := _times(case, scaling, *found)):
            yield _scaled(case, scaling, times, on_inputs=on_inputs)
            return
        forms = [("1", 1.0 + 0.0 * scaling.factors), *functions_of(case.xp, _tensors(case, scaling))]
        for (text, above), (other, below) in permutations(forms, 2):
            if _multiple(scaling, above / below) == 1.0:
                yield Diagnosis(
                    name="wrong-factor",
                    message=f"{case.subject_line} "
                    + (f"lacks the factor {other}." if text == "1" else f"has {text} in the place of {other}."),
                    fit=scaling.fit,
                    hint=f"Look for {other} in the derivative of the forward, and for what the backward multiplies by.",
                )
                return
        if line := _line_of(scaling, forms[1:]):
            name, text = line
            yield Diagnosis(name=name, message=f"{case.subject_line} {text}.", fit=scaling.fit, hint=HINT)
            return
        if (axes := _decisive_axes(case, scaling)) and _is_plausible(scaling.factors):
            dimensions = " and ".join(str(axis.number) for axis in axes)
            sizes = f"{float(scaling.factors.min()):.4g} to {float(scaling.factors.max()):.4g}"
            part = scaling.part.path if scaling.part else ""
            times = f"a factor that depends on the index along dimension {dimensions} of {part} alone, from {sizes}"
            yield _scaled(case, scaling, times, on_inputs=on_inputs)
            return


def _scaling(case: Case, block: Block, *, on_inputs: bool) -> Scaling | None:
    """Return the factors that columns, or rows, of the claimed block have compared with the right one."""
    xp = case.xp
    if not on_inputs and block.rows is None:
        return None
    tables = (block.claimed, block.right, block.slack)
    claimed, right, slack = tables if on_inputs else (each.T for each in tables)
    square = (right * right).sum(0)
    clear = TRACE**2 * square > (slack * slack).sum(0)  # whose factor is known to a few digits
    if int(clear.sum()) < 2:
        return None
    factors = xp.where(clear, (claimed * right).sum(0) / xp.where(clear, square, 1.0), 1.0 + 0.0 * square)
    several = clear & ((abs(right) > slack).sum(0) > 1)
    fit, fit_of_several = (_fit(case, claimed, right, slack, factors, each) for each in (square >= 0, several))
    if fit <= CERTAIN:
        return None
    places = (block.columns if on_inputs else block.rows)[clear]
    part = case.input if on_inputs else case.output or _only(case.measurements.outputs)
    blurred = (((slack * slack).sum(0) / xp.where(clear, square, 1.0)) ** 0.5)[clear]
    shown = fit_of_several > CERTAIN and block.rows is not None and not (on_inputs and factors_out(right, slack))
    return Scaling(
        part,
        places - (part.start if part else 0),
        factors[clear],
        SAME + float(blurred.max()),
        CERTAIN * fit,
        int((abs(right) > slack)[:, several].sum()) - int(several.sum()) if shown else 0,
    )


def _fit(case: Case, claimed: Array, right: Array, slack: Array, factors: Array, chosen: Array) -> float:
    """Return the share of the disagreement in the chosen columns that factors explain."""
    beyond = abs(claimed - factors * right) - slack * case.xp.maximum(abs(factors), 1.0 + 0.0 * factors)
    left = case.xp.where(beyond > 0, beyond, 0.0 * beyond)[:, chosen]
    whole = norm_of([(claimed - right)[:, chosen]])
    return 1.0 - norm_of([left]) / whole if 0 < whole < math.inf else 0.0


def _is_plausible(factors: Array) -> bool:
    """Return True for factors of which none is zero, not all are near one, and one does not stand for a few entries.

    Zeros are missing terms, and factors near one an approximation. A few that differ from one have to be equal.
    """
    others = factors[abs(factors - 1) > TRACE]
    most = 2 * len(others) >= len(factors)
    alike = float(others.max() - others.min()) <= TRACE if len(others) else False
    return float(abs(factors).min()) > TRACE and float(abs(factors - 1).max()) > ALIKE and (most or alike)


def _only(parts: Sequence[Part]) -> Part | None:
    return parts[0] if len(parts) == 1 else None


def _as_power(case: Case, scaling: Scaling) -> str | None:
    """Return the factors in words if they are a usual multiple of a tensor, of its inverse, or of its exponential."""
    for text, form in _powers(case, scaling):
        if times := _times(case, scaling, text, _multiple(scaling, form)):
            return times
    return None


def _powers(case: Case, scaling: Scaling) -> Iterator[Form]:
    for path, tensor in _tensors(case, scaling):
        if bool((tensor != 0).all()):
            yield path, tensor
            yield f"1/{path}", 1 / tensor
        if float(abs(tensor).max()) < MANY:
            yield f"exp({path})", math.e**tensor
            yield f"1/exp({path})", math.e**-tensor


def _times(case: Case, scaling: Scaling, text: str, multiple: float) -> str | None:
    """Return a usual multiple of something in words, else None."""
    if math.isclose(multiple, 1, rel_tol=scaling.spread):
        return text
    known = named(multiple, case) if multiple else None
    return f"{known} times {text}" if known else None


def _decisive_axes(case: Case, scaling: Scaling) -> tuple[Axis, ...]:
    """Return the dimensions whose indices decide the factors, if entries that differ in others prove it."""
    part, factors = scaling.part, scaling.factors
    if part is None or part.is_complex:
        return ()
    for count in range(1, len(part.axes)):
        for axes in combinations(part.axes, count):
            keys = zip(*((scaling.places // axis.below % axis.length).tolist() for axis in axes), strict=True)
            groups: dict[tuple[int, ...], list[float]] = {}
            for key, factor in zip(keys, factors.tolist(), strict=True):
                groups.setdefault(key, []).append(factor)
            alike = all(max(each) - min(each) <= scaling.spread * max(map(abs, each)) for each in groups.values())
            if alike and len(factors) - len(groups) >= 2 * FEW:
                return axes
    return ()


def _line_of(scaling: Scaling, forms: Sequence[Form]) -> tuple[str, str] | None:
    """Return a name, and what the factors are in words, if they or their inverses are 1 + b·f for one of the forms."""
    factors = scaling.factors
    if not bool((abs(factors) > TRACE).all()) or len(factors) < 2 * FEW or scaling.spread > TRACE:
        return None
    for inverse in (False, True):
        wanted = (1 / factors if inverse else factors) - 1
        for text, values in forms:
            slope = float(wanted @ values) / float(values @ values)
            if slope and float(abs(wanted - slope * values).max()) <= FEW * scaling.spread * float(abs(wanted).max()):
                known = f"1 {'−' if slope < 0 else '+'} {abs(slope):.4g}·{text}"
                if inverse:
                    return "missing-term", f"lacks a term: the right one is this one times {known}"
                return "wrong-factor", f"is {known} times the right one"
    return None


def _multiple(scaling: Scaling, form: Array) -> float:
    """Return the multiple of a form that the factors are, zero if they are none; 1.0 where it is one to the digits."""
    ratio = scaling.factors / form
    multiple = float(ratio.sum()) / len(ratio)
    if not math.isfinite(multiple) or multiple == 0:
        return 0.0
    if float(abs(ratio - multiple).max()) > scaling.spread * abs(multiple):
        return 0.0
    if float(abs(form - form[0]).max()) <= TRACE * float(abs(form).max()):
        return 0.0
    return 1.0 if math.isclose(multiple, 1, rel_tol=scaling.spread) else multiple


def _tensors(case: Case, scaling: Scaling) -> Iterator[Form]:
    """Yield the inputs and outputs that can be broadcast to the tensor of the factors, where the factors are."""
    if scaling.part is not None and not scaling.part.is_complex:
        yield from spread_over(case, scaling.part, scaling.places)


def spread_over(case: Case, part: Part, places: Array) -> Iterator[Form]:
    """Yield the finite inputs and outputs that can be broadcast to a tensor, at some of its coordinates."""
    xp, measurements = case.xp, case.measurements
    point, values = measurements.subject.point, measurements.subject.centre
    known = [(each, point) for each in measurements.inputs] + [(each, values) for each in measurements.outputs]
    for other, vector in known[:MANY]:
        if other.is_complex or other.entries == 1 or not bool(xp.isfinite(other.of(vector)).all()):
            continue
        for shape, where in _alignments(other.shape, part.shape):
            spread = xp.broadcast_to(other.of(vector).reshape(shape), part.shape)
            yield other.path + where, spread.reshape(-1)[places]


def _alignments(shape: tuple[int, ...], whole: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the shapes in which a tensor can be broadcast to another: the usual one, and along other dimensions."""
    lengths = [length for length in shape if length > 1]
    usual = tuple(1 for _ in whole[len(shape) :]) + shape
    if len(shape) <= len(whole) and all(one in (1, other) for one, other in zip(usual, whole, strict=True)):
        yield usual, ""
    for axes in combinations(range(len(whole)), len(lengths)):
        laid = tuple(whole[axis] if axis in axes else 1 for axis in range(len(whole)))
        if [whole[axis] for axis in axes] == lengths and laid != usual:
            yield laid, f" along dimension {' and '.join(map(str, axes))}"


def functions_of(xp: Any, tensors: Iterable[Form]) -> Iterator[Form]:
    """Yield tensors and common functions of them that are not zero anywhere."""
    for path, tensor in tensors:
        found = [(path, tensor), (f"(1 + {path})", 1 + tensor), (f"(1 − {path})", 1 - tensor)]
        found += [(f"{path}²", tensor * tensor), (f"(1 + {path}²)", 1 + tensor * tensor)]
        found += [(f"(1 − {path}²)", 1 - tensor * tensor), (f"cos({path})", xp.cos(tensor))]
        found += [(f"sin({path})", xp.sin(tensor)), (f"tanh({path})", xp.tanh(tensor))]
        if bool((tensor > 0).all()):
            found += [(f"√{path}", tensor**0.5), (f"log({path})", xp.log(tensor))]
        if float(abs(tensor).max()) < MANY:
            growing = math.e**tensor
            found += [(f"exp({path})", growing), (f"sigmoid({path})", growing / (1 + growing))]
            found += [(f"sigmoid′({path})", growing / (1 + growing) ** 2)]
        yield from ((text, values) for text, values in found if bool((values != 0).all()))
