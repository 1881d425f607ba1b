"""Copies of tensors inside larger allocations, whose other entries hold a known value.

A function that reads those entries gets that value, and one that writes to them changes it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof.frameworks.torch.storage import bits, components, is_strided, recomposed, refilled

FILLS = ("NaN", "a large number", "a large negative number")  # one after the other: many maxima and minima ignore NaN


def fill_value(tensor: Tensor, number: int) -> float:
    """Return the value that surrounds a tensor; `number` is a position in FILLS.

    Integers are numbers of the tensor itself: they are often indices, and one outside their range ends the process.
    """
    if _has_nan(tensor) or tensor.dtype == torch.bool or not tensor.numel():
        return fresh_value(tensor, number)
    return int(tensor.max() if number % 2 else tensor.min())


def fresh_value(tensor: Tensor, number: int) -> float:
    """Return the value that fills or surrounds fresh memory; small integers, since they may be taken for indices."""
    if not _has_nan(tensor):
        return number % 2
    # the root of the largest number: far from ordinary values, and the square is finite
    large = math.sqrt(torch.finfo(tensor.dtype).max)
    return (math.nan, large, -large)[number]


def _has_nan(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


class Guard:
    """A copy of a strided tensor, of the same shape and strides, with entries before and after it in its memory."""

    def __init__(self, tensor: Tensor, fill: float, *, before: int, after: int) -> None:
        shape, strides = tensor.shape, tensor.stride()
        pairs = zip(shape, strides, strict=True)
        self._extent = 1 + sum((length - 1) * stride for length, stride in pairs) if tensor.numel() else 0
        self._before = before
        size = before + self._extent + after
        self._memory = torch.full((size,), fill, dtype=tensor.dtype, device=tensor.device)
        self._fill = self._memory.new_full((1,), fill)
        inner = slice(before, before + self._extent)
        self._outside = torch.ones(size, dtype=torch.bool, device=tensor.device)
        if self._extent:
            self._memory[inner] = tensor.detach().as_strided((self._extent,), (1,))
            own = torch.arange(self._extent, device=tensor.device).as_strided(shape, strides).reshape(-1)
            self._outside[own + before] = False
            self._memory[inner].masked_fill_(self._outside[inner], fill)
        self.tensor = self._memory.as_strided(shape, strides, before)

    def written(self) -> str | None:
        """Return where a surrounding entry was written to, such as "2 entries past its end"; None if none was."""
        width = 2 if self._memory.is_complex() else 1
        changed = (bits(self._memory).view(-1, width) != bits(self._fill).view(-1, width)).any(-1) & self._outside
        places = changed.nonzero().reshape(-1) - self._before
        if not len(places):
            return None
        beyond, ahead = places[places >= self._extent], places[places < 0]
        if len(beyond):
            return f"{_entries(int(beyond[0]) - self._extent + 1)} past its end"
        if len(ahead):
            return f"{_entries(-int(ahead[-1]))} before its beginning"
        return f"between its entries, at {int(places[0])} from the first"


def guarded(tensor: Tensor, number: int, *, before: int, after: int) -> tuple[Tensor, list[Guard]]:
    """Return a copy of a tensor of any layout whose components have guards around them, and those guards.

    A tensor whose conjugation or sign torch has only noted is copied without: its memory is not what it reads as.
    """
    if is_strided(tensor) and (tensor.is_conj() or tensor.is_neg()):
        return refilled(tensor), []
    parts = components(tensor)
    guards = [Guard(part, fill_value(part, number), before=before, after=after) for part in parts]
    return recomposed(tensor.detach(), [guard.tensor for guard in guards]), guards


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
