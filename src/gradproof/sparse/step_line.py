"""The loss along a training step: values of it at any fraction of the step, and what the gradient claims of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradproof.engine.contraction import CLAIM_ACCURACY
from gradproof.frameworks.torch.subject.random_state import HeldGenerators
from gradproof.sparse.snapshots import Snapshot, inner, write
from gradproof.sparse.step_slope import CLOSER, FINEST, Slope, slope_at_start

BACKWARD = 64.0  # roundings granted to a gradient entry


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The loss, with random draws held and buffers put back: the same question every time."""

    loss: Callable[[], Tensor]
    generators: HeldGenerators
    buffers: dict[str, Tensor]

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """What evaluations change is put back afterwards."""
        later, copies = HeldGenerators(), {name: buffer.clone() for name, buffer in self.buffers.items()}
        try:
            yield
        finally:
            later.moved()
            later.restore()
            with torch.no_grad():
                for name, copy in copies.items():
                    self.buffers[name].copy_(copy)

    def __call__(self) -> float:
        """Its value at the present parameters."""
        self.generators.moved()
        self.generators.restore()
        with torch.no_grad():
            return float(self.loss())


@dataclass(frozen=True, slots=True)
class Line:
    """The loss along the step, from the parameters before it to those after it."""

    tensors: dict[str, Tensor]
    before: dict[str, Snapshot]
    after: dict[str, Snapshot]
    moved: dict[str, Tensor]
    gradients: dict[str, Tensor]
    evaluation: Evaluation

    def value(self, t: float) -> float:
        """The loss at a fraction of the step, freed to first order from the rounding of the parameters there."""
        slip = 0.0
        with torch.no_grad():
            try:
                for name, tensor in self.tensors.items():
                    start, delta = self.before[name].values, self.moved[name]
                    there = self.after[name].values if t == 1 else start + t * delta
                    slip += inner(self.gradients[name], there - start) - t * inner(self.gradients[name], delta)
                    write(tensor, there)
                return self.evaluation() - (0.0 if t == 1 else slip)
            except (ArithmeticError, RuntimeError, ValueError):
                if abs(t) <= 1:
                    raise
                return math.nan  # nobody asked the loss for a value so far away
            finally:
                for name, tensor in self.tensors.items():
                    write(tensor, self.after[name].values)

    @property
    def predicted(self) -> float:
        """The slope that the gradient claims."""
        return sum(inner(self.gradients[name], delta) for name, delta in self.moved.items())

    @property
    def size(self) -> float:
        """What the parameters' claims amount to, each by itself: together they may cancel."""
        return sum(abs(inner(self.gradients[name], delta)) for name, delta in self.moved.items())

    @property
    def rounding(self) -> float:
        """What the claim may owe to the rounding of each gradient entry in a backward of some length."""
        sizes = (inner(self.gradients[name].abs(), delta.abs()) for name, delta in self.moved.items())
        return BACKWARD * self.precision * sum(sizes) + CLAIM_ACCURACY * abs(self.predicted)

    @property
    def left_behind(self) -> list[str]:
        """The parameters with a gradient of which no entry moved."""
        return [
            name for name, delta in self.moved.items() if bool(self.gradients[name].any()) and not bool(delta.any())
        ]

    @property
    def precision(self) -> float:
        """The spacing of numbers near one in the coarsest dtype."""
        return max(torch.finfo(snapshot.values.dtype).eps for snapshot in self.before.values())

    def slope(self, start: float) -> Slope:
        """The slope at the start, looked at more closely if it denies the claim."""
        slope = self._slope(start, FINEST)
        if slope.contains(self.predicted) or slope.between(self.predicted) or not math.isfinite(slope.bar):
            return slope
        return self._slope(start, CLOSER)

    def _slope(self, start: float, finest: int) -> Slope:
        """With what the claim may owe to rounding in its bar."""
        found = slope_at_start(self.value, start=start, precision=self.precision, finest=finest)
        return replace(found, bar=found.bar + self.rounding)
