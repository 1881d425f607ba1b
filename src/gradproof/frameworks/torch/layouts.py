"""What a sparse tensor stores, in each of the five layouts.

A sparse tensor is a grid of which some cells are stored, each with a payload: one number, a block, or a dense
remainder. A cell has a key, its number on the grid counted row by row, so that cells of tensors of different layouts
can be compared. Nothing here is ever as large as the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.errors import InputError

BY_ROW = (torch.sparse_csr, torch.sparse_bsr)
BY_COLUMN = (torch.sparse_csc, torch.sparse_bsc)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
COMPRESSED = BY_ROW + BY_COLUMN
SPARSE = (torch.sparse_coo, *COMPRESSED)
NUMBERED = 2**62  # cells that can be numbered


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a sparse tensor, and the shape of what each holds."""

    batch: tuple[int, ...]
    sparse: tuple[int, ...]
    block: tuple[int, ...]
    dense: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the grid."""
        return self.batch + self.sparse

    @property
    def payload(self) -> tuple[int, ...]:
        """Of a cell."""
        return self.block + self.dense

    @property
    def whole(self) -> tuple[int, ...]:
        """Of the whole tensor."""
        sparse = self.sparse
        if self.block:
            sparse = tuple(length * size for length, size in zip(sparse, self.block, strict=True))
        return self.batch + sparse + self.dense

    @property
    def cells(self) -> int:
        """How many there are, stored or not."""
        return math.prod(self.shape)

    def index(self, key: int, offset: int) -> tuple[int, ...]:
        """The index, in the whole tensor, of the entry at an offset in the payload of a cell.

        >>> Grid((), (2, 3), (10, 10), ()).index(4, 25)
        (12, 15)
        """
        cell, inside = unravelled(key, self.shape), unravelled(offset, self.payload)
        within, dense = inside[: len(self.block)], inside[len(self.block) :]
        if self.block:
            corner = (place * length for place, length in zip(cell[-2:], self.block, strict=True))
            cell = cell[:-2] + tuple(start + step for start, step in zip(corner, within, strict=True))
        return cell + dense


def unravelled(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an entry by its number, counted row by row.

    >>> unravelled(5, (2, 3))
    (1, 2)
    """
    index: list[int] = []
    for length in reversed(shape):
        number, position = divmod(number, length)
        index.insert(0, position)
    return tuple(index)


def name_of(layout: torch.dtype | torch.layout) -> str:
    """A layout in a word.

    >>> name_of(torch.sparse_csr), name_of(torch.strided)
    ('CSR', 'strided')
    """
    word = str(layout).removeprefix("torch.").removeprefix("sparse_")
    return word if word == "strided" else word.upper()


def index_tensors(tensor: Tensor) -> tuple[Tensor, ...]:
    """Where the values are: the indices of a COO tensor, or the compressed and the plain indices."""
    if tensor.layout == torch.sparse_coo:
        return (tensor._indices(),)
    if tensor.layout in BY_ROW:
        return tensor.crow_indices(), tensor.col_indices()
    return tensor.ccol_indices(), tensor.row_indices()


def stored_values(tensor: Tensor) -> Tensor:
    """The values, duplicates and explicit zeros too."""
    tensor = tensor.detach()
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values().detach()  # no view


def with_values(tensor: Tensor, values: Tensor, indices: tuple[Tensor, ...] | None = None) -> Tensor:
    """A tensor with the same pattern (or with these indices) and other values."""
    indices = index_tensors(tensor) if indices is None else indices
    if tensor.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(
            indices[0], values, tensor.shape, is_coalesced=tensor.is_coalesced(), check_invariants=False
        )
    compressed, plain = indices
    return torch.sparse_compressed_tensor(
        compressed, plain, values, tensor.shape, layout=tensor.layout, check_invariants=False
    )


def grid_of(tensor: Tensor) -> Grid:
    """The tensor's cells."""
    shape = tuple(tensor.shape)
    if tensor.layout == torch.sparse_coo:
        return Grid((), shape[: tensor.sparse_dim()], (), shape[tensor.sparse_dim() :])
    leading = index_tensors(tensor)[0].dim() - 1
    block = tuple(tensor.values().shape[leading + 1 : leading + 3]) if tensor.layout in BLOCKED else ()
    sparse = shape[leading : leading + 2]
    if block:
        sparse = tuple(length // size for length, size in zip(sparse, block, strict=True))
    return Grid(shape[:leading], sparse, block, shape[leading + 2 :])


def cells_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """The keys of the stored cells, in the order in which they are stored, and their values, one row a cell."""
    grid = grid_of(tensor)
    if grid.cells >= NUMBERED:
        raise InputError(
            f"A sparse tensor of shape {tuple(tensor.shape)} has more cells than can be numbered. "
            "Pass one whose sparse dimensions multiply to less than 2**62."
        )
    values = stored_values(tensor).reshape(-1, *grid.payload)
    return keys_of(index_tensors(tensor), grid, tensor.layout), values


def keys_of(indices: tuple[Tensor, ...], grid: Grid, layout: torch.layout) -> Tensor:
    """The numbers of the cells that some index tensors mean."""
    if layout == torch.sparse_coo:
        key = indices[0].new_zeros(indices[0].shape[1])
        for length, positions in zip(grid.shape, indices[0], strict=True):
            key = key.mul_(length).add_(positions)
        return key
    compressed, plain = (index.long() for index in indices)
    batches = math.prod(grid.batch)
    counts = compressed.diff(dim=-1).reshape(-1)
    lines = counts.numel() // max(1, batches)
    major = torch.arange(counts.numel(), device=plain.device).repeat_interleave(counts)  # batch and line in one number
    if layout in BY_ROW:
        return major.mul_(grid.sparse[1]).add_(plain.reshape(-1))
    batch, line = (major // max(1, lines), major % max(1, lines))
    return batch.mul_(grid.sparse[0]).add_(plain.reshape(-1)).mul_(grid.sparse[1]).add_(line)


def on_cells(like: Tensor, keys: Tensor) -> Tensor:
    """Zeros stored in these cells, each once, in the layout, dtype and kind of index of another tensor."""
    return zeros_on(keys, grid_of(like), like.layout, like.dtype, index=index_tensors(like)[0].dtype)


def zeros_on(
    keys: Tensor, grid: Grid, layout: torch.layout, dtype: torch.dtype, *, index: torch.dtype = torch.int64
) -> Tensor:
    """Zeros stored in these cells of a grid, each once.

    A batched compressed tensor stores as many in every batch: where there are fewer, cells are added.
    """
    if layout == torch.sparse_coo:
        keys = keys.sort().values
        indices = torch.stack(torch.unravel_index(keys, grid.shape)) if grid.shape else keys.new_zeros((0, len(keys)))
        values = torch.zeros((len(keys), *grid.dense), dtype=dtype, device=keys.device)
        return torch.sparse_coo_tensor(indices, values, grid.whole, is_coalesced=True, check_invariants=False)
    rows, columns = grid.sparse
    batches, area = math.prod(grid.batch), rows * columns
    if grid.batch:
        keys = _evened(keys, batches, area)
    if layout in BY_COLUMN:
        row, column = keys % area // columns, keys % columns
        keys = keys // area * area + column * rows + row
    lines, width = (rows, columns) if layout in BY_ROW else (columns, rows)
    keys = keys.sort().values
    counts = torch.bincount(keys // max(1, width), minlength=batches * lines).reshape(*grid.batch, lines)
    compressed = torch.nn.functional.pad(counts.cumsum(-1), (1, 0)).to(index)
    plain = (keys % max(1, width)).reshape(*grid.batch, len(keys) // max(1, batches)).to(index)
    values = torch.zeros((*plain.shape, *grid.payload), dtype=dtype, device=keys.device)
    return torch.sparse_compressed_tensor(compressed, plain, values, grid.whole, layout=layout, check_invariants=False)


def _evened(keys: Tensor, batches: int, area: int) -> Tensor:
    """The keys, and in every batch enough of the first free ones that all hold as many."""
    counts = torch.bincount(keys // max(1, area), minlength=batches)
    most = int(counts.max()) if batches else 0
    added = [keys]
    for batch in (counts < most).nonzero().reshape(-1).tolist():
        free = torch.arange(batch * area, batch * area + most, device=keys.device)  # so many that enough are free
        free = free[~torch.isin(free, keys)]
        added.append(free[: most - int(counts[batch])])
    return torch.cat(added)
