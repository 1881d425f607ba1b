"""The two products as custom operators, each one call in the graphs of `torch.compile`.

The compiler cannot trace functions with a forward mode of their own, which those in `bilinear` have. These have none,
and the same reverse mode. A matrix comes as six tensors: its entries in row order and in column order, each as
compressed indices, plain indices and the permutation of the values.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradproof.sparse.autograd import kernels
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.compressed_rows import CompressedRows

INDICES = (
    "Tensor crow_indices, Tensor col_indices, Tensor? row_permutation, "
    "Tensor ccol_indices, Tensor row_indices, Tensor? column_permutation"
)
Indices = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor | None]


def multiply(values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool = False) -> Tensor:
    """Compute A·D, or Aᵀ·D, for one value an entry in storage order."""
    indices = _indices_of(pattern)
    result: Tensor = _multiply(values, dense, *(_transposed(indices) if transposed else indices))
    return result


def sample(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
    """Sum left[row, k] · right[column, k] over k for every entry, in storage order."""
    result: Tensor = _sample(left, right, *_indices_of(pattern))
    return result


def _indices_of(pattern: Pattern) -> Indices:
    known = vars(pattern)  # not every compiler sees what a cached property holds
    rows, columns = known.get("by_rows") or pattern.by_rows, known.get("by_columns") or pattern.by_columns
    return (
        *(rows.crow_indices, rows.col_indices, rows.permutation),
        *(columns.crow_indices, columns.col_indices, columns.permutation),
    )


def _transposed(indices: Any) -> Indices:
    return (*indices[3:], *indices[:3])


def _matrix(indices: tuple[Any, ...]) -> CompressedRows:
    crow_indices, col_indices, permutation, ccol_indices, *_ = indices
    return CompressedRows(crow_indices.numel() - 1, ccol_indices.numel() - 1, crow_indices, col_indices, permutation)


@torch.library.custom_op(
    "gradproof::multiply", mutates_args=(), schema=f"(Tensor values, Tensor dense, {INDICES}) -> Tensor"
)
def _multiply(values: Tensor, dense: Tensor, *indices: Any) -> Tensor:
    matrix = _matrix(indices)
    return kernels.multiply(matrix, matrix.in_row_order(values), dense)


@torch.library.custom_op(
    "gradproof::sample", mutates_args=(), schema=f"(Tensor left, Tensor right, {INDICES}) -> Tensor"
)
def _sample(left: Tensor, right: Tensor, *indices: Any) -> Tensor:
    matrix = _matrix(indices)
    return matrix.in_storage_order(kernels.sample(matrix, left, right))


@_multiply.register_fake
def _(_values: Tensor, dense: Tensor, crow_indices: Tensor, *_indices: Any) -> Tensor:
    return dense.new_empty(crow_indices.shape[0] - 1, dense.shape[1])


@_sample.register_fake
def _(left: Tensor, _right: Tensor, _crow_indices: Tensor, col_indices: Tensor, *_indices: Any) -> Tensor:
    return left.new_empty(col_indices.shape[0])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _multiply_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    values, dense, *indices = ctx.saved_tensors
    to_values = _sample(gradient, dense.conj(), *indices) if ctx.needs_input_grad[0] else None
    to_dense = _multiply(values.conj(), gradient, *_transposed(indices)) if ctx.needs_input_grad[1] else None
    return to_values, to_dense, *[None] * len(indices)


def _sample_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    left, right, *indices = ctx.saved_tensors
    to_left = _multiply(gradient, right.conj(), *indices) if ctx.needs_input_grad[0] else None
    to_right = _multiply(gradient, left.conj(), *_transposed(indices)) if ctx.needs_input_grad[1] else None
    return to_left, to_right, *[None] * len(indices)


_multiply.register_autograd(_multiply_backward, setup_context=_save)
_sample.register_autograd(_sample_backward, setup_context=_save)
