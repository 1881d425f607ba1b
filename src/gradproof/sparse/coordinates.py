"""The index of every entry, spelt out from whatever a layout stores."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof.errors import InputError


def positions(indices: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Each entry's position as one number, counted row by row."""
    if math.prod(shape) > torch.iinfo(torch.int64).max:
        raise InputError(f"A tensor of shape {list(shape)} has more positions than 64 bits can count.")
    position = torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    for size, row in zip(shape, indices, strict=True):
        position.mul_(size).add_(row)
    return position


def unravelled(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index that is counted as this number."""
    index = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))


def counted_on(coordinates: Tensor, shape: tuple[int, ...], dimension: int) -> Tensor:
    """The row (-2) or column (-1) of every entry, counted on over the batch."""
    batch = shape[:-2]
    if not batch:
        return coordinates[dimension]
    return positions(coordinates[:-2], batch) * shape[dimension] + coordinates[dimension]


def expanded(
    starts: Tensor, places: Tensor, batch: tuple[int, ...], blocksize: tuple[int, int] | None, *, by_rows: bool
) -> Tensor:
    """The index of every entry of a compressed layout, blocks spelt out, in the order of storage."""
    starts, places = starts.long(), places.long()
    device = starts.device
    lines = torch.arange(starts.shape[-1] - 1, device=device).repeat(math.prod(batch))
    across = torch.repeat_interleave(lines, starts.diff().reshape(-1)).reshape(places.shape)
    row, column = (across, places) if by_rows else (places, across)
    if blocksize:
        down, right = (torch.arange(size, device=device) for size in blocksize)
        row = row[..., None, None] * blocksize[0] + down[:, None]
        column = column[..., None, None] * blocksize[1] + right
        row, column = row.expand(*places.shape, *blocksize), column.expand(*places.shape, *blocksize)
    leading = [
        torch.arange(size, device=device).reshape([-1 if k == d else 1 for k in range(row.ndim)]).expand(row.shape)
        for d, size in enumerate(batch)
    ]
    return torch.stack([index.reshape(-1) for index in (*leading, row, column)])
