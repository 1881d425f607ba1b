"""What the engine asks of a function under test. A framework supplies it; everything else is deduced.

The engine sees points, directions and values as flat real vectors in double precision (a complex entry is two
coordinates). Any array type with operators, slices and a namespace of NumPy's names will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from gradproof.engine.results import Place

Array = Any


class Frame(Protocol):
    """How the coordinates of a flat vector are named."""

    @property
    def size(self) -> int:
        """The number of coordinates."""
        ...

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The range of coordinates that each tensor holds."""
        ...

    @property
    def gathered(self) -> bool:
        """Whether coordinates are copied out of tensors that take more memory than they do, as of sparse ones."""
        ...

    def locate(self, coordinate: int) -> Place:
        """The user's name for a coordinate."""
        ...


class Subject(Protocol):
    """A function at a point, and its way to differentiate."""

    @property
    def mode(self) -> str:
        """Which derivative is under test: "reverse", by pullbacks, or "forward", by pushforwards."""
        ...

    @property
    def rule(self) -> str:
        """What the derivative's rule is called: "backward" or "jvp"."""
        ...

    @property
    def arrays(self) -> Any:
        """The namespace of the array library (`numpy`, `torch`), for the few functions that are not operators."""
        ...

    @property
    def inputs(self) -> Frame:
        """The coordinates that are varied."""
        ...

    @property
    def outputs(self) -> Frame:
        """The coordinates that are observed."""
        ...

    @property
    def point(self) -> Array:
        """The point itself."""
        ...

    @property
    def centre(self) -> Array:
        """The function's value at the point."""
        ...

    @property
    def finite(self) -> bool:
        """Whether that value is finite in every coordinate."""
        ...

    @property
    def precision(self) -> float:
        """The spacing of numbers near one in the coarsest precision among inputs and outputs."""
        ...

    @property
    def value_size(self) -> float:
        """The size of the largest value among all outputs; zero where it is of no use."""
        ...

    @property
    def claim_size(self) -> float:
        """What is known of the size of the derivative's largest entry; zero where nothing is."""
        ...

    @property
    def claim_change(self) -> float:
        """The same of the largest change that one input makes to one output within a first step."""
        ...

    @property
    def gradient_precision(self) -> float:
        """The same for the precision in which gradients are given."""
        ...

    @property
    def largest(self) -> float:
        """The largest finite number in that precision."""
        ...

    @property
    def tiny(self) -> float:
        """The distance between its smallest numbers."""
        ...

    @property
    def trouble(self) -> str:
        """Why the function was last found undefined beside the point, if it said so."""
        ...

    def direction(self, seed: int, step: float, absolute: bool) -> Array:
        """A random direction: signs times magnitudes in [½, 1], times `step`, times the point's scale (or not).

        Rounded so that the point plus the direction is representable.
        """
        ...

    def cotangent(self, seed: int) -> Array:
        """A random incoming gradient: signs times magnitudes in [½, 1]."""
        ...

    def weights(self, seed: int) -> Array:
        """The same, to be read a slice at a time and not held: of very many outputs it is large."""
        ...

    def evaluate(self, direction: Array, t: float) -> Array:
        """The value at point + t·direction; NaN throughout where the function is not defined."""
        ...

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> Sequence[Array]:
        """The same at several steps along one direction."""
        ...

    def rounded(self, asked: Array) -> Array:
        """What the derivative under test is asked, an incoming gradient or a direction, as its precision holds it."""
        ...

    def rounded_direction(self, direction: Array) -> Array:
        """The direction as the inputs' own precision holds it."""
        ...

    def pullback(self, cotangent: Array) -> Array:
        """The claimed gradient for an incoming gradient."""
        ...

    def pullback_at(self, direction: Array, cotangent: Array) -> Array:
        """The claimed gradient at point + direction."""
        ...

    def pushforward(self, direction: Array) -> Array:
        """The claimed slopes of all outputs along a direction."""
        ...

    def pushforward_at(self, place: Array, direction: Array) -> Array:
        """The claimed slopes at point + place."""
        ...

    def moved_by(self, direction: Array, output: int) -> tuple[float, Place] | None:
        """Where one input alone moves an output along a direction: its step, and its name."""
        ...

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """The values along each of some directions, stacked as rows."""
        ...

    def pullback_many(self, cotangents: Array) -> Array:
        """The claimed gradients for each of some incoming gradients."""
        ...

    def pushforward_many(self, directions: Array) -> Array:
        """The claimed slopes along each of some directions."""
        ...


class OutputSubset:
    """A subject of which only some outputs are watched: itself a subject."""

    def __init__(self, whole: Subject, chosen: Array) -> None:
        self.whole, self.chosen, self.mode, self.rule = whole, chosen, whole.mode, whole.rule
        self.arrays, self.inputs = whole.arrays, whole.inputs
        self.precision, self.gradient_precision = whole.precision, whole.gradient_precision
        self.largest, self.tiny = whole.largest, whole.tiny
        self.claim_size, self.claim_change, self.value_size = whole.claim_size, whole.claim_change, whole.value_size
        self.centre = whole.centre[chosen]
        self.finite = bool(whole.arrays.isfinite(self.centre).all())
        self.size = int(chosen.shape[0])
        self.spans, self.gathered = [(0, self.size)], False

    @property
    def outputs(self) -> Frame:
        """It names its outputs itself (and holds no reference to itself, which would keep large tensors alive)."""
        return self

    @property
    def trouble(self) -> str:
        """As of the whole."""
        return self.whole.trouble

    @property
    def point(self) -> Array:
        """As of the whole."""
        return self.whole.point

    def locate(self, coordinate: int) -> Place:
        """The user's name for a watched output."""
        return self.whole.outputs.locate(int(self.chosen[coordinate]))

    def direction(self, seed: int, step: float, absolute: bool) -> Array:
        """As of the whole."""
        return self.whole.direction(seed, step, absolute)

    def cotangent(self, seed: int) -> Array:
        """As of the whole, for the watched outputs."""
        return self.whole.cotangent(seed)[self.chosen]

    def weights(self, seed: int) -> Array:
        """The same."""
        return self.cotangent(seed)

    def evaluate(self, direction: Array, t: float) -> Array:
        """The watched values."""
        return self.whole.evaluate(direction, t)[self.chosen]

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> list[Array]:
        """The watched values."""
        return [values[self.chosen] for values in self.whole.evaluate_along(direction, steps)]

    def rounded(self, asked: Array) -> Array:
        """As of the whole."""
        if self.mode == "forward":
            return self.whole.rounded(asked)
        return self.whole.rounded(self._everywhere(asked))[self.chosen]

    def rounded_direction(self, direction: Array) -> Array:
        """As of the whole."""
        return self.whole.rounded_direction(direction)

    def moved_by(self, direction: Array, output: int) -> tuple[float, Place] | None:
        """As of the whole."""
        return self.whole.moved_by(direction, int(self.chosen[output]))

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """The watched values."""
        return self.whole.evaluate_many(directions, t)[:, self.chosen]

    def pushforward_many(self, directions: Array) -> Array:
        """The claimed slopes of the watched outputs."""
        return self.whole.pushforward_many(directions)[:, self.chosen]

    def pullback_many(self, cotangents: Array) -> Array:
        """The claimed gradients for incoming gradients of the watched outputs."""
        return self.whole.pullback_many(self._everywhere(cotangents))

    def pullback_at(self, direction: Array, cotangent: Array) -> Array:
        """As of the whole."""
        return self.whole.pullback_at(direction, self._everywhere(cotangent))

    def pullback(self, cotangent: Array) -> Array:
        """The claimed gradient for an incoming gradient of the watched outputs, and of no others."""
        return self.whole.pullback(self._everywhere(cotangent))

    def pushforward(self, direction: Array) -> Array:
        """The claimed slopes of the watched outputs."""
        return self.whole.pushforward(direction)[self.chosen]

    def pushforward_at(self, place: Array, direction: Array) -> Array:
        """As of the whole, for the watched outputs."""
        return self.whole.pushforward_at(place, direction)[self.chosen]

    def _everywhere(self, cotangents: Array) -> Array:
        """One incoming gradient or several, zero for the outputs that are not watched."""
        nothing = self.arrays.zeros_like(self.whole.centre)
        vectors = self.arrays.stack([nothing] * len(cotangents)) if len(cotangents.shape) > 1 else nothing
        vectors[..., self.chosen] = cotangents
        return vectors


class ForwardMode:
    """A subject of which the pushforward is under test, where the subject itself speaks for the pullback."""

    mode, rule = "forward", "jvp"

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._last: tuple[Array, Array] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._subject, name)

    def rounded(self, asked: Array) -> Array:
        """A direction is what is asked."""
        return self._subject.rounded_direction(asked)

    def pushforward(self, direction: Array) -> Array:
        """As of the subject; the last one is remembered, since many incoming gradients are asked about."""
        if self._last is None or self._last[0] is not direction:
            self._last = (direction, self._subject.pushforward(direction))
        return self._last[1]


def in_mode(subject: Subject, mode: str) -> Subject:
    """The subject with the derivative of this mode under test."""
    return subject if subject.mode == mode else ForwardMode(subject)


class DerivativeError(Exception):
    """There is no claim to judge: the derivative raised, or what it gave cannot be read.

    `absent` says that there is no rule to raise, `malformed` that there is an answer, which contradicts itself, and
    `path` for which tensor that came.
    """

    def __init__(self, message: str, *, absent: bool = False, malformed: bool = False, path: str | None = None) -> None:
        super().__init__(message)
        self.absent, self.malformed, self.path = absent, malformed, path
