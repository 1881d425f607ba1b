"""The cells of a sparse tensor, and their numbering.

A sparse tensor is a grid of which some cells are stored, each with a payload: one number, a block, or a dense
remainder. The key of a cell is its linear index on the grid, in the order in which the layout stores cells, so that the
keys of a well-formed tensor increase. Nothing here is ever as large as the grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern.layouts import BY_COLUMN, index_tensors, sparse_tensor, split_shape, stored_count

NUMBERED = 2**62  # cells; keys are 64-bit integers, and sums of a few keys must fit as well
PIECE = 1 << 16  # cells worked on at a time, at most
LEAST = 1 << 10  # cells worked on at a time, at least, if there are as many
PARTS = 8  # in between, an eighth of the cells: its memory is little beside the indices'


@dataclass(frozen=True, slots=True)
class Grid:
    """The shape of a grid of cells, the shape of a cell's payload, and whether keys run column by column."""

    batch: tuple[int, ...]
    sparse: tuple[int, ...]
    block: tuple[int, ...]
    dense: tuple[int, ...]
    by_column: bool = False

    @classmethod
    def of_layout(
        cls, layout: torch.layout, shape: tuple[int, ...], dense: tuple[int, ...], block: tuple[int, ...] = ()
    ) -> Grid:
        """Build the grid that a tensor has in a layout, `shape` without the dense dimensions."""
        if layout is torch.sparse_coo:
            return cls((), shape, (), dense)
        sparse = tuple(n // b for n, b in zip(shape[-2:], block, strict=True)) if block else shape[-2:]
        return cls(shape[:-2], sparse, tuple(block), dense, layout in BY_COLUMN)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the grid."""
        return self.batch + self.sparse

    @property
    def key_shape(self) -> tuple[int, ...]:
        """The shape of the grid in the order in which keys count it."""
        return self.batch + (self.sparse[::-1] if self.by_column else self.sparse)

    @property
    def payload(self) -> tuple[int, ...]:
        """The shape of a cell's payload."""
        return self.block + self.dense

    @property
    def tensor_shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return tuple(length * span for length, span in zip(self.shape, self.spans, strict=True)) + self.dense

    @property
    def cells(self) -> int:
        """The number of cells, stored or not."""
        return math.prod(self.shape)

    @property
    def spans(self) -> tuple[int, ...]:
        """The extent of a cell along each dimension of the grid."""
        return (*(1,) * len(self.batch), *(self.block or (1,) * len(self.sparse)))

    def coordinates(self, keys: Tensor) -> tuple[Tensor, ...]:
        """Return the coordinates of some cells on the grid, one tensor for each dimension."""
        if not self.shape:
            return ()
        found = tuple(torch.unravel_index(keys, self.key_shape))
        return (*found[:-2], found[-1], found[-2]) if self.by_column else found

    def index(self, key: int, offset: int) -> tuple[int, ...]:
        """Return the index, in the tensor, of the entry at an offset in the payload of a cell.

        >>> Grid((), (2, 3), (10, 10), ()).index(4, 25)
        (12, 15)
        """
        return unravel(int(self.entry_keys(torch.tensor([key]))[0, offset]), self.tensor_shape)

    def entry_keys(self, keys: Tensor) -> Tensor:
        """Number every entry of some cells, in row-major order over the whole tensor: one row for each cell."""
        within = torch.unravel_index(torch.arange(math.prod(self.payload), device=keys.device), self.payload)
        steps = iter(within)
        number = keys.new_zeros((len(keys), math.prod(self.payload)))
        blocked = len(self.batch) if self.block else len(self.shape)
        lines = zip(self.shape, self.spans, self.coordinates(keys), strict=True)
        for dimension, (length, span, coordinate) in enumerate(lines):
            number = number * (length * span) + (coordinate * span)[:, None]
            if dimension >= blocked:
                number = number + next(steps)
        for length, coordinate in zip(self.dense, steps, strict=True):
            number = number * length + coordinate
        return number

    def cells_around(self, entries: Tensor) -> Tensor:
        """Return the increasing keys of the cells that hold some entries, given by `entry_keys`."""
        if not self.shape:
            return entries.new_zeros(min(1, len(entries)))
        index = torch.unravel_index(entries, self.tensor_shape)[: len(self.shape)]
        cell = [coordinate // span for coordinate, span in zip(index, self.spans, strict=True)]
        if self.by_column:
            cell[-2:] = reversed(cell[-2:])
        distinct: Tensor = torch.unique(ravel(cell, self.key_shape))
        return distinct


def unravel(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index with this row-major linear index.

    >>> unravel(5, (2, 3))
    (1, 2)
    """
    index: list[int] = []
    for length in reversed(shape):
        number, position = divmod(number, length)
        index.insert(0, position)
    return tuple(index)


def ravel(coordinates: Tensor | Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
    """Return the row-major linear index of each column of coordinates.

    >>> ravel(torch.tensor([[0, 1], [2, 1]]), (2, 3))
    tensor([2, 4])
    """
    require_numbered(shape)
    if isinstance(coordinates, Tensor):
        number = coordinates.new_zeros(coordinates.shape[1], dtype=torch.int64)
    else:
        number = torch.zeros_like(coordinates[0])
    for length, coordinate in zip(shape, coordinates, strict=True):
        number.mul_(length).add_(coordinate)
    return number


def require_numbered(shape: tuple[int, ...]) -> None:
    """Raise if linear indices of this shape do not fit into 64 bits."""
    if math.prod(shape) >= NUMBERED:
        raise InputError(
            f"A sparse tensor of shape {shape} has more cells than can be numbered. "
            "Pass one whose sparse dimensions multiply to less than 2**62."
        )


def grid_of(tensor: Tensor) -> Grid:
    """Return the grid of a sparse tensor."""
    shape, dense, block = split_shape(tensor)
    return Grid.of_layout(tensor.layout, shape, dense, block)


def keys_of(tensor: Tensor) -> Tensor:
    """Return the keys of all stored cells, in storage order."""
    count, indices = stored_count(tensor), index_tensors(tensor)[-1]
    if count <= LEAST:
        return next(key_pieces(tensor))[1]
    found = torch.empty(count, dtype=torch.int64, device=indices.device)
    for where, keys in key_pieces(tensor):
        found[where] = keys
    return found


def key_pieces(tensor: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield the keys of the stored cells a piece at a time, each with its range in storage order."""
    grid = grid_of(tensor)
    require_numbered(grid.shape)
    pieces = _coordinate_pieces if tensor.layout == torch.sparse_coo else _compressed_pieces
    return pieces(tensor, grid)


def piece_of(count: int) -> int:
    """Return how many of `count` cells are worked on at a time.

    >>> piece_of(100), piece_of(80_000), piece_of(10**9)
    (1024, 10000, 65536)
    """
    return min(PIECE, max(LEAST, -(-count // PARTS)))


def _coordinate_pieces(tensor: Tensor, grid: Grid) -> Iterator[tuple[slice, Tensor]]:
    (indices,) = index_tensors(tensor)
    stored = indices.shape[1]
    piece = piece_of(stored)
    for start in range(0, max(1, stored), piece):
        where = slice(start, min(start + piece, stored))
        yield where, ravel(indices[:, where], grid.shape)


def _compressed_pieces(tensor: Tensor, grid: Grid) -> Iterator[tuple[slice, Tensor]]:
    """Yield whole rows (or columns) at a time, so that the row of each cell is known."""
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
        yield slice(start, stop), major.mul_(grid.key_shape[-1]).add_(plain[start:stop])
        line, start = last, stop
        if line >= lines:
            return


def cells_of(tensor: Tensor, grid: Grid) -> Tensor:
    """Return the keys, on another grid of the same tensor shape, of the cells that hold a tensor's entries."""
    keys, own = keys_of(tensor), grid_of(tensor)
    return keys if grid == own else grid.cells_around(own.entry_keys(keys).reshape(-1))


def on_cells(like: Tensor, keys: Tensor) -> Tensor:
    """Store zeros in these cells, each once, in the layout, dtype and index dtype of another tensor."""
    return zeros_on(keys, grid_of(like), like.layout, like.dtype, index_dtype=index_tensors(like)[0].dtype)


def zeros_on(
    keys: Tensor, grid: Grid, layout: torch.layout, dtype: torch.dtype, *, index_dtype: torch.dtype = torch.int64
) -> Tensor:
    """Store zeros in these cells of a grid, each once. The zeros are one number, expanded.

    A batched compressed tensor stores the same number of cells in every batch: cells are added where there are fewer.
    """
    zero = torch.zeros((), dtype=dtype, device=keys.device)
    batches = math.prod(grid.batch)
    if grid.batch:
        keys = _padded(keys, batches, math.prod(grid.sparse))
    if not is_increasing(keys):
        keys = keys.sort().values
    if layout == torch.sparse_coo:
        indices = torch.stack(grid.coordinates(keys)) if grid.shape else keys.new_zeros((0, len(keys)))
        return sparse_tensor(layout, (indices,), zero.expand(len(keys), *grid.dense), grid.tensor_shape)
    lines, width = grid.key_shape[-2:]
    edges = torch.searchsorted(keys, torch.arange(batches * lines + 1, device=keys.device).mul_(max(1, width)))
    counts = edges.diff().reshape(*grid.batch, lines)
    compressed = torch.nn.functional.pad(counts.cumsum(-1), (1, 0)).to(index_dtype)
    plain = (keys % max(1, width)).to(index_dtype).reshape(*grid.batch, len(keys) // max(1, batches))
    values = zero.expand(*plain.shape, *grid.payload)
    return sparse_tensor(layout, (compressed, plain), values, grid.tensor_shape)


def is_increasing(keys: Tensor, *, strictly: bool = True) -> bool:
    """Return True if keys increase, strictly or with repetitions."""
    later, earlier = keys[1:], keys[:-1]
    return len(keys) < 2 or bool((later > earlier if strictly else later >= earlier).all())


def _padded(keys: Tensor, batches: int, area: int) -> Tensor:
    """Add the first free keys to every batch until all hold the same number."""
    counts = torch.bincount(keys // max(1, area), minlength=batches)
    most = int(counts.max()) if batches else 0
    added = [keys]
    for batch in (counts < most).nonzero().reshape(-1).tolist():
        free = torch.arange(batch * area, batch * area + most, device=keys.device)  # so many that enough are free
        free = free[~torch.isin(free, keys)]
        added.append(free[: most - int(counts[batch])])
    return torch.cat(added)
