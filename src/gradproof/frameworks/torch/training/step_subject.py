"""The loss along a step of the parameters, as a subject of the engine with one input and one output.

The input is the fraction t of the step Δ that is taken, the output is the loss φ(t) = L(θ + tΔ), the point is t = 0.
The gradient g that a backward pass gave claims the slope φ'(0) = ⟨g, Δ⟩. Δ is the step that was taken, or a random one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gradproof.engine.results import Place
from gradproof.engine.subject import Numbers, Scale, Step
from gradproof.frameworks.torch.subject.random_state import HeldGenerators
from gradproof.frameworks.torch.subject.spaces import Space, scale_of
from gradproof.frameworks.torch.subject.timing import Tally, Timed
from gradproof.frameworks.torch.training.parameters import Snapshot, write

BACKWARD_ROUNDING = 64.0  # units of rounding in one gradient entry, as a backward pass of some depth leaves them


@dataclass(frozen=True, slots=True)
class RepeatableLoss:
    """A loss that draws the same random numbers at every call, and whose module buffers can be restored."""

    loss: Callable[[], Tensor]
    buffers: Mapping[str, Tensor]
    generators: HeldGenerators = field(default_factory=HeldGenerators)

    def __call__(self) -> Tensor:
        """Evaluate the loss at the present parameters."""
        self.generators.moved()
        self.generators.restore()
        return self.loss()

    @contextmanager
    def side_effects_undone(self) -> Iterator[None]:
        """Restore the generators and the buffers, as they are now, when the context is left."""
        generators, copies = HeldGenerators(), {name: buffer.clone() for name, buffer in self.buffers.items()}
        try:
            yield
        finally:
            generators.moved()
            generators.restore()
            with torch.no_grad():
                for name, copy in copies.items():
                    self.buffers[name].copy_(copy)


@dataclass(frozen=True, slots=True)
class TakenStep:
    """A step that was taken: the parameters, their copies before and after it, and the gradient g it was made from.

    `gradient` is in the coordinates of `space`, which are the stored entries of the parameters.
    """

    parameters: tuple[Tensor, ...]
    space: Space
    before: Snapshot
    after: Snapshot
    gradient: Tensor

    @property
    def start(self) -> Tensor:
        """The coordinates of the parameters before the step."""
        return self.space.coordinates(self.before.tensors)

    @property
    def delta(self) -> Tensor:
        """The step Δ in coordinates."""
        return self.space.coordinates(self.after.tensors) - self.start

    @property
    def predicted(self) -> float:
        """The change in the loss that the gradient predicts to first order, ⟨g, Δ⟩."""
        return float(self.gradient @ self.delta)

    def random(self, seed: int, number: int | None = None) -> Tensor:
        """Draw another step, as long as the parameters are large: of all of them, or of one."""
        drawn, start = self.space.random(seed), self.start
        for place, part in enumerate(self.space.parts):
            where = slice(part.start, part.stop)
            drawn[where] *= scale_of(start[where]) if number in (None, place) else 0.0
        return drawn

    @property
    def unmoved(self) -> list[str]:
        """The parameters that have a gradient and did not move."""
        delta = self.delta
        return [
            part.path
            for part in self.space.parts
            if bool(self.gradient[part.start : part.stop].any()) and not bool(delta[part.start : part.stop].any())
        ]


class LossAlongStep:
    """The loss along a step, as the engine sees it: `engine.subject.Subject`."""

    mode = "reverse"
    arrays = torch

    def __init__(
        self,
        step: TakenStep,
        loss: RepeatableLoss,
        value: float,
        dtype: torch.dtype,
        tally: Tally,
        delta: Tensor | None = None,
    ) -> None:
        """Take the loss before the step (`value`), its dtype, and a step to look along: by default the one taken."""
        self.inputs, self.outputs = ScalarFrame("step"), ScalarFrame("loss")
        self.point = torch.zeros(1, dtype=torch.float64)
        self.centre = torch.tensor([value], dtype=torch.float64)
        self.scale = Scale(finite=math.isfinite(value), value=abs(value))
        self.tally, self.trouble = tally, ""
        self._step, self._loss = step, loss
        self._start, self._delta, self._is_taken = step.start, step.delta if delta is None else delta, delta is None
        self._contributions = step.gradient * self._delta
        self._claim = float(self._contributions.sum())
        self._steps = step.space.tensors(self._delta)
        self._unit = self._unit_of_t()
        info = torch.finfo(dtype)
        self.numbers = Numbers(
            precision=max(info.eps, step.space.precision),
            tiny=info.smallest_normal * info.eps,
            largest=min(info.max, step.space.largest),
        )

    @property
    def claim_size(self) -> float:
        """The sum of the absolute slopes that the gradients of single parameters claim: in ⟨g, Δ⟩ they may cancel."""
        return sum(abs(float(self._contributions[part.start : part.stop].sum())) for part in self._step.space.parts)

    @property
    def claim_rounding(self) -> float:
        """The error in the claim that rounding in the gradient entries may cause."""
        return BACKWARD_ROUNDING * self.numbers.precision * float(self._contributions.abs().sum())

    def direction(self, seed: int, step: Step) -> Tensor:
        """Draw a change of t: its sign and a factor in [½, 1] are random."""
        draw = random.Random(seed)
        length = draw.choice((-1, 1)) * draw.uniform(0.5, 1) * step.length
        return torch.tensor([length if step.absolute else length * self._unit], dtype=torch.float64)

    def cotangent(self, _seed: int) -> Tensor:
        """Return one: there is one output."""
        return torch.ones(1, dtype=torch.float64)

    def value(self, t: float) -> float:
        """Return the loss at a fraction of the step; errors of the loss are raised.

        θ + tΔ is rounded to the dtype of the parameters. What the rounding changes is subtracted to first order.
        """
        moved = self._moved(t)
        with self._at(moved), torch.no_grad(), Timed(self.tally):
            self.tally.evaluations += 1
            value = float(self._loss())
        rounding = self._step.space.coordinates(moved) - self._start - t * self._delta
        return value - float(self._step.gradient @ rounding)

    def evaluate(self, direction: Tensor, t: float) -> Tensor:
        """Return the loss at t·direction; NaN where it raises."""
        try:
            return torch.tensor([self.value(t * float(direction[0]))], dtype=torch.float64)
        except (ArithmeticError, RuntimeError, ValueError) as error:
            self.trouble = f"{type(error).__name__}: {error}"
            return torch.full((1,), math.nan, dtype=torch.float64)

    def evaluate_along(self, direction: Tensor, steps: Sequence[float]) -> list[Tensor]:
        """Return the values at several steps along one direction."""
        return [self.evaluate(direction, t) for t in steps]

    def evaluate_many(self, directions: Tensor, t: float) -> Tensor:
        """Return the values along each of some directions."""
        return torch.stack([self.evaluate(direction, t) for direction in directions])

    def pullback(self, cotangent: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the slope that the gradient claims: at the start of the step, or at t = `at` (NaN if it raises)."""
        return cotangent * (self._claim if at is None else self._claim_at(float(at[0])))

    def pullback_many(self, cotangents: Tensor) -> Tensor:
        """Return the claimed slopes for each of some incoming gradients."""
        return torch.stack([self.pullback(cotangent) for cotangent in cotangents])

    def pushforward(self, direction: Tensor, at: Tensor | None = None) -> Tensor:
        """Return the claimed change of the loss along a direction."""
        return self.pullback(direction, at)

    def pushforward_many(self, directions: Tensor) -> Tensor:
        """Return the claimed changes along each of some directions."""
        return self.pullback_many(directions)

    def _claim_at(self, t: float) -> float:
        parameters, held = self._step.parameters, [parameter.grad for parameter in self._step.parameters]
        try:
            with self._at(self._moved(t)), torch.enable_grad(), Timed(self.tally):
                self.tally.pullbacks += 1
                for parameter in parameters:
                    parameter.grad = None
                self._loss().backward()  # type: ignore[no-untyped-call]  # torch's own
                gradient = self._step.space.coordinates([parameter.grad for parameter in parameters])
        except (ArithmeticError, RuntimeError, ValueError) as error:
            self.trouble = f"{type(error).__name__}: {error}"
            return math.nan
        finally:
            for parameter, grad in zip(parameters, held, strict=True):
                parameter.grad = grad
        return float(gradient @ self._delta)

    def _moved(self, t: float) -> Sequence[Tensor]:
        if t == 1 and self._is_taken:
            return self._step.after.tensors
        return self._step.space.displaced(self._step.before.tensors, self._steps, t, None)

    @contextmanager
    def _at(self, tensors: Sequence[Tensor]) -> Iterator[None]:
        """Give the parameters these values; when the context is left, those after the step."""
        try:
            write(tensors, self._step.parameters)
            yield
        finally:
            self._step.after.write_to(self._step.parameters)

    def _unit_of_t(self) -> float:
        """Return the smallest t at which some parameter moves by its own scale."""
        units = []
        for part in self._step.space.parts:
            moved = float(self._delta[part.start : part.stop].norm()) / math.sqrt(max(1, part.stop - part.start))
            scale = scale_of(self._start[part.start : part.stop])
            size = scale if isinstance(scale, float) else float(scale.norm()) / math.sqrt(len(scale))
            units += [size / moved] if moved else []
        return min(units, default=1.0)


class ScalarFrame:
    """One real coordinate with a name: `engine.subject.Frame`."""

    size = 1
    gathered = False

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The range of coordinates of the one tensor."""
        return [(0, 1)]

    def locate(self, _coordinate: int) -> Place:
        """Return the name."""
        return Place(path=self._name, index=())

    def rounded(self, vector: Tensor) -> Tensor:
        """Return the vector: t is a number in double precision."""
        return vector
