"""Inputs that a function writes to: does its value depend on what it wrote?"""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.engine.estimators.steps import RATIO, first_step
from gradproof.engine.subject import Step
from gradproof.engine.thresholds import SLIGHT
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject


def replaces_inputs(subject: TorchSubject) -> bool:
    """Return True if the function writes to sparse inputs, or leaves others with another shape."""
    shapes = zip(subject.leaves, subject.points, strict=True)
    return not subject.inputs.strided or any(leaf.shape != point.shape for leaf, point in shapes)


def depends_on_writes(subject: TorchSubject, seed: int) -> bool:
    """Return True if the gradient is right with respect to the inputs as the function left them.

    Then the value is a function of what was written: the gradient with respect to the inputs as they were is another.
    It is also returned where the function raises beside the point, and where no step changes a value. Steps grow until
    one does: a value in a low precision may not change on a short one.
    """
    length, cotangent = first_step(subject.numbers.precision), subject.cotangent(seed)
    try:
        claimed = subject.pullback(cotangent)
        while True:
            direction = subject.direction(seed, Step(length))
            (left_behind, behind), (left_ahead, ahead) = (_left(subject, direction, t) for t in (-1.0, 1.0))
            measured, size = float(cotangent @ (ahead - behind)), float(abs(cotangent) @ abs(ahead - behind))
            if size or length >= 1:
                break
            length *= RATIO
        predicted = float(claimed @ (left_ahead - left_behind))
    except Exception:
        return True
    if not size:
        return bool((ahead == subject.centre).all())
    return abs(predicted - measured) <= SLIGHT * size


def _left(subject: TorchSubject, direction: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """Return the inputs as the function leaves them at point + t·direction, and its value there."""
    moved = subject.inputs.displaced(subject.points, subject.inputs.tensors(direction), t, None)
    results = subject.results_of(moved)
    return subject.inputs.coordinates(moved).clone(), subject.outputs.coordinates(results).to(torch.float64)
