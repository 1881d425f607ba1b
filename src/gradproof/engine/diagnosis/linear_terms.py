"""Derivatives that are sums of multiples of known tensors, claimed and measured: which of the terms differ.

Each output depends on one entry of the input. The slopes are then numbers at the outputs, as inputs and values are, and
regressions give the multiples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, SAME, Case
from gradproof.engine.diagnosis.tensor_factors import spread_over
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, TRACE

Form = tuple[str, Array]


def linear_terms(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a term of a sum that is left out, or has another factor, where all terms are multiples of tensors."""
    output = case.only_operand_part
    if block.rows is None or output is None or output.is_complex or case.input.is_complex or not case.reverse:
        return
    entries = (abs(block.right) > block.slack) | (abs(block.claimed) > block.slack)
    if int(entries.sum(1).max()) > 1:
        return
    used = entries.any(1)
    claimed, right = (each.sum(1)[used] for each in (block.claimed, block.right))
    forms = list(_independent(case, spread_over(case, output, (block.rows - output.start)[used])))
    if len(claimed) < FEW * len(forms):
        return
    tensors = case.xp.stack([values for _, values in forms]).T
    inverse, least = case.xp.linalg.pinv(tensors), float(block.slack.max())
    found = []
    for slopes in (claimed, right):
        multiples = inverse @ slopes
        if float(abs(tensors @ multiples - slopes).max()) > least + SAME * float(abs(slopes).max()):
            return
        found.append(multiples.tolist())
    yield from _compared(case, [name for name, _ in forms], *found)


def _compared(
    case: Case, names: Sequence[str], claimed: Sequence[float], right: Sequence[float]
) -> Iterator[Diagnosis]:
    size = max(map(abs, (*claimed, *right)))
    other = [k for k, pair in enumerate(zip(claimed, right, strict=True)) if abs(pair[0] - pair[1]) > TRACE * size]
    missing = [k for k in other if abs(claimed[k]) <= TRACE * size]
    present = sum(abs(each) > TRACE * size for each in right)
    if not other or len(other) > present:
        return
    terms = ", ".join(f"{claimed[k]:.4g} times {names[k]} where it is {right[k]:.4g}" for k in other)
    yield Diagnosis(
        name="missing-term" if missing and len(missing) == len(other) else "wrong-term",
        message=f"{case.subject_line} is a sum of multiples of tensors: it has {terms}, times the incoming gradient.",
        fit=CERTAIN,
        hint="Differentiate the forward term by term, and compare the factors.",
    )


def _independent(case: Case, forms: Iterator[Form]) -> Iterator[Form]:
    """Yield ones, and tensors that are no linear combination of those before."""
    kept: list[Array] = []
    for name, values in forms:
        for text, vector in (("1", 1.0 + 0.0 * values), (name, values)) if not kept else ((name, values),):
            left = vector
            for other in kept:
                left = left - other * float(other @ left)
            length = float(left @ left) ** 0.5
            if length > TRACE * float(vector @ vector) ** 0.5:
                kept.append(left / length)
                yield text, vector
