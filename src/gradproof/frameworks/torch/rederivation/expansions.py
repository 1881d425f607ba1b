"""Operations as compositions of simpler ones, so that the terms of their derivatives are steps of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

ATEN = torch.ops.aten


def _logsumexp(x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:  # torch's own signature
    return x.exp().sum(dim, keepdim).log()


def _softmax(x: Tensor, dim: int, _half: bool) -> Tensor:  # torch's own signature
    powers = x.exp()
    return powers / powers.sum(dim, keepdim=True)


def _log_softmax(x: Tensor, dim: int, _half: bool) -> Tensor:  # torch's own signature
    return x - _logsumexp(x, dim, keepdim=True)


def _logcumsumexp(x: Tensor, dim: int) -> Tensor:
    return x.exp().cumsum(dim).log()


def _variance(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    dims = _dims(x, dim)
    centred = x - x.mean(dims, keepdim=True)
    count = prod(x.shape[each] for each in dims) - (1 if correction is None else correction)
    return (centred * centred).sum(dims, keepdim) / count


def _deviation(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, correction=correction, keepdim=keepdim).sqrt()


def _variance_and_mean(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _variance(x, dim, correction=correction, keepdim=keepdim), x.mean(_dims(x, dim), keepdim)


def _norm(
    x: Tensor, order: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:  # torch's own signature
    squares = (x * x.conj()).real if x.is_complex() else x * x
    powers = squares if order == 2 else squares.sqrt() ** order
    whole = powers.sum(_dims(x, dim), keepdim)
    whole = whole.sqrt() if order == 2 else whole ** (1 / order)
    return whole if dtype is None else whole.to(dtype)


def _layer_norm(x: Tensor, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> Any:
    dims = tuple(range(x.dim() - len(shape), x.dim()))
    mean = x.mean(dims, keepdim=True)
    rstd = (_variance(x, dims, correction=0, keepdim=True) + eps).rsqrt()
    y = (x - mean) * rstd
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, rstd


def _gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        inner: Tensor = (2 / torch.pi) ** 0.5 * (x + 0.044715 * x * x * x)
        return (inner.tanh() + 1) * x * 0.5
    return torch.erf(x * 0.5**0.5) * x * 0.5 + 0.5 * x


def _silu(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * x


def _softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    return torch.where(beta * x > threshold, x, (beta * x).exp().log1p() / beta)


def _sum_of_product(bias: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * bias + alpha * (a @ b)


def _plus_product(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (a * b)


def _plus_quotient(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (a / b)


def _dims(x: Tensor, dim: Any) -> tuple[int, ...]:
    dims = range(x.dim()) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    return tuple(each % x.dim() for each in dims)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, **more: Any
) -> Any:  # torch's own signature
    scores = q @ k.mT * (more.get("scale") or q.shape[-1] ** -0.5)
    if causal:
        kept = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~kept, -torch.inf)
    if more.get("attn_mask") is not None:
        scores = scores + more["attn_mask"]
    if dropout:
        raise NotImplementedError
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


EXPANSIONS: dict[Any, Callable[..., Any]] = {
    ATEN._softmax.default: _softmax,
    ATEN._log_softmax.default: _log_softmax,
    ATEN.logsumexp.default: _logsumexp,
    ATEN.logcumsumexp.default: _logcumsumexp,
    ATEN.var.correction: _variance,
    ATEN.std.correction: _deviation,
    ATEN.var_mean.correction: _variance_and_mean,
    ATEN.linalg_vector_norm.default: _norm,
    ATEN.native_layer_norm.default: _layer_norm,
    ATEN.gelu.default: _gelu,
    ATEN.silu.default: _silu,
    ATEN.softplus.default: _softplus,
    ATEN.addmm.default: _sum_of_product,
    ATEN.baddbmm.default: _sum_of_product,
    ATEN.addmv.default: _sum_of_product,
    ATEN.addcmul.default: _plus_product,
    ATEN.addcdiv.default: _plus_quotient,
    ATEN._scaled_dot_product_flash_attention_for_cpu.default: _attention,
}
