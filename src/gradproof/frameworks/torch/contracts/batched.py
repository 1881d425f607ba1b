"""Contract: a batched pullback by vmap gives the same gradients as a loop."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.frameworks.torch.contracts.comparison import gradient_gap
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.contracts.pullbacks import coordinates
from gradproof.frameworks.torch.contracts.vmap_rules import vmap_rules
from gradproof.frameworks.torch.exclusion import without_warnings
from gradproof.frameworks.torch.subject.error_messages import describe
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject


def batched(subject: TorchSubject, context: Context) -> Outcome:
    """Pull two incoming gradients back as a batch and in a loop, and compare."""
    if subject.detached:
        return KEPT
    first, expected = context.pulled(subject)
    cotangents = [first, subject.cotangent(context.seed + 1)]
    try:
        found = _at_once(subject, cotangents)
    except Exception as error:
        outcome = vmap_rules(subject, context)
        if outcome.findings:
            return outcome
        return Outcome(absent=f"the backward does not run under torch.func.vmap ({describe(error)})")
    for row, cotangent in enumerate(cotangents):
        gradient = coordinates(subject, [None if part is None else part[row] for part in found])
        expected = expected if cotangent is first else subject.pullback(cotangent)
        worst = gradient_gap(subject, context, cotangent, expected, gradient)
        if worst is not None:
            place = subject.inputs.locate(worst.coordinate)
            return broken(
                ContractName.BATCHED,
                f"Under torch.func.vmap the gradient with respect to {place.path} differs from that in a loop "
                f"({worst} at {place}).",
                argument=place.path,
                hint="Look for a vmap rule of its own, or for a backward that keeps a state or looks at memory.",
            )
    return vmap_rules(subject, context)


def _at_once(subject: TorchSubject, cotangents: list[Tensor]) -> list[Tensor | None]:
    """Return the stacked gradients of a batch of incoming gradients; None for an input without influence."""
    pieces = [subject.outputs.tensors(cotangent) for cotangent in cotangents]
    used: list[bool] = []
    results, leaves = subject.graphs.current()

    def pull(*incoming: Tensor) -> tuple[Tensor, ...]:
        found = torch.autograd.grad(
            results, leaves, incoming, retain_graph=not subject.graphs.single_use, allow_unused=True
        )
        used.extend(gradient is not None for gradient in found)
        return tuple(gradient for gradient in found if gradient is not None)

    subject.tally.pullbacks += len(cotangents)
    with without_warnings(), subject.caller.timed():  # of slow rules
        batch = iter(
            torch.func.vmap(pull, randomness="same")(*(torch.stack(piece) for piece in zip(*pieces, strict=True)))
        )
    return [next(batch) if is_used else None for is_used in used]
