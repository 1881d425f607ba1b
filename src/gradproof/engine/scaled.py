"""A subject in other units: its inputs and outputs multiplied by powers of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gradproof.engine.powers import Powers, times_power
from gradproof.engine.results import Place
from gradproof.engine.subject import Array, Frame, Numbers, Scale, Step, Subject

if TYPE_CHECKING:
    from gradproof.engine.units import Units


class RecordingFrame:
    """A frame that remembers the coordinates of the places that it has named."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self.coordinates: dict[Place, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)

    def locate(self, coordinate: int) -> Place:
        """Return the user's name for a coordinate."""
        place = self._frame.locate(coordinate)
        self.coordinates[place] = coordinate
        return place


class Scaled:
    """A subject whose inputs and outputs are multiplied by powers of two; its derivative is scaled accordingly."""

    def __init__(self, whole: Subject, units: Units) -> None:
        self._whole, self._units = whole, units
        self.inputs, self.outputs = (
            units.places.setdefault(id(whole.inputs), RecordingFrame(whole.inputs)),
            whole.outputs,
        )
        self.centre = units.scaled_values(whole.centre)
        known, numbers = whole.scale, whole.numbers
        value = abs(whole.arrays.where(whole.arrays.isfinite(self.centre), self.centre, 0.0))
        self.scale = Scale(finite=known.finite, value=float(value.max()))
        tiny = times_power(units.tiny_value, -units.value)
        self.numbers = Numbers(
            precision=max(numbers.precision, units.coarseness),
            tiny=tiny,
            largest=times_power(numbers.largest, units.inputs.least - units.value - units.lift),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    @property
    def point(self) -> Array:
        """The point in these units."""
        return self._units.inputs.times(self._whole.point, sign=-1)

    def direction(self, seed: int, step: Step) -> Array:
        """Draw a random direction of this length."""
        if step.absolute:
            step = Step(times_power(step.length, self._units.inputs.least), absolute=True)
        return self._units.inputs.times(self._whole.direction(seed, step), sign=-1)

    def cotangent(self, seed: int) -> Array:
        """Draw a random incoming gradient."""
        vector = self._whole.cotangent(seed)
        largest = float(abs(vector).max())
        return Powers(-math.frexp(largest)[1]).times(vector) if largest else vector

    def evaluate(self, direction: Array, t: float) -> Array:
        """Return the value at point + t·direction."""
        return self._units.scaled_values(self._whole.evaluate(self._moved(direction), t))

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> list[Array]:
        """Return the values at several steps along one direction."""
        values = self._whole.evaluate_along(self._moved(direction), steps)
        return [self._units.scaled_values(each) for each in values]

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """Return the values along each of some directions."""
        return self._units.scaled_values(self._whole.evaluate_many(self._moved(directions), t))

    def pullback(self, cotangent: Array, at: Array | None = None) -> Array:
        """Return the claimed gradient."""
        place = None if at is None else self._moved(at)
        return self._units.scaled_gradient(self._whole.pullback(self._units.incoming(cotangent), place))

    def pullback_many(self, cotangents: Array) -> Array:
        """Return the claimed gradients for each of some incoming gradients."""
        return self._units.scaled_gradient(self._whole.pullback_many(self._units.incoming(cotangents)))

    def pushforward(self, direction: Array, at: Array | None = None) -> Array:
        """Return the claimed slopes of all outputs."""
        place = None if at is None else self._moved(at)
        return self._units.scaled_values(self._whole.pushforward(self._moved(direction), place))

    def pushforward_many(self, directions: Array) -> Array:
        """Return the claimed slopes along each of some directions."""
        return self._units.scaled_values(self._whole.pushforward_many(self._moved(directions)))

    def _moved(self, directions: Array) -> Array:
        return self._units.inputs.times(directions)
