"""Where the results of a function are observed: the space of its outputs.

A sparse result may store other entries beside the point than at it. They are observed as well, unless the backward
takes no incoming gradient there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradproof.engine.ladder import first_step
from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.charts import observed
from gradproof.frameworks.torch.makeup import is_sparse
from gradproof.frameworks.torch.spaces import Space

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject import TorchSubject

NARROW = (
    "The backward of {name} takes an incoming gradient only where the output stores something: what the output stores "
    "beside the point and not at it was left out."
)


def observed_space(subject: TorchSubject) -> tuple[Space, list[str]]:
    """The space of the results of a subject that has called its function, and what is worth a note about it."""
    narrow = _space_of(subject, [])
    if not any(map(is_sparse, subject.results)):
        return narrow, []
    outputs = _space_of(subject, _beside(subject))
    if outputs.size == narrow.size or subject.detached or _takes(subject, outputs):
        return outputs, []
    return narrow, [NARROW.format(name=subject.call.name)] if _takes(subject, narrow) else []


def _space_of(subject: TorchSubject, beside: list[list[Tensor]]) -> Space:
    rows = zip(subject.caller.paths, subject.results, *beside, strict=True)
    charts = [observed(path, values) for path, *values in rows]
    return Space(subject.caller.paths, subject.results, charts, subject.inputs.device)


def _takes(subject: TorchSubject, outputs: Space) -> bool:
    """Whether the backward takes incoming gradients wherever there may be some."""
    incoming = outputs.tensors(torch.ones(outputs.size, dtype=torch.float64, device=outputs.device))
    try:
        subject.gradients(subject.results, subject.leaves, incoming)
    except DerivativeError:
        return False
    return True


def _beside(subject: TorchSubject) -> list[list[Tensor]]:
    """The results on both sides of the point, where they can be had."""
    direction = subject.direction(subject.semantics.seed, first_step(subject.inputs.precision), False)
    steps, found = subject.inputs.tensors(direction), []
    for t in (1.0, -1.0):
        try:
            found.append(subject.results_of(subject.inputs.displaced(subject.points, steps, t, None)))
        except Exception as error:
            subject.trouble = f"{type(error).__name__}: {error}"
    return [results for results in found if len(results) == len(subject.results)]
