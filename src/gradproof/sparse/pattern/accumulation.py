"""Accumulation hooks: gradients of sparse leaves, added up in the leaf's own layout.

Torch fails to add CSC, BSR and BSC tensors, and loses the batch of batched CSR ones; gradients of such tensors travel
as COO, which it can add. Of COO gradients it forgets that they are coalesced. So hooks on the leaf add up what
`loss.backward()` brings, and torch stores an empty tensor until the sum is in place.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakIdKeyDictionary

from gradproof.sparse.pattern.layouts import sparse_tensor, split_shape

Add = Callable[[Tensor, Tensor | None, Tensor], Tensor]  # takes a leaf, what it holds, if anything, and a gradient


class Accumulator:
    """The gradients on their way into one leaf."""

    def __init__(self, add: Add) -> None:
        self._add = add
        self._sum: Tensor | None = None
        self.values: Parameter | None = None  # the leaf's stored values as a strided parameter, once asked for
        self.on_gradient: Callable[[Tensor], None] | None = None  # called after every backward

    def collect(self, leaf: Tensor, gradient: Tensor) -> Tensor:
        """Add a gradient to the sum if it is sparse, and return what torch is to accumulate instead."""
        held = leaf.grad
        if held is not None and held.layout is torch.strided:
            return gradient  # torch adds it to what is there
        if gradient.layout is torch.strided:
            total = gradient if held is None else self._add(leaf, held, gradient)
        else:
            self._sum, total = self._add(leaf, held, gradient), _empty_like(gradient)
        leaf.grad = None
        return total

    def place(self, leaf: Tensor) -> None:
        """Put the sum into the leaf's gradient."""
        if self._sum is not None:
            leaf.grad, self._sum = self._sum, None
        if self.on_gradient is not None:
            self.on_gradient(leaf)


def accumulator_of(leaf: Tensor, add: Add) -> Accumulator:
    """Return the leaf's accumulator, the same at every call; the first call puts a hook on the leaf."""
    known = _ACCUMULATORS.get(leaf)
    if known is None:
        _ACCUMULATORS[leaf] = known = Accumulator(add)
        leaf.register_post_accumulate_grad_hook(known.place)  # type: ignore[no-untyped-call]  # torch's own
    return known


def collect_gradients(leaf: Tensor, result: Tensor, add: Add) -> None:
    """Have the accumulator collect the gradient that flows from `result`, computed from the leaf alone."""
    assert result.grad_fn is not None
    (node, _), *_ = result.grad_fn.next_functions
    assert node is not None
    accumulator = accumulator_of(leaf, add)
    hooked = cast(dict[str, bool], node.metadata)  # a property, which torch declares as a method
    if __name__ not in hooked:
        hooked[__name__] = True
        node.register_prehook(lambda gradients: (accumulator.collect(leaf, gradients[0]),))


def _empty_like(gradient: Tensor) -> Tensor:
    """Build a tensor of the gradient's type and shape without entries; all compressed layouts are one type to torch."""
    shape, dense, _ = split_shape(gradient)
    is_coo, batch = gradient.layout is torch.sparse_coo, shape[:-2]
    sizes = [(len(shape), 0)] if is_coo else [(*batch, shape[-2] + 1), (*batch, 0)]
    indices = tuple(torch.zeros(size, dtype=torch.int64, device=gradient.device) for size in sizes)
    values = torch.zeros(*sizes[-1][is_coo:], *dense, dtype=gradient.dtype, device=gradient.device)
    return sparse_tensor(gradient.layout if is_coo else torch.sparse_csr, indices, values, gradient.shape)


_ACCUMULATORS: MutableMapping[Tensor, Accumulator] = WeakIdKeyDictionary()
