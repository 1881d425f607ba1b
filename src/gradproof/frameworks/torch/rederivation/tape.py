"""Gradients of a recorded forward, operation by operation, so that the derivative of one of them can be changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gradproof.frameworks.torch.rederivation.recording import Operation, Recording

Gradients = dict[int, Tensor]  # by the number of the value
Key = tuple[int, int]  # of a site: the number of an operation, and the position among its flattened arguments


@dataclass(frozen=True, slots=True)
class Local:
    """The derivative of one operation: its arguments as leaves, by position, and its results with a graph."""

    leaves: dict[int, Tensor]
    results: list[Tensor]

    def pulled(self, incoming: Sequence[Tensor | None]) -> dict[int, Tensor]:
        """Return the gradients of the leaves for incoming gradients of the results."""
        pairs = [
            (result, in_dtype_of(result, gradient))
            for result, gradient in zip(self.results, incoming, strict=True)
            if gradient is not None and result.requires_grad
        ]
        if not pairs or not self.leaves:
            return {}
        results, gradients = zip(*pairs, strict=True)
        found = torch.autograd.grad(
            results, list(self.leaves.values()), gradients, retain_graph=True, allow_unused=True
        )
        return {place: each for place, each in zip(self.leaves, found, strict=True) if each is not None}


@dataclass(eq=False)
class Tape:
    """A recorded forward at one point. `locals` are the derivatives of its operations.

    `joint` are the values again, in one graph that leads to the inputs.
    """

    recording: Recording
    outputs: list[int]
    locals: list[Local] = field(init=False)
    joint: Gradients = field(init=False)
    _tangents: dict[Key, Tensor | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        recording = self.recording
        self.locals = [self.local(operation, {}) for operation in recording.operations]
        self.joint = {number: recording.values[number].detach().requires_grad_() for number in recording.inputs}
        with torch.enable_grad():
            for operation in recording.operations:
                given = list(operation.arguments)
                for place, number in operation.tensors:
                    given[place] = self.joint.get(number, recording.values[number])
                for number, result in zip(operation.results, operation.run(given), strict=True):
                    if number in recording.active:
                        self.joint[number] = result

    @property
    def signature(self) -> list[Any]:
        """What is the same at two points if the function takes the same path at both."""
        return [(each.call, list(each.tensors), each.results) for each in self.recording.operations]

    def given(self, operation: Operation) -> list[Any]:
        """Return the flattened arguments of an operation, with tensors in the place of values."""
        given = list(operation.arguments)
        for place, number in operation.tensors:
            given[place] = self.recording.values[number]
        return given

    def local(self, operation: Operation, others: dict[int, Any]) -> Local:
        """Return the derivative of an operation, with `others` in the place of some of its flattened arguments."""
        given, leaves = self.given(operation), {}
        for place, other in others.items():
            given[place] = other
        for place, number in operation.tensors:
            if number in self.recording.active:
                leaves[place] = given[place] = given[place].detach().requires_grad_()
        with torch.enable_grad():
            return Local(leaves, operation.run(given))

    def sites(self, incoming: Sequence[Tensor]) -> tuple[Gradients, dict[Key, Site]]:
        """Return the gradients of all values for incoming gradients of the outputs, and the sites on their way."""
        gradients: Gradients = {}
        sites: dict[Key, Site] = {}
        for number, gradient in zip(self.outputs, incoming, strict=True):
            _add(gradients, number, gradient)
        for number in reversed(range(len(self.locals))):
            operation, local = self.recording.operations[number], self.locals[number]
            received = [gradients.get(result) for result in operation.results]
            numbers = dict(operation.tensors)
            for place, gradient in local.pulled(received).items():
                sites[number, place] = Site(self, operation, local, place, numbers[place], received, gradient)
                _add(gradients, numbers[place], gradient)
        return gradients, dict(sorted(sites.items()))

    def ancestors(self, value: int) -> set[int]:
        """Return the numbers of the operations that a value is computed by."""
        wanted, found = {value}, set[int]()
        for number in reversed(range(len(self.locals))):
            operation = self.recording.operations[number]
            if not wanted.isdisjoint(operation.results):
                found.add(number)
                wanted.update(each for _, each in operation.tensors)
        return found

    def contribution(self, number: int, gradient: Tensor, source: int) -> Tensor | None:
        """Return what an input receives if a value receives a gradient."""
        value = self.joint[number]
        if not value.requires_grad:
            return None
        given = in_dtype_of(value, gradient)
        return torch.autograd.grad(value, self.joint[source], given, retain_graph=True, allow_unused=True)[0]

    def between(self, start: int, end: int, gradient: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the gradient of a value for that of a later one, and the latter taken forwards from the former."""
        first, last = self.joint[start], self.joint[end]
        if not (first.requires_grad and last.requires_grad):
            return None
        (pulled,) = torch.autograd.grad(last, first, gradient, retain_graph=True, allow_unused=True)
        pushed = None if pulled is None else self._slope(last, first, gradient.reshape(first.shape))
        return None if pulled is None or pushed is None else (pulled, pushed.reshape(first.shape))

    def tangent(self, number: int, source: int, direction: Tensor) -> Tensor | None:
        """Return the slope of a value along a direction of an input; None where torch does not compute it."""
        if (number, source) not in self._tangents:
            self._tangents[number, source] = self._slope(self.joint[number], self.joint[source], direction)
        return self._tangents[number, source]

    def _slope(self, value: Tensor, leaf: Tensor, direction: Tensor) -> Tensor | None:
        probe = torch.zeros_like(value).requires_grad_()
        try:
            with torch.enable_grad():
                (pulled,) = torch.autograd.grad(value, leaf, probe, create_graph=True, allow_unused=True)
                if pulled is None:
                    return None
                (found,) = torch.autograd.grad(pulled, probe, direction, retain_graph=True, allow_unused=True)
        except RuntimeError:  # an operation without a second derivative
            return None
        return None if found is None else found.detach()


@dataclass(eq=False)
class Site:
    """One argument of one operation, where the derivative may be changed.

    `value` is the number of its value, `incoming` are the gradients of the operation's results, and `right` is the
    gradient that the argument receives.
    """

    tape: Tape
    operation: Operation
    local: Local
    place: int
    value: int
    incoming: list[Tensor | None]
    right: Tensor

    @property
    def argument(self) -> Tensor:
        """The argument itself."""
        return self.local.leaves[self.place].detach()

    @property
    def result(self) -> Tensor:
        """The first result."""
        return self.local.results[0].detach()

    @property
    def gradient(self) -> Tensor:
        """The gradient of the only result; a LookupError where there are several, or none."""
        (incoming,) = self.incoming
        if incoming is None:
            raise LookupError
        return incoming

    @property
    def values(self) -> Iterator[tuple[int, Tensor]]:
        """All values of the forward, with their numbers."""
        return enumerate(self.tape.recording.values)

    @property
    def is_pointwise(self) -> bool:
        """Whether the operation computes every entry of its only result from one entry of each argument."""
        tags = getattr(self.operation.call, "tags", ())
        return len(self.incoming) == 1 and self.result.shape == self.argument.shape and torch.Tag.pointwise in tags

    @cached_property
    def slope(self) -> Tensor | None:
        """What a pointwise operation multiplies the incoming gradient by; None if that is complex."""
        found = self.local.pulled([torch.ones_like(each) for each in self.local.results]).get(self.place)
        return None if found is None or found.is_complex() or self.result.is_complex() else found

    def given(self, place: int) -> Tensor:
        """Return one of the operation's arguments."""
        argument: Tensor = self.tape.given(self.operation)[place]
        return argument

    def computed_with(self, place: int, other: Tensor) -> Tensor | None:
        """Return the gradient that the argument would receive if the operation's derivative read another tensor."""
        local = self.tape.local(self.operation, {place: other})
        if [each.shape for each in local.results] != [each.shape for each in self.local.results]:
            return None
        return local.pulled(self.incoming).get(self.place)

    def applied(self, gradient: Tensor) -> Tensor:
        """Return what a linear operation gives for a gradient in the place of the argument."""
        given = self.tape.given(self.operation)
        given[self.place] = gradient.reshape(self.argument.shape).to(self.argument.dtype)
        (result, *_) = self.operation.run(given)
        given[self.place] = torch.zeros_like(self.argument)
        (offset, *_) = self.operation.run(given)
        return result - offset


def in_dtype_of(value: Tensor, gradient: Tensor) -> Tensor:
    """Return a gradient in the dtype of the value that it is for."""
    return (gradient.real if gradient.is_complex() and not value.is_complex() else gradient).to(value.dtype)


def _add(gradients: Gradients, number: int, gradient: Tensor) -> None:
    gradients[number] = gradients[number] + gradient if number in gradients else gradient
