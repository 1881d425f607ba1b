"""How pullbacks are computed: through one graph, through a graph for each, or as a training loop computes them.

The graph at the point is kept for further pullbacks. Some functions do not allow that: their backward overwrites or
frees what forward saved, or `torch.compile` donated its buffers. Then every pullback calls the function once more.

Some backwards are right in `loss.backward()` alone: they evaluate a module again with its own parameters, they
accumulate in `.grad` by themselves, or they refuse `torch.autograd.grad`. Then the function uses the caller's own
parameters, which hold other values meanwhile, and `.grad` is read.
"""

from __future__ import annotations

import enum
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.engine.thresholds import FEW, GROSS
from gradproof.frameworks.torch.internals import version_of
from gradproof.frameworks.torch.storage import is_strided, refilled, replica, same_numbers
from gradproof.frameworks.torch.subject.arguments import Call
from gradproof.frameworks.torch.subject.calling import LARGE_TENSOR
from gradproof.frameworks.torch.subject.error_messages import derivative_error

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

SINGLE_USE = (
    "A second backward through the same graph {why}, as where a backward overwrites or frees what forward saved. Every "
    "pullback was given a graph of its own, as in ordinary use."
)
SUMMATION_ROUNDINGS = 64.0  # units of rounding of the largest entry, by which a sum in another order may differ
AS_USED = (
    "The gradients are those that loss.backward() leaves in .grad of the parameters themselves: torch.autograd.grad, "
    "or other tensors in the place of the parameters, raise or give other gradients. Contracts were not tested."
)
Graph = tuple[list[Tensor], list[Tensor]]  # results, and the leaves that autograd differentiates them by


class Way(enum.Enum):
    """How pullbacks are computed."""

    SHARED = "through one graph"
    SINGLE_USE = "through a graph for each"
    AS_USED = "by loss.backward()"


class Graphs:
    """The graph of a subject at its point, and new ones if a graph serves a single pullback."""

    def __init__(self, subject: TorchSubject) -> None:
        self._subject: TorchSubject = weakref.proxy(subject)  # a cycle would hold the subject's memory after a check
        self.way = Way.SHARED

    @property
    def single_use(self) -> bool:
        """Whether every pullback has a graph of its own."""
        return self.way is not Way.SHARED

    def current(self) -> Graph:
        """Return the graph for the next pullback: that of the first call, or a new one if graphs serve only once."""
        return self.fresh() if self.single_use else (self._subject.results, self._subject.leaves)

    def fresh(self) -> Graph:
        """Call the function at the point once more, and return the new graph."""
        subject = self._subject
        copies, result = subject.caller.at_the_point()
        return subject.caller.results(result), [copies[number] for number in subject.varied]

    def use_once(self, why: str) -> None:
        """Give every pullback a graph of its own from now on, and say so in the report."""
        self.way = Way.SINGLE_USE
        self._subject.remark(SINGLE_USE.format(why=why))

    def pulled_back(self, cotangent: Tensor, elsewhere: Graph | None = None) -> Tensor:
        """Return the gradient as coordinates, at the point or through a graph elsewhere."""
        subject = self._subject
        if subject.detached:
            return torch.zeros(subject.inputs.size, dtype=torch.float64, device=subject.inputs.device)
        incoming = self.incoming(cotangent)
        version = version_of(cotangent)
        gradients = self.gradients(incoming) if elsewhere is None else self.gradients_elsewhere(elsewhere, incoming)
        if version_of(cotangent) != version:
            raise DerivativeError(
                "RuntimeError: the backward writes to its incoming gradient, which other nodes of the graph still read"
            )
        return subject.inputs.coordinates(gradients)

    def incoming(self, cotangent: Tensor) -> list[Tensor]:
        """Return the incoming gradients, as copies unless they are large."""
        outputs = self._subject.outputs
        incoming = outputs.tensors(cotangent)
        if outputs.size >= LARGE_TENSOR:
            return incoming
        return [piece.clone() if is_strided(piece) else refilled(piece) for piece in incoming]

    def gradients(self, incoming: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients at the point; None for an input without influence.

        If the backward raises on the shared graph but not on a new one, graphs serve only once from now on.
        """
        subject = self._subject
        if self.way is Way.AS_USED:
            return self.gradients_as_used([replica(point) for point in subject.points], incoming)
        subject.tally.before_each()
        subject.tally.pullbacks += 1
        try:
            if self.single_use:
                return self._pulled(self.fresh(), incoming)
            with subject.caller.timed():
                found = torch.autograd.grad(
                    subject.results, subject.leaves, incoming, retain_graph=True, allow_unused=True
                )
                return list(found)
        except Exception as error:
            if not self.single_use and (anew := self._from_a_fresh_graph(incoming)) is not None:
                return anew
            raise derivative_error(error) from error

    def _from_a_fresh_graph(self, incoming: Sequence[Tensor]) -> list[Tensor | None] | None:
        """Return the gradients from a new graph, and use graphs once from now on; None if the backward raises."""
        try:
            found = self._pulled(self.fresh(), incoming)
        except Exception:
            return None
        self.use_once("is refused or raises")
        return found

    def _pulled(self, graph: Graph, incoming: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients through a graph that is not used again, while a module holds the graph's leaves."""
        results, leaves = graph
        pull = partial(torch.autograd.grad, results, leaves, incoming, allow_unused=True)
        with self._subject.caller.timed():
            return list(self._subject.caller.holding(leaves, pull))

    def gradients_as_used(self, points: Sequence[Tensor], incoming: Sequence[Tensor]) -> list[Tensor | None]:
        """Return what `loss.backward()` leaves in `.grad` of the inputs, at the point or at another."""
        caller = self._subject.caller
        self._subject.tally.before_each()
        self._subject.tally.pullbacks += 1
        try:
            with caller.as_used(points) as (results, leaves):
                if not self._subject.outputs.fits(results):
                    raise RuntimeError("the outputs have other shapes here")
                with caller.timed():
                    torch.autograd.backward(results, incoming)
                return [leaf.grad for leaf in leaves]
        except Exception as error:
            raise derivative_error(error) from error

    def gradients_elsewhere(self, graph: Graph, incoming: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the gradients through a graph beside the point, which is not used again."""
        self._subject.tally.pullbacks += 1
        try:
            return self._pulled(graph, incoming)
        except Exception as error:
            raise derivative_error(error) from error


def better_way(subject: TorchSubject, seed: int) -> Way | None:
    """Return the way of computing pullbacks that gives another gradient than the present one, and is nearer to use."""
    if subject.graphs.way is Way.SHARED and consumes_its_graph(subject, seed):
        return Way.SINGLE_USE
    return Way.AS_USED if _can_be_used(subject) and _differs_in_use(subject, seed) else None


def has_to_be_used(subject: TorchSubject) -> bool:
    """Return True if a pullback may not end, unless it follows the call that made its graph."""
    return subject.keeps_hooks and _can_be_used(subject)


def _can_be_used(subject: TorchSubject) -> bool:
    return isinstance(subject.call, Call) and subject.graphs.way is not Way.AS_USED


def _differs_in_use(subject: TorchSubject, seed: int) -> bool:
    """Return True if `loss.backward()` repeats a gradient that the check's pullback contradicts, or cannot compute."""
    cotangent = subject.cotangent(seed)
    try:
        used = subject.as_used()
        if used.outputs.labels != subject.outputs.labels or not same_numbers(used.centre, subject.centre):
            return False  # another function than before
        one, *others = (used.pullback(cotangent).clone() for _ in range(FEW))
    except Exception:
        return False
    try:
        apart = (subject.pullback(cotangent) - one).abs().max()
    except DerivativeError:
        return True
    scatter = max(float((one - other).abs().max()) for other in others)
    noise = max(scatter, SUMMATION_ROUNDINGS * subject.numbers.precision * float(one.abs().max()))
    return bool(apart > GROSS * noise)


def consumes_its_graph(subject: TorchSubject, seed: int) -> bool:
    """Return True if a second backward through a graph gives another gradient, and first ones through new graphs agree.

    First backwards that differ among themselves belong to a function that does not repeat.
    """
    incoming = subject.outputs.tensors(subject.cotangent(seed))

    def gradient(graph: Graph) -> Tensor:
        subject.tally.pullbacks += 1
        own = [piece.clone() for piece in incoming]
        with subject.caller.timed():
            found = torch.autograd.grad(*graph, own, retain_graph=True, allow_unused=True)
        return subject.inputs.coordinates(found).clone()

    try:
        graph = subject.graphs.fresh()
        first, second = gradient(graph), gradient(graph)
        if torch.equal(first, second):
            return False
        anew = [gradient(subject.graphs.fresh()) for _ in range(FEW)]
    except Exception:
        return False
    apart = (second - first).abs().max()
    return all(bool(GROSS * (each - first).abs().max() <= apart) for each in anew)
