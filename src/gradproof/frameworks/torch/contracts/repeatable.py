"""Contract: the same backward, run twice, gives the same gradient, bit for bit or within `nondet_tol`.

Many GPU kernels add in varying order. A difference of that size is a note by default, and a finding if the contract was
asked for by name.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.frameworks.torch.contracts.comparison import furthest, largest
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ROUNDINGS = 1e3  # units of rounding of the largest entry: the difference that another order of summation may make


def repeatable(subject: TorchSubject, context: Context) -> Outcome:
    """Test that two pullbacks of one incoming gradient through one graph are equal."""
    first = context.gradient(subject)
    second = subject.pullback(context.cotangent(subject))
    if torch.equal(first, second):
        return KEPT

    def difference(where: slice) -> Tensor:
        once, again = first[where], second[where]
        equal = (once == again) | (once.isnan() & again.isnan())
        return torch.where(equal, 0.0, (again - once).abs().nan_to_num(torch.inf))

    worst, gap = furthest(len(first), difference)
    if gap <= context.nondet_tol:
        return KEPT
    place = subject.inputs.locate(worst)
    message = (
        f"The same backward, run twice, gives two gradients with respect to {place.path} (at {place}: "
        f"{float(first[worst]):.9g}, then {float(second[worst]):.9g}, which differ by {gap:.2g})."
    )
    if gap <= ROUNDINGS * subject.numbers.precision * largest(first):
        return Outcome(absent=f"{message} A sum in another order explains a difference of this size.")
    return broken(
        ContractName.REPEATABLE,
        message,
        argument=place.path,
        hint="Look for a backward that overwrites what was saved for it, keeps a state, or draws random numbers; "
        "if the order of a sum varies, pass nondet_tol=.",
    )
