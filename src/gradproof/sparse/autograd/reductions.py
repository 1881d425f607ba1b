"""Elementwise products with a dense tensor, sums along rows and columns, softmax over rows."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.autograd import lines, softmax
from gradproof.sparse.autograd.assembly import multiply_sparse
from gradproof.sparse.autograd.conversions import repack
from gradproof.sparse.autograd.products import Sparse, parts
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.layouts import is_sparse, require_tensor


def multiply(sparse: Sparse, other: Sparse) -> Sparse:
    """Multiply entry by entry, by a strided tensor, which may be broadcast, or by another sparse matrix.

    By a strided tensor, the result is a sparse tensor for a sparse tensor, and values for a pair of pattern and values.
    By a sparse matrix, it stores what both store: a COO tensor, or a pair of pattern and values for two pairs.

    >>> import torch
    >>> a = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr()
    >>> multiply(a, torch.tensor([[10.0], [100.0]])).to_dense()
    tensor([[  0.,  20.],
            [300.,   0.]])
    """
    if isinstance(other, tuple) or is_sparse(require_tensor(other, "The other operand")):
        return multiply_sparse(sparse, other)
    pattern, values = parts(sparse, dense=True)
    return _like(sparse, pattern, values * dense_at(pattern, other, values))


def dense_at(pattern: Pattern, dense: Tensor, values: Tensor) -> Tensor:
    """Read a dense tensor at a pattern's entries, in the shape of the values; broadcast, but never expanded."""
    pattern.require_device(require_tensor(dense, "The dense operand"), "The dense operand's entries")
    trailing = values.shape[len(pattern.values_shape) :]
    shape = (*pattern.shape, *trailing)
    try:
        fits = torch.broadcast_shapes(dense.shape, shape) == shape  # type: ignore[no-untyped-call]  # torch's own
    except RuntimeError:
        fits = False
    if not fits:
        raise InputError(
            f"The dense operand has shape {list(dense.shape)}, which cannot be broadcast to the sparse one's "
            f"{list(shape)}."
        )
    dense = dense.reshape(*[1] * (len(shape) - dense.ndim), *dense.shape)
    index = [
        coordinate if size > 1 else torch.zeros_like(coordinate)
        for size, coordinate in zip(dense.shape, lines.coordinates(pattern), strict=False)
    ]
    read = dense[tuple(index)]
    return read.reshape(*pattern.values_shape, *read.shape[1:])


def row_sums(sparse: Sparse) -> Tensor:
    """Sum each row.

    >>> import torch
    >>> row_sums(torch.tensor([[1.0, 2.0], [3.0, 0.0]]).to_sparse_csr())
    tensor([3., 3.])
    """
    return _sums(*parts(sparse, dense=True), -2)


def column_sums(sparse: Sparse) -> Tensor:
    """Sum each column.

    >>> pattern = Pattern.from_mask(torch.ones(2, 2).tril() > 0)
    >>> column_sums((pattern, torch.tensor([1.0, 2.0, 3.0])))
    tensor([3., 3.])
    """
    return _sums(*parts(sparse, dense=True), -1)


def row_softmax(sparse: Sparse) -> Tensor:
    """Compute the softmax over the stored entries of each row, as if all others were -inf.

    >>> import torch
    >>> row_softmax(torch.tensor([[1.0, 1.0], [3.0, 0.0]]).to_sparse_csr()).to_dense()
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000]])
    """
    pattern, values = parts(sparse, dense=True)
    if values.is_complex():
        raise InputError("A softmax of complex numbers is not defined: they have no order. Pass real values.")
    pattern.require_matrix()
    return _like(sparse, pattern, softmax.over_rows(_flat(pattern, values), pattern).reshape(values.shape))


def _sums(pattern: Pattern, values: Tensor, dimension: int) -> Tensor:
    flat = _flat(pattern, values)
    return lines.collect(flat, pattern, dimension).reshape(*pattern.batch, pattern.shape[dimension], *flat.shape[1:])


def _flat(pattern: Pattern, values: Tensor) -> Tensor:
    """Flatten the values, except for their dense dimensions."""
    return values.reshape(pattern.entries, *values.shape[len(pattern.values_shape) :])


def _like(sparse: Sparse, pattern: Pattern, values: Tensor) -> Tensor:
    return repack(values, pattern) if isinstance(sparse, Tensor) else values
