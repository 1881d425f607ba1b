"""The criterion of torch's gradcheck: the claimed Jacobian is within atol and rtol of central differences.

The caller chooses the step, and there are no error bars: at a kink the mean of the two slopes is accepted. Nothing of
torch's own check is called.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ENTRIES = 1 << 20  # of the Jacobian, beyond which it is not applied: it takes two evaluations an input


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The step and the tolerances of a comparison with central differences; torch's own by default."""

    eps: float = 1e-6
    atol: float = 1e-5
    rtol: float = 1e-3


def within_tolerance(subject: TorchSubject, mode: str, tolerance: Tolerance) -> bool:
    """Return True if every entry of the claimed Jacobian is finite and within tolerance of a central difference."""
    columns, rows = subject.inputs.size, subject.outputs.size
    if not 0 < columns * rows <= ENTRIES or not _repeats(subject):
        return False
    numerical = torch.stack([_difference(subject, number, tolerance.eps) for number in range(columns)])
    try:
        claimed = _claimed(subject, mode)
    except DerivativeError:
        return False
    return torch.allclose(claimed, numerical, rtol=tolerance.rtol, atol=tolerance.atol)


def _repeats(subject: TorchSubject) -> bool:
    """Return True if a second call at the point gives the same values."""
    again = subject.evaluate(torch.zeros_like(subject.point), 0.0)
    return torch.equal(again, subject.centre)


def _difference(subject: TorchSubject, number: int, eps: float) -> Tensor:
    """Return the central difference of all outputs with respect to one coordinate."""
    direction = torch.zeros_like(subject.point)
    direction[number] = eps
    ahead, behind = (subject.evaluate(direction, t).clone() for t in (1.0, -1.0))
    return (ahead - behind) / (2 * eps)


def _claimed(subject: TorchSubject, mode: str) -> Tensor:
    """Return the claimed Jacobian with a row for every input."""
    if mode == "forward":
        return subject.pushforward_many(
            torch.eye(subject.inputs.size, dtype=torch.float64, device=subject.point.device)
        )
    units = torch.eye(subject.outputs.size, dtype=torch.float64, device=subject.centre.device)
    return subject.pullback_many(units).T
