"""Applying a gradient to a sparse tensor: its stored entries change, and nothing else does."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import require_number
from gradproof.sparse.pattern.cache import keep_facts
from gradproof.sparse.pattern.layouts import require_sparse, stored_values
from gradproof.sparse.pattern.values import read_at


def apply_gradient_(tensor: Tensor, grad: Tensor | None, lr: float, *, on_mismatch: str = "error") -> Tensor:
    """Take the gradient step `tensor -= lr · grad` on a sparse tensor of any layout, in place.

    Entries that are not stored stay so, and the pattern is unchanged. Bad input raises before anything is changed.

    >>> import torch
    >>> a = torch.tensor([[1.0, 0.0], [0.0, 2.0]]).to_sparse_bsr((1, 1)).requires_grad_()
    >>> apply_gradient_(a, torch.ones(2, 2), lr=0.5).to_dense()
    tensor([[0.5000, 0.0000],
            [0.0000, 1.5000]], grad_fn=...)

    Args:
        tensor: a sparse tensor; a COO tensor has to be coalesced.
        grad: strided (read where the tensor stores entries), or sparse of any layout.
        lr: the length of the step.
        on_mismatch: what to do with a sparse gradient that stores other positions: "error", or "project", which reads
            it as zero where it stores nothing and ignores what it stores elsewhere.
    """
    require_sparse(tensor, "tensor")
    require_number(lr, "lr")
    if isinstance(lr, bool) or not math.isfinite(lr):
        raise InputError(f"The learning rate is {lr!r}: a step has a finite length.")
    change = gradient_of(tensor, grad, on_mismatch=on_mismatch)
    stored_values(tensor).sub_(change, alpha=lr)
    mark_as_written(tensor)
    return tensor


def gradient_of(tensor: Tensor, grad: Tensor | None, *, on_mismatch: str) -> Tensor:
    """Return a gradient's values at the stored entries of a tensor, or raise if the two do not belong together."""
    if not isinstance(grad, Tensor):
        raise InputError(
            f"The gradient is {'None' if grad is None else f'a {type(grad).__name__}'}: there is nothing to apply. "
            "Call loss.backward() first, and see that the tensor requires grad and is part of the loss."
        )
    if grad.shape != tensor.shape:
        raise InputError(
            f"The gradient has shape {list(grad.shape)} and the tensor {list(tensor.shape)}: a gradient has the shape "
            "of what it belongs to."
        )
    if grad.dtype != tensor.dtype:
        raise InputError(
            f"The gradient has dtype {grad.dtype} and the tensor {tensor.dtype}. Pass grad.to({tensor.dtype})."
        )
    return read_at(Pattern.of(tensor), grad, on_mismatch=on_mismatch).detach()


def mark_as_written(tensor: Tensor) -> None:
    """Tell autograd that the values have changed, so that a backward through the old ones raises."""
    torch.autograd.graph.increment_version(tensor)
    keep_facts(tensor)
