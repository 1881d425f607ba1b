"""Contract: the same backward, run twice, gives the same gradient, bit for bit or within `nondet_tol`.

Many GPU kernels add in varying order. A difference of that size is a note by default, and a finding if the contract was
asked for by name.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.thresholds import FEW, SHARE, TWO_DIGITS
from gradproof.frameworks.torch.contracts.comparison import furthest, largest, shown_in
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.subject.graphs import SINGLE_USE
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

REPEAT_ROUNDINGS = 1e3  # units of rounding of the largest entry, by which a sum in another order may differ
FLOAT32_NOISE = TWO_DIGITS * 2.0**-23  # of the largest entry: the same in kernels that add in float32
REPEATS = 8  # further pullbacks that measure how far gradients scatter, once two of them differ


def repeatable(subject: TorchSubject, context: Context) -> Outcome:
    """Test that two pullbacks of one incoming gradient through one graph are equal."""
    if subject.graphs.single_use:
        return Outcome(absent=SINGLE_USE.format(why="is refused, raises or gives another gradient"))
    first = context.gradient(subject)
    second = subject.pullback(context.cotangent(subject))
    if torch.equal(first, second):
        return KEPT
    worst, gap = _furthest(first, second)
    if gap <= context.nondet_tol:
        return KEPT
    place = subject.inputs.locate(worst)
    message = (
        f"The same backward, run twice, gives two gradients with respect to {place.path} (at {place}: "
        f"{float(first[worst]):.9g}, then {float(second[worst]):.9g}, which differ by {gap:.2g})."
    )
    if gap <= REPEAT_ROUNDINGS * max(subject.numbers.precision, shown_in(first, second)) * largest(first) or (
        gap <= FLOAT32_NOISE * largest(first) and not _is_multiple(second - first, first)
    ):
        return Outcome(
            absent=f"{message} A sum in another order explains a difference of this size. "
            f"{_scatter(subject, context, first, second)}"
        )
    return broken(
        ContractName.REPEATABLE,
        f"{message} {_scatter(subject, context, first, second)}",
        argument=place.path,
        hint="Look for a backward that overwrites what was saved for it, keeps a state, or draws random numbers; "
        "if the order of a sum varies, as with atomic additions, pass nondet_tol=.",
    )


def _is_multiple(difference: Tensor, gradient: Tensor) -> bool:
    """Return True if a difference is a multiple of the gradient, as no other order of sums makes it."""
    if int((gradient != 0).sum()) < FEW:  # too few entries to tell
        return False
    rest = difference - (difference @ gradient) / (gradient @ gradient) * gradient
    return float(rest.norm()) <= SHARE * float(difference.norm())


def _furthest(first: Tensor, second: Tensor) -> tuple[int, float]:
    """Return where two gradients differ most, and by how much; NaN equals NaN."""

    def difference(where: slice) -> Tensor:
        once, again = first[where], second[where]
        equal = (once == again) | (once.isnan() & again.isnan())
        return torch.where(equal, 0.0, (again - once).abs().nan_to_num(torch.inf))

    return furthest(first, difference)


def _scatter(subject: TorchSubject, context: Context, first: Tensor, second: Tensor) -> str:
    """Say how far gradients differ over several calls, relative to the largest entry of the same tensor."""
    low, high = torch.minimum(first, second), torch.maximum(first, second)
    for _ in range(REPEATS):
        again = subject.pullback(context.cotangent(subject))
        low, high = torch.minimum(low, again), torch.maximum(high, again)
    spread = torch.where(first.isnan(), 0.0, (high - low).nan_to_num(torch.inf))
    shares = [_share(spread[start:stop], largest(first[start:stop])) for start, stop in subject.inputs.spans]
    share, path = max(zip(shares, (part.path for part in subject.inputs.parts), strict=True))
    return f"Over {REPEATS + 2} calls gradients scatter by up to {share:.2g} of the largest entry ({path})."


def _share(spread: Tensor, scale: float) -> float:
    most = float(spread.max()) if len(spread) else 0.0
    return most / scale if scale else most and math.inf
