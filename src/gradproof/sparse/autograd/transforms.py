"""Autograd Functions under transforms that torch's `apply` does not pass on: an older vmap, and nested forward mode.

`torch.autograd.grad(is_grads_batched=True)` and `functional.jacobian(vectorize=True)` use a vmap that `torch.func` does
not know, and that runs through a Function's forward. `apply` unwraps such tensors for the Function's own rule for vmap.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad


def apply(function: type[Function], *arguments: Any) -> Tensor:
    """Apply a Function with a rule for vmap; batched tensors of either vmap are mapped over by it.

    Where nothing is differentiated or transformed, its forward is called as it is: torch's `apply` takes longer than
    a small product.
    """
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    if any(map(_is_batched, tensors)):
        return _mapped(function, arguments)
    rule = function.apply if _are_followed(tensors) else function.forward
    result: Tensor = rule(*arguments)  # type: ignore[no-untyped-call]  # torch's own
    return result


@contextmanager
def nested(saved: tuple[Tensor, ...]) -> Iterator[list[Tensor]]:
    """Yield what was saved for a pushforward, without the tangents of its own level, with forward mode on.

    Torch turns forward mode off around a jvp, so a pushforward of a pushforward would silently be zero.
    """
    primals = [forward_ad.unpack_dual(tensor).primal for tensor in saved]  # type: ignore[no-untyped-call]  # torch's own
    with forward_ad._set_fwd_grad_enabled(True):
        yield primals


def _mapped(function: Any, arguments: tuple[Any, ...]) -> Tensor:
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    unwrapped, in_dims, size = [], [], 0
    for argument in arguments:
        batched = isinstance(argument, Tensor) and _is_batched(argument)
        if batched:
            argument = torch._remove_batch_dim(
                argument, level, 0, 0
            )  # the size is that of the batch, where there is one
            size = argument.shape[0]
        unwrapped.append(argument)
        in_dims.append(0 if batched else None)
    result, dim = function.vmap(SimpleNamespace(batch_size=size), tuple(in_dims), *unwrapped)
    wrapped: Tensor = torch._add_batch_dim(
        result.movedim(dim, 0).contiguous(), 0, level
    )  # it expects the batch in front
    return wrapped


def _is_batched(tensor: Tensor) -> bool:
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


def _are_followed(tensors: list[Tensor]) -> bool:
    """Return True if autograd, forward mode or a transformation of `torch.func` may follow these tensors."""
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
