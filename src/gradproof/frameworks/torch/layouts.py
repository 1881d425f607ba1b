"""What a sparse tensor stores, in each of the five layouts.

A sparse tensor is a grid of which some cells are stored, each with a payload: one number, a block, or a dense
remainder. A cell has a key, its number on the grid in the order in which the layout stores cells, so that the keys of a
well-formed tensor rise. Nothing here is ever as large as the grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
PIECE = 1 << 16  # cells worked on at a time, at most
LEAST = 1 << 10  # and at least, if there are as many
SHARE = 8  # in between, one part of so many: what that takes is little beside the indices, however few these are


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells of a sparse tensor, the shape of what each holds, and whether they are counted column by column."""

    batch: tuple[int, ...]
    sparse: tuple[int, ...]
    block: tuple[int, ...]
    dense: tuple[int, ...]
    by_column: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the grid."""
        return self.batch + self.sparse

    @property
    def counted(self) -> tuple[int, ...]:
        """The same in the order in which cells are counted."""
        return self.batch + (self.sparse[::-1] if self.by_column else self.sparse)

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

    def places(self, keys: Tensor) -> tuple[Tensor, ...]:
        """Where on the grid some cells lie, a tensor for each dimension."""
        if not self.shape:
            return ()
        found = tuple(torch.unravel_index(keys, self.counted))
        return (*found[:-2], found[-1], found[-2]) if self.by_column else found

    def index(self, key: int, offset: int) -> tuple[int, ...]:
        """The index, in the whole tensor, of the entry at an offset in the payload of a cell.

        >>> Grid((), (2, 3), (10, 10), ()).index(4, 25)
        (12, 15)
        """
        cell, inside = unravelled(key, self.counted), unravelled(offset, self.payload)
        if self.by_column:
            cell = (*cell[:-2], cell[-1], cell[-2])
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


def pattern_of(tensor: Tensor) -> Tensor:
    """A tensor that shares the indices, of zeros that take no memory."""
    values = stored_values(tensor)
    return with_values(tensor.detach(), values.new_zeros(()).expand(values.shape))


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
    return Grid(shape[:leading], sparse, block, shape[leading + 2 :], tensor.layout in BY_COLUMN)


def count_of(tensor: Tensor) -> int:
    """How many cells are stored, duplicates counted each."""
    return math.prod(index_tensors(tensor)[-1].shape[tensor.layout == torch.sparse_coo :])


def keys_of(tensor: Tensor) -> Tensor:
    """The keys of all stored cells, in the order in which they are stored."""
    count, indices = count_of(tensor), index_tensors(tensor)[-1]
    if count <= LEAST:
        return next(key_pieces(tensor))[1]
    found = torch.empty(count, dtype=torch.int64, device=indices.device)
    for where, keys in key_pieces(tensor):
        found[where] = keys
    return found


def key_pieces(tensor: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The same a piece at a time, each with its range among the stored cells."""
    grid = grid_of(tensor)
    if grid.cells >= NUMBERED:
        raise InputError(
            f"A sparse tensor of shape {tuple(tensor.shape)} has more cells than can be numbered. "
            "Pass one whose sparse dimensions multiply to less than 2**62."
        )
    pieces = _coordinate_pieces if tensor.layout == torch.sparse_coo else _compressed_pieces
    return pieces(tensor, grid)


def piece_of(count: int) -> int:
    """How many of so many cells are worked on at a time.

    >>> piece_of(100), piece_of(80_000), piece_of(10**9)
    (1024, 10000, 65536)
    """
    return min(PIECE, max(LEAST, -(-count // SHARE)))


def _coordinate_pieces(tensor: Tensor, grid: Grid) -> Iterator[tuple[slice, Tensor]]:
    indices = tensor._indices()
    stored = indices.shape[1]
    piece = piece_of(stored)
    for start in range(0, max(1, stored), piece):
        where = slice(start, min(start + piece, stored))
        keys = torch.zeros(where.stop - where.start, dtype=torch.int64, device=indices.device)
        for length, positions in zip(grid.shape, indices, strict=True):
            keys = keys.mul_(length).add_(positions[where])
        yield where, keys


def _compressed_pieces(tensor: Tensor, grid: Grid) -> Iterator[tuple[slice, Tensor]]:
    """Whole lines, so that each piece's lines are known."""
    compressed, plain = index_tensors(tensor)
    counts, plain = compressed.diff(dim=-1).reshape(-1), plain.reshape(-1)
    edges = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    line, lines, start, piece = 0, len(counts), 0, piece_of(len(plain))
    while True:
        wanted = torch.tensor(start + piece, dtype=edges.dtype, device=edges.device)
        last = lines if len(plain) - start <= piece else max(line + 1, int(torch.searchsorted(edges, wanted)) - 1)
        stop = int(edges[last])
        major = torch.arange(line, last, device=plain.device).repeat_interleave(
            counts[line:last], output_size=stop - start
        )
        yield slice(start, stop), major.mul_(grid.counted[-1]).add_(plain[start:stop])
        line, start = last, stop
        if line >= lines:
            return


def on_cells(like: Tensor, keys: Tensor) -> Tensor:
    """Zeros stored in these cells, each once, in the layout, dtype and kind of index of another tensor.

    They are one zero, which stands for all.
    """
    return zeros_on(keys, grid_of(like), like.layout, like.dtype, index=index_tensors(like)[0].dtype)


def zeros_on(
    keys: Tensor, grid: Grid, layout: torch.layout, dtype: torch.dtype, *, index: torch.dtype = torch.int64
) -> Tensor:
    """Zeros stored in these cells of a grid, each once: one zero, which stands for all.

    A batched compressed tensor stores as many in every batch: where there are fewer, cells are added.
    """
    if layout == torch.sparse_coo:
        keys = risen(keys)
        indices = torch.stack(grid.places(keys)) if grid.shape else keys.new_zeros((0, len(keys)))
        values = torch.zeros((), dtype=dtype, device=keys.device).expand(len(keys), *grid.dense)
        return torch.sparse_coo_tensor(indices, values, grid.whole, is_coalesced=True, check_invariants=False)
    lines, width = grid.counted[-2:]
    batches = math.prod(grid.batch)
    if grid.batch:
        keys = _evened(keys, batches, lines * width)
    keys = risen(keys)
    counts = _counted(keys, max(1, width), batches * lines).reshape(*grid.batch, lines)
    compressed = torch.nn.functional.pad(counts.cumsum(-1), (1, 0)).to(index)
    plain = (keys % max(1, width)).to(index).reshape(*grid.batch, len(keys) // max(1, batches))
    values = torch.zeros((), dtype=dtype, device=keys.device).expand(*plain.shape, *grid.payload)
    return torch.sparse_compressed_tensor(compressed, plain, values, grid.whole, layout=layout, check_invariants=False)


def _counted(keys: Tensor, width: int, lines: int) -> Tensor:
    """How many of some rising keys lie in each line."""
    edges = torch.searchsorted(keys, torch.arange(lines + 1, device=keys.device).mul_(width))
    return edges.diff()


def rises(keys: Tensor) -> bool:
    """Whether keys come in order, none twice."""
    return len(keys) < 2 or bool((keys[1:] > keys[:-1]).all())


def risen(keys: Tensor) -> Tensor:
    """The same keys in order."""
    return keys if rises(keys) else keys.sort().values


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
