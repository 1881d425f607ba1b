"""Call the function and its backward once under a contract's own circumstances, and compare with an ordinary call.

Both calls are fresh: a kernel may overwrite what it saved, so that a graph serves one backward only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.contracts.comparison import gap, largest, noise_of_pullback, noise_of_values
from gradproof.frameworks.torch.contracts.contract import Context, Outcome
from gradproof.frameworks.torch.contracts.pullbacks import coordinates
from gradproof.frameworks.torch.storage import refilled
from gradproof.frameworks.torch.subject.error_messages import describe, shapes
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

FORWARD, BACKWARD = "forward", "backward"
BYPASSED = (
    "The contract '{contract}' was not tested: {name} uses inputs directly and not as arguments, so that they cannot "
    "be placed elsewhere in memory. Let it use its arguments."
)


class Circumstances:
    """How the tensors of a call are copied, and what surrounds its forward and its backward; as usual by default."""

    name = "ordinary call"

    def copied(self, path: str, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor that the function or its backward receives."""
        return refilled(tensor)

    @contextmanager
    def around(self, part: str) -> Iterator[None]:
        """Surround the forward or the backward."""
        yield


@dataclass(frozen=True, slots=True)
class Answer:
    """The values of a call, and its gradient for the incoming gradient that all contracts share."""

    values: Tensor
    gradient: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """The first difference between two calls in words, such as "the value of output differs (2 instead of 1 at …)"."""

    words: str
    argument: str | None = None
    refused: bool = False  # the forward raised, which a function may do on purpose


class _RaisedError(Exception):
    """The forward or the backward raised, or returned results of other shapes."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"the {part} {message}")
        self.part = part


def untested(subject: TorchSubject, contract: str) -> Outcome | None:
    """Return a note if fresh calls of the function are impossible, else None."""
    if not subject.call.bypassed:
        return None
    return Outcome(notes=(BYPASSED.format(contract=contract, name=subject.name),))


def deviation(
    subject: TorchSubject, context: Context, circumstances: Circumstances, *, usual: Circumstances | None = None
) -> Deviation | None:
    """Return how the values or the gradient differ, beyond rounding, from those of an ordinary call; None if not.

    Under `usual` circumstances, where they are given, that call is compared instead. Both calls then run the same
    kernels on the same addresses, and only what a repetition of it changes is allowed for.
    """
    reference = usual or Circumstances()
    try:
        expected = context.once(reference.name, lambda: _answer(subject, context, reference))
    except _RaisedError as error:
        raise DerivativeError(f"in a second call, {error}") from error
    try:
        found = _answer(subject, context, circumstances)
    except _RaisedError as error:
        return Deviation(words=str(error), refused=error.part == FORWARD)

    def noise_of_both() -> tuple[float, float]:
        if usual is None:
            return noise_of_values(subject), noise_of_pullback(subject, *context.pulled(subject))
        again = _answer(subject, context, usual)
        return largest(again.values - expected.values), largest(again.gradient - expected.gradient)

    limits = {"precision": subject.numbers.precision, "more": context.nondet_tol}
    worst = gap(expected.values, found.values, **limits, noise=lambda: noise_of_both()[0])
    if worst is not None:
        place = subject.outputs.locate(worst.coordinate)
        return Deviation(words=f"the value of {place.path} differs ({worst} at {place})")
    worst = gap(expected.gradient, found.gradient, **limits, noise=lambda: noise_of_both()[1])
    if worst is not None:
        place = subject.inputs.locate(worst.coordinate)
        return Deviation(
            words=f"the gradient with respect to {place.path} differs ({worst} at {place})", argument=place.path
        )
    return None


def _answer(subject: TorchSubject, context: Context, circumstances: Circumstances) -> Answer:
    """Call the function and its backward once, on copies of all tensors."""
    tensors = [
        circumstances.copied(slot.path, tensor.detach()).requires_grad_(tensor.requires_grad)
        for slot, tensor in zip(subject.slots, subject.caller.copies(), strict=True)
    ]
    leaves = [tensors[number].requires_grad_() for number in subject.varied]
    try:
        with circumstances.around(FORWARD):
            results = subject.caller.results(subject.caller.differentiably(leaves, tensors))
    except Exception as error:
        raise _RaisedError(FORWARD, f"raises {describe(error)}") from error
    if not subject.outputs.fits(results):
        raise _RaisedError(FORWARD, f"returns {shapes(results)} instead of {shapes(subject.results)}")
    values = subject.outputs.coordinates(results).detach().clone()
    if subject.detached:
        return Answer(values, torch.zeros(0, dtype=values.dtype, device=values.device))
    names = [f"the incoming gradient of {part.path}" for part in subject.outputs.parts]
    incoming = [circumstances.copied(*pair) for pair in zip(names, context.incoming(subject), strict=True)]
    subject.tally.pullbacks += 1
    try:
        with circumstances.around(BACKWARD), subject.caller.timed():
            found = torch.autograd.grad(results, leaves, incoming, allow_unused=True)
    except Exception as error:
        raise _RaisedError(BACKWARD, f"raises {describe(error)}") from error
    return Answer(values, coordinates(subject, found).clone())
