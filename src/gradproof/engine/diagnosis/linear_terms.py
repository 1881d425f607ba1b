"""Derivatives that are sums of multiples of known tensors, claimed and measured: which of the terms differ.

Each output depends on one entry of the input. The slopes are then numbers at the outputs, as inputs and values are, and
regressions give the multiples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, SAME, Case
from gradproof.engine.diagnosis.monomials import Form
from gradproof.engine.diagnosis.tensor_factors import spread_over
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW, SHARE, TRACE


@dataclass(frozen=True, slots=True)
class Term:
    """A tensor, and its multiple as claimed and as measured. `unit` is what the multiple 1 has of the right slopes."""

    tensor: str
    claimed: float
    right: float
    unit: float

    @property
    def differs(self) -> bool:
        """Whether the multiples are not the same."""
        return abs(self.claimed - self.right) * self.unit > TRACE

    @property
    def is_slight(self) -> bool:
        """Whether the multiples are so close that an approximation explains their difference."""
        return abs(self.claimed - self.right) <= SHARE * max(abs(self.claimed), abs(self.right))

    @property
    def is_absent(self) -> bool:
        """Whether the claims do not have this term."""
        return abs(self.claimed) * self.unit <= TRACE

    @property
    def is_added(self) -> bool:
        """Whether the right slopes do not have this term."""
        return abs(self.right) * self.unit <= TRACE


def missing(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a term of a sum that is left out, where all terms are multiples of tensors."""
    sums = _sums(case, block)
    if sums is not None and all(term.is_absent and not term.is_added for term in sums):
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
    inverse, found = case.xp.linalg.pinv(tensors), []
    rounding, gap = SAME * float(abs(right).max()), float(abs(claimed - right).max())
    allowed = float(block.slack.max()) + min(rounding, TRACE * gap)
    for slopes in (claimed, right):
        multiples = inverse @ slopes
        if float(abs(tensors @ multiples - slopes).max()) > allowed:
            return None
        found.append(multiples.tolist())
    lengths = ((tensors * tensors).sum(0) ** 0.5).tolist()
    whole = float(right @ right) ** 0.5
    rows = zip([name for name, _ in forms], *found, lengths, strict=True)
    terms = [Term(name, claimed, right, length / whole) for name, claimed, right, length in rows] if whole else []
    wrong = [term for term in terms if term.differs]
    if not wrong or any(term.is_slight for term in wrong):
        return None
    return wrong if len(wrong) <= sum(not term.is_added for term in terms) else None


def _diagnosis(case: Case, name: str, terms: Sequence[Term]) -> Diagnosis:
    words = ", ".join(f"{term.claimed:.4g} times {term.tensor} where it should be {term.right:.4g}" for term in terms)
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
