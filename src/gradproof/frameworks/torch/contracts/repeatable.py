"""The same question twice gets the same answer, bit for bit unless more is allowed."""

from __future__ import annotations

import torch

from gradproof.frameworks.torch.contracts.terms import KEPT, Outcome, Terms, broken
from gradproof.frameworks.torch.subject import TorchSubject


def repeatable(subject: TorchSubject, terms: Terms) -> Outcome:
    """Two pullbacks of one incoming gradient through one graph are equal."""
    cotangent, first = terms.pulled(subject)
    second = subject.pullback(cotangent)
    equal = (first == second) | (first.isnan() & second.isnan())
    gap = torch.where(equal, 0.0, (second - first).abs().nan_to_num(torch.inf))
    if not bool((gap > terms.nondet_tol).any()):
        return KEPT
    worst = int(gap.argmax())
    place = subject.inputs.locate(worst)
    return broken(
        "repeatable",
        f"The same backward, run twice, gives two gradients with respect to {place.path} (at {place}: "
        f"{float(first[worst]):.9g}, then {float(second[worst]):.9g}).",
        argument=place.path,
        advice="Look for a backward that overwrites what was saved for it, keeps a state, or draws random numbers; "
        "where sums are added up in any order, pass nondet_tol=.",
    )
