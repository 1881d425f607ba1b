"""The values of a function at one step size."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof.engine.subject import Array


@dataclass(frozen=True, slots=True)
class Sample:
    """The function's values at one step, on both sides."""

    t: float
    minus: Array
    plus: Array

    def split(self, centre: Array) -> tuple[Array, Array]:
        """Return the odd part of the change about the centre, as a slope, and the even part, as a difference."""
        after, before = self.plus - centre, centre - self.minus
        odd = after + before
        odd *= 0.5 / self.t
        after -= before
        return odd, after
