"""Accumulation hooks: gradients of sparse leaves, added up in the leaf's own layout.

Torch fails to add CSC, BSR and BSC tensors, and loses the batch of batched CSR ones; gradients of such tensors travel
as COO, which it can add. Of COO gradients it forgets that they are coalesced. So a hook before torch's own accumulation
adds up what `loss.backward()` brings, under a lock, and leaves nothing for torch to add: several threads may run
backward at once, as they may with strided leaves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, MutableMapping
from typing import cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakIdKeyDictionary

Add = Callable[[Tensor, Tensor | None, Tensor], Tensor]  # takes a leaf, what it holds, if anything, and a gradient


class Accumulator:
    """What adds up the gradients of one leaf."""

    def __init__(self, add: Add) -> None:
        self._add = add
        self.lock = threading.RLock()
        self.values: Parameter | None = None  # the leaf's stored values as a strided parameter, once asked for
        self.on_gradient: Callable[[Tensor], None] | None = None  # called after every backward

    def collect(self, leaf: Tensor, gradient: Tensor | None) -> Tensor | None:
        """Add a gradient to the leaf's, and return what torch is to accumulate instead."""
        if gradient is None:
            return None
        with self.lock:
            held = leaf.grad
            if held is not None and held.layout is torch.strided:
                return gradient  # torch adds it to what is there
            if gradient.layout is torch.strided:
                total = gradient if held is None else self._add(leaf, held, gradient)
                leaf.grad = None
                return total
            leaf.grad = self._add(leaf, held, gradient)
        return None

    def notify(self, leaf: Tensor) -> None:
        """Call the function that is registered for gradients of the leaf."""
        with self.lock:
            if self.on_gradient is not None:
                self.on_gradient(leaf)


def accumulator_of(leaf: Tensor, add: Add) -> Accumulator:
    """Return the leaf's accumulator, the same at every call; the first call puts a hook on the leaf."""
    known = _ACCUMULATORS.get(leaf)
    if known is None:
        known = _ACCUMULATORS.setdefault(leaf, Accumulator(add))
        leaf.register_post_accumulate_grad_hook(known.notify)  # type: ignore[no-untyped-call]  # torch's own
    return known


def collect_gradients(leaf: Tensor, result: Tensor, add: Add) -> None:
    """Have the accumulator collect the gradient that flows from `result`, computed from the leaf alone."""
    assert result.grad_fn is not None
    (node, _), *_ = result.grad_fn.next_functions
    assert node is not None
    accumulator = accumulator_of(leaf, add)
    hooked = cast(dict[str, bool], node.metadata)  # a property, which torch declares as a method
    with accumulator.lock:
        if __name__ in hooked:
            return
        hooked[__name__] = True
        node.register_prehook(lambda gradients: (accumulator.collect(leaf, gradients[0]),))


_ACCUMULATORS: MutableMapping[Tensor, Accumulator] = WeakIdKeyDictionary()
