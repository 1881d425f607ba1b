"""Contract: a batched pushforward by vmap gives the same tangents as a loop."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.subject import Step
from gradproof.frameworks.torch.contracts.comparison import tangent_gap
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.exclusion import DUAL_LEVEL, PROCESS, Exclusion, without_warnings
from gradproof.frameworks.torch.internals import batched_without_transforms
from gradproof.frameworks.torch.storage import replica
from gradproof.frameworks.torch.subject.arguments import Call
from gradproof.frameworks.torch.subject.dual_numbers import apart, push
from gradproof.frameworks.torch.subject.error_messages import describe
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject


def batched_forward(subject: TorchSubject, context: Context) -> Outcome:
    """Push two tangents forward as a batch and in a loop, and compare."""
    if not isinstance(subject.call, Call):  # it calls autograd inside, which vmap cannot batch
        return KEPT
    if subject.caller.draws:  # a batch may draw in another order
        return KEPT
    directions = [subject.direction(context.seed + number, Step(1.0)) for number in range(2)]
    try:
        found = _at_once(subject, directions)
    except Exception as error:
        try:
            found = _as_gradcheck_does(subject, directions)
        except Exception:
            return Outcome(absent=f"the function does not run under torch.func.vmap and jvp ({describe(error)})")
    for direction, tangent in zip(directions, found, strict=True):
        worst = tangent_gap(subject, context, direction, subject.pushforward(direction), tangent)
        if worst is not None:
            place = subject.outputs.locate(worst.coordinate)
            return broken(
                ContractName.BATCHED_FORWARD,
                f"Under torch.func.vmap the tangent of {place.path} differs from that in a loop ({worst} at {place}).",
                hint="Look for a vmap rule of its own, or for a jvp that keeps a state or looks at memory.",
            )
    return KEPT


def _as_gradcheck_does(subject: TorchSubject, directions: list[Tensor]) -> list[Tensor]:
    """Return the same for a Function without `setup_context`, which torch batches by an older implementation."""
    pieces = [subject.inputs.tensors(direction) for direction in directions]
    points = [replica(point) for point in subject.points]

    def pushed(*tangents: Tensor) -> tuple[Tensor, ...]:
        return tuple(push(subject.results_of, points, list(tangents)))

    subject.tally.pushforwards += len(directions)
    with without_warnings(), subject.caller.timed(calling=True):
        batch = batched_without_transforms(pushed)(*(torch.stack(piece) for piece in zip(*pieces, strict=True)))
    rows = [[part[row] for part in batch] for row in range(len(directions))]
    return [subject.outputs.coordinates(row) for row in rows]


def _at_once(subject: TorchSubject, directions: list[Tensor]) -> list[Tensor]:
    """Return the outputs' tangents for a batch of tangents."""
    tensors = [replica(slot.tensor) for slot in subject.slots]  # made here: inside, torch.func has no memory to copy
    points = tuple(apart(tensors[number]) for number in subject.varied)
    pieces = [subject.inputs.tensors(direction) for direction in directions]

    def function(*values: Tensor) -> tuple[Tensor, ...]:
        arguments = dict(enumerate(tensors)) | dict(zip(subject.varied, values, strict=True))
        return tuple(subject.caller.results(subject.call.invoke(list(arguments.values()))))

    def push(*tangents: Tensor) -> tuple[Tensor, ...]:
        found: tuple[Tensor, ...] = torch.func.jvp(function, points, tangents)[1]
        return found

    subject.tally.pushforwards += len(directions)
    with (
        Exclusion([PROCESS, DUAL_LEVEL]),  # `jvp` opens the level of dual numbers
        without_warnings(),  # a rule that torch batches by a loop is slow, not wrong
        subject.caller.timed(calling=True),
    ):
        batch = torch.func.vmap(push, randomness="same")(*(torch.stack(piece) for piece in zip(*pieces, strict=True)))
    rows = [[part[row] for part in batch] for row in range(len(directions))]
    if not all(subject.outputs.fits(row) for row in rows):
        raise RuntimeError("the tangents have other shapes than the outputs")
    return [subject.outputs.coordinates(row) for row in rows]
