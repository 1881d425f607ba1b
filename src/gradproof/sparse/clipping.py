"""Clipping of gradients, sparse ones included: what counts is what they store."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from gradproof.errors import InputError
from gradproof.frameworks.torch.layouts import stored_values
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.sparse.layouts import require_tensor

SPARE = 1e-6  # torch's own, so that results are the same to the bit


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients in place so that their common norm is at most `max_norm`; gives the norm before.

    As `torch.nn.utils.clip_grad_norm_`, which fails on sparse gradients.

    >>> import torch
    >>> a = torch.eye(2).to_sparse_csr().requires_grad_()
    >>> a.grad = torch.diag(torch.tensor([3.0, 4.0])).to_sparse_csr()
    >>> clip_grad_norm_([a], 1.0)
    tensor(5.)
    >>> a.grad.values()
    tensor([0.6000, 0.8000])
    """
    params = _listed(parameters)
    _require_bound(max_norm, "max_norm")
    gradients = _stored_gradients(params)
    norm = get_total_norm(gradients, norm_type, error_if_nonfinite)
    scale = torch.clamp(float(max_norm) / (norm + SPARE), max=1.0)
    for gradient in gradients:
        gradient.mul_(scale.to(gradient.device))
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Clamp every gradient entry in place to [-clip_value, clip_value]; as torch's own, for sparse gradients too.

    >>> import torch
    >>> a = torch.eye(2).to_sparse_csr().requires_grad_()
    >>> a.grad = torch.diag(torch.tensor([3.0, -4.0])).to_sparse_csr()
    >>> clip_grad_value_([a], 1.0)
    >>> a.grad.values()
    tensor([ 1., -1.])
    """
    params = _listed(parameters)
    _require_bound(clip_value, "clip_value")
    for gradient in _stored_gradients(params):
        if gradient.is_complex():
            raise InputError("A complex gradient has no order to be clamped in. Use clip_grad_norm_.")
    for gradient in _stored_gradients(params):
        gradient.clamp_(-clip_value, clip_value)


def _listed(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    if not isinstance(parameters, Iterable):
        raise InputError(f"parameters is a {type(parameters).__name__}: pass a tensor, or several in a list.")
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [require_tensor(parameter, f"parameters[{number}]") for number, parameter in enumerate(given)]


def _require_bound(bound: float, name: str) -> None:
    """Raise before any gradient is written to: to a negative bound all would be turned round, to NaN all be lost."""
    try:
        fits = float(bound) >= 0
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise InputError(f"{name}={bound!r}: pass a number that is not negative.")


def _stored_gradients(parameters: list[Tensor]) -> list[Tensor]:
    """What the gradients store; an uncoalesced one is coalesced first, since only sums of its entries mean anything."""
    found = []
    for parameter in parameters:
        if parameter.grad is None:
            continue
        if parameter.grad.layout is torch.sparse_coo and not parameter.grad.is_coalesced():
            parameter.grad = parameter.grad.coalesce()
        found.append(stored_values(parameter.grad) if is_sparse(parameter.grad) else parameter.grad.detach())
    return found
