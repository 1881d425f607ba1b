"""Is this a pattern at all? Indices in range, in order and distinct, told before anything is built on them."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch.layouts import BLOCKED, BY_ROW, SPARSE, name_of
from gradproof.sparse.coordinates import positions, unravelled

INDEX_DTYPES = (torch.int32, torch.int64)


def validate(
    layout: torch.layout, shape: tuple[int, ...], indices: tuple[Tensor, ...], blocksize: tuple[int, int] | None
) -> None:
    """Raise unless the indices are those of a sparse tensor of this layout and shape with distinct entries."""
    require_shape(shape)
    wanted = 1 if layout is torch.sparse_coo else 2
    if layout not in SPARSE or len(indices) != wanted:
        raise InputError(
            f"{layout} with {len(indices)} tensors of indices: COO patterns have one, compressed ones two."
        )
    for tensor in indices:
        if tensor.dtype not in INDEX_DTYPES:
            raise InputError(
                f"The indices have dtype {tensor.dtype}: a position is a whole number. Pass indices.long()."
            )
    if layout is torch.sparse_coo:
        _validate_coordinates(indices[0], shape)
    else:
        _validate_compressed(layout, shape, indices, blocksize)


def require_shape(shape: object) -> None:
    """Raise unless this is a shape: whole numbers, none of them negative."""
    if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise InputError(f"The shape is {shape!r}: pass whole numbers that are not negative, such as (3, 4).")


def _validate_coordinates(indices: Tensor, shape: tuple[int, ...]) -> None:
    if indices.ndim != 2 or indices.shape[0] != len(shape):
        raise InputError(
            f"The indices have shape {list(indices.shape)}, where a COO pattern of shape {list(shape)} needs "
            f"[{len(shape)}, number of entries]: one row of indices for each dimension."
        )
    for dimension, (size, row) in enumerate(zip(shape, indices, strict=True)):
        require_in_range(row, size, f"dimension {dimension}")
    position = positions(indices, shape)
    if not bool((position[1:] > position[:-1]).all()):
        ordered = position.sort().values
        twice = (ordered[1:] == ordered[:-1]).nonzero()
        if twice.numel():
            where = unravelled(int(ordered[twice[0]]), shape)
            raise InputError(
                f"The position {where} is stored {int((ordered == ordered[twice[0]]).sum())} times: the entries of a "
                "pattern are distinct. Add up what belongs together first, for example with tensor.coalesce()."
            )


def _validate_compressed(
    layout: torch.layout, shape: tuple[int, ...], indices: tuple[Tensor, ...], blocksize: tuple[int, int] | None
) -> None:
    starts, places = indices
    by_rows = layout in BY_ROW
    across, along = ("row", "column") if by_rows else ("column", "row")
    blocks = blocksize or (1, 1)
    if layout in BLOCKED and (blocksize is None or shape[-2] % blocks[0] or shape[-1] % blocks[1]):
        raise InputError(
            f"A {name_of(layout)} pattern of shape {list(shape)} cannot be made of blocks of {blocksize}: the block's "
            "height and width have to divide the matrix's."
        )
    counts = (shape[-2] // blocks[0], shape[-1] // blocks[1])
    number, length = counts if by_rows else counts[::-1]
    batch = shape[:-2]
    if starts.shape != (*batch, number + 1) or places.shape[:-1] != batch:
        raise InputError(
            f"A {name_of(layout)} pattern of shape {list(shape)} needs {[*batch, number + 1]} starts of {across}s and "
            f"{list(batch)} + [entries] {along} indices, and got {list(starts.shape)} and {list(places.shape)}."
        )
    stored = places.shape[-1]
    if bool((starts[..., 0] != 0).any()) or bool((starts[..., -1] != stored).any()) or bool((starts.diff() < 0).any()):
        raise InputError(
            f"The starts of the {across}s do not grow from 0 to the number of entries, {stored}: start k is the number "
            f"of entries before {across} k."
        )
    require_in_range(places, length, f"the {along}s")
    _require_growing(starts, places, across, along)


def _require_growing(starts: Tensor, places: Tensor, across: str, along: str) -> None:
    """Within one row (or column) the positions grow."""
    if places.shape[-1] < 2:
        return
    every_start, every_place = starts.reshape(-1, starts.shape[-1]), places.reshape(-1, places.shape[-1])
    for batch_starts, batch_places in zip(every_start, every_place, strict=True):
        grows = batch_places[1:] > batch_places[:-1]
        edges = batch_starts[1:-1].long()
        grows[edges[(edges > 0) & (edges <= grows.numel())] - 1] = True
        if not bool(grows.all()):
            wrong = int((~grows).nonzero()[0]) + 1
            raise InputError(
                f"Entry {wrong} does not lie after the one before it in the same {across}: {along} indices have to "
                f"grow within each {across}. Sort them, and add up entries that share a position."
            )


def require_in_range(indices: Tensor, size: int, what: str) -> None:
    """Raise where an index is negative or too large, and show the first that is."""
    if not indices.numel():
        return
    low, high = (int(k) for k in torch.aminmax(indices))
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        first = int((indices.reshape(-1) == wrong).nonzero()[0])
        raise InputError(
            f"Index {wrong} (entry {first}) is out of range in {what}, which has size {size}: indices run from 0 to "
            f"{size - 1}."
        )
