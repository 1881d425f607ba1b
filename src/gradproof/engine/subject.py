"""The function under test, as the engine sees it. A framework supplies a `Subject`; everything else is deduced.

The engine sees points, directions and values as flat real vectors in double precision (a complex entry is two
coordinates). Any array type with operators, slices and a namespace of NumPy's names will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gradproof.engine.results import Place

Array = Any


class Frame(Protocol):
    """The coordinates of a flat vector: how many there are, and which entry of which tensor each one is."""

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
        """Whether coordinates have to be copied from the tensors, as the stored values of sparse tensors have to be."""
        ...

    def locate(self, coordinate: int) -> Place:
        """Return the user's name for a coordinate."""
        ...

    def rounded(self, vector: Array) -> Array:
        """Return a vector as the tensors' own precision holds it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The coarsest number format among inputs and outputs.

    `precision` is the spacing of numbers near one, `tiny` that of the smallest numbers (zero where no value is so
    small that it matters), and `largest` the largest finite number.
    """

    precision: float
    tiny: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The sizes of values and derivatives; zero where they are unknown.

    `finite` says whether every value is finite, and `value` is the largest. `entry` is the derivative's largest entry,
    and `change` the largest change that one input makes to one output within a first step.
    """

    finite: bool
    value: float = 0.0
    entry: float = 0.0
    change: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """The length of a step: relative to the point's own scale, or in the inputs' units."""

    length: float
    absolute: bool = False

    def times(self, factor: float) -> Step:
        """Return a longer or shorter step."""
        return Step(factor * self.length, self.absolute)


class Subject(Protocol):
    """A function at a point, and its way to differentiate."""

    @property
    def mode(self) -> str:
        """The derivative under test: "reverse", by pullbacks, or "forward", by pushforwards."""
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
    def numbers(self) -> Numbers:
        """The number format that rounding errors are estimated from."""
        ...

    @property
    def scale(self) -> Scale:
        """The sizes of values and derivatives, as far as they are known."""
        ...

    @property
    def trouble(self) -> str:
        """The last error that the function raised beside the point, if it did."""
        ...

    def direction(self, seed: int, step: Step) -> Array:
        """Draw a random direction: signs times magnitudes in [½, 1], of this length, with point + direction exact."""
        ...

    def cotangent(self, seed: int) -> Array:
        """Draw a random incoming gradient: signs times magnitudes in [½, 1]."""
        ...

    def evaluate(self, direction: Array, t: float) -> Array:
        """Return the value at point + t·direction; NaN throughout where the function is not defined."""
        ...

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> Sequence[Array]:
        """Return the values at several steps along one direction."""
        ...

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """Return the values along each of some directions, stacked as rows."""
        ...

    def pullback(self, cotangent: Array, at: Array | None = None) -> Array:
        """Return the claimed gradient for an incoming gradient, at the point or at point + `at` (NaN if undefined)."""
        ...

    def pullback_many(self, cotangents: Array) -> Array:
        """Return the claimed gradients for each of some incoming gradients."""
        ...

    def pushforward(self, direction: Array, at: Array | None = None) -> Array:
        """Return the claimed slopes of all outputs along a direction, at the point or at point + `at`."""
        ...

    def pushforward_many(self, directions: Array) -> Array:
        """Return the claimed slopes along each of some directions."""
        ...


class DerivativeError(Exception):
    """There is no claimed derivative to judge: its rule raised, or its result cannot be read.

    `absent` says that there is no rule, `malformed` that the result contradicts itself, as a sparse tensor with invalid
    indices does, and `path` names the tensor that it is for. `hint` says what to do where the framework itself
    refuses to differentiate.
    """

    def __init__(
        self,
        message: str,
        *,
        absent: bool = False,
        malformed: bool = False,
        path: str | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message)
        self.absent, self.malformed, self.path, self.hint = absent, malformed, path, hint
