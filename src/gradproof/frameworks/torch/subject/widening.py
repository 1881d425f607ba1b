"""The same function in double precision: the reference by which a function in low precision is judged."""

from __future__ import annotations

import operator

import torch

from gradproof.engine.estimators.rounding import precision_shown
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.subject import Step
from gradproof.engine.thresholds import MANY, ROUNDINGS, SAMPLE, TINY
from gradproof.errors import MemoryExhaustedError
from gradproof.frameworks.torch.subject.error_messages import describe
from gradproof.frameworks.torch.subject.sizes import largest_of
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

OWN_PRECISION = (
    "Double precision cannot serve as a reference, since {why}: the function was judged in its own precision."
)
WIDENING_ROUNDINGS = 64.0  # units of rounding by which a value may differ from the same in double precision


def widened(subject: TorchSubject) -> TorchSubject | None:
    """Return the same function in double precision; None if it does not run there, or has other values."""
    slots = [slot.widened() for slot in subject.slots]
    if all(map(operator.is_, slots, subject.slots)):  # the inputs have double precision, and the function casts them
        return None
    if subject.call.bypassed:
        return None
    try:
        wide = TorchSubject(subject.call, subject.varied, slots, subject.tally, subject.semantics, subject.caller.state)
        wide.graphs.way = subject.graphs.way
    except (Exception, MemoryExhaustedError) as error:
        subject.remark(OWN_PRECISION.format(why=f"it raises there ({describe(error)})"))
        return None
    finally:
        subject.caller.restore()
    if not wide.outputs.size or wide.outputs.size != subject.outputs.size:
        return None
    if wide.numbers.precision >= subject.numbers.precision:
        return None
    if not _has_values_of(wide, subject):
        return None
    if not _computes_in_double(wide):
        subject.remark(OWN_PRECISION.format(why="its values show a lower precision inside"))
        return None
    return wide


def _has_values_of(wide: TorchSubject, subject: TorchSubject) -> bool:
    """Return True if the finite values of a function are those in double precision but for rounding."""
    difference, precision = wide.centre.sub(subject.centre), subject.numbers.precision
    if largest_of(difference) <= ROUNDINGS * precision * wide.scale.value:  # then no value exceeds its own bound
        return True
    size = wide.centre.abs()
    scale = wide.scale.value or float(torch.where(size.isfinite(), size, 0.0).max()) or TINY
    rounding = size.add_(scale).mul_(precision)
    apart = difference.abs_().div_(rounding)
    if not subject.scale.finite:
        apart = torch.where(subject.centre.isfinite(), apart, 0.0)
    most = float(apart.max())
    if not most <= WIDENING_ROUNDINGS:
        return False
    if most > ROUNDINGS and _takes_another_way(wide, apart, rounding, precision):
        subject.remark(OWN_PRECISION.format(why="single values are others there"))
        return False
    return True


def _takes_another_way(wide: TorchSubject, apart: torch.Tensor, rounding: torch.Tensor, precision: float) -> bool:
    """Return True if some values differ by many roundings, though most by none and conditioning explains none.

    Such values come through another window, index or branch, which the function chooses by a rounded number. Where it
    is ill-conditioned, its values move about as much when the point moves by a rounding.
    """
    if 2 * int((apart > 1).sum()) > len(apart):
        return False
    steps = [wide.direction(seed, Step(precision)) for seed in range(2)]
    moved = torch.maximum(*(wide.evaluate(step, 1.0).sub(wide.centre).abs_() for step in steps))
    return bool(((apart > ROUNDINGS) & ~(apart * rounding <= MANY * moved)).any())


def _computes_in_double(wide: TorchSubject) -> bool:
    """Return True if the values have the digits of double precision: a cast inside leaves fewer.

    At a point with few digits exact results have few digits too; then values beside it decide.
    """
    return not _shows_a_cast(wide, wide.centre) or not _shows_a_cast(
        wide, wide.evaluate(wide.direction(0, Step(first_step(wide.numbers.precision))), 1.0)
    )


def _shows_a_cast(wide: TorchSubject, values: torch.Tensor) -> bool:
    return precision_shown(torch, [values[:: max(1, len(values) // SAMPLE)]]) > wide.numbers.precision
