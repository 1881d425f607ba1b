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
Term = tuple[str, float, float]  # a tensor, and its multiple as claimed and as measured


def missing(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a term of a sum that is left out, where all terms are multiples of tensors."""
    sums = _sums(case, block)
    if sums is not None and all(_is_nothing(claimed) and not _is_nothing(right) for _, claimed, right in sums):
        yield _diagnosis(case, "missing-term", sums)


def different(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a term of a sum that has another factor, where all terms are multiples of tensors."""
    sums = _sums(case, block)
    if sums is not None:
        yield _diagnosis(case, "wrong-term", sums)


def _sums(case: Case, block: Block) -> list[Term] | None:
    """Return the terms that differ: for each its tensor, and its multiple as claimed and as measured."""
    output = case.only_operand_part
    if block.rows is None or output is None or output.is_complex or case.input.is_complex or not case.reverse:
        return None
    entries = (abs(block.right) > block.slack) | (abs(block.claimed) > block.slack)
    if int(entries.sum(1).max()) > 1:
        return None
    used = entries.any(1)
    claimed, right = (each.sum(1)[used] for each in (block.claimed, block.right))
    forms = list(_independent(case, spread_over(case, output, (block.rows - output.start)[used])))
    finite = bool(case.xp.isfinite(claimed).all()) and bool(case.xp.isfinite(right).all())
    if not forms or len(claimed) < FEW * len(forms) or not finite:
        return None
    tensors = case.xp.stack([values for _, values in forms]).T
    inverse, least = case.xp.linalg.pinv(tensors), float(block.slack.max())
    found = []
    for slopes in (claimed, right):
        multiples = inverse @ slopes
        if float(abs(tensors @ multiples - slopes).max()) > least + SAME * float(abs(slopes).max()):
            return None
        found.append(multiples.tolist())
    pairs = list(zip([name for name, _ in forms], *found, strict=True))
    terms = [term for term in pairs if not _is_nothing(term[1] - term[2])]
    return terms if 0 < len(terms) <= sum(not _is_nothing(right) for _, _, right in pairs) else None


def _is_nothing(multiple: float) -> bool:
    return abs(multiple) <= TRACE


def _diagnosis(case: Case, name: str, terms: Sequence[Term]) -> Diagnosis:
    words = ", ".join(
        f"{claimed:.4g} times {tensor} where it should be {right:.4g}" for tensor, claimed, right in terms
    )
    return Diagnosis(
        name=name,
        message=f"{case.subject_line} is a sum of multiples of tensors. It has {words}.",
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
