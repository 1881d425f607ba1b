"""The space of a function's outputs.

A sparse result may store other entries at a perturbed point than at the point. They are coordinates too, unless the
backward refuses an incoming gradient there. To save memory, results at perturbed points are held one at a time, and a
pattern that equals an input's shares its indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradproof.engine.estimators.steps import first_step
from gradproof.engine.subject import DerivativeError, Step
from gradproof.frameworks.torch.charts import Observed, Stored, observed, united
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.frameworks.torch.subject.spaces import Space
from gradproof.sparse.pattern.layouts import index_tensors, stored_values, with_values
from gradproof.sparse.pattern.reading import same_pattern

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

NARROWED_NOTE = (
    "The backward of {name} accepts an incoming gradient only at the entries that the output stores at the point. "
    "Entries that it stores at perturbed points alone were not checked."
)
Patterns = list[Tensor | None]  # none for a result that is not sparse


def values_at_the_point(subject: TorchSubject) -> Tensor:
    """Return the coordinates of the subject's results."""
    centre = subject.outputs.coordinates(subject.results)
    for part in subject.outputs.parts:
        if isinstance(part.chart, Observed):
            part.chart.forget()  # beside the point, patterns are others
    return centre


def observed_space(subject: TorchSubject) -> tuple[Space, list[str]]:
    """Return the space of the subject's results, and notes."""
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
    return narrow, [NARROWED_NOTE.format(name=subject.call.name)] if _takes(subject, narrow) else []


def _space_on(subject: TorchSubject, patterns: Patterns, *, everywhere: bool) -> Space:
    pairs = zip(subject.results, patterns, strict=True)
    charts = [observed(result, pattern, everywhere=everywhere) for result, pattern in pairs]
    return Space(subject.caller.paths, subject.results, charts, subject.inputs.device)


def _takes(subject: TorchSubject, outputs: Space) -> bool:
    """Return True if the backward accepts an incoming gradient at every coordinate of the space."""
    incoming = outputs.tensors(torch.ones(outputs.size, dtype=torch.float64, device=outputs.device))
    try:
        subject.graphs.gradients(incoming)
    except DerivativeError:
        return False
    return True


def _beside(subject: TorchSubject, patterns: Patterns) -> Iterator[Patterns]:
    """Yield the patterns of the results joined with those at a step to one side of the point, then to the other."""
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
    """Return the pattern; if a known pattern is equal, share its indices."""
    same = (index_tensors(other) for other in known if same_pattern(pattern, other))
    return with_values(pattern, stored_values(pattern), next(same, None))


def _widened(subject: TorchSubject, patterns: Patterns, results: Sequence[Tensor]) -> Patterns:
    """Return the patterns joined with those of some results."""
    known = [part.chart.template for part in subject.inputs.parts if isinstance(part.chart, Stored)]
    found: Patterns = []
    for path, first, pattern, result in zip(subject.caller.paths, subject.results, patterns, results, strict=True):
        if is_sparse(first):
            pattern = _sharing(united(path, pattern, result), known)
        found.append(pattern)
    return found
