"""A PyTorch function at a point, as a subject: evaluation, pullback, pushforward."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError, Numbers, Step
from gradproof.errors import InputError, NothingToDifferentiateError
from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.charts import Semantics, chart_of, refuse_malformed, refuse_unreadable
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions, lone_function
from gradproof.frameworks.torch.storage import is_strided, memory_of, replica
from gradproof.frameworks.torch.subject.arguments import Call, Selector, Slot, differentiable
from gradproof.frameworks.torch.subject.batching import Batches
from gradproof.frameworks.torch.subject.caller_state import CallerState
from gradproof.frameworks.torch.subject.calling import LARGE_TENSOR, Caller
from gradproof.frameworks.torch.subject.captured_tensors import bypassed_slots, captured_tensors, notes_on
from gradproof.frameworks.torch.subject.error_messages import kind_of
from gradproof.frameworks.torch.subject.graphs import AS_USED, Graphs, Way
from gradproof.frameworks.torch.subject.kept_hooks import hooks_so_far, keeps_hooks_since
from gradproof.frameworks.torch.subject.output_space import observed_space, values_at_the_point
from gradproof.frameworks.torch.subject.perturbed_calls import PerturbedCalls
from gradproof.frameworks.torch.subject.perturbed_evaluation import PerturbedEvaluation
from gradproof.frameworks.torch.subject.pushforwards import Pushforwards
from gradproof.frameworks.torch.subject.sizes import ORDINARY, sizes_of
from gradproof.frameworks.torch.subject.spaces import Space, scale_of
from gradproof.frameworks.torch.subject.timing import Tally


def differentiating() -> AbstractContextManager[Any]:
    """Return a context in which autograd works, also if the caller is in inference mode."""
    return torch.inference_mode(mode=False) if torch.is_inference_mode_enabled() else nullcontext()


class TorchSubject:
    """A function, its inputs, and the inputs that are varied.

    The function is called once with a graph, on private copies of every tensor; that call serves all pullbacks, unless
    a backward consumes its graph (see `Graphs`). Perturbed calls build no graph unless the function turns out to need
    one.
    """

    mode = "reverse"
    arrays = torch
    _centre: Tensor | None

    def __init__(
        self,
        call: Call,
        varied: list[int],
        slots: list[Slot],
        tally: Tally,
        semantics: Semantics | None = None,
        state: CallerState | None = None,
    ) -> None:
        self.call, self.varied, self.slots, self.tally = call, varied, slots, tally
        self.semantics = semantics or Semantics()
        self.caller = Caller(call, varied, slots, tally, state)
        self.trouble, self.keeps_hooks = "", False
        self.graphs, self._pushforwards, self.calls = Graphs(self), Pushforwards(self), PerturbedCalls(self)
        self._perturbed = PerturbedEvaluation()
        self.refused: set[str] = set()  # what cannot be batched
        for slot in slots:
            refuse_unreadable(slot.path, slot.tensor)
            refuse_malformed(slot.path, slot.tensor)
        try:
            captured = self._begin()
            if own := bypassed_slots(call, varied, captured):
                call.bypassed = own
                captured = self._begin()
        except BaseException:
            self.caller.restore()
            raise
        self._notes += notes_on(call, captured, self.caller.state.reach, self.caller.state.unhooked)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        inputs: Any,
        wrt: Selector | None,
        semantics: Semantics | None = None,
        state: CallerState | None = None,
    ) -> TorchSubject:
        """Return the subject for a function at a point."""
        call = Call(function, inputs)
        return cls(call, call.select(wrt), call.slots, Tally(), semantics, state)

    def _begin(self) -> list[Tensor]:
        """Call the function at the point, and return the tensors that it captures."""
        self._notes: list[str] = []
        hooks = hooks_so_far()
        copies, result = self.caller.at_the_point()
        if keeps_hooks_since(hooks, self.caller.state.reach.modules.values()):
            self.keeps_hooks, self.graphs.way = True, Way.SINGLE_USE
        self._set_inputs(copies)
        self._set_outputs(copies, result)
        return captured_tensors(self.results, copies)

    def _set_inputs(self, copies: list[Tensor]) -> None:
        """Set the point and its space. A sparse point is copied, since perturbed points share its indices."""
        self.points = []
        for number in self.varied:
            own = self.slots[number].tensor.detach()
            if not is_strided(own):
                fresh = self.caller.written[number] or number in self.call.bypassed
                own = replica(own) if fresh else copies[number].detach()
            self.points.append(own)
        paths = [self.slots[number].path for number in self.varied]
        charts = [chart_of(point, self.semantics) for point in self.points]
        self.inputs = Space(paths, self.points, charts)

    def _set_outputs(self, copies: list[Tensor], result: Any) -> None:
        """Set the value at the point, the outputs that can be differentiated, and the precision."""
        self.leaves = [copies[number] for number in self.varied]
        found = [(path, leaf) for path, leaf in trees.leaves(result, self.call.result) if isinstance(leaf, Tensor)]
        tensors = [(path, tensor) for path, tensor in found if differentiable(tensor)]
        if not tensors:
            nothing = bool(found) or (isinstance(result, tuple | list) and not result)
            kind = NothingToDifferentiateError if nothing else InputError
            raise kind(
                f"{self.call.name} returned {kind_of(result)}: no floating-point or complex tensor, so there is "
                "nothing to differentiate. Return the tensor whose gradient matters."
            )
        for path, tensor in tensors:
            refuse_unreadable(path, tensor)
        connected = [(path, tensor) for path, tensor in tensors if tensor.requires_grad]
        self.detached = not connected
        self.caller.paths = [path for path, _ in connected or tensors]
        self.results = [tensor for _, tensor in connected or tensors]
        self.outputs, remarks = observed_space(self)
        self._notes += remarks
        self._centre = None
        if not self._gives_values_again():
            self.centre = self.centre.clone()  # whatever the function or its backward does to its memory
        kept = self.outputs.read(self.results) if self._centre is None else [self.centre]
        self.scale, self._size = sizes_of(kept)
        tiny = max(self.inputs.tiny, self.outputs.tiny)
        self.numbers = Numbers(
            precision=max(self.inputs.precision, self.outputs.precision),
            tiny=0.0 if tiny < ORDINARY[0] < self._size else tiny,
            largest=self.inputs.largest,
        )

    @property
    def centre(self) -> Tensor:
        """The function's value at the point, as coordinates."""
        if self._centre is None:
            self._centre = values_at_the_point(self)
        return self._centre

    @centre.setter
    def centre(self, values: Tensor) -> None:
        self._centre = values

    def let_values_go(self) -> None:
        """Release the value at the point, if it is large and the results can give it again."""
        if self._gives_values_again():
            self._centre = None

    def _gives_values_again(self) -> bool:
        """Return True if the values at the point are large, and can be read from the results whenever they are needed.

        A function of the user's, or its backward, may overwrite its results.
        """
        return self.outputs.strided and self.outputs.size >= LARGE_TENSOR and not custom_functions(self.results)

    def remark(self, note: str) -> None:
        """Add a note to the report, once."""
        if note not in self._notes:
            self._notes.append(note)

    @property
    def notes(self) -> list[str]:
        """Notes for the report, whatever the verdict."""
        return [*self._notes, *self.inputs.remarks]

    @property
    def name(self) -> str:
        """The name of the function; where a lambda does nothing but call an autograd Function, that of the Function."""
        name = self.call.name
        return self.lone.__name__ if name.endswith("<lambda>") and self.lone else name

    @property
    def point(self) -> Tensor:
        """The point, as coordinates."""
        pieces = [origin.to(self.inputs.device, torch.float64) for origin in self.origins()]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def origins(self) -> Iterator[Tensor]:
        """Yield the coordinates of each input at the point; they are not kept, to save memory."""
        return (part.chart.origin(point) for part, point in zip(self.inputs.parts, self.points, strict=True))

    @property
    def mutated(self) -> list[str]:
        """The varied inputs that the function writes to."""
        return [self.slots[number].path for number in self.varied if self.caller.written[number]]

    @functools.cached_property
    def lone(self) -> type[torch.autograd.Function] | None:
        """The one autograd Function behind the results, if there is no other operation."""
        return lone_function(self.results)

    @functools.cached_property
    def storages(self) -> set[int]:
        """The addresses of the storages that hold the results at the point."""
        return memory_of(self.results) if self.outputs.strided else set()

    @functools.cached_property
    def scales(self) -> list[Tensor | float]:
        """The scale of each input: one number, or one for each coordinate if their sizes differ widely."""
        return [scale_of(origin, self.inputs.device) for origin in self.origins()]

    def direction(self, seed: int, step: Step) -> Tensor:
        """Draw a random direction such that the point plus it is representable."""
        lengths = [step.length if step.absolute else step.length * scale for scale in self.scales]
        return self.inputs.direction(2 * seed, self.origins(), lengths)

    def cotangent(self, seed: int) -> Tensor:
        """Draw a random incoming gradient; zero where the function's value is not finite."""
        vector = self.outputs.random(2 * seed + 1)
        if not ORDINARY[0] < self._size < ORDINARY[1]:
            vector.mul_(1 / self._size)
        return vector if self.scale.finite else torch.where(torch.isfinite(self.centre), vector, 0.0)

    def evaluate(self, direction: Tensor, t: float) -> Tensor:
        """Return the value at point + t·direction; NaN throughout if the function raises or changes its shape."""
        return self._perturbed.values(self, direction, t)

    def evaluate_along(self, direction: Tensor, steps: Sequence[float]) -> list[Tensor]:
        """Return the values at several steps along one direction."""
        return [self.evaluate(direction, t) for t in steps]

    def forget(self) -> None:
        """Release the memory that is held for one direction."""
        self._perturbed.forget()

    def pullback(self, cotangent: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the claimed gradient; zero for an input that autograd says has no influence.

        At point + `at` it comes from a call of its own, and is NaN where the function or its derivative raises.
        """
        if at is None:
            return self.graphs.pulled_back(cotangent)
        leaves = self.moved(at)
        try:
            if self.graphs.way is Way.AS_USED:
                gradients = self.graphs.gradients_as_used(leaves, self.graphs.incoming(cotangent))
                return self.inputs.coordinates(gradients)
            results = self.caller.results(self.caller.differentiably([leaf.requires_grad_() for leaf in leaves]))
            if self.outputs.fits(results):
                return self.graphs.pulled_back(cotangent, (results, leaves))
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
        return torch.full_like(at, torch.nan)

    def pushforward(self, direction: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the claimed slopes of all outputs; zero for an output that carries no tangent.

        At point + `at` they are NaN where the function or its derivative raises.
        """
        if at is None:
            return self._pushforwards.slopes(torch.zeros_like(direction), direction)
        try:
            return self._pushforwards.slopes(at, direction)
        except DerivativeError as error:
            self.trouble = str(error)
            return torch.full_like(self.centre, torch.nan)

    def evaluate_many(self, directions: Tensor, t: float) -> Tensor:
        """Return the values along each of some directions, as one batch if the function can be batched."""
        return Batches(self).values(directions, t)

    def pullback_many(self, cotangents: Tensor) -> Tensor:
        """Return the claimed gradients for each of some incoming gradients."""
        return Batches(self).gradients(cotangents)

    def pushforward_many(self, directions: Tensor) -> Tensor:
        """Return the claimed slopes along each of some directions."""
        return Batches(self).tangents(directions)

    def moved(self, direction: Tensor) -> list[Tensor]:
        """Return the varied tensors at point + direction."""
        return self.inputs.displaced(self.points, self.inputs.tensors(direction), 1.0, None)

    def results_of(self, moved: Sequence[Tensor], rest: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Return the differentiable results for perturbed inputs."""
        return self.caller.results(self.caller.beside(moved, rest))

    def tried(self, moved: Sequence[Tensor]) -> list[Tensor] | None:
        """Return the same; None, with the error in `trouble`, if the function raises or its outputs change shape."""
        return self.calls.tried(moved)

    def values_need_a_graph(self) -> bool:
        """Return True if calls have other values without a graph than with one; all have one from now on."""
        return self.calls.need_a_graph()

    def as_used(self) -> TorchSubject:
        """Return the same function at the same point, differentiated by `loss.backward()` on its own parameters."""
        call, state = self.call.with_own_parameters(), self.caller.state
        anew = TorchSubject(call, self.varied, self.slots, self.tally, self.semantics, state)
        anew.graphs.way = Way.AS_USED
        anew.refused.add("gradients")
        anew.remark(AS_USED)
        return anew

    def with_single_use_graphs(self) -> TorchSubject:
        """Return the same function at the same point, with a graph of its own for every pullback."""
        anew = TorchSubject(self.call, self.varied, self.slots, self.tally, self.semantics, self.caller.state)
        anew.graphs.use_once("gives another gradient")
        return anew

    def __enter__(self) -> TorchSubject:
        return self

    def __exit__(self, *_: object) -> None:
        self.caller.restore()
