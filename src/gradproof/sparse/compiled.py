"""The two products as operators that `torch.compile` keeps in its graphs, each as one call.

The compiler cannot look into functions with a forward mode of their own, which those in `bilinear` have. These have
none, and the same reverse mode. A matrix comes as six plain tensors: its entries in row order and in column order, each
as starts, places and where the values are stored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradproof.sparse import kernels
from gradproof.sparse.compression import Compression
from gradproof.sparse.pattern import Pattern

INDICES = "Tensor starts, Tensor places, Tensor? order, Tensor other_starts, Tensor other_places, Tensor? other_order"
Indices = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor | None]


def multiply(values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool = False) -> Tensor:
    """A·D, or Aᵀ·D, for one value an entry in the order of storage."""
    indices = _indices_of(pattern)
    result: Tensor = _multiply(values, dense, *(_flipped(indices) if transposed else indices))
    return result


def sample(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
    """For every entry in the order of storage the sum over k of left[row, k] · right[column, k]."""
    result: Tensor = _sample(left, right, *_indices_of(pattern))
    return result


def _indices_of(pattern: Pattern) -> Indices:
    known = vars(pattern)  # not every compiler sees what a cached property holds
    rows, columns = known.get("by_rows") or pattern.by_rows, known.get("by_columns") or pattern.by_columns
    return rows.starts, rows.places, rows.order, columns.starts, columns.places, columns.order


def _flipped(indices: Any) -> Indices:
    return (*indices[3:], *indices[:3])


def _rows(indices: tuple[Any, ...]) -> Compression:
    starts, places, order, other_starts, *_ = indices
    return Compression(starts.numel() - 1, other_starts.numel() - 1, starts, places, order)


@torch.library.custom_op(
    "gradproof::multiply", mutates_args=(), schema=f"(Tensor values, Tensor dense, {INDICES}) -> Tensor"
)
def _multiply(values: Tensor, dense: Tensor, *indices: Any) -> Tensor:
    matrix = _rows(indices)
    return kernels.multiply(matrix, matrix.in_row_order(values), dense)


@torch.library.custom_op(
    "gradproof::sample", mutates_args=(), schema=f"(Tensor left, Tensor right, {INDICES}) -> Tensor"
)
def _sample(left: Tensor, right: Tensor, *indices: Any) -> Tensor:
    matrix = _rows(indices)
    return matrix.in_storage_order(kernels.sample(matrix, left, right))


@_multiply.register_fake
def _(values: Tensor, dense: Tensor, starts: Tensor, *indices: Any) -> Tensor:
    return dense.new_empty(starts.shape[0] - 1, dense.shape[1])


@_sample.register_fake
def _(left: Tensor, right: Tensor, starts: Tensor, places: Tensor, *indices: Any) -> Tensor:
    return left.new_empty(places.shape[0])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _multiply_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    values, dense, *indices = ctx.saved_tensors
    to_values = _sample(gradient, dense.conj(), *indices) if ctx.needs_input_grad[0] else None
    to_dense = _multiply(values.conj(), gradient, *_flipped(indices)) if ctx.needs_input_grad[1] else None
    return to_values, to_dense, *[None] * len(indices)


def _sample_backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    left, right, *indices = ctx.saved_tensors
    to_left = _multiply(gradient, right.conj(), *indices) if ctx.needs_input_grad[0] else None
    to_right = _multiply(gradient, left.conj(), *_flipped(indices)) if ctx.needs_input_grad[1] else None
    return to_left, to_right, *[None] * len(indices)


_multiply.register_autograd(_multiply_backward, setup_context=_remember)
_sample.register_autograd(_sample_backward, setup_context=_remember)
