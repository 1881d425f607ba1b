"""The five sparse layouts of torch, told apart in one place."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from gradproof.errors import InputError

COMPRESSED_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)
COMPRESSED_BY_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
LAYOUTS = (torch.sparse_coo, *COMPRESSED_BY_ROWS, *COMPRESSED_BY_COLUMNS)
TRANSPOSED = {
    torch.sparse_coo: torch.sparse_coo,
    torch.sparse_csr: torch.sparse_csc,
    torch.sparse_csc: torch.sparse_csr,
    torch.sparse_bsr: torch.sparse_bsc,
    torch.sparse_bsc: torch.sparse_bsr,
}


def name_of(layout: torch.layout) -> str:
    """A layout as people say it: COO, CSR, CSC, BSR, BSC, strided.

    >>> name_of(torch.sparse_csr)
    'CSR'
    """
    return str(layout).removeprefix("torch.sparse_").upper() if layout in LAYOUTS else "strided"


def is_sparse(tensor: Tensor) -> bool:
    """Whether a tensor has one of the five layouts."""
    return tensor.layout in LAYOUTS


def indices_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The index tensors: of COO one, of the others the compressed and the plain one."""
    if tensor.layout is torch.sparse_coo:
        return (tensor._indices(),)
    if tensor.layout in COMPRESSED_BY_ROWS:
        return tensor.crow_indices(), tensor.col_indices()
    return tensor.ccol_indices(), tensor.row_indices()


def stored(tensor: Tensor) -> Tensor:
    """The stored values: the tensor's own memory, without a history. Writing to them writes to the tensor."""
    plain = tensor.detach()
    return plain._values() if plain.layout is torch.sparse_coo else plain.values()


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
