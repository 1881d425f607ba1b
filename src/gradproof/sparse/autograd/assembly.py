"""Build sparse matrices from others, differentiably: add, multiply entry by entry, join, select and merge.

Sparse operands are tensors or pairs of pattern and values. If one is a tensor the result is a COO tensor, else a pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.autograd.conversions import repack
from gradproof.sparse.autograd.products import Sparse, parts
from gradproof.sparse.pattern import Pattern, assembly
from gradproof.sparse.pattern.assembly import Chosen


def add(*sparse: Sparse) -> Sparse:
    """Add sparse matrices: the sum stores what one of them stores.

    >>> import torch
    >>> add(torch.eye(2).to_sparse_csr(), torch.ones(2, 2).triu().to_sparse()).to_dense()
    tensor([[2., 1.],
            [0., 2.]])
    """
    patterns, values = _parts_of(sparse)
    pattern, slots = assembly.united(patterns)
    total = values[0].new_zeros(pattern.entries, *values[0].shape[1:])
    for some, slot in zip(values, slots, strict=True):
        total = total.index_add(0, slot, some)
    return _like(sparse, pattern, total)


def multiply_sparse(left: Sparse, right: Sparse) -> Sparse:
    """Multiply two sparse matrices entry by entry: the product stores what both of them store."""
    (one, other), (first, second) = _parts_of((left, right))
    pattern, here, there = assembly.common(one, other)
    return _like((left, right), pattern, first.index_select(0, here) * second.index_select(0, there))


def merged(sparse: tuple[Pattern, Tensor]) -> tuple[Pattern, Tensor]:
    """Sum the values of parallel edges, so that every position is stored once.

    >>> import torch
    >>> twice = Pattern.from_edge_index(torch.tensor([[0, 0], [1, 1]]), nodes=2, parallel=True)
    >>> merged((twice, torch.tensor([1.0, 2.0])))
    (Pattern(COO, shape=[2, 2], entries=1), tensor([3.]))
    """
    if not isinstance(sparse, tuple):
        raise InputError("merged takes a pair of a Pattern and its values. Of a COO tensor, call coalesce().")
    found = add(sparse)
    assert isinstance(found, tuple)
    return found


def block_diagonal(sparse: Sequence[Sparse]) -> Sparse:
    """Join graphs of a batch to one that is not connected: a matrix with the given ones on its diagonal.

    >>> import torch
    >>> block_diagonal([torch.ones(1, 2).to_sparse(), torch.ones(2, 1).to_sparse()]).to_dense()
    tensor([[1., 1., 0.],
            [0., 0., 1.],
            [0., 0., 1.]])
    """
    patterns, values = _parts_of(sparse)
    return _like(sparse, assembly.block_diagonal(patterns), torch.cat(values))


def concatenate(sparse: Sequence[Sparse], dim: int = 0) -> Sparse:
    """Put sparse matrices one below the other (0), or side by side (1).

    >>> import torch
    >>> concatenate([torch.eye(2).to_sparse_csr()] * 2, dim=1).to_dense()
    tensor([[1., 0., 1., 0.],
            [0., 1., 0., 1.]])
    """
    patterns, values = _parts_of(sparse)
    return _like(sparse, assembly.concatenated(patterns, dim), torch.cat(values))


def select(sparse: Sparse, rows: Chosen = slice(None), columns: Chosen = slice(None)) -> Sparse:
    """Cut out some rows and columns, given as slices, masks or distinct indices, in their order.

    >>> import torch
    >>> select(torch.arange(9.0).reshape(3, 3).to_sparse(), rows=[2, 0], columns=slice(1, 3)).to_dense()
    tensor([[7., 8.],
            [1., 2.]])
    """
    (pattern,), (values,) = _parts_of([sparse])
    found, entries = assembly.submatrix(pattern, rows, columns)
    return _like([sparse], found, values.index_select(0, entries))


def _parts_of(sparse: Sequence[Sparse]) -> tuple[list[Pattern], list[Tensor]]:
    """Return patterns and values, one line of values for each entry, in one dtype."""
    if not isinstance(sparse, (tuple, list)) or not sparse:
        raise InputError("Pass sparse matrices in a list: tensors, or pairs of a Pattern and its values.")
    patterns, values = zip(*(parts(one, dense=True) for one in sparse), strict=True)
    flat = [
        some.reshape(known.entries, *some.shape[len(known.values_shape) :])
        for known, some in zip(patterns, values, strict=True)
    ]
    if len({some.shape[1:] for some in flat}) > 1:
        raise InputError(f"The values have heads {[list(some.shape[1:]) for some in flat]}: pass the same for all.")
    dtype = flat[0].dtype
    for some in flat:
        dtype = torch.promote_types(dtype, some.dtype)
    return list(patterns), [some.to(dtype) for some in flat]


def _like(sparse: Sequence[Sparse], pattern: Pattern, values: Tensor) -> Sparse:
    return repack(values, pattern) if any(isinstance(one, Tensor) for one in sparse) else (pattern, values)
