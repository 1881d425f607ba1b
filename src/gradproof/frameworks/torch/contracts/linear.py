"""Contract: a backward is linear in the incoming gradient.

An incoming gradient of zero must give zero up to rounding. A multiple must agree in half the digits: some rules, such
as that of the matrix exponential, choose their approximation by the size of the incoming gradient. A sum must agree in
one digit, since a function may cast to a low precision inside; the two terms of the sum have no entry in common.
Outputs without entries have a gradient of zero.
Backwards that are not linear are rarely off by less.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.results import Place
from gradproof.frameworks.torch.contracts.comparison import (
    KERNEL_ROUNDINGS,
    NOISE,
    furthest,
    largest,
    rounding_of,
    shown_in,
)
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.subject.calling import LARGE_TENSOR
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

FACTOR = -1024.0  # a power of two scales without rounding; its sign shows an absolute value, its size a clip
SMALL_FACTOR = -2.0  # where the dtype holds few numbers
COARSE_SPACING = 1e-4  # the spacing of such numbers
DIGIT = 0.05  # of the largest entry
FEW_BITS = 2.0**20  # times the smallest normal number, below which numbers lose digits when they are scaled


def linear(subject: TorchSubject, context: Context) -> Outcome:
    """Test that zero gives zero, a multiple gives the multiple, and a sum gives the sum."""
    if not subject.outputs.size:
        return _of_nothing(subject)
    once = context.gradient(subject)
    worst, left = _left_at_zero(subject, once)
    if left:
        place = subject.inputs.locate(worst)
        message = (
            f"For an incoming gradient of zeros the gradient with respect to {place.path} is not zero "
            f"({left:.3g} at {place})."
        )
        hint = "Multiply by the incoming gradient: the backward adds something that does not depend on it."
        return broken(ContractName.LINEAR, message, argument=place.path, hint=hint)
    factor = SMALL_FACTOR if subject.numbers.precision > COARSE_SPACING else FACTOR
    many = subject.pullback(factor * context.cotangent(subject))
    if len(once) < LARGE_TENSOR and torch.equal(many, factor * once):
        return _additive(subject, context)
    worst, gap = furthest(once, lambda where: _gap(subject, once[where], many[where] / factor, abs(factor)))
    if not gap or not _is_beyond_rounding(subject, context, gap):
        return _additive(subject, context)
    return _nonlinear(
        subject.inputs.locate(worst),
        f"{factor:g} times the incoming gradient does not give {factor:g} times the gradient",
        f"{float(once[worst]):.6g}, then {float(many[worst]):.6g}",
        look_for="a clip, a power, an absolute value or a norm",
    )


def _of_nothing(subject: TorchSubject) -> Outcome:
    """Test that outputs without entries have a gradient of zero."""
    found = subject.pullback(subject.centre)
    if not found.any():  # NaN counts
        return KEPT
    worst = int(found.nan_to_num(torch.inf).abs().argmax())
    place = subject.inputs.locate(worst)
    return broken(
        ContractName.LINEAR,
        f"The outputs have no entries, and the gradient with respect to {place.path} is not zero "
        f"({float(found[worst]):.3g} at {place}).",
        argument=place.path,
        hint="Multiply by the incoming gradient, and take sums of it: those of no entries are zero.",
    )


def _additive(subject: TorchSubject, context: Context) -> Outcome:
    """Test that a sum gives the sum, if the check covers every entry of the Jacobian."""
    if not context.full or len(subject.centre) < 2:
        return KEPT
    cotangent, once = context.pulled(subject)
    halves = cotangent.clone(), cotangent.clone()
    for number, half in enumerate(halves):
        half[number::2] = 0.0
    expected = subject.pullback(halves[0]).clone()  # a backward may reuse memory
    expected += subject.pullback(halves[1])
    worst, gap = furthest(once, lambda where: _gap(subject, expected[where], once[where], 1.0))
    if gap <= DIGIT * max(largest(once), largest(expected)) or not _is_beyond_rounding(subject, context, gap):
        return KEPT
    return _nonlinear(
        subject.inputs.locate(worst),
        "The sum of two incoming gradients does not give the sum of their gradients",
        f"{float(once[worst]):.6g} instead of {float(expected[worst]):.6g}",
        look_for="a maximum, a norm or a condition on it",
    )


def _nonlinear(place: Place, what: str, numbers: str, *, look_for: str) -> Outcome:
    message = f"{what} with respect to {place.path} (at {place}: {numbers})."
    hint = f"A backward is linear in the incoming gradient: look for {look_for}."
    return broken(ContractName.LINEAR, message, argument=place.path, hint=hint)


def _left_at_zero(subject: TorchSubject, once: Tensor) -> tuple[int, float]:
    """Return the largest entry of the gradient for an incoming gradient of zeros, and its index; zero if rounding."""
    found = subject.pullback(torch.zeros_like(subject.centre))
    if not found.any():
        return 0, 0.0

    def size(where: slice) -> Tensor:
        return torch.where(once[where].isfinite(), found[where].nan_to_num(torch.inf).abs(), 0.0)

    worst, most = furthest(once, size)
    allowed = KERNEL_ROUNDINGS * subject.numbers.precision * largest(once)
    return worst, float(found[worst]) if most > allowed else 0.0


def _gap(subject: TorchSubject, once: Tensor, scaled: Tensor, factor: float) -> Tensor:
    """Return the differences between a gradient and a scaled one, where the dtype can represent both."""
    comparable = once.isfinite() & scaled.isfinite() & (once.abs() < subject.numbers.largest / (4 * factor))
    return torch.where(comparable, (scaled - once).abs(), 0.0)


def _is_beyond_rounding(subject: TorchSubject, context: Context, gap: float) -> bool:
    cotangent, once = context.pulled(subject)
    precision = max(subject.numbers.precision, shown_in(once))
    allowed = math.sqrt(precision) * largest(once) + context.nondet_tol + FEW_BITS * subject.inputs.tiny
    if gap <= allowed:
        return False
    return gap > allowed + NOISE * rounding_of(subject.pullback, cotangent, once, subject.numbers.precision)
