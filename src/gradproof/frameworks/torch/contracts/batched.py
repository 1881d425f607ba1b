"""Contract: a batched pullback gives the same gradients as a loop.

Torch batches a backward in two ways: under `torch.func.vmap`, and with `is_grads_batched=True`, which has rules of its
own. Where the first has no rule for an operation, or a wrong shape in one, the second is asked, as torch's check does.
"""

from __future__ import annotations

from collections.abc import Callable

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

VMAP, OPTION = "Under torch.func.vmap", "With is_grads_batched=True"
Batch = list[Tensor | None]  # the stacked gradients of a batch of incoming gradients; None without influence


def batched(subject: TorchSubject, context: Context) -> Outcome:
    """Pull two incoming gradients back as a batch and in a loop, and compare."""
    if subject.detached:
        return KEPT
    cotangents = [context.cotangent(subject), subject.cotangent(context.seed + 1)]
    try:
        found = _at_once(subject, cotangents, _by_vmap)
    except Exception as error:
        outcome = vmap_rules(subject, context)
        if outcome.findings:
            return outcome
        why = f"the backward does not run under torch.func.vmap ({describe(error)})"
        try:
            found = _at_once(subject, cotangents, _by_option)
        except Exception:
            return Outcome(absent=why)
        outcome = _compared(subject, context, cotangents, found, OPTION)
        return outcome if outcome.findings else Outcome(notes=(f"Batched, {why}, but with is_grads_batched=True.",))
    outcome = _compared(subject, context, cotangents, found, VMAP)
    return outcome if outcome.findings else vmap_rules(subject, context)


def _compared(subject: TorchSubject, context: Context, cotangents: list[Tensor], found: Batch, way: str) -> Outcome:
    """Compare the gradients of a batch with those of a loop; `way` says how they were batched."""
    for row, cotangent in enumerate(cotangents):
        gradient = coordinates(subject, [None if part is None else part[row] for part in found])
        expected = subject.pullback(cotangent) if row else context.gradient(subject)
        worst = gradient_gap(subject, context, cotangent, expected, gradient)
        if worst is not None:
            place = subject.inputs.locate(worst.coordinate)
            return broken(
                ContractName.BATCHED,
                f"{way} the gradient with respect to {place.path} differs from that in a loop ({worst} at {place}).",
                argument=place.path,
                hint="Look for a vmap rule of its own, or for a backward that keeps a state or looks at memory.",
            )
    return KEPT


def _at_once(
    subject: TorchSubject, cotangents: list[Tensor], pulled: Callable[[TorchSubject, tuple[Tensor, ...]], Batch]
) -> Batch:
    """Pull a batch of incoming gradients back in one of the two ways."""
    pieces = [subject.outputs.tensors(cotangent) for cotangent in cotangents]
    subject.tally.pullbacks += len(cotangents)
    with without_warnings(), subject.caller.timed():  # of slow rules
        return pulled(subject, tuple(torch.stack(piece) for piece in zip(*pieces, strict=True)))


def _by_vmap(subject: TorchSubject, incoming: tuple[Tensor, ...]) -> Batch:
    used: list[bool] = []
    results, leaves = subject.graphs.current()

    def pull(*incoming: Tensor) -> tuple[Tensor, ...]:
        found = torch.autograd.grad(
            results, leaves, incoming, retain_graph=not subject.graphs.single_use, allow_unused=True
        )
        used.extend(gradient is not None for gradient in found)
        return tuple(gradient for gradient in found if gradient is not None)

    batch = iter(torch.func.vmap(pull, randomness="same")(*incoming))
    return [next(batch) if is_used else None for is_used in used]


def _by_option(subject: TorchSubject, incoming: tuple[Tensor, ...]) -> Batch:
    results, leaves = subject.graphs.current()
    retained = not subject.graphs.single_use
    return list(
        torch.autograd.grad(results, leaves, incoming, retain_graph=retained, allow_unused=True, is_grads_batched=True)
    )
