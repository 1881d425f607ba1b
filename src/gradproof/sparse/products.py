"""Products of sparse and dense: forward, backward, forward mode, vmap, any order; memory as the stored entries."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.sparse import bilinear, joins
from gradproof.sparse.entries import assemble, entries
from gradproof.sparse.layouts import require_sparse, require_tensor
from gradproof.sparse.pattern import Pattern

Sparse = Tensor | tuple[Pattern, Tensor]


def parts(sparse: Sparse, *, dense: bool = False) -> tuple[Pattern, Tensor]:
    """Pattern and values of a sparse tensor, or of a pair of the two; differentiable."""
    if isinstance(sparse, tuple):
        if len(sparse) != 2 or not isinstance(sparse[0], Pattern):
            raise InputError(
                "The sparse operand is a tuple: pass a sparse tensor, or a pair of a Pattern and its values."
            )
        pattern, values = sparse
        pattern.require_values(values, dense=dense)
        return pattern, values
    pattern, values = Pattern.of(require_sparse(sparse, "the sparse operand")), entries(sparse)
    pattern.require_values(values, dense=dense)
    return pattern, values


def matmul(left: Sparse | Tensor, right: Sparse | Tensor) -> Tensor:
    """A matrix product of which one side is sparse: a sparse tensor of any layout, or a pair of pattern and values.

    The other side is a strided matrix, a vector, or a batch of matrices; or sparse too, and then so is the product, as
    CSR. The gradient of a sparse side lives on its stored entries, and no intermediate has a sparse side's full shape.

    >>> import torch
    >>> a = torch.tensor([[0.0, 2.0], [3.0, 0.0]]).to_sparse_csr().requires_grad_()
    >>> x = torch.tensor([1.0, 10.0], requires_grad=True)
    >>> y = matmul(a, x)
    >>> y
    tensor([20.,  3.], grad_fn=...)
    >>> y.sum().backward()
    >>> a.grad.values(), x.grad
    (tensor([10.,  1.]), tensor([3., 2.]))
    """
    for side, what in ((left, "left"), (right, "right")):
        if not isinstance(side, tuple):
            require_tensor(side, what)
    if _is_sparse(left):
        if _is_sparse(right):
            return assemble(*joins.multiply(parts(left), parts(right)))
        return _times_dense(*parts(left), right, transposed=False)
    if not _is_sparse(right):
        raise InputError("Neither side of the product is sparse. Use torch.matmul, or make one side sparse.")
    assert isinstance(left, Tensor)
    vector = left.ndim == 1
    product = _times_dense(*parts(right), left if vector else left.mT, transposed=True)
    return product if vector else product.mT


def sampled_matmul(pattern: Pattern | Tensor, left: Tensor, right: Tensor) -> Tensor:
    """A product of strided matrices, computed at the entries of a pattern alone.

    Gives the values; with a sparse tensor in the pattern's place, a sparse tensor with the same pattern.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.eye(2, dtype=torch.bool))
    >>> sampled_matmul(pattern, torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([3., 8.])
    """
    if isinstance(pattern, Tensor):
        known = Pattern.of(require_sparse(pattern, "the pattern"))
        return assemble(known, sampled_matmul(known, left, right))
    pattern.require_matrix()
    rows, columns = pattern.shape[-2:]
    left, right = _same_dtype(left, right)
    for side, what in ((left, "left"), (right, "right")):
        pattern.require_device(side, f"The entries of {what}")
    expected = (*pattern.batch, rows, left.shape[-1]), (*pattern.batch, left.shape[-1], columns)
    if (tuple(left.shape), tuple(right.shape)) != expected:
        raise InputError(
            f"left and right have shapes {list(left.shape)} and {list(right.shape)}: a product sampled at {pattern!r} "
            f"needs {[*pattern.batch, rows]} + [k] and {list(pattern.batch)} + [k, {columns}]."
        )
    return bilinear.sample(_stacked(left), _stacked(right.mT), pattern).reshape(pattern.values_shape)


def _is_sparse(operand: Sparse | Tensor) -> bool:
    return isinstance(operand, tuple) or (isinstance(operand, Tensor) and is_sparse(operand))


def _times_dense(pattern: Pattern, values: Tensor, dense: Sparse | Tensor, *, transposed: bool) -> Tensor:
    """A·D or Aᵀ·D for a vector, a matrix, or any batch of matrices."""
    assert isinstance(dense, Tensor)
    pattern.require_matrix()
    pattern.require_device(dense, "The dense operand's entries")
    rows, columns = pattern.shape[-2:][::-1] if transposed else pattern.shape[-2:]
    inner = -1 if dense.ndim == 1 else -2
    if dense.ndim == 0 or dense.shape[inner] != columns:
        side = "columns" if not transposed else "rows"
        raise InputError(
            f"The dense operand has shape {list(dense.shape)}, and the sparse one has {columns} {side}: the product "
            f"{list(pattern.shape)} with it does not exist."
        )
    values, dense = _same_dtype(values, dense)
    if dense.requires_grad and not torch.compiler.is_compiling():
        # Sorting takes memory: now, and not in the backward, on top of results and gradients.
        _ = pattern.by_rows, pattern.by_columns
    flat = values.reshape(-1)
    if dense.ndim == 1:
        lone = dense.unsqueeze(-1)
        return _times_dense(pattern, values, lone, transposed=transposed).squeeze(-1)
    if pattern.batch:
        batch = pattern.batch
        if dense.shape[:-2] not in (batch, ()):
            raise InputError(
                f"The batches do not fit: {list(batch)} sparse and {list(dense.shape[:-2])} dense matrices."
            )
        stacked = _stacked(dense.expand(*batch, *dense.shape[-2:]))
        return bilinear.multiply(flat, stacked, pattern, transposed).reshape(*batch, rows, dense.shape[-1])
    batch, width = dense.shape[:-2], dense.shape[-1]
    side_by_side = dense.movedim(-2, 0).reshape(columns, math.prod(batch) * width)
    product = bilinear.multiply(flat, side_by_side, pattern, transposed)
    return product.reshape(rows, *batch, width).movedim(0, -2)


def _stacked(matrices: Tensor) -> Tensor:
    """A batch of matrices, one below the other."""
    return matrices.reshape(-1, matrices.shape[-1]) if matrices.ndim > 2 else matrices


def _same_dtype(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    if first.dtype == second.dtype:
        return first, second
    dtype = torch.promote_types(first.dtype, second.dtype)
    return first.to(dtype), second.to(dtype)
