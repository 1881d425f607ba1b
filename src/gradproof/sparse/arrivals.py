"""Sparse gradients that arrive at leaves.

Torch fails to add CSC, BSR and BSC tensors, and loses the batch of batched CSR ones; gradients of such tensors travel
as COO, which it can add. Of COO gradients it forgets that they are coalesced. So what `loss.backward()` brings to a
sparse leaf is added up here, in the leaf's own layout, and torch has something empty to store until it is in place.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import cast

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from gradproof.frameworks.torch.patterns import is_distinct
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.sparse.pattern import Pattern


def settled(tensor: Tensor, result: Tensor) -> Tensor:
    """What was computed from a tensor alone: if that is a sparse leaf, gradients from here settle in its layout.

    A leaf with duplicates is left to torch, which adds its gradients as they are.
    """
    if result.requires_grad and tensor.is_leaf and result is not tensor and is_sparse(tensor) and is_distinct(tensor):
        _meet(tensor, result)
    return result


def expect(leaf: Tensor) -> None:
    """Have gradients of this leaf added up in its layout, before anything else looks at them after a backward."""
    _Arrivals.at(leaf)


class _Arrivals:
    """What is on its way into one leaf."""

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._sum: Tensor | None = None

    @classmethod
    def at(cls, leaf: Tensor) -> _Arrivals:
        """Those at a leaf, the same at every call."""
        if leaf not in _KNOWN:
            _KNOWN[leaf] = made = cls(Pattern.of(leaf))
            leaf.register_post_accumulate_grad_hook(made.settle)  # type: ignore[no-untyped-call]  # torch's own
        return _KNOWN[leaf]

    def collect(self, leaf: Tensor, gradient: Tensor) -> Tensor:
        """Take over from torch what is sparse, and give it nothing to store meanwhile."""
        from gradproof.sparse import totals, transfer  # which read tensors, whose gradients arrive here

        held = leaf.grad
        if held is not None and held.layout is torch.strided:
            return gradient  # torch adds it to what is there
        if gradient.layout is not torch.strided:
            self._sum = totals.total(self._pattern, *(() if held is None else (held,)), gradient)
            gradient = _nothing_like(gradient)
        elif held is not None:
            gradient = gradient + transfer.spread(held)
        leaf.grad = None
        return gradient

    def settle(self, leaf: Tensor) -> None:
        """Put the sum in its place."""
        if self._sum is not None:
            leaf.grad, self._sum = self._sum, None


def _meet(leaf: Tensor, result: Tensor) -> None:
    """See to the gradient that will flow from `result` into the leaf."""
    assert result.grad_fn is not None
    (accumulation, _), *_ = result.grad_fn.next_functions
    assert accumulation is not None
    arrivals = _Arrivals.at(leaf)
    met = cast(dict[str, bool], accumulation.metadata)  # a property, which torch declares as a method
    if __name__ not in met:
        met[__name__] = True
        accumulation.register_prehook(lambda gradients: (arrivals.collect(leaf, gradients[0]),))


def _nothing_like(gradient: Tensor) -> Tensor:
    """Something of the gradient's type and shape without entries; all compressed layouts are one type to torch."""
    if gradient.layout is torch.sparse_coo:
        return torch.sparse_coo_tensor(
            torch.zeros(gradient.sparse_dim(), 0, dtype=torch.int64, device=gradient.device),
            torch.zeros(0, *gradient.shape[gradient.sparse_dim() :], dtype=gradient.dtype, device=gradient.device),
            gradient.shape,
            check_invariants=False,
        )
    rows = gradient.shape[gradient.ndim - gradient.dense_dim() - 2]
    batch = gradient.shape[: gradient.ndim - gradient.dense_dim() - 2]
    dense = gradient.shape[gradient.ndim - gradient.dense_dim() :]
    return torch.sparse_csr_tensor(
        torch.zeros(*batch, rows + 1, dtype=torch.int64, device=gradient.device),
        torch.zeros(*batch, 0, dtype=torch.int64, device=gradient.device),
        torch.zeros(*batch, 0, *dense, dtype=gradient.dtype, device=gradient.device),
        gradient.shape,
        check_invariants=False,
    )


_KNOWN: MutableMapping[Tensor, _Arrivals] = WeakIdKeyDictionary()
