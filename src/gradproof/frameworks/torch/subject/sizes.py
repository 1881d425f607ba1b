"""The sizes of a function's values."""

from __future__ import annotations

import math

from torch import Tensor

from gradproof.engine.subject import Scale
from gradproof.frameworks.torch.subject.spaces import HANDFUL

ORDINARY = (1e-100, 1e100)  # sizes of values whose squares neither overflow nor underflow
DIVISORS = (1e-290, 1e290)  # sizes whose reciprocals neither overflow nor underflow


def sizes_of(values: Tensor) -> tuple[Scale, float]:
    """Return the scale of some values, and their size as a divisor: one if all are zero."""
    if not values.numel():
        return Scale(finite=True), 1.0
    largest = _largest(values)
    finite = math.isfinite(largest)
    if not finite:
        largest = float(values.abs().nan_to_num(0.0, 0.0, 0.0).max())
    scale = Scale(finite=finite, value=largest if ORDINARY[0] < largest < ORDINARY[1] else 0.0)
    return scale, min(max(largest, DIVISORS[0]), DIVISORS[1]) if largest else 1.0


def _largest(vector: Tensor) -> float:
    """Return the size of the largest number; not finite if one of them is not."""
    if vector.numel() > HANDFUL:
        return max(float(vector.max()), -float(vector.min()))
    numbers = vector.tolist()
    return max(map(abs, numbers)) if all(map(math.isfinite, numbers)) else math.nan
