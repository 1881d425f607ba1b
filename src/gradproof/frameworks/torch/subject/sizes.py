"""The sizes of a function's values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradproof.engine.subject import Scale, Subject
from gradproof.engine.units import Units, units_of
from gradproof.frameworks.torch.subject.spaces import PYTHON_ENTRIES

if TYPE_CHECKING:
    from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ORDINARY = (1e-100, 1e100)  # sizes of values whose squares neither overflow nor underflow
DIVISORS = (1e-290, 1e290)  # sizes whose reciprocals neither overflow nor underflow


def sizes_of(tensors: Sequence[Tensor]) -> tuple[Scale, float]:
    """Return the scale of the values of some tensors, and their size as a divisor: one if all are zero."""
    tensors = [tensor for tensor in tensors if tensor.numel()]
    if not tensors:
        return Scale(finite=True), 1.0
    sizes = list(map(largest_of, tensors))
    largest = math.nan if any(map(math.isnan, sizes)) else max(sizes)
    finite = math.isfinite(largest)
    if not finite:
        largest = max(float(tensor.abs().nan_to_num(0.0, 0.0, 0.0).max()) for tensor in tensors)
    scale = Scale(finite=finite, value=largest if ORDINARY[0] < largest < ORDINARY[1] else 0.0)
    return scale, min(max(largest, DIVISORS[0]), DIVISORS[1]) if largest else 1.0


def units_for(subject: TorchSubject, seen: Subject) -> Units:
    """Return the units in which inputs and outputs are of ordinary size; `seen` is what the engine sees of them."""
    if not subject.inputs.size or not subject.outputs.size:
        return Units()
    spaces = subject.inputs, subject.outputs
    tiny_input, tiny_value = (space.tiny for space in spaces)
    largest = subject.inputs.largest
    return units_of(seen, subject.scales, tiny_input=tiny_input, tiny_value=tiny_value, largest=largest)


def largest_of(vector: Tensor) -> float:
    """Return the size of the largest number; not finite if one of them is not."""
    if vector.numel() > PYTHON_ENTRIES:
        least, most = map(float, torch.stack(vector.aminmax()).tolist())
        return max(most, -least)
    numbers = vector.tolist()
    return max(map(abs, numbers)) if all(map(math.isfinite, numbers)) else math.nan
