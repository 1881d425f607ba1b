"""Compare two vectors that should be equal up to rounding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.engine.estimators.rounding import precision_shown
from gradproof.engine.pieces import columns, piece_of, slices
from gradproof.engine.subject import Step
from gradproof.engine.thresholds import SAMPLE
from gradproof.frameworks.torch.contracts.contract import Context
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

KERNEL_ROUNDINGS = 64.0  # units of rounding in the largest entry: sums are added up in another order, kernels differ
NOISE = 64.0  # times the noise that was measured, where rounding alone does not explain a difference
NUDGES = (40, 104, 168)  # units of rounding by which a vector is scaled, so that every operation is rounded anew
STEP_ROUNDINGS = 8.0  # units of rounding by which inputs are moved, for the same purpose


@dataclass(frozen=True, slots=True)
class Gap:
    """The coordinate where two vectors differ most, and both values there."""

    coordinate: int
    expected: float
    found: float

    def __str__(self) -> str:
        return f"{self.found:.6g} instead of {self.expected:.6g}"


def gap(
    expected: Tensor, found: Tensor, *, precision: float, more: float = 0.0, noise: Callable[[], float] | None = None
) -> Gap | None:
    """Return the largest difference between two vectors if rounding and `more` do not explain it, else None.

    Entries whose expected value is not finite are skipped. `noise` is called only if there is a difference to explain.
    """
    if torch.equal(expected, found):
        return None

    def difference(where: slice) -> Tensor:
        known = expected[where].isfinite()
        return torch.where(known, (found[where] - expected[where]).abs(), 0.0).nan_to_num(torch.inf)

    worst, distance = furthest(expected, difference)
    allowed = KERNEL_ROUNDINGS * precision * largest(expected) + more
    if distance <= allowed or distance <= KERNEL_ROUNDINGS * shown_in(expected, found) * largest(expected) + more:
        return None
    if noise is not None and distance <= allowed + NOISE * noise():
        return None
    return Gap(worst, float(expected[worst]), float(found[worst]))


def gradient_gap(
    subject: TorchSubject, context: Context, cotangent: Tensor, expected: Tensor, found: Tensor
) -> Gap | None:
    """Compare a gradient with the one expected for an incoming gradient; the noise of both is allowed for."""
    noise = functools.partial(noise_of_pullback, subject, cotangent, expected)
    return gap(expected, found, precision=subject.numbers.precision, more=context.nondet_tol, noise=noise)


def tangent_gap(
    subject: TorchSubject, context: Context, direction: Tensor, expected: Tensor, found: Tensor
) -> Gap | None:
    """Compare a tangent of the outputs with the one expected along a direction; the noise of both is allowed for."""
    noise = functools.partial(noise_of_pushforward, subject, direction, expected)
    return gap(expected, found, precision=subject.numbers.precision, more=context.nondet_tol, noise=noise)


def shown_in(*vectors: Tensor) -> float:
    """Return the spacing of the numbers of a lower precision that all entries have, as from a kernel; else zero."""
    return precision_shown(torch, [vector[:: max(1, len(vector) // SAMPLE)] for vector in vectors if len(vector)])


def furthest(like: Tensor, measured: Callable[[slice], Tensor]) -> tuple[int, float]:
    """Return the index and the size of the largest entry of a vector that is computed slice by slice.

    The vector is as long as another, and on its device.
    """
    pieces = list(slices(0, len(like), piece_of(like)))
    if not pieces:
        return 0, -torch.inf
    rows = [[number.double() for number in measured(where).max(0)] for where in pieces]
    place, most = 0, -torch.inf
    for where, high, index in zip(pieces, *columns(torch, rows), strict=True):
        if high > most:
            place, most = where.start + int(index), high
    return place, most


def rounding_of(linear: Callable[[Tensor], Tensor], vector: Tensor, image: Tensor, precision: float) -> float:
    """Estimate the rounding error of a linear map: scale its argument by factors near one, and unscale the result."""
    factors = [1 + nudge * precision for nudge in NUDGES]
    return max(largest(linear(factor * vector) / factor - image) for factor in factors)


def noise_of_pullback(subject: TorchSubject, cotangent: Tensor, gradient: Tensor) -> float:
    """Estimate the rounding error of a gradient, from the backward and from the forward before it."""
    moved = (subject.pullback(cotangent, step) for step in _small_steps(subject))
    forward = max(largest(other - gradient) for other in moved)
    return forward + rounding_of(subject.pullback, cotangent, gradient, subject.numbers.precision)


def noise_of_pushforward(subject: TorchSubject, direction: Tensor, tangent: Tensor) -> float:
    """Estimate the rounding error of a tangent."""
    moved = (subject.pushforward(direction, step) for step in _small_steps(subject))
    values = max(largest(other - tangent) for other in moved)
    return values + rounding_of(subject.pushforward, direction, tangent, subject.numbers.precision)


def noise_of_values(subject: TorchSubject) -> float:
    """Estimate the rounding error of the function's values."""
    return max(largest(subject.evaluate(step, 1.0) - subject.centre) for step in _small_steps(subject))


def _small_steps(subject: TorchSubject) -> list[Tensor]:
    """Return directions that move every input by a few units of rounding."""
    return [subject.direction(seed, Step(STEP_ROUNDINGS * subject.numbers.precision)) for seed in range(3)]


def largest(vector: Tensor) -> float:
    """Return the size of the largest finite entry; zero if there is none."""
    if not len(vector):
        return 0.0
    return furthest(vector, lambda where: torch.where(vector[where].isfinite(), vector[where].abs(), 0.0))[1]
