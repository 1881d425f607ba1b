"""What layouts mean for training: which is the transpose of which, which tensors torch can add, and which have
distinct entries."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch.storage import is_sparse

TRANSPOSED = {
    torch.sparse_coo: torch.sparse_coo,
    torch.sparse_csr: torch.sparse_csc,
    torch.sparse_csc: torch.sparse_csr,
    torch.sparse_bsr: torch.sparse_bsc,
    torch.sparse_bsc: torch.sparse_bsr,
}


def addable(tensor: Tensor) -> bool:
    """Whether torch adds up tensors of this layout by itself."""
    if tensor.layout is torch.sparse_csr:
        return tensor.ndim == 2
    return tensor.layout in (torch.strided, torch.sparse_coo)


def require_tensor(tensor: object, what: str) -> Tensor:
    """A tensor, or an error that says what came instead."""
    if not isinstance(tensor, Tensor):
        raise InputError(f"{what} is a {type(tensor).__name__}, not a tensor. Pass a torch.Tensor.")
    return tensor


def require_differentiable(dtype: torch.dtype | None) -> None:
    """Raise unless parameters of this dtype can be trained; None is torch's default."""
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise InputError(f"dtype={dtype}: parameters have gradients, so pass a floating-point or complex dtype.")


def require_sparse(tensor: object, what: str) -> Tensor:
    """A sparse tensor whose stored entries are distinct, or an error that says what to do."""
    if not isinstance(tensor, Tensor):
        raise InputError(f"{what} is a {type(tensor).__name__}, not a tensor. Pass a sparse tensor.")
    if not is_sparse(tensor):
        raise InputError(
            f"{what} is strided: it stores every entry, and has no pattern. Pass a sparse tensor, "
            f"for example {what}.to_sparse()."
        )
    if tensor.layout is torch.sparse_coo and not tensor.is_coalesced():
        raise InputError(
            f"{what} is an uncoalesced COO tensor: one position may be stored several times, so that its stored "
            f"entries are no coordinates of it. Pass {what}.coalesce()."
        )
    return tensor


def _spend_the_warning() -> None:
    """Torch says once in a process that compressed layouts are in beta, which is no news in the middle of a product."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.zeros(1, 1).to_sparse_csr()


_spend_the_warning()
