"""Gradients that arrive at leaves whose layout torch cannot add.

Torch fails to add CSC, BSR and BSC tensors, and loses the batch of batched CSR ones. Gradients of such tensors
therefore travel as COO, which it can add. Where `loss.backward()` leaves one in a leaf, it is put into the leaf's own
layout, and added to what is there already before torch would try to.
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

    def collect(self, leaf: Tensor, gradient: Tensor) -> None:
        """Take over from torch what it cannot add or store."""
        if leaf.grad is None:
            if gradient.layout is torch.sparse_coo:
                self._sum = self._total(gradient)
        elif not addable(leaf.grad):
            self._sum = self._total(leaf.grad, gradient)
            leaf.grad = None

    def settle(self, leaf: Tensor) -> None:
        """Put it in its place."""
        if self._sum is not None:
            leaf.grad, self._sum = self._sum, None


def meet(leaf: Tensor, result: Tensor, total: Callable[..., Tensor]) -> None:
    """See to the gradient that will flow from `result`, computed from the leaf alone, into the leaf."""
    assert result.grad_fn is not None
    (accumulation, _), *_ = result.grad_fn.next_functions
    assert accumulation is not None
    if leaf not in _KNOWN:
        _KNOWN[leaf] = Arrivals(total)
        leaf.register_post_accumulate_grad_hook(_KNOWN[leaf].settle)  # type: ignore[no-untyped-call]  # torch's own
    met = cast(dict[str, bool], accumulation.metadata)  # a property, which torch declares as a method
    if __name__ not in met:
        met[__name__] = True
        arrivals = _KNOWN[leaf]
        accumulation.register_prehook(lambda gradients: arrivals.collect(leaf, gradients[0]))


_KNOWN: MutableMapping[Tensor, Arrivals] = WeakIdKeyDictionary()
