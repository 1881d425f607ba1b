"""Sparse times sparse: every entry (i, j) of one matrix meets the entries (j, k) of the other.

Which meet, and where their products go, follows from the two patterns, and is found once for a pair of them. Time and
memory are those of the meetings; nothing has the size of a dense matrix. The arithmetic is torch's own, which has
derivatives of every order.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.compression import starts_of
from gradproof.sparse.coordinates import positions
from gradproof.sparse.pattern import Pattern


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """For every meeting the entries that meet, by their place in storage, and the entry of the product they add to."""

    left: Tensor
    right: Tensor
    slot: Tensor
    product: Pattern

    @classmethod
    def of(cls, left: Pattern, right: Pattern) -> Join:
        """That of two patterns; the same one for as long as both live."""
        known = _KNOWN.setdefault(left, WeakKeyDictionary())
        if right not in known:
            known[right] = cls._found(left, right)
        return known[right]

    @classmethod
    def _found(cls, left: Pattern, right: Pattern) -> Join:
        rows, columns = left.shape[0], right.shape[1]
        partners = right.by_rows
        starts, met = partners.starts.long(), left.column_of_entry
        counts = starts.diff().index_select(0, met)
        one = torch.repeat_interleave(counts)
        behind = torch.arange(one.numel(), device=one.device) - (counts.cumsum(0) - counts).index_select(0, one)
        other = starts.index_select(0, met.index_select(0, one)) + behind
        corners = torch.stack([left.row_of_entry.index_select(0, one), partners.places.long().index_select(0, other)])
        distinct, slot = torch.unique(positions(corners, (rows, columns)), return_inverse=True)
        row, column = distinct.div(max(1, columns), rounding_mode="floor"), distinct.remainder(max(1, columns))
        product = Pattern(torch.sparse_csr, (rows, columns), (starts_of(row, rows), column))
        return cls(one, other if partners.order is None else partners.order.long()[other], slot, product)


def multiply(left: tuple[Pattern, Tensor], right: tuple[Pattern, Tensor]) -> tuple[Pattern, Tensor]:
    """The product of two sparse matrices, with an entry wherever two of theirs meet, in CSR.

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
    join = Join.of(left[0], right[0])
    terms = left[1].reshape(-1).index_select(0, join.left) * right[1].reshape(-1).index_select(0, join.right)
    return join.product, terms.new_zeros(join.product.entries).index_add(0, join.slot, terms)


_KNOWN: MutableMapping[Pattern, MutableMapping[Pattern, Join]] = WeakKeyDictionary()
