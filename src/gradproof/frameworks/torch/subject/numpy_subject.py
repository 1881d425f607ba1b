"""Small subjects with NumPy arrays for the engine: on a few numbers NumPy takes a fraction of torch's time."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gradproof.engine.subject import Array, Step
from gradproof.frameworks.torch.charts import added, densified
from gradproof.frameworks.torch.storage import fills_its_storage
from gradproof.frameworks.torch.subject.batching import LOOPED_ROWS
from gradproof.frameworks.torch.subject.spaces import Space
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

SMALL = 1 << 13  # entries of a Jacobian: for larger ones torch's arrays are as fast
DOUBLES = (torch.float64, torch.complex128)


@functools.cache
def _numpy() -> Any:
    """Return NumPy if it is installed, of version 2, and torch can share memory with it; else None."""
    try:
        module = importlib.import_module("numpy")
        torch.from_numpy(module.zeros(1)).numpy()
    except (ImportError, RuntimeError):
        return None
    return module if hasattr(module.ndarray, "device") else None  # as of version 2


def for_the_engine(subject: TorchSubject) -> TorchSubject | InNumpy:
    """Return the subject with NumPy arrays if it is small, and as it is otherwise."""
    small = subject.inputs.size * subject.outputs.size < SMALL and subject.inputs.device.type == "cpu"
    if not small or _numpy() is None:
        return subject
    return Doubles(subject) if _in_doubles(subject) else InNumpy(subject)


def _in_doubles(subject: TorchSubject) -> bool:
    """Return True if inputs and outputs are strided, in double precision, and no input is a view."""
    return (
        subject.inputs.strided
        and subject.outputs.strided
        and all(tensor.dtype in DOUBLES and tensor.is_cpu for tensor in (*subject.points, *subject.results))
        and all(fills_its_storage(point) and not point.is_conj() and not point.is_neg() for point in subject.points)
    )


def silence() -> AbstractContextManager[Any]:
    """Return a context in which NumPy does not warn about infinities and NaNs, as torch does not."""
    numpy = _numpy()
    return nullcontext() if numpy is None else numpy.errstate(all="ignore")


class InNumpy:
    """A subject whose vectors are NumPy arrays.

    Values are copied, since the function may write to the memory that it returned.
    """

    def __init__(self, subject: TorchSubject) -> None:
        self._subject, self.arrays = subject, _numpy()
        self.mode, self.inputs, self.outputs = subject.mode, subject.inputs, subject.outputs
        self.numbers, self.scale = subject.numbers, subject.scale
        self.centre = subject.centre.numpy(force=True)
        self._last: tuple[Array, Tensor] = (None, subject.centre)

    @property
    def trouble(self) -> str:
        """Delegate to the subject."""
        return self._subject.trouble

    @property
    def point(self) -> Array:
        """Delegate to the subject."""
        return self._subject.point.numpy(force=True)

    def direction(self, seed: int, step: Step) -> Array:
        """Delegate to the subject."""
        return self._subject.direction(seed, step).numpy()

    def cotangent(self, seed: int) -> Array:
        """Delegate to the subject."""
        return self._subject.cotangent(seed).numpy()

    def evaluate(self, direction: Array, t: float) -> Array:
        """Delegate to the subject."""
        return self._called(self._subject.evaluate, direction, t)

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> list[Array]:
        """Delegate to the subject."""
        return [self.evaluate(direction, t) for t in steps]

    def pullback(self, cotangent: Array, at: Array | None = None) -> Array:
        """Delegate to the subject."""
        return self._called(self._subject.pullback, cotangent, None if at is None else torch.from_numpy(at))

    def pushforward(self, direction: Array, at: Array | None = None) -> Array:
        """Delegate to the subject."""
        return self._called(self._subject.pushforward, direction, None if at is None else torch.from_numpy(at))

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """Delegate to the subject."""
        return self._called(self._subject.evaluate_many, directions, t)

    def pullback_many(self, cotangents: Array) -> Array:
        """Delegate to the subject."""
        return self._called(self._subject.pullback_many, cotangents)

    def pushforward_many(self, directions: Array) -> Array:
        """Delegate to the subject."""
        return self._called(self._subject.pushforward_many, directions)

    def _called(self, method: Any, vector: Array, *more: Any) -> Array:
        """Call a method of the subject. The same array becomes the same tensor again, which the subject recognizes."""
        if self._last[0] is not vector:
            self._last = (vector, torch.from_numpy(vector))
        return method(self._last[1], *more).numpy(force=True).copy()


class Doubles(InNumpy):
    """The same for strided tensors in double precision, whose memory holds the coordinates themselves.

    Rows are evaluated one by one, unless they are many.
    """

    def direction(self, seed: int, step: Step) -> Array:
        """Draw the same direction as the subject."""
        vector = self.inputs.random(2 * seed).numpy()
        for part, origin, scale in zip(self.inputs.parts, self._subject.origins(), self._subject.scales, strict=True):
            piece, place = vector[part.start : part.stop], origin.numpy()
            piece *= (
                step.length if step.absolute else step.length * (scale if isinstance(scale, float) else scale.numpy())
            )
            piece += place
            piece -= place
        if not math.isfinite(vector.sum()):
            vector[~self.arrays.isfinite(vector)] = 0.0  # infinite inputs stay where they are
        return vector

    def evaluate(self, direction: Array, t: float) -> Array:
        """Return the value at point + t·direction, written into a new array."""
        return self._values([direction], t)[0]

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """Return the values along each direction: one by one, or as the subject's batch if there are many."""
        batched = self._worth_a_batch("values", directions)
        return super().evaluate_many(directions, t) if batched else self._values(directions, t)

    def pullback(self, cotangent: Array, at: Array | None = None) -> Array:
        """Return the gradient at the point, written into a new array; delegate for other points."""
        return self._gradients([cotangent])[0] if at is None else super().pullback(cotangent, at)

    def pullback_many(self, cotangents: Array) -> Array:
        """Return the gradients for each incoming gradient: one by one, or as the subject's batch if there are many."""
        batched = self._worth_a_batch("gradients", cotangents)
        return super().pullback_many(cotangents) if batched else self._gradients(cotangents)

    def _worth_a_batch(self, kind: str, rows: Sequence[Array]) -> bool:
        return len(rows) > LOOPED_ROWS and kind not in self._subject.refused

    def _values(self, directions: Sequence[Array], t: float) -> Array:
        subject, values = self._subject, self.arrays.empty((len(directions), self.outputs.size))
        with torch.no_grad():
            for direction, row in zip(directions, values, strict=True):
                steps = _tensors(self.inputs, direction)
                results = subject.tried([added(*pair, t, None) for pair in zip(subject.points, steps, strict=True)])
                _fill(row, self.outputs, results)
        return values

    def _gradients(self, cotangents: Sequence[Array]) -> Array:
        subject, gradients = self._subject, self.arrays.zeros((len(cotangents), self.inputs.size))
        if subject.detached:
            return gradients
        for cotangent, row in zip(cotangents, gradients, strict=True):
            incoming = [tensor.clone() for tensor in _tensors(self.outputs, cotangent)]
            found = subject.graphs.gradients(incoming)
            _fill(row, self.inputs, [None if gradient is None else densified(gradient) for gradient in found])
        return gradients


def _tensors(space: Space, vector: Array) -> list[Tensor]:
    """Return the tensors with these coordinates, which share the memory of real coordinates.

    Complex coordinates are copied: torch may crash if a complex number is not aligned to a multiple of its size.
    """
    tensors = []
    for part in space.parts:
        numbers = vector[part.start : part.stop]
        numbers = numbers.copy().view("complex128") if part.dtype.is_complex else numbers
        tensors.append(torch.from_numpy(numbers.reshape(part.chart.shape)))
    return tensors


def _fill(vector: Array, space: Space, tensors: Sequence[Tensor | None] | None) -> None:
    """Write the coordinates of some tensors into a vector; skip a tensor that is None, and write NaN for no tensors."""
    if tensors is None:
        vector.fill(math.nan)
        return
    for part, tensor in zip(space.parts, tensors, strict=True):
        if tensor is not None:
            numbers = tensor.numpy(force=True).ravel()
            vector[part.start : part.stop] = numbers.view(vector.dtype) if part.dtype.is_complex else numbers
