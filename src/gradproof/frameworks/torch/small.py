"""Small subjects, handed to the engine in NumPy's arrays: on a few numbers NumPy takes a fraction of torch's time."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gradproof.engine.subject import Array
from gradproof.frameworks.torch.subject import TorchSubject

SMALL = 1 << 13  # entries of a Jacobian, beyond which torch's own arrays do as well


@functools.cache
def _numpy() -> Any:
    """NumPy, where it is installed and torch can share memory with it."""
    try:
        module = importlib.import_module("numpy")
        torch.from_numpy(module.zeros(1)).numpy()
    except (ImportError, RuntimeError):
        return None
    return module if hasattr(module.ndarray, "device") else None  # as of version 2


def for_the_engine(subject: TorchSubject) -> TorchSubject | InNumpy:
    """The subject in the arrays that suit its size."""
    small = subject.inputs.size * subject.outputs.size < SMALL and subject.inputs.device.type == "cpu"
    return InNumpy(subject) if small and _numpy() is not None else subject


def silence() -> AbstractContextManager[Any]:
    """Where infinities and NaNs are nothing to warn of, as in torch."""
    numpy = _numpy()
    return nullcontext() if numpy is None else numpy.errstate(all="ignore")


class InNumpy:
    """A subject whose vectors are NumPy's.

    Values are copied, since the function may write to the memory that it returned.
    """

    def __init__(self, subject: TorchSubject) -> None:
        self._subject, self.arrays = subject, _numpy()
        self.mode, self.rule, self.claim_size = subject.mode, subject.rule, subject.claim_size
        self.inputs, self.outputs, self.finite = subject.inputs, subject.outputs, subject.finite
        self.precision, self.gradient_precision = subject.precision, subject.gradient_precision
        self.largest, self.tiny, self.moved_by = subject.largest, subject.tiny, subject.moved_by
        self._centre: tuple[Tensor | None, Array] = (None, None)
        self._last: tuple[Array, Tensor] = (None, torch.empty(0))

    @property
    def trouble(self) -> str:
        """As of the subject."""
        return self._subject.trouble

    @property
    def centre(self) -> Array:
        """As of the subject, which may have to ask for it again."""
        if self._centre[0] is not self._subject.centre:
            self._centre = (self._subject.centre, self._subject.centre.numpy(force=True))
        return self._centre[1]

    @property
    def point(self) -> Array:
        """As of the subject."""
        return self._subject.point.numpy(force=True)

    def direction(self, seed: int, step: float, absolute: bool) -> Array:
        """As of the subject."""
        return self._subject.direction(seed, step, absolute).numpy()

    def cotangent(self, seed: int) -> Array:
        """As of the subject."""
        return self._subject.cotangent(seed).numpy()

    def weights(self, seed: int) -> Array:
        """As of the subject."""
        return self.cotangent(seed)

    def evaluate(self, direction: Array, t: float) -> Array:
        """As of the subject."""
        return self._asked(self._subject.evaluate, direction, t)

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> list[Array]:
        """As of the subject."""
        return [self.evaluate(direction, t) for t in steps]

    def rounded(self, asked: Array) -> Array:
        """As of the subject."""
        return self._asked(self._subject.rounded, asked)

    def rounded_direction(self, direction: Array) -> Array:
        """As of the subject."""
        return self._asked(self._subject.rounded_direction, direction)

    def pullback(self, cotangent: Array) -> Array:
        """As of the subject."""
        return self._asked(self._subject.pullback, cotangent)

    def pullback_at(self, direction: Array, cotangent: Array) -> Array:
        """As of the subject."""
        return self._asked(self._subject.pullback_at, direction, torch.from_numpy(cotangent))

    def pushforward(self, direction: Array) -> Array:
        """As of the subject."""
        return self._asked(self._subject.pushforward, direction)

    def pushforward_at(self, place: Array, direction: Array) -> Array:
        """As of the subject."""
        return self._asked(self._subject.pushforward_at, place, torch.from_numpy(direction))

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """As of the subject."""
        return self._asked(self._subject.evaluate_many, directions, t)

    def pullback_many(self, cotangents: Array) -> Array:
        """As of the subject."""
        return self._asked(self._subject.pullback_many, cotangents)

    def pushforward_many(self, directions: Array) -> Array:
        """As of the subject."""
        return self._asked(self._subject.pushforward_many, directions)

    def _asked(self, question: Any, about: Array, *more: Any) -> Array:
        """The answer; the same vector is the same tensor again, which the subject knows."""
        if self._last[0] is not about:
            self._last = (about, torch.from_numpy(about))
        return question(self._last[1], *more).numpy(force=True).copy()
