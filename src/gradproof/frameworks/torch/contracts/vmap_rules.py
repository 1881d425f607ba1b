"""Contract: a Function's own vmap rule gives the same values and gradients as a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.subject import Step
from gradproof.frameworks.torch.contracts.comparison import gap, noise_of_pullback, noise_of_values
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.exclusion import without_warnings
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions, has_batching_rule
from gradproof.frameworks.torch.storage import replica
from gradproof.frameworks.torch.subject.arguments import Call
from gradproof.frameworks.torch.subject.batching import stacked
from gradproof.frameworks.torch.subject.error_messages import shapes
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

Row = list[Any]  # of tensors, or None where there is no gradient
STEP_LENGTH = 2.0**-6  # of the inputs' size, to the other point of the batch
ADVICE = "Look at the vmap staticmethod of {names}: which dimension it batches over, and where it puts that dimension."


def vmap_rules(subject: TorchSubject, context: Context) -> Outcome:
    """Evaluate the point and another one as a batch and by themselves, if a Function has a vmap rule.

    A function that cannot be batched as a whole does not break the law.
    """
    own = [kind.__name__ for kind in custom_functions(subject.results) if has_batching_rule(kind)]
    strided = subject.inputs.strided and subject.outputs.strided
    if not own or not strided or not isinstance(subject.call, Call) or subject.call.bypassed or subject.caller.draws:
        return KEPT
    cotangent, gradient = context.pulled(subject)
    step = subject.direction(context.seed, Step(STEP_LENGTH))
    try:
        values, gradients = _at_once(subject, step, cotangent)
    except Exception:
        return KEPT
    hint = ADVICE.format(names=", ".join(own[:8]))
    if not all(map(subject.outputs.fits, values)):
        message = f"Under torch.func.vmap the shape is {shapes(values[0])} instead of {shapes(subject.results)}."
        return broken(ContractName.BATCHED, message, hint=hint)
    for expected, found in zip((subject.centre, subject.evaluate(step, 1.0)), values, strict=True):
        there = subject.outputs.coordinates(found)
        worst = gap(expected, there, precision=subject.numbers.precision, noise=lambda: noise_of_values(subject))
        if worst is not None:
            place = subject.outputs.locate(worst.coordinate)
            message = (
                f"Under torch.func.vmap the value of {place.path} differs from that in a loop ({worst} at {place})."
            )
            return broken(ContractName.BATCHED, message, hint=hint)
    for expected, found in zip((gradient, subject.pullback(cotangent, step)), gradients, strict=True):
        worst = gap(
            expected,
            subject.inputs.coordinates(found),
            precision=subject.numbers.precision,
            more=context.nondet_tol,
            noise=lambda: noise_of_pullback(subject, cotangent, gradient),
        )
        if worst is not None:
            place = subject.inputs.locate(worst.coordinate)
            message = (
                f"The gradient of torch.func.vmap of the function with respect to {place.path} differs from that in a "
                f"loop ({worst} at {place})."
            )
            return broken(ContractName.BATCHED, message, argument=place.path, hint=hint)
    return KEPT


def _at_once(subject: TorchSubject, step: Tensor, cotangent: Tensor) -> tuple[list[Row], list[Row]]:
    """Return the values and the gradients at two points from one batch."""
    steps = stacked(subject.inputs, torch.stack([torch.zeros_like(step), step]))
    leaves = [(point + each).requires_grad_() for point, each in zip(subject.points, steps, strict=True)]
    rest = [replica(slot.tensor) for slot in subject.slots]  # made here: inside, vmap has no memory to copy

    def function(*varied: Tensor) -> tuple[Tensor, ...]:
        arguments = dict(enumerate(rest)) | dict(zip(subject.varied, varied, strict=True))
        return tuple(subject.caller.results(subject.call.invoke(list(arguments.values()))))

    subject.tally.evaluations += 2
    subject.tally.pullbacks += 2
    with (
        without_warnings(),
        subject.caller.timed(calling=True),
        torch.enable_grad(),
    ):  # a rule that torch batches by a loop is slow, not wrong
        batch = torch.func.vmap(function, randomness="same")(*leaves)
        values = _rows(batch)
        if not all(map(subject.outputs.fits, values)):
            return values, []
        incoming = stacked(subject.outputs, torch.stack([cotangent, cotangent]))
        pairs = [(part, piece) for part, piece in zip(batch, incoming, strict=True) if part.requires_grad]
        gradients: Sequence[Tensor | None] = [None] * len(leaves)
        if pairs:
            results, pieces = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(results, leaves, pieces, allow_unused=True)
    return values, _rows(gradients)


def _rows(batch: Sequence[Tensor | None]) -> list[Row]:
    return [[None if part is None else part[number].detach() for part in batch] for number in range(2)]
