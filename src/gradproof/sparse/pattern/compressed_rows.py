"""The entries of a matrix in row order, as CSR stores them: what a product reads.

Indices are kept in 32 bits where they fit, which the fastest kernels read in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.sparse.pattern.grid import is_increasing, ravel

NARROW = torch.iinfo(torch.int32).max


@dataclass(frozen=True, slots=True, eq=False)
class CompressedRows:
    """The compressed row indices and the column indices of a matrix of `rows` × `columns`.

    `permutation` holds, for each entry in row order, the position of its value in storage; None if values are stored in
    row order.
    """

    rows: int
    columns: int
    crow_indices: Tensor
    col_indices: Tensor
    permutation: Tensor | None = None

    @classmethod
    def of_compressed(cls, crow_indices: Tensor, col_indices: Tensor, shape: tuple[int, int]) -> CompressedRows:
        """Build from index tensors that are in row order already."""
        largest = max(*shape, col_indices.numel())
        return cls(*shape, _narrowed(crow_indices, largest), _narrowed(col_indices, largest).contiguous())

    @classmethod
    def of_coordinates(cls, row: Tensor, column: Tensor, shape: tuple[int, int]) -> CompressedRows:
        """Build from the row and the column of every entry, in storage order."""
        largest = max(*shape, row.numel())
        permutation = None
        key = ravel((row, column), shape)
        if not is_increasing(key, strictly=False):
            order = torch.argsort(key, stable=True)
            column, permutation = column[order], _narrowed(order, largest)
        del key
        crow_indices = _narrowed(compress(row, shape[0]), largest)
        return cls(*shape, crow_indices, _narrowed(column, largest).contiguous(), permutation)

    @property
    def entries(self) -> int:
        """The number of entries."""
        return self.col_indices.numel()

    def row_indices(self) -> Tensor:
        """Return the row of every entry, in row order."""
        rows = torch.arange(self.rows, dtype=self.col_indices.dtype, device=self.col_indices.device)
        return torch.repeat_interleave(rows, self.crow_indices.diff(), output_size=self.entries)

    def transposed(self) -> CompressedRows:
        """Return the same entries in column order: the rows of the transposed matrix."""
        order = torch.sort(self.col_indices, stable=True).indices.to(self.col_indices.dtype)
        return CompressedRows(
            self.columns,
            self.rows,
            compress(self.col_indices, self.columns).to(self.crow_indices.dtype),
            self.row_indices().index_select(0, order),
            order if self.permutation is None else self.permutation.index_select(0, order),
        )

    def in_row_order(self, values: Tensor) -> Tensor:
        """Reorder values from storage order to row order."""
        return values if self.permutation is None else values.index_select(0, self.permutation)

    def in_storage_order(self, values: Tensor) -> Tensor:
        """Reorder values from row order to storage order."""
        if self.permutation is None:
            return values
        return torch.empty_like(values).index_copy_(0, self.permutation.long(), values)

    def to(self, device: torch.device) -> CompressedRows:
        """Copy to another device."""
        permutation = None if self.permutation is None else self.permutation.to(device)
        moved = self.crow_indices.to(device), self.col_indices.to(device)
        return CompressedRows(self.rows, self.columns, *moved, permutation)


def compress(row: Tensor, rows: int) -> Tensor:
    """Return the compressed indices (indptr) for the row of every entry, given in any order."""
    compressed = torch.zeros(rows + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=rows), 0, out=compressed[1:])
    return compressed


def _narrowed(indices: Tensor, largest: int) -> Tensor:
    """Convert indices to 32 bits if none exceeds them."""
    return indices.to(torch.int32 if largest <= NARROW else torch.int64)
