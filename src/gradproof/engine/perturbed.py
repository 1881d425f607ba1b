"""What is claimed at points a few units of rounding away, which hardly changes unless rounding is amplified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradproof.engine.contraction import inner
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import CLEARLY
from gradproof.engine.views import whole_of

POINTS = 8  # perturbed points: the root mean square of as many is known to a quarter


@dataclass(frozen=True, slots=True)
class PerturbedClaims:
    """The least and the largest entries of a gradient at perturbed points, and its slopes along a direction."""

    low: Array
    high: Array
    slopes: tuple[float, ...]

    @classmethod
    def of(cls, subject: Subject, cotangent: Array, direction: Array, seed: int) -> PerturbedClaims:
        """Compute the gradient for a cotangent at all perturbed points."""
        xp, low, high, slopes = subject.arrays, None, None, list[float]()
        for at in perturbations(whole_of(subject), seed, CLEARLY):  # all inputs, which may share a rounded sum
            gradient = subject.pullback(cotangent, at)
            slopes.append(inner(subject, direction, gradient))
            low = gradient if low is None else xp.minimum(low, gradient)
            high = gradient if high is None else xp.maximum(high, gradient)
        return cls(low, high, tuple(slopes))


def random_operand(subject: Subject, seed: int) -> Array:
    """Draw a random operand of the derivative: an incoming gradient, or a direction of the point's own size."""
    return subject.cotangent(seed) if subject.mode == "reverse" else subject.direction(seed, Step(1.0))


def product(subject: Subject, operand: Array, at: Array | None = None) -> Array:
    """Return the product that the derivative claims for an operand, Jᵀu or Jv, at the point or at point + `at`."""
    return subject.pullback(operand, at) if subject.mode == "reverse" else subject.pushforward(operand, at)


def scatter(subject: Subject, operand: Array, claimed: Array, seed: int) -> Array:
    """Return the root mean square change of each entry of a product when the point moves by a unit of rounding."""
    xp, square = subject.arrays, subject.arrays.zeros_like(claimed)
    for at in perturbations(subject, seed):
        apart = product(subject, operand, at) - claimed
        square += xp.where(xp.isfinite(apart), apart, 0.0) ** 2
    return (square / POINTS) ** 0.5


def perturbations(subject: Subject, seed: int, units: float = 1.0) -> Iterator[Array]:
    """Draw displacements of a few units of rounding. Keep inputs of −0.0: a step would change their sign."""
    step, negative = Step(units * subject.numbers.precision), negative_zeros(subject)
    for number in range(POINTS):
        yield subject.arrays.where(negative, -0.0, subject.direction(seed + number, step))


def negative_zeros(subject: Subject) -> Array:
    """Return which inputs are −0.0."""
    return (subject.point == 0) & subject.arrays.signbit(subject.point)
