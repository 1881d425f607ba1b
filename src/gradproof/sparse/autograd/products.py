"""Products with a sparse operand, differentiable in both modes and to any order, in memory of the stored entries."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.autograd import bilinear, sparse_products
from gradproof.sparse.autograd.conversions import repack
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.layouts import is_sparse, require_sparse, require_tensor
from gradproof.sparse.pattern.pattern import require_pattern
from gradproof.sparse.pattern.values import read

Sparse = Tensor | tuple[Pattern, Tensor]


def parts(sparse: Sparse, *, dense: bool = False) -> tuple[Pattern, Tensor]:
    """Return pattern and values of a sparse tensor, or of a pair of the two; differentiable."""
    if isinstance(sparse, tuple):
        if len(sparse) != 2 or not isinstance(sparse[0], Pattern):
            raise InputError(
                "The sparse operand is a tuple: pass a sparse tensor, or a pair of a Pattern and its values."
            )
        pattern, values = sparse
    else:
        pattern = Pattern.of(require_sparse(sparse, "the sparse operand"))
        values = read(sparse, pattern)
    pattern.require_values(values, dense=dense)
    return pattern, values


def matmul(left: Sparse | Tensor, right: Sparse | Tensor) -> Tensor:
    """Multiply matrices, of which one is sparse: a sparse tensor of any layout, or a pair of pattern and values.

    The other side is a strided matrix, a vector, or a batch of matrices; or sparse too, and then the product is CSR.
    The gradient of a sparse side has its stored entries alone, and no intermediate has a sparse side's full shape.

    A left side may have heads, further dimensions of its values: several matrices with one pattern. Then the right side
    has the same dimensions behind its rows (or 1 in their place): [entries, heads] times [columns, heads, k] makes
    [rows, heads, k].

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
            pattern, values = sparse_products.multiply(parts(left), parts(right))
            return repack(values, pattern)
        return _times_dense(*parts(left, dense=True), right, transposed=False)
    if not _is_sparse(right):
        raise InputError("Neither side of the product is sparse. Use torch.matmul, or make one side sparse.")
    assert isinstance(left, Tensor)
    vector = left.ndim == 1
    product = _times_dense(*parts(right, dense=True), left if vector else left.mT, transposed=True)
    return product if vector else product.mT


def sampled_matmul(pattern: Pattern | Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Compute a product of strided matrices at the entries of a pattern alone.

    Returns the values, or, if a sparse tensor is given instead of a pattern, a sparse tensor with the same pattern.
    With heads, left is [rows, heads, k], right is [k, heads, columns], and there is a value for each entry and head.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.eye(2, dtype=torch.bool))
    >>> sampled_matmul(pattern, torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0, 4.0]]))
    tensor([3., 8.])
    """
    if isinstance(pattern, Tensor):
        known = Pattern.of(require_sparse(pattern, "the pattern"))
        return repack(sampled_matmul(known, left, right), known)
    require_pattern(pattern).require_matrix()
    for side, what in ((left, "left"), (right, "right")):
        pattern.require_device(require_tensor(side, what), f"The entries of {what}")
    left, right = _same_dtype(left, right)
    lead, heads = len(pattern.batch), tuple(left.shape[len(pattern.batch) + 1 : -1])
    width = left.shape[-1:]
    expected = (*pattern.shape[:-1], *heads, *width), (*pattern.batch, *width, *heads, pattern.shape[-1])
    if left.ndim < lead + 2 or (tuple(left.shape), tuple(right.shape)) != expected:
        raise InputError(
            f"left and right have shapes {list(left.shape)} and {list(right.shape)}: a product sampled at {pattern!r} "
            f"needs {list(pattern.shape[:-1])} + [k] and {list(pattern.batch)} + [k, {pattern.shape[-1]}], with the "
            "same heads, if any, in between."
        )
    values = bilinear.sample(_stacked(left, lead), _stacked(right.transpose(lead, -1), lead), pattern)
    return values.reshape(*pattern.values_shape, *heads)


def _is_sparse(operand: Sparse | Tensor) -> bool:
    return isinstance(operand, tuple) or (isinstance(operand, Tensor) and is_sparse(operand))


def _times_dense(pattern: Pattern, values: Tensor, dense: Sparse | Tensor, *, transposed: bool) -> Tensor:
    """Compute A·D or Aᵀ·D for a vector, a matrix, or any batch of matrices."""
    assert isinstance(dense, Tensor)
    pattern.require_matrix()
    pattern.require_device(dense, "The dense operand's entries")
    rows, columns = pattern.shape[-2:][::-1] if transposed else pattern.shape[-2:]
    heads = tuple(values.shape[len(pattern.values_shape) :])
    if heads and transposed:
        raise InputError(
            f"The values have heads {list(heads)}, and the sparse operand is on the right. Put it on the left: "
            "matmul((pattern.transposed, values), dense)."
        )
    inner = -1 if dense.ndim == 1 else -2 - len(heads)
    if dense.ndim < -inner or dense.shape[inner] != columns:
        side = "columns" if not transposed else "rows"
        behind = f" and {list(heads)} heads behind them" if heads else ""
        raise InputError(
            f"The dense operand has shape {list(dense.shape)}, and the sparse one has {columns} {side}{behind}: the "
            f"product {list(pattern.shape)} with it does not exist."
        )
    values, dense = _same_dtype(values, dense)
    if dense.requires_grad and not torch.compiler.is_compiling() and not pattern.is_meta:
        # Sorting takes memory: do it now, and not in the backward on top of results and gradients.
        _ = pattern.by_rows, pattern.by_columns
    if dense.ndim == 1:
        return _times_dense(pattern, values, dense.unsqueeze(-1), transposed=transposed).squeeze(-1)
    dense = _with_heads(dense, heads)
    flat = values.reshape(pattern.entries, *heads)
    batch, lead = pattern.batch, dense.shape[:inner]
    if batch:
        if lead not in (batch, ()):
            raise InputError(f"The batches do not fit: {list(batch)} sparse and {list(lead)} dense matrices.")
        stacked = _stacked(dense.expand(*batch, *dense.shape[inner:]), len(batch))
        product = bilinear.multiply(flat, stacked, pattern, transposed=transposed)
        return product.reshape(*batch, rows, *product.shape[1:])
    side_by_side = dense.reshape(-1, *dense.shape[inner:]).movedim(0, -1).flatten(-2) if lead else dense
    product = bilinear.multiply(flat, side_by_side, pattern, transposed=transposed)
    if not lead:
        return product
    side_by_side = product.reshape(*product.shape[:-1], dense.shape[-1], math.prod(lead))
    return side_by_side.movedim(-1, 0).reshape(*lead, rows, *heads, dense.shape[-1])


def _with_heads(dense: Tensor, heads: tuple[int, ...]) -> Tensor:
    """Return the dense operand with these heads before its last dimension: expanded where it has one."""
    if not heads:
        return dense
    given = dense.shape[-1 - len(heads) : -1]
    if any(one not in (1, wanted) for one, wanted in zip(given, heads, strict=True)):
        raise InputError(
            f"The dense operand has shape {list(dense.shape)}, and the values have heads {list(heads)}: it needs them, "
            "or ones, before its last dimension."
        )
    return dense.expand(*dense.shape[: -1 - len(heads)], *heads, dense.shape[-1])


def _stacked(matrices: Tensor, lead: int) -> Tensor:
    """Stack a batch of matrices, one below the other."""
    return matrices.flatten(0, lead) if lead else matrices


def _same_dtype(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    if first.dtype == second.dtype:
        return first, second
    dtype = torch.promote_types(first.dtype, second.dtype)
    return first.to(dtype), second.to(dtype)
