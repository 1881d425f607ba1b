"""Sparse gradients that arrive at leaves.

Torch fails to add CSC, BSR and BSC tensors, and loses the batch of batched CSR ones; gradients of such tensors travel
as COO, which it can add. Of COO gradients it forgets that they are coalesced. So what `loss.backward()` brings to a
sparse leaf is added up here, on the leaf's own pattern, and torch has something empty to store until it is in place.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import cast

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary


def addable(tensor: Tensor) -> bool:
    """Whether torch adds up tensors of this layout by itself."""
    if tensor.layout is torch.sparse_csr:
        return tensor.ndim == 2
    return tensor.layout in (torch.strided, torch.sparse_coo)


class Arrivals:
    """What is on its way into one leaf. `total` makes one gradient in the leaf's layout of one or two."""

    def __init__(self, total: Callable[..., Tensor]) -> None:
        self._total = total
        self._sum: Tensor | None = None

    @classmethod
    def at(cls, leaf: Tensor, total: Callable[..., Tensor]) -> Arrivals:
        """Those at a leaf, the same at every call."""
        if leaf not in _KNOWN:
            _KNOWN[leaf] = made = cls(total)
            leaf.register_post_accumulate_grad_hook(made.settle)  # type: ignore[no-untyped-call]  # torch's own
        return _KNOWN[leaf]

    def collect(self, leaf: Tensor, gradient: Tensor) -> Tensor:
        """Take over from torch what is sparse, and give it nothing to store meanwhile."""
        held = leaf.grad
        if gradient.layout is torch.strided and (held is None or held.layout is torch.strided):
            return gradient
        self._sum = self._total(gradient) if held is None else self._total(held, gradient)
        leaf.grad = None
        return _nothing_like(gradient)

    def settle(self, leaf: Tensor) -> None:
        """Put the sum in its place."""
        if self._sum is not None:
            leaf.grad, self._sum = self._sum, None


def meet(leaf: Tensor, result: Tensor, total: Callable[..., Tensor]) -> None:
    """See to the gradient that will flow from `result`, computed from the leaf alone, into the leaf."""
    assert result.grad_fn is not None
    (accumulation, _), *_ = result.grad_fn.next_functions
    assert accumulation is not None
    arrivals = Arrivals.at(leaf, total)
    met = cast(dict[str, bool], accumulation.metadata)  # a property, which torch declares as a method
    if __name__ not in met:
        met[__name__] = True
        accumulation.register_prehook(lambda gradients: (arrivals.collect(leaf, gradients[0]),))


def _nothing_like(gradient: Tensor) -> Tensor:
    """Something of the gradient's type and shape without entries; all compressed layouts are one type to torch."""
    if gradient.layout is torch.strided:
        return gradient
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


_KNOWN: MutableMapping[Tensor, Arrivals] = WeakIdKeyDictionary()
