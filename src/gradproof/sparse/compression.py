"""Positions of a matrix in row order: where each row starts, and in which columns its entries are.

What a product reads. Indices are kept in 32 bits where they fit, which the fastest kernels read in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

NARROW = torch.iinfo(torch.int32).max


def narrowed(indices: Tensor, largest: int) -> Tensor:
    """The indices in 32 bits, if none exceeds them."""
    return indices.to(torch.int32 if largest <= NARROW else torch.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Compression:
    """The entries of a matrix of `rows` × `columns`, row by row.

    `order` says for each entry in row order where its value is stored; None: values are stored in row order.
    """

    rows: int
    columns: int
    starts: Tensor
    places: Tensor
    order: Tensor | None = None

    @classmethod
    def of_compressed(cls, starts: Tensor, places: Tensor, shape: tuple[int, int]) -> Compression:
        """From index tensors that are in row order already."""
        largest = max(*shape, places.numel())
        return cls(*shape, narrowed(starts, largest), narrowed(places, largest).contiguous())

    @classmethod
    def of_positions(cls, row: Tensor, column: Tensor, shape: tuple[int, int]) -> Compression:
        """From the row and the column of every entry, in the order of storage."""
        rows, columns = shape
        largest = max(rows, columns, row.numel())
        order = None
        position = row * columns + column
        if not in_order(position):
            order = torch.argsort(position)
            column = column[order]
        del position
        starts = starts_of(row, rows)
        return cls(
            rows,
            columns,
            narrowed(starts, largest),
            narrowed(column, largest).contiguous(),
            None if order is None else narrowed(order, largest),
        )

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return self.places.numel()

    def flipped(self) -> Compression:
        """The same entries in column order: the rows of the transposed matrix."""
        order = torch.sort(self.places, stable=True).indices.to(self.places.dtype)
        row = torch.repeat_interleave(
            torch.arange(self.rows, dtype=self.places.dtype, device=self.places.device),
            self.starts.diff(),
            output_size=self.entries,
        )
        return Compression(
            self.columns,
            self.rows,
            starts_of(self.places, self.columns).to(self.starts.dtype),
            row.index_select(0, order),
            order if self.order is None else self.order.index_select(0, order),
        )

    def in_row_order(self, values: Tensor) -> Tensor:
        """Values from the order of storage in row order."""
        return values if self.order is None else values.index_select(0, self.order)

    def in_storage_order(self, values: Tensor) -> Tensor:
        """Values from row order in the order of storage."""
        if self.order is None:
            return values
        return torch.empty_like(values).index_copy_(0, self.order.long(), values)

    def to(self, device: torch.device) -> Compression:
        """The same on another device."""
        order = None if self.order is None else self.order.to(device)
        return Compression(self.rows, self.columns, self.starts.to(device), self.places.to(device), order)


def in_order(position: Tensor) -> bool:
    """Whether positions grow from entry to entry."""
    return bool((position[1:] > position[:-1]).all())


def starts_of(row: Tensor, rows: int) -> Tensor:
    """Where each row begins, and where the last one ends, given the row of every entry in any order."""
    starts = torch.zeros(rows + 1, dtype=torch.int64, device=row.device)
    torch.cumsum(torch.bincount(row, minlength=rows), 0, out=starts[1:])
    return starts
