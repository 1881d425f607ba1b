"""Sparse matrices of any size, and functions of them whose own backward takes no more than what is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

PER_ROW = 10


@dataclass(frozen=True)
class Kind:
    """A function, and whether its gradient is right under both semantics or where something is stored alone."""

    function: Callable[[Tensor], Tensor]
    sparse_output: bool = False
    only_masked: bool = False


class RowSums(torch.autograd.Function):
    """The matrix times a vector of ones, with a gradient on the pattern of the matrix."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        """In one pass over the stored entries."""
        ctx.save_for_backward(matrix.detach())
        return torch.zeros(matrix.shape[0], dtype=matrix.dtype).index_add_(0, _rows(matrix), _values(matrix))

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> Tensor:
        """In one pass as well."""
        (matrix,) = ctx.saved_tensors
        return _with_values(matrix, incoming[_rows(matrix)])


KINDS = {
    "2 S": Kind(lambda matrix: matrix * 2, sparse_output=True),
    "S * S": Kind(lambda matrix: matrix * matrix, sparse_output=True),
    "sum(S)": Kind(torch.sum),
    "row sums": Kind(RowSums.apply, only_masked=True),
}


def matrix_of(size: int, layout: str) -> Tensor:
    """A random square matrix with ten entries in every row."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randint(size, (size, 1), generator=generator)
    columns = ((first + torch.arange(PER_ROW) * (size // PER_ROW)) % size).sort(1).values.reshape(-1)
    values = torch.randn(PER_ROW * size, dtype=torch.float64, generator=generator)
    if layout == "CSR":
        made = torch.sparse_csr_tensor(torch.arange(0, PER_ROW * size + 1, PER_ROW), columns, values, (size, size))
    else:
        rows = torch.arange(size).repeat_interleave(PER_ROW)
        made = torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (size, size), is_coalesced=True)
    return made.requires_grad_()


def bytes_of(matrix: Tensor) -> int:
    """Of its indices and values."""
    parts = (matrix._indices(),) if matrix.layout == torch.sparse_coo else (matrix.crow_indices(), matrix.col_indices())
    return sum(part.numel() * part.element_size() for part in (*parts, _values(matrix)))


def _values(matrix: Tensor) -> Tensor:
    matrix = matrix.detach()
    return matrix._values() if matrix.layout == torch.sparse_coo else matrix.values()


def _rows(matrix: Tensor) -> Tensor:
    if matrix.layout == torch.sparse_coo:
        return matrix._indices()[0]
    return torch.arange(matrix.shape[0]).repeat_interleave(matrix.crow_indices().diff())


def _with_values(matrix: Tensor, values: Tensor) -> Tensor:
    if matrix.layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(matrix._indices(), values, matrix.shape, is_coalesced=True)
    return torch.sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(), values, matrix.shape)
