"""Powers of two, by which numbers are multiplied exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gradproof.engine.subject import Array

REACH = 900  # binary digits that a number in double precision can be moved by at once


@dataclass(frozen=True, slots=True)
class Powers:
    """Powers of two by which the coordinates of a vector are multiplied: one exponent for all, or one for each."""

    exponents: int | tuple[int, ...]
    arrays: Any = None  # the namespace of the array library, where each coordinate has its own

    def times(self, vector: Array, *, sign: int = 1, more: int = 0) -> Array:
        """Return a vector (or rows of vectors) times 2 to the exponents, with a sign, plus another exponent."""
        if isinstance(self.exponents, int):
            left = sign * self.exponents + more
            while left:
                step = max(-REACH, min(REACH, left))
                vector, left = vector * 2.0**step, left - step
            return vector
        rest = [sign * each + more for each in self.exponents]
        while any(rest):
            steps = [max(-REACH, min(REACH, each)) for each in rest]
            factors = [2.0**step for step in steps]
            vector = vector * self.arrays.asarray(factors, dtype=vector.dtype, device=vector.device)
            rest = [each - step for each, step in zip(rest, steps, strict=True)]
        return vector

    def of(self, coordinate: int) -> int:
        """Return the exponent of a coordinate."""
        return self.exponents if isinstance(self.exponents, int) else self.exponents[coordinate]

    @property
    def least(self) -> int:
        """The smallest exponent."""
        return self.exponents if isinstance(self.exponents, int) else min(self.exponents)

    @property
    def most(self) -> int:
        """The largest exponent."""
        return self.exponents if isinstance(self.exponents, int) else max(self.exponents)


def times_power(number: float, exponent: int) -> float:
    """Return a number times a power of two; infinity if that is too large.

    >>> times_power(3.0, 2), times_power(-1.0, 5000)
    (12.0, -inf)
    """
    try:
        return math.ldexp(number, exponent)
    except OverflowError:
        return math.copysign(math.inf, number)
