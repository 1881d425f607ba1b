"""Clipping of gradients by what they store, sparse ones included."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from gradproof.errors import InputError
from gradproof.sparse.pattern.layouts import is_distinct, is_sparse, require_tensor, stored_values
from gradproof.sparse.pattern.validation import require_well_formed

EPSILON = 1e-6  # torch's own, so that results are the same to the bit


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients in place so that their total norm is at most `max_norm`; return the norm before.

    The counterpart of `torch.nn.utils.clip_grad_norm_`, which fails on sparse gradients.

    >>> import torch
    >>> a = torch.eye(2).to_sparse_csr().requires_grad_()
    >>> a.grad = torch.diag(torch.tensor([3.0, 4.0])).to_sparse_csr()
    >>> clip_grad_norm_([a], 1.0)
    tensor(5.)
    >>> a.grad.values()
    tensor([0.6000, 0.8000])
    """
    gradients = _stored_gradients(parameters, max_norm, "max_norm")
    norm = get_total_norm(gradients, norm_type, error_if_nonfinite)
    scale = torch.clamp(float(max_norm) / (norm + EPSILON), max=1.0)
    for gradient in gradients:
        gradient.mul_(scale.to(gradient.device))
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient entry in place to [-clip_value, clip_value], as torch does, for sparse gradients too.

    >>> import torch
    >>> a = torch.eye(2).to_sparse_csr().requires_grad_()
    >>> a.grad = torch.diag(torch.tensor([3.0, -4.0])).to_sparse_csr()
    >>> clip_grad_value_([a], 1.0)
    >>> a.grad.values()
    tensor([ 1., -1.])
    """
    gradients = _stored_gradients(parameters, clip_value, "clip_value")
    if any(gradient.is_complex() for gradient in gradients):
        raise InputError("A complex gradient has no order to be clamped in. Use clip_grad_norm_.")
    for gradient in gradients:
        gradient.clamp_(-clip_value, clip_value)


def _stored_gradients(parameters: Tensor | Iterable[Tensor], bound: float, name: str) -> list[Tensor]:
    """Return the values that the gradients store; an uncoalesced gradient is coalesced first.

    Raise before any gradient is changed: a negative bound would flip all signs, and NaN would erase all values.
    """
    if not isinstance(parameters, Iterable):
        raise InputError(f"parameters is a {type(parameters).__name__}: pass a tensor, or several in a list.")
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    for number, parameter in enumerate(given):
        require_tensor(parameter, f"parameters[{number}]")
    is_number = bound.numel() == 1 and not is_sparse(bound) if isinstance(bound, Tensor) else isinstance(bound, Real)
    if not is_number or not bound >= 0:
        raise InputError(f"{name}={bound!r}: pass a number that is not negative.")
    found = []
    for parameter in given:
        if parameter.grad is None:
            continue
        require_well_formed(parameter.grad, "A gradient, a")
        if is_sparse(parameter.grad) and not is_distinct(parameter.grad):
            parameter.grad = parameter.grad.coalesce()
        found.append(stored_values(parameter.grad) if is_sparse(parameter.grad) else parameter.grad.detach())
    return found
