"""Call a function at a point and at perturbed points, without lasting effects on the caller's objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from gradproof.errors import InputError
from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.exclusion import PROCESS, Exclusion
from gradproof.frameworks.torch.internals import dual_level_is_open, is_transformed, version_of
from gradproof.frameworks.torch.introspection.reach import reach_of
from gradproof.frameworks.torch.storage import fills_its_storage, is_freed, is_strided, replica, same_in_each
from gradproof.frameworks.torch.subject.arguments import Call, Slot, differentiable
from gradproof.frameworks.torch.subject.caller_state import CallerState
from gradproof.frameworks.torch.subject.timing import Drawing, Tally, Timed

T = TypeVar("T")
LARGE_TENSOR = 1 << 16  # entries: time and memory are saved from here on, as by passing it without a copy
REFUSED = "cannot have requires_grad True"  # torch's words for an argument that it has no derivative for


class BypassedError(Exception):
    """The function uses the caller's own tensors and not its arguments, so that this derivative cannot be computed."""


class Caller:
    """A function, the tensors it receives, and those of them that are varied.

    Random draws are the same in every call. Tensors that the function writes to are copied for every call.

    A function may use the caller's own tensors instead of its arguments, such as the parameters of a module that it
    calls. These tensors then hold other memory while a call runs, and their own again afterwards.
    """

    def __init__(
        self, call: Call, varied: list[int], slots: list[Slot], tally: Tally, state: CallerState | None = None
    ) -> None:
        """`state` is that of the caller's before the check; by default as it is now."""
        self.state = state or CallerState(reach_of(call.function))
        self.call, self.varied, self.slots, self.tally = call, varied, slots, tally
        self._tensors = [slot.tensor for slot in slots]
        self._rest: list[tuple[int, Callable[[], Tensor]]] = []
        for slot in slots:
            _refuse_tangent(slot)
        self.draws = self.needs_graph = False
        self.written: list[bool] = []
        self.paths: list[str] = []

    def at_the_point(self) -> tuple[list[Tensor], Any]:
        """Return private copies of all tensors, and the result of a call on them with a graph."""
        copies = [slot.tensor.detach() if slot.private else replica(slot.tensor) for slot in self.slots]
        for copy, slot in zip(copies, self.slots, strict=True):
            if slot.tensor.requires_grad and differentiable(copy):
                copy.requires_grad_()
        for number in self.varied:
            copies[number].requires_grad_()
        versions = [version_of(copy) for copy in copies]
        with Exclusion([PROCESS]):
            generators = self.state.generators
            if not self.written and generators.moved():  # by a backward of another subject
                generators.restore()
            result = self._first(copies)
            if not self.draws and generators.moved():
                self.draws, self._after = True, generators.now()
                generators.restore()
        if freed := frozenset(k for k, each in enumerate(copies) if is_freed(each)) - self.call.freed:
            self.call.freed |= freed
            return self.at_the_point()
        kept = [version_of(copy) == version for copy, version in zip(copies, versions, strict=True)]
        own = [number for number, slot in enumerate(self.slots) if not slot.private]
        found = same_in_each([self._tensors[number] for number in own], [copies[number] for number in own])
        same = [dict(zip(own, found, strict=True)).get(number, True) for number in range(len(copies))]
        self.written = [not (old and equal) for old, equal in zip(kept, same, strict=True)]
        for number in self.call.bypassed:
            copies[number] = self.slots[number].tensor  # which is what the graph leads to
        rest = (number for number in range(len(copies)) if number not in self.varied)
        self._rest = [(number, _copier(self._tensors[number], written=self.written[number])) for number in rest]
        return copies, result

    def _first(self, copies: list[Tensor]) -> Any:
        """Return the result of a call with a graph at the point, where an error is one of the function's."""
        try:
            return self._graphed(copies)
        except BaseException as error:
            self.restore()
            self._refuse_what_torch_refuses(error)
            if isinstance(error, Exception):
                error.add_note(
                    f"gradproof: {self.call.name} raised this at the given inputs, before anything was checked."
                )
            raise

    def _refuse_what_torch_refuses(self, error: BaseException) -> None:
        """Raise an error that names the inputs of `wrt` with respect to which torch has no derivative."""
        named = [self.slots[number].path for number in self.varied if not self.slots[number].tensor.requires_grad]
        if named and REFUSED in str(error):
            raise InputError(
                f"{self.call.name} cannot be differentiated with respect to all of {', '.join(named[:8])}: {error} "
                "Leave that out of wrt=."
            ) from error

    def beside(self, moved: Sequence[Tensor], rest: Sequence[Tensor] | None = None) -> Any:
        """Return the result for perturbed inputs, without a graph unless the function needs one.

        `rest` are copies of all tensors, for callers that have to make them beforehand (see `copies`).
        """
        tensors = self._with(moved, rest)
        if self.needs_graph:
            return self._with_graph(tensors)
        try:
            if not torch.is_grad_enabled() or dual_level_is_open():  # tangents need grad mode, and no graph
                return self._called(tensors)
            with torch.no_grad():
                return self._called(tensors)
        except Exception as first:
            try:
                result = self._with_graph(tensors)
            except Exception:
                raise first from None
            self.needs_graph = True
            return result

    def differentiably(self, leaves: Sequence[Tensor], rest: Sequence[Tensor] | None = None) -> Any:
        """Return the result for other varied tensors, with a graph that leads to them.

        `rest` are copies of all tensors, of which those that are not varied are used.
        """
        if self.call.bypassed:
            raise BypassedError("the graph leads to the caller's own tensors")
        return self._graphed(self._with(leaves, rest))

    def holding(self, leaves: Sequence[Tensor], what: Callable[[], T]) -> T:
        """Return what a function returns while a module holds these varied tensors."""
        found: T = self.call.holding(self._with(leaves), what)
        return found

    @contextmanager
    def as_used(self, points: Sequence[Tensor]) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        """Yield the results of a call with a graph, and its leaves; a backward in this context runs as it does in use.

        Tensors that the function uses directly hold their other values until the context is left.
        """
        tensors = self._requiring_grad(self._with(points))
        own = {number: self.slots[number].tensor for number in self.call.bypassed}
        leaves = [own.get(number, tensors[number]) for number in self.varied]
        gradients = [leaf.grad for leaf in leaves]
        try:
            with self._lending(tensors):
                for leaf in leaves:
                    leaf.requires_grad_().grad = None
                yield self.results(self._graphed(tensors)), leaves
        finally:
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf.grad = gradient

    def copies(self) -> list[Tensor]:
        """Return all tensors; those that are not varied as copies, or as views if they are large and not written to."""
        tensors = self._tensors.copy()
        for number, copy in self._rest:
            own, tensors[number] = tensors[number], copy()
            if own.requires_grad:
                tensors[number].requires_grad_()
        return tensors

    def results(self, result: Any) -> list[Tensor]:
        """Return the tensors at the paths of the differentiable results of the first call."""
        if isinstance(result, Tensor):
            return [result]
        found = dict(trees.leaves(result, self.call.result))
        return [tensor for path in self.paths if isinstance(tensor := found.get(path), Tensor)]

    def timed(self, *, calling: bool = False) -> Timed:
        """Return a context that times the user's code, with the random generators set for a call or for a derivative.

        A call draws the same numbers as the first call. A backward draws the numbers that follow, as it does in use.
        """
        if not self.draws:
            return Timed(self.tally)
        before = self.state.generators
        return Drawing(self.tally, before if calling else self._after, before)

    def restore(self) -> None:
        """Restore what calls may have changed of the caller's."""
        self.state.restore()

    def _called(self, tensors: Sequence[Tensor]) -> Any:
        self.tally.before_each()
        self.tally.evaluations += 1
        enabled = torch.is_grad_enabled()
        try:
            with self.timed(calling=True):
                if not self.call.bypassed:
                    return self.call.invoke(tensors)
                with self._lending(tensors) as own:
                    return self.call.invoke(own)
        finally:
            if torch.is_grad_enabled() is not enabled:
                torch.set_grad_enabled(enabled)

    @contextmanager
    def _lending(self, tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
        """Give the caller's own tensors other values while the context is open, if the function uses them."""
        own = {number: self.slots[number].tensor for number in self.call.bypassed}
        if not all(_is_ordinary(tensors[number]) for number in own):
            raise BypassedError("the caller's own tensors carry no tangents, and are no batches")
        memory = {number: tensor.detach() for number, tensor in own.items()}
        try:
            for number, tensor in own.items():
                self.state.lend(tensor)
                tensor.data = tensors[number].detach()
            yield [own.get(number, tensor) for number, tensor in enumerate(tensors)]
        finally:
            for number, tensor in own.items():
                tensor.data = memory[number]

    def _graphed(self, tensors: Sequence[Tensor]) -> Any:
        if torch.is_grad_enabled():
            return self._called(tensors)
        with torch.enable_grad():
            return self._called(tensors)

    def _with(self, moved: Sequence[Tensor], rest: Sequence[Tensor] | None = None) -> list[Tensor]:
        tensors = self.copies() if rest is None else list(rest)
        for number, tensor in zip(self.varied, moved, strict=True):
            tensors[number] = tensor
        return tensors

    def _with_graph(self, tensors: list[Tensor]) -> Any:
        return self._graphed(self._requiring_grad(tensors))

    def _requiring_grad(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the same numbers as leaves that require grad where the caller's do, or where they are varied."""
        fresh = [tensor if is_dual(tensor) else tensor.detach() for tensor in tensors]
        for tensor, slot in zip(fresh, self.slots, strict=True):
            if slot.tensor.requires_grad and differentiable(tensor):
                tensor.requires_grad_()
        for number in self.varied:
            fresh[number].requires_grad_()
        return fresh


def _copier(tensor: Tensor, *, written: bool) -> Callable[[], Tensor]:
    """Return a function that makes a copy of a tensor for one call."""
    detached = tensor.detach()
    if tensor.numel() >= LARGE_TENSOR and not written:
        return detached.detach
    return detached.clone if is_strided(detached) and fills_its_storage(detached) else partial(replica, detached)


def is_dual(tensor: Tensor) -> bool:
    """Return True if a tensor carries a tangent."""
    if not dual_level_is_open():
        return False
    return forward_ad.unpack_dual(tensor).tangent is not None  # type: ignore[no-untyped-call]  # torch's own


def _is_ordinary(tensor: Tensor) -> bool:
    """Return True if a tensor is no dual number and no wrapper of a `torch.func` transformation."""
    return not is_dual(tensor) and not is_transformed(tensor)


def _refuse_tangent(slot: Slot) -> None:
    if is_dual(slot.tensor):
        raise InputError(
            f"{slot.path} carries a tangent already: it was made by make_dual, or inside a jvp. Pass the plain tensor, "
            "forward_ad.unpack_dual(x).primal; tangents are made here."
        )
