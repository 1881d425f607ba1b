"""Pushing tangents forward in ways of one's own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.contracts.asking import described
from gradproof.frameworks.torch.spaces import replica
from gradproof.frameworks.torch.subject import TorchSubject


def pushed(subject: TorchSubject, tangents: Sequence[Tensor | None]) -> Tensor:
    """The outputs' tangents as one vector; an input whose tangent is None is passed as a plain tensor."""
    evaluations = subject.tally.evaluations
    points = [replica(point) for point in subject.points]
    try:
        with forward_ad.dual_level():
            values = [_dual(*pair) for pair in zip(points, tangents, strict=True)]
            results = subject.caller.results(subject.caller.beside(values))
            return subject.outputs.coordinates([_tangent(result) for result in results]).clone()
    except Exception as error:
        raise DerivativeError(described(error)) from error
    finally:
        subject.tally.evaluations = evaluations  # the call counts as a pushforward
        subject.tally.pushforwards += 1


def _dual(point: Tensor, tangent: Tensor | None) -> Tensor:
    if tangent is None:
        return point
    dual: Tensor = forward_ad.make_dual(point, tangent)  # type: ignore[no-untyped-call]  # torch's own
    return dual


def _tangent(result: Tensor) -> Tensor:
    primal, tangent = forward_ad.unpack_dual(result)  # type: ignore[no-untyped-call]  # torch's own
    return torch.zeros_like(primal) if tangent is None or tangent._is_zerotensor() else tangent
