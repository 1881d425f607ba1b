"""Where the results of a function are observed: the space of its outputs.

A sparse result may store other entries beside the point than at it. They are observed as well, unless the backward
takes no incoming gradient there. Results beside the point are held one at a time, and patterns that are those of an
input share its indices: a sparse tensor takes a multiple of its values' memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradproof.engine.estimators.steps import first_step
from gradproof.engine.subject import DerivativeError, Step
from gradproof.frameworks.torch.charts import Observed, Stored, observed, widened
from gradproof.frameworks.torch.layouts import index_tensors, stored_values, with_values
from gradproof.frameworks.torch.patterns import same_pattern
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.frameworks.torch.subject.spaces import Space

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

NARROW = (
    "The backward of {name} takes an incoming gradient only where the output stores something: what the output stores "
    "beside the point and not at it was left out."
)
Patterns = list[Tensor | None]  # none for a result that is not sparse


def observed_space(subject: TorchSubject) -> tuple[Space, Tensor, list[str]]:
    """The space of the results of a subject that has called its function, their coordinates, and what to note."""
    outputs, notes = _space(subject)
    centre = outputs.coordinates(subject.results)
    for part in outputs.parts:
        if isinstance(part.chart, Observed):
            part.chart.forget()  # beside the point, patterns are others
    return outputs, centre, notes


def _space(subject: TorchSubject) -> tuple[Space, list[str]]:
    results = subject.results
    if not any(map(is_sparse, results)):
        return _space_on(subject, [None] * len(results), everywhere=False), []
    at_the_point = _widened(subject, [None] * len(results), results)
    beside = at_the_point
    everywhere = False
    for found in _beside(subject, at_the_point):
        beside, everywhere = found, True
    outputs = _space_on(subject, beside, everywhere=everywhere)
    narrow = _space_on(subject, at_the_point, everywhere=False)
    if outputs.size == narrow.size or subject.detached or _takes(subject, outputs):
        return outputs, []
    return narrow, [NARROW.format(name=subject.call.name)] if _takes(subject, narrow) else []


def _space_on(subject: TorchSubject, patterns: Patterns, *, everywhere: bool) -> Space:
    pairs = zip(subject.results, patterns, strict=True)
    charts = [observed(result, pattern, everywhere=everywhere) for result, pattern in pairs]
    return Space(subject.caller.paths, subject.results, charts, subject.inputs.device)


def _takes(subject: TorchSubject, outputs: Space) -> bool:
    """Return True if the backward takes incoming gradients wherever there may be some."""
    incoming = outputs.tensors(torch.ones(outputs.size, dtype=torch.float64, device=outputs.device))
    try:
        subject.gradients(subject.results, subject.leaves, incoming)
    except DerivativeError:
        return False
    return True


def _beside(subject: TorchSubject, patterns: Patterns) -> Iterator[Patterns]:
    """The patterns of the results, wider by those on one side of the point, then the other, where they can be had."""
    direction = subject.direction(subject.semantics.seed, Step(first_step(subject.inputs.precision)))
    steps = subject.inputs.tensors(direction)
    for t in (1.0, -1.0):
        found = _wider(subject, patterns, steps, t)
        if found is not None:
            patterns = found
            yield patterns


def _wider(subject: TorchSubject, patterns: Patterns, steps: Sequence[Tensor], t: float) -> Patterns | None:
    try:
        results = subject.results_of(subject.inputs.displaced(subject.points, steps, t, None))
    except Exception as error:
        subject.trouble = f"{type(error).__name__}: {error}"
        return None
    return _widened(subject, patterns, results) if len(results) == len(patterns) else None


def _sharing(pattern: Tensor, known: Sequence[Tensor]) -> Tensor:
    """The pattern, with the indices of the first of some others that are the same."""
    same = (index_tensors(other) for other in known if same_pattern(pattern, other))
    return with_values(pattern, stored_values(pattern), next(same, None))


def _widened(subject: TorchSubject, patterns: Patterns, results: Sequence[Tensor]) -> Patterns:
    """The patterns of sparse results, wider by those of other results."""
    known = [part.chart.template for part in subject.inputs.parts if isinstance(part.chart, Stored)]
    found: Patterns = []
    for path, first, pattern, result in zip(subject.caller.paths, subject.results, patterns, results, strict=True):
        if is_sparse(first):
            pattern = _sharing(widened(path, pattern, result), known)
        found.append(pattern)
    return found
