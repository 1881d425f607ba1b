"""Sparse times sparse: every entry (i, j) of one matrix is multiplied by the entries (j, k) of the other.

The pairs of entries, and the entry of the product that each adds to, follow from the two patterns, and are cached for
them. Time and memory are proportional to the pairs; nothing has the size of a dense matrix. The arithmetic is torch's
own, which has derivatives of every order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.compressed_rows import compress
from gradproof.sparse.pattern.grid import ravel


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """For every pair of entries their positions in storage, and the entry of the product that they add to."""

    left: Tensor
    right: Tensor
    slot: Tensor
    product: Pattern

    @classmethod
    def of(cls, left: Pattern, right: Pattern) -> Pairs:
        """Return the pairs of two patterns, cached as long as both live."""
        known: Pairs | None = left.products.get(right)
        if known is None:
            left.products[right] = known = cls._found(left, right)
        return known

    @classmethod
    def _found(cls, left: Pattern, right: Pattern) -> Pairs:
        rows, columns = left.shape[0], right.shape[1]
        partners = right.by_rows
        crow_indices, inner = partners.crow_indices.long(), left.column_of_entry
        counts = crow_indices.diff().index_select(0, inner)
        one = torch.repeat_interleave(counts)
        behind = torch.arange(one.numel(), device=one.device) - (counts.cumsum(0) - counts).index_select(0, one)
        other = crow_indices.index_select(0, inner.index_select(0, one)) + behind
        column = partners.col_indices.long().index_select(0, other)
        keys = ravel((left.row_of_entry.index_select(0, one), column), (rows, columns))
        distinct, slot = torch.unique(keys, return_inverse=True)
        row, column = distinct.div(max(1, columns), rounding_mode="floor"), distinct.remainder(max(1, columns))
        product = Pattern(torch.sparse_csr, (rows, columns), (compress(row, rows), column))
        return cls(one, other if partners.permutation is None else partners.permutation.long()[other], slot, product)


def multiply(left: tuple[Pattern, Tensor], right: tuple[Pattern, Tensor]) -> tuple[Pattern, Tensor]:
    """Return the CSR pattern and the values of the product of two sparse matrices, given by pattern and values.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.tensor([[True, True], [False, True]]))
    >>> found, values = multiply((pattern, torch.tensor([1.0, 2.0, 3.0])), (pattern, torch.tensor([1.0, 10.0, 100.0])))
    >>> found, values
    (Pattern(CSR, shape=[2, 2], entries=3), tensor([  1., 210., 300.]))
    """
    for pattern, _ in (left, right):
        pattern.require_matrix()
        if pattern.batch:
            raise InputError(f"{pattern!r} is a batch: sparse times sparse takes single matrices. Multiply one by one.")
    if left[0].shape[1] != right[0].shape[0]:
        raise InputError(
            f"The product of {left[0]!r} and {right[0]!r} does not exist: the left one has {left[0].shape[1]} columns, "
            f"and the right one {right[0].shape[0]} rows."
        )
    left[0].require_device(right[1], "The right operand's entries")
    pairs = Pairs.of(left[0], right[0])
    terms = left[1].reshape(-1).index_select(0, pairs.left) * right[1].reshape(-1).index_select(0, pairs.right)
    return pairs.product, terms.new_zeros(pairs.product.entries).index_add(0, pairs.slot, terms)
