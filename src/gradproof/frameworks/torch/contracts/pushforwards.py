"""Pushforwards for contracts: with undefined tangents, or with zeros without memory."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.internals import is_zero_tensor
from gradproof.frameworks.torch.storage import replica
from gradproof.frameworks.torch.subject.dual_numbers import push_level
from gradproof.frameworks.torch.subject.error_messages import describe
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject


def pushed(subject: TorchSubject, tangents: Sequence[Tensor | None]) -> Tensor:
    """Return the outputs' tangents as one vector; an input whose tangent is None is passed without a tangent."""
    evaluations = subject.tally.evaluations
    points = [replica(point) for point in subject.points]
    # copies, since a jvp may write to them; zeros without memory stay what they are
    own = [tangent if tangent is None or is_zero_tensor(tangent) else tangent.clone() for tangent in tangents]
    try:
        return subject.outputs.coordinates(push_level(subject.results_of, points, own)).clone()
    except Exception as error:
        raise DerivativeError(describe(error)) from error
    finally:
        subject.tally.evaluations = evaluations  # the call counts as a pushforward
        subject.tally.pushforwards += 1
