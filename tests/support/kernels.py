"""Kernels that use memory as compiled ones do: by address, whatever the tensor says about its size."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from support.functions import with_context
from support.points import normal


def at_address(tensor: Tensor, count: int) -> Tensor:
    """Return `count` doubles from the tensor's first entry on.

    One more than an even number of entries is safe to read and write: allocators round sizes up to sixteen bytes.
    """
    assert tensor.dtype == torch.float64
    return torch.frombuffer((ctypes.c_double * count).from_address(tensor.data_ptr()), dtype=torch.float64)


def surrounded(count: int, *, seed: int = 3) -> Tensor:
    """Return a vector that requires grad and lies inside a larger one, so that as_strided reads beyond its ends."""
    return normal(count + 8, seed=seed)[4 : 4 + count].requires_grad_()


def saving(forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """Make a Function of one input from `forward(x)` and `backward(g, x)`."""

    def remember(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return forward(x)

    return with_context(remember, lambda ctx, g: backward(g, *ctx.saved_tensors))


def doubled_in_place_of_empty(x: Tensor, written: int | None = None) -> Tensor:
    """Return 2x in memory from torch.empty, of which the first `written` entries are written to, or all."""
    result = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    result.view(-1)[:written] = 2 * x.reshape(-1)[:written]
    return result


def refusing_double(function: Callable[[Tensor], Tensor], spoil: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """Make a kernel that computes in float32 inside, does not take float64, and spoils its gradient."""

    def forward(x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise TypeError("unsupported dtype: float64")
        return function(x.float()).to(x.dtype)

    def backward(incoming: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            inside = x.detach().float().requires_grad_()
            (gradient,) = torch.autograd.grad(function(inside), inside, incoming.float())
        return spoil(gradient).to(x.dtype)

    return saving(forward, backward)
