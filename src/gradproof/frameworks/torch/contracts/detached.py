"""Contract: an output that changes with an input requires grad; otherwise the graph between them was cut.

A function may return a detached output beside others on purpose: that is a note. A detached gradient is a finding,
since all of it was asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.subject import Step
from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions
from gradproof.frameworks.torch.storage import numbers
from gradproof.frameworks.torch.subject.arguments import differentiable
from gradproof.frameworks.torch.subject.derivatives import GradientCall
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

CLEAR_ROUNDINGS = 1e3  # units of rounding that a change must exceed to be one
PROPORTIONAL = (1.7, 2.3)  # a step of twice the size changes a smooth function this many times as much


def detached(subject: TorchSubject, context: Context) -> Outcome:
    """Perturb the inputs, and find the outputs that change although they do not require grad."""
    if not subject.detached and subject.caller.paths == [subject.call.result]:
        return KEPT
    direction = subject.direction(context.seed, Step(first_step(subject.numbers.precision)))
    centre = _unconnected(subject, 0.0 * direction)
    if not centre:
        return KEPT
    near, far = _unconnected(subject, direction / 2), _unconnected(subject, direction)
    following = [path for path in centre if _follows(subject, centre[path], near.get(path), far.get(path))]
    if not following:
        return KEPT
    names = ", ".join(following[:4])
    if not subject.detached and _is_gradient_of_custom_function(subject):
        return broken(
            "detached-gradient",
            f"{names} changes with the inputs or the incoming gradients but does not require grad: "
            "its derivative is lost.",
            hint="Look in the backward for detach(), .data, .values() of a detached tensor, or a tensor built anew "
            "from numbers.",
        )
    if not subject.detached:
        return Outcome(notes=(f"{names} changes with the inputs but does not require grad, so it was not checked.",))
    return broken(
        ContractName.DETACHED,
        f"No output requires grad, although {names} changes with the inputs.",
        hint="Look for detach(), .data, .item(), numpy() or no_grad() on the way from the inputs to the output.",
    )


def _is_gradient_of_custom_function(subject: TorchSubject) -> bool:
    """Return True if the subject is the gradient of a function that a Function of the user's is part of."""
    return isinstance(subject.call, GradientCall) and bool(custom_functions(subject.call.subject.results))


def _unconnected(subject: TorchSubject, direction: Tensor) -> dict[str, Tensor]:
    """Return the outputs that do not require grad at point + direction; nothing if the function raises."""
    moved = subject.inputs.displaced(subject.points, subject.inputs.tensors(direction), 1.0, None)
    try:
        result = subject.caller.beside(moved)
    except Exception:
        return {}
    connected = () if subject.detached else subject.caller.paths
    return {
        path: numbers(leaf).clone()
        for path, leaf in trees.leaves(result, subject.call.result)
        if isinstance(leaf, Tensor) and differentiable(leaf) and path not in connected
    }


def _follows(subject: TorchSubject, centre: Tensor, near: Tensor | None, far: Tensor | None) -> bool:
    """Return True if some entry changes clearly, and in proportion to the step."""
    if near is None or far is None or not centre.shape == near.shape == far.shape:
        return False
    once, twice = near - centre, far - centre
    size = torch.maximum(centre.abs(), far.abs())
    clear = once.abs() > CLEAR_ROUNDINGS * subject.numbers.precision * size
    ratio = twice / torch.where(clear, once, 1.0)
    return bool((clear & (ratio > PROPORTIONAL[0]) & (ratio < PROPORTIONAL[1])).any())
