"""One implementation of a function, called at a point in a precision of choice: its values and its gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.storage import is_strided
from gradproof.frameworks.torch.subject.arguments import Call, differentiable
from gradproof.frameworks.torch.subject.calling import Caller
from gradproof.frameworks.torch.subject.error_messages import derivative_error, kind_of
from gradproof.frameworks.torch.subject.timing import Tally

COMPLEX = {torch.float64: torch.complex128, torch.float32: torch.complex64}


class Evaluation:
    """The results of one call by path, with the graph that leads to them."""

    def __init__(
        self, caller: Caller, leaves: Sequence[Tensor], results: dict[str, Tensor], names: dict[str, str]
    ) -> None:
        self._caller, self._leaves, self.results = caller, leaves, results
        self.names = names  # the path of every result by its position, where members of named tuples have names

    @property
    def connected(self) -> set[str]:
        """The results that autograd can differentiate with respect to the chosen inputs."""
        return {path for path, result in self.results.items() if result.requires_grad} if self._leaves else set()

    def gradients(self, incoming: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the gradients for these incoming ones, zero where there is no influence, and release the graph.

        A backward that raises is a `DerivativeError`.
        """
        paths = [path for path in incoming if path in self.connected]
        found: Sequence[Tensor | None] = [None] * len(self._leaves)
        if paths:
            results = [self.results[path] for path in paths]
            factors = [incoming[path].to(result, copy=True) for path, result in zip(paths, results, strict=True)]
            self._caller.tally.pullbacks += 1
            try:
                pull = partial(torch.autograd.grad, results, list(self._leaves), factors, allow_unused=True)
                with self._caller.timed():
                    found = self._caller.holding(self._leaves, pull)
            except Exception as error:
                raise derivative_error(error) from error
            finally:
                self._caller.restore()
        self.results = {path: result.detach() for path, result in self.results.items()}
        pairs = zip(self._leaves, found, strict=True)
        return [torch.zeros_like(leaf) if each is None else each.detach() for leaf, each in pairs]


class Implementation:
    """A function and how it is called; `varied` are the slots with respect to which gradients are compared."""

    def __init__(self, call: Call, varied: Sequence[int], tally: Tally) -> None:
        self.call, self.varied, self.tally = call, list(varied), tally
        self.written: set[str] = set()  # the inputs that the function writes to
        self.names: dict[str, str] = {}  # what results are called, by position; their own names by default

    def at(self, tensors: Sequence[Tensor]) -> Evaluation:
        """Call the function on copies of these tensors, with a graph."""
        slots = [replace(slot, tensor=tensor) for slot, tensor in zip(self.call.slots, tensors, strict=True)]
        caller = Caller(self.call, self.varied, slots, self.tally)
        try:
            copies, result = caller.at_the_point()
        finally:
            caller.restore()
        leaves = list(trees.leaves(result, "output"))
        names = {place: path for place, (path, _) in zip(trees.positions(result, "output"), leaves, strict=True)}
        given = {path: self.names.get(place, path) for place, path in names.items()}
        found = [(path, leaf) for path, leaf in leaves if isinstance(leaf, Tensor)]
        results = {given[path]: leaf for path, leaf in found if differentiable(leaf)}
        if not results:
            raise InputError(
                f"{self.call.name} returned {kind_of(result)}: no floating-point or complex tensor, so there is "
                "nothing to compare. Return the tensors that matter."
            )
        for path, tensor in results.items():
            refuse_sparse(path, tensor)
        self.written |= {slot.path for slot, written in zip(slots, caller.written, strict=True) if written}
        return Evaluation(caller, [copies[number] for number in self.varied], results, names)


def converted(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Return the tensors, with those that are floating or complex in another precision."""
    return [
        tensor.detach().to(COMPLEX[dtype] if tensor.is_complex() else dtype) if differentiable(tensor) else tensor
        for tensor in tensors
    ]


def refuse_sparse(path: str, tensor: Tensor) -> None:
    """Raise an error for a tensor that is sparse or masked: entries are compared position by position."""
    if not is_strided(tensor):
        raise InputError(
            f"{path} has the layout {tensor.layout}: only strided tensors are compared entry by entry. Let both "
            "functions return to_dense(), and take their sparse arguments as dense ones."
        )
