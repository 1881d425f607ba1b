"""The derivative of a function as a function: second derivatives are first derivatives of it.

The gradient takes the point and the incoming gradients, the pushforward takes the point and the tangents; each is
checked with respect to both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradproof.errors import InputError, MismatchError
from gradproof.frameworks.torch.internals import dual_level_is_open, is_transformed, is_zero_tensor
from gradproof.frameworks.torch.storage import fills_its_storage, replica
from gradproof.frameworks.torch.subject.arguments import Slot
from gradproof.frameworks.torch.subject.calling import is_dual
from gradproof.frameworks.torch.subject.dual_numbers import push
from gradproof.frameworks.torch.subject.spaces import Space
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

SEED = 0x2D  # of the incoming gradients and tangents at which a second derivative is taken


class _Derived:
    """A call of a derivative. Its arguments are those of the function, then incoming gradients or tangents."""

    module = None
    result = ""
    nested = in_place = False
    freed: frozenset[int] = frozenset()

    def __init__(self, subject: TorchSubject, name: str, factors: Sequence[Tensor]) -> None:
        self.subject, self.function, self.bypassed = subject, subject.call.function, subject.call.bypassed
        self.name = f"{self.result} of {subject.name}"
        self.slots = [*subject.slots, *(Slot(f"{name}[{k}]", factor) for k, factor in enumerate(factors))]
        own = len(subject.slots)
        self.varied = [*subject.varied, *(own + k for k, factor in enumerate(factors) if factor.requires_grad)]

    def holding(self, tensors: Sequence[Tensor], what: Callable[[], Any]) -> Any:
        """Return what a function returns while a module holds these tensors."""
        return self.subject.call.holding(self._split(tensors)[0], what)

    def _split(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        own = len(self.subject.slots)
        return list(tensors[:own]), list(tensors[own:])


class GradientCall(_Derived):
    """(point, incoming gradients) ↦ gradients."""

    result = "gradient"

    def invoke(self, tensors: Sequence[Tensor]) -> Any:
        """Return the gradients by path; zeros for an input without influence."""
        own, incoming = self._split(tensors)
        keep = torch.is_grad_enabled() or dual_level_is_open()
        with torch.enable_grad():
            for number in self.subject.varied:
                if not own[number].requires_grad:
                    own[number] = _replica(own[number]).requires_grad_()
            leaves = [own[number] for number in self.subject.varied]
            results = self.subject.caller.results(self.subject.call.invoke(own))
            connected = any(result.requires_grad for result in results)
            gradients: Sequence[Tensor | None] = [None] * len(leaves)
            if connected:
                pull = partial(torch.autograd.grad, results, leaves, incoming, create_graph=keep, allow_unused=True)
                gradients = self.subject.call.holding(own, pull)
        paths = (self.subject.slots[number].path for number in self.subject.varied)
        pairs = zip(leaves, gradients, strict=True)
        whole = (torch.zeros_like(leaf) if _is_nothing(gradient) else gradient for leaf, gradient in pairs)
        return dict(zip(paths, whole, strict=True))


def _replica(tensor: Tensor) -> Tensor:
    """Copy a tensor, or a dual number with its tangent; a view keeps what surrounds it."""
    if not is_dual(tensor):
        return replica(tensor)
    primal, tangent = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]  # torch's own
    if is_transformed(primal) or fills_its_storage(primal):
        return tensor.clone()
    dual: Tensor = forward_ad.make_dual(replica(primal), tangent)  # type: ignore[no-untyped-call]  # torch's own
    return dual


class TangentCall(_Derived):
    """(point, tangents) ↦ tangents of the outputs."""

    result, nested = "tangent", True
    functionally = False  # use torch.func.jvp, which reverse mode can sometimes differentiate if not dual numbers

    def invoke(self, tensors: Sequence[Tensor]) -> Any:
        """Return the tangents by the path of their output."""
        own, tangents = self._split(tensors)

        def function(duals: Sequence[Tensor]) -> list[Tensor]:
            values = list(own)
            for number, dual in zip(self.subject.varied, duals, strict=True):
                values[number] = dual
            return self.subject.caller.results(self.subject.call.invoke(values))

        primals = [own[number] for number in self.subject.varied]
        pushed = push(function, primals, tangents, nested=self.functionally or dual_level_is_open())
        return dict(zip(self.subject.caller.paths, pushed, strict=True))


def _is_nothing(gradient: Tensor | None) -> bool:
    """Return True for no gradient, or for zeros that torch represents without memory."""
    return gradient is None or is_zero_tensor(gradient)


@dataclass(frozen=True, slots=True)
class Incoming:
    """The incoming gradients at which a gradient is differentiated again: given ones, or random ones."""

    given: Any = None
    gapped: bool = False  # whether random ones are non-contiguous

    def of(self, subject: TorchSubject) -> list[Tensor]:
        """Return one incoming gradient for each output of the subject."""
        if self.given is None:
            found = _random(subject.outputs)
            return [_with_gaps(tensor) for tensor in found] if self.gapped else found
        given = [self.given] if isinstance(self.given, Tensor) else self.given
        if not isinstance(given, (list, tuple)) or not all(isinstance(tensor, Tensor) for tensor in given):
            raise InputError(f"grad_outputs={self.given!r}: pass a tensor, or one for each output in a tuple.")
        shapes = [tuple(tensor.shape) for tensor in given]
        wanted = [tuple(result.shape) for result in subject.results]
        if shapes[: len(wanted)] != wanted:
            raise MismatchError(
                f"grad_outputs have the shapes {shapes}, and the outputs {wanted}: pass one for each output."
            )
        for number, (tensor, result) in enumerate(zip(given, subject.results, strict=False)):
            if tensor.is_complex() != result.is_complex():
                raise MismatchError(
                    f"grad_outputs[{number}] is {tensor.dtype}, and its output {result.dtype}: an incoming gradient is "
                    "complex where its output is, and real where that is real."
                )
        return list(given[: len(wanted)])


def derivative(subject: TorchSubject, mode: str, incoming: Incoming, *, functionally: bool = False) -> TorchSubject:
    """Return the subject's derivative in this mode, at incoming gradients or at random tangents."""
    call: Any
    if mode == "reverse":
        call = GradientCall(subject, "grad_outputs", incoming.of(subject))
    else:
        call = TangentCall(subject, "tangents", _random(subject.inputs))
        call.functionally = functionally
    return TorchSubject(call, call.varied, call.slots, subject.tally, subject.semantics, subject.caller.state)


def _random(space: Space) -> list[Tensor]:
    return [tensor.clone().requires_grad_() for tensor in space.tensors(space.random(SEED))]


def _with_gaps(tensor: Tensor) -> Tensor:
    """Return a non-contiguous copy of a tensor, with a stride of two along its last dimension."""
    return torch.stack([tensor.detach(), tensor.detach()], -1)[..., 0].requires_grad_()
