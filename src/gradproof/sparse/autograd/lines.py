"""Between the entries of a pattern and its rows or columns: a sum over each, and its adjoint, a copy to each entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradproof.sparse.autograd import compiled, kernels
from gradproof.sparse.autograd.transforms import apply, nested
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.compressed_rows import CompressedRows
from gradproof.sparse.pattern.values import with_signature

Map = Callable[[Tensor, Pattern, int], Tensor]


def of_entries(pattern: Pattern, dimension: int) -> Tensor:
    """Return the row (-2) or the column (-1) of every entry, numbered on over a batch."""
    pattern.require_matrix()
    if torch.compiler.is_compiling():
        return compiled.lines(pattern, dimension)
    return pattern.row_of_entry if dimension == -2 else pattern.column_of_entry


def coordinates(pattern: Pattern) -> Tensor:
    """Return the index of every entry, one row for each dimension of the pattern."""
    return compiled.coordinates(pattern) if torch.compiler.is_compiling() else pattern.coordinates


def count(pattern: Pattern, dimension: int) -> int:
    """Return the number of rows (-2) or columns (-1) over a batch."""
    return math.prod(pattern.batch) * pattern.shape[dimension]


def collect(values: Tensor, pattern: Pattern, dimension: int) -> Tensor:
    """Sum the values of each row (-2) or column (-1), one line of values an entry."""
    if _is_traced(values):
        where = of_entries(pattern, dimension)
        return values.new_zeros(count(pattern, dimension), *values.shape[1:]).index_add(0, where, values)
    return apply(_Linear, values, pattern, dimension, _sums, _copies)


def spread(lines: Tensor, pattern: Pattern, dimension: int) -> Tensor:
    """Return for each entry the line of numbers that belongs to its row (-2) or column (-1)."""
    if _is_traced(lines):
        return lines.index_select(0, of_entries(pattern, dimension))
    return apply(_Linear, lines, pattern, dimension, _copies, _sums)


def _is_traced(tensor: Tensor) -> bool:
    return torch.compiler.is_compiling() or tensor.is_meta


def _matrix(pattern: Pattern, dimension: int) -> CompressedRows:
    return pattern.by_rows if dimension == -2 else pattern.by_columns


def _sums(values: Tensor, pattern: Pattern, dimension: int) -> Tensor:
    matrix = _matrix(pattern, dimension)
    return kernels.sum_rows(matrix, matrix.in_row_order(values))


def _copies(lines: Tensor, pattern: Pattern, dimension: int) -> Tensor:
    matrix = _matrix(pattern, dimension)
    if pattern.is_by_columns == (dimension == -2) and matrix.permutation is not None:
        stored = _matrix(pattern, -3 - dimension)  # the other lines, whose order is that of storage in most layouts
        if stored.permutation is None:
            return lines.index_select(0, stored.col_indices)
    counts = matrix.crow_indices.diff()
    return matrix.in_storage_order(lines.repeat_interleave(counts, 0, output_size=matrix.entries))


class _Linear(Function):
    """A linear map of one tensor, given with its adjoint."""

    @staticmethod
    @with_signature
    def forward(tensor: Tensor, pattern: Pattern, dimension: int, linear: Map, _adjoint: Map) -> Tensor:
        return linear(tensor, pattern, dimension)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        _, *ctx.place, ctx.linear, ctx.adjoint = inputs
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, incoming: Tensor | None) -> tuple[Tensor | None, None, None, None, None]:
        gradient = None if incoming is None else apply(_Linear, incoming, *ctx.place, ctx.adjoint, ctx.linear)
        return gradient, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        with nested((tangent,)):
            return apply(_Linear, tangent, *ctx.place, ctx.linear, ctx.adjoint)

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[int | None, ...], tensor: Tensor, *arguments: Any) -> tuple[Tensor, int]:
        (dim, *_) = in_dims
        assert dim is not None
        return apply(_Linear, tensor.movedim(dim, 1), *arguments), 1
