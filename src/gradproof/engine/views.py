"""Views of a subject: some of its outputs, or its other mode. A view is itself a subject."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from gradproof.engine.results import Place
from gradproof.engine.subject import Array, Frame, Scale, Step, Subject


class View:
    """A subject made of another, to which it passes on whatever it does not change."""

    def __init__(self, whole: Subject) -> None:
        self.whole = whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self.whole, name)


class OutputSubset(View):
    """A subject of which only some outputs are observed."""

    gathered = False

    def __init__(self, whole: Subject, chosen: Array) -> None:
        super().__init__(whole)
        self.chosen = chosen
        self.centre = whole.centre[chosen]
        known = whole.scale
        finite = known.finite or bool(whole.arrays.isfinite(self.centre).all())
        self.scale = Scale(finite=finite, value=known.value, entry=known.entry, change=known.change)
        self.size = int(chosen.shape[0])
        self.spans = [(0, self.size)]

    @property
    def outputs(self) -> Frame:
        """The view is its own frame (and holds no reference to itself, which would keep large tensors alive)."""
        return self

    def locate(self, coordinate: int) -> Place:
        """Return the user's name for a chosen output."""
        return self.whole.outputs.locate(int(self.chosen[coordinate]))

    def rounded(self, vector: Array) -> Array:
        """Return an incoming gradient as the outputs' own precision holds it."""
        return self.whole.outputs.rounded(self._everywhere(vector))[self.chosen]

    def cotangent(self, seed: int) -> Array:
        """Draw a random incoming gradient for the chosen outputs."""
        return self.whole.cotangent(seed)[self.chosen]

    def evaluate(self, direction: Array, t: float) -> Array:
        """Return the chosen values."""
        return self.whole.evaluate(direction, t)[self.chosen]

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> list[Array]:
        """Return the chosen values at several steps."""
        return [values[self.chosen] for values in self.whole.evaluate_along(direction, steps)]

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """Return the chosen values along several directions."""
        return self.whole.evaluate_many(directions, t)[:, self.chosen]

    def pullback(self, cotangent: Array, at: Array | None = None) -> Array:
        """Return the claimed gradient for an incoming gradient of the chosen outputs, and of no others."""
        return self.whole.pullback(self._everywhere(cotangent), at)

    def pullback_many(self, cotangents: Array) -> Array:
        """Return the claimed gradients for incoming gradients of the chosen outputs."""
        return self.whole.pullback_many(self._everywhere(cotangents))

    def pushforward(self, direction: Array, at: Array | None = None) -> Array:
        """Return the claimed slopes of the chosen outputs."""
        return self.whole.pushforward(direction, at)[self.chosen]

    def pushforward_many(self, directions: Array) -> Array:
        """Return the claimed slopes of the chosen outputs along several directions."""
        return self.whole.pushforward_many(directions)[:, self.chosen]

    def _everywhere(self, cotangents: Array) -> Array:
        """Return one incoming gradient or several, zero for the outputs that are not chosen."""
        return _scattered(self.whole.arrays, cotangents, self.chosen, self.whole.centre)


class InputSubset(View):
    """A subject of which only some inputs move: vectors of its inputs have no others."""

    gathered = False

    def __init__(self, whole: Subject, chosen: Array) -> None:
        super().__init__(whole)
        self.chosen = chosen
        self.point = whole.point[chosen]
        self.size = int(chosen.shape[0])
        self.spans = [(0, self.size)]

    @property
    def inputs(self) -> Frame:
        """The view is its own frame."""
        return self

    def locate(self, coordinate: int) -> Place:
        """Return the user's name for a chosen input."""
        return self.whole.inputs.locate(int(self.chosen[coordinate]))

    def rounded(self, vector: Array) -> Array:
        """Return a displacement as the inputs' own precision holds it."""
        return self.whole.inputs.rounded(self._everywhere(vector))[self.chosen]

    def direction(self, seed: int, step: Step) -> Array:
        """Draw a random direction for the chosen inputs."""
        return self.whole.direction(seed, step)[self.chosen]

    def evaluate(self, direction: Array, t: float) -> Array:
        """Return the value with the chosen inputs moved."""
        return self.whole.evaluate(self._everywhere(direction), t)

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> Sequence[Array]:
        """Return the values at several steps."""
        return self.whole.evaluate_along(self._everywhere(direction), steps)

    def evaluate_many(self, directions: Array, t: float) -> Array:
        """Return the values along several directions."""
        return self.whole.evaluate_many(self._everywhere(directions), t)

    def pullback(self, cotangent: Array, at: Array | None = None) -> Array:
        """Return the claimed gradient with respect to the chosen inputs."""
        return self.whole.pullback(cotangent, None if at is None else self._everywhere(at))[self.chosen]

    def pullback_many(self, cotangents: Array) -> Array:
        """Return the claimed gradients with respect to the chosen inputs."""
        return self.whole.pullback_many(cotangents)[:, self.chosen]

    def pushforward(self, direction: Array, at: Array | None = None) -> Array:
        """Return the claimed slopes along a direction of the chosen inputs."""
        return self.whole.pushforward(self._everywhere(direction), None if at is None else self._everywhere(at))

    def pushforward_many(self, directions: Array) -> Array:
        """Return the claimed slopes along several directions of the chosen inputs."""
        return self.whole.pushforward_many(self._everywhere(directions))

    def _everywhere(self, directions: Array) -> Array:
        """Return one direction or several, zero for the inputs that are not chosen."""
        return _scattered(self.whole.arrays, directions, self.chosen, self.whole.point)


class HeldInputs(View):
    """A subject of which some inputs stay where they are along every random direction."""

    def __init__(self, whole: Subject, held: list[int]) -> None:
        super().__init__(whole)
        self.held = held

    def direction(self, seed: int, step: Step) -> Array:
        """Draw a random direction that does not move the held inputs."""
        vector = self.whole.direction(seed, step)
        vector[self.held] = 0.0
        return vector


class ForwardMode(View):
    """A subject whose pushforward is under test, where the subject itself answers for its pullback."""

    mode = "forward"

    def __init__(self, whole: Subject) -> None:
        super().__init__(whole)
        self._last: tuple[Array, Array] | None = None

    def pushforward(self, direction: Array, at: Array | None = None) -> Array:
        """Return the claimed slopes; the last ones are kept, since many cotangents are contracted with them."""
        if at is not None:
            return self.whole.pushforward(direction, at)
        if self._last is None or self._last[0] is not direction:
            self._last = (direction, self.whole.pushforward(direction))
        return self._last[1]


def _scattered(xp: Any, vectors: Array, chosen: Array, like: Array) -> Array:
    """Return one vector or several as long as another, zero where nothing is chosen."""
    zeros = xp.zeros_like(like)
    longer = xp.stack([zeros] * len(vectors)) if len(vectors.shape) > 1 else zeros
    longer[..., chosen] = vectors
    return longer


def in_mode(subject: Subject, mode: str) -> Subject:
    """Return the subject with the derivative of this mode under test."""
    return subject if subject.mode == mode else cast(Subject, ForwardMode(subject))


def subset(subject: Subject, chosen: Array) -> Subject:
    """Return the subject with some of its outputs alone."""
    return cast(Subject, OutputSubset(subject, chosen))


def confined(subject: Subject, inputs: Array, outputs: Array) -> Subject:
    """Return the subject with some of its inputs and some of its outputs alone."""
    return cast(Subject, InputSubset(subset(subject, outputs), inputs))


def whole_of(subject: Subject) -> Subject:
    """Return the subject that a view of some outputs, or of some columns, belongs to."""
    while isinstance(subject, View) and not isinstance(subject, ForwardMode):
        subject = subject.whole
    return subject


def rule_of(subject: Subject) -> str:
    """Return what users call the rule under test: "backward" or "jvp"."""
    return "backward" if whole_of(subject).mode == "reverse" else "jvp"
