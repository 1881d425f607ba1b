"""The same question twice gets the same answer: bit for bit unless more is allowed, where it is asked for by name.

Many kernels of a GPU add up in any order; by default that is worth a note.
"""

from __future__ import annotations

import torch

from gradproof.frameworks.torch.contracts.terms import KEPT, Outcome, Terms, broken
from gradproof.frameworks.torch.subject import TorchSubject

ROUNDINGS = 1e3  # units of rounding of the largest entry, which the order of a sum may make


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
    message = (
        f"The same backward, run twice, gives two gradients with respect to {place.path} (at {place}: "
        f"{float(first[worst]):.9g}, then {float(second[worst]):.9g}, which differ by {float(gap[worst]):.2g})."
    )
    finite = torch.where(first.isfinite(), first, 0.0)
    if float(gap.max()) <= ROUNDINGS * subject.gradient_precision * float(finite.abs().max()):
        return Outcome(absent=f"{message} It is no more than sums added up in another order do.")
    return broken(
        "repeatable",
        message,
        argument=place.path,
        advice="Look for a backward that overwrites what was saved for it, keeps a state, or draws random numbers; "
        "where sums are added up in any order, pass nondet_tol=.",
    )
