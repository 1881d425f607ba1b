"""The five sparse layouts of torch: the index tensors and values of each, and tensors built from them."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.masked import MaskedTensor

from gradproof.errors import InputError

BY_ROW = (torch.sparse_csr, torch.sparse_bsr)
BY_COLUMN = (torch.sparse_csc, torch.sparse_bsc)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
COMPRESSED = BY_ROW + BY_COLUMN
SPARSE = (torch.sparse_coo, *COMPRESSED)
NAME_OF_LAYOUT = {
    torch.sparse_coo: "COO",
    torch.sparse_csr: "CSR",
    torch.sparse_csc: "CSC",
    torch.sparse_bsr: "BSR",
    torch.sparse_bsc: "BSC",
}
LAYOUT_OF_NAME = {name: layout for layout, name in NAME_OF_LAYOUT.items()}
TRANSPOSED = {
    torch.sparse_coo: torch.sparse_coo,
    torch.sparse_csr: torch.sparse_csc,
    torch.sparse_csc: torch.sparse_csr,
    torch.sparse_bsr: torch.sparse_bsc,
    torch.sparse_bsc: torch.sparse_bsr,
}


def name_of(layout: torch.layout) -> str:
    """Return the short name of a layout.

    >>> name_of(torch.sparse_csr), name_of(torch.strided)
    ('CSR', 'strided')
    """
    return NAME_OF_LAYOUT.get(layout) or str(layout).removeprefix("torch.")


def is_sparse(tensor: Tensor) -> bool:
    """Return True for a tensor of a sparse layout that is not a masked tensor."""
    return tensor.layout in SPARSE and not isinstance(tensor, MaskedTensor)


def is_distinct(tensor: Tensor) -> bool:
    """Return True if the tensor claims to store no cell twice."""
    return tensor.layout in COMPRESSED or tensor.is_coalesced()


def is_addable(tensor: Tensor) -> bool:
    """Return True if torch itself can add tensors of this layout, as autograd does with gradients."""
    if tensor.layout is torch.sparse_csr:
        return tensor.ndim == 2
    return tensor.layout in (torch.strided, torch.sparse_coo)


def index_tensors(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the indices of a COO tensor, or the compressed and the plain indices of the other layouts."""
    if tensor.layout == torch.sparse_coo:
        return (tensor._indices(),)
    if tensor.layout in BY_ROW:
        return tensor.crow_indices(), tensor.col_indices()
    return tensor.ccol_indices(), tensor.row_indices()


def stored_values(tensor: Tensor) -> Tensor:
    """Return the values, with duplicates and explicit zeros, without their history."""
    tensor = tensor.detach()
    return tensor._values() if tensor.layout == torch.sparse_coo else tensor.values().detach()  # no view


def stored_count(tensor: Tensor) -> int:
    """Return the number of stored cells, each duplicate counted."""
    return math.prod(index_tensors(tensor)[-1].shape[tensor.layout == torch.sparse_coo :])


def split_shape(tensor: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the batch and sparse dimensions of a sparse tensor, its dense dimensions, and its blocksize."""
    shape = tuple(tensor.shape)
    if tensor.layout == torch.sparse_coo:
        lead = tensor.sparse_dim()
        return shape[:lead], shape[lead:], ()
    lead = index_tensors(tensor)[-1].dim() + 1
    block = tuple(stored_values(tensor).shape[lead - 1 : lead + 1]) if tensor.layout in BLOCKED else ()
    return shape[:lead], shape[lead:], block


def sparse_tensor(
    layout: torch.layout, indices: tuple[Tensor, ...], values: Tensor, shape: tuple[int, ...], *, coalesced: bool = True
) -> Tensor:
    """Build a sparse tensor from indices that are known to be valid. `coalesced` matters for COO alone."""
    if layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(indices[0], values, shape, is_coalesced=coalesced, check_invariants=False)
    compressed, plain = indices
    return torch.sparse_compressed_tensor(compressed, plain, values, shape, layout=layout, check_invariants=False)


def with_values(tensor: Tensor, values: Tensor, indices: tuple[Tensor, ...] | None = None) -> Tensor:
    """Build a tensor with the same indices (or these) and other values."""
    indices = index_tensors(tensor) if indices is None else indices
    return sparse_tensor(tensor.layout, indices, values, tensor.shape, coalesced=is_distinct(tensor))


def zeros_template(tensor: Tensor) -> Tensor:
    """Build a tensor with the same indices whose values are one zero, expanded: it takes no memory."""
    values = stored_values(tensor)
    return with_values(tensor.detach(), values.new_zeros(()).expand(values.shape))


def same_indices(some: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    """Return True if index tensors are the same memory or hold the same numbers."""
    return len(some) == len(others) and all(
        one.shape == other.shape
        and one.dtype == other.dtype
        and ((one.data_ptr() == other.data_ptr() and one.stride() == other.stride()) or torch.equal(one, other))
        for one, other in zip(some, others, strict=True)
    )


def require_tensor(tensor: object, what: str) -> Tensor:
    """Return the tensor, or raise with the type that came instead."""
    if not isinstance(tensor, Tensor):
        raise InputError(f"{what} is a {type(tensor).__name__}, not a tensor. Pass a torch.Tensor.")
    return tensor


def require_layout(layout: torch.layout, blocksize: tuple[int, int] | None) -> None:
    """Raise unless the layout is sparse, and has a blocksize if and only if it is blocked."""
    if not isinstance(layout, torch.layout) or layout not in SPARSE:
        raise InputError(f"{layout} is not a sparse layout. Pass one of {', '.join(map(str, SPARSE))}.")
    if (layout in BLOCKED) != (blocksize is not None):
        needs = "needs a blocksize=, such as (2, 2)" if layout in BLOCKED else "has no blocks: leave blocksize= out"
        raise InputError(f"{name_of(layout)} {needs}.")
    is_pair = isinstance(blocksize, (tuple, list)) and [type(size) for size in blocksize] == [int, int]
    if blocksize is not None and not is_pair:
        raise InputError(f"blocksize={blocksize!r}: pass the height and the width of a block, such as (2, 2).")


def require_sparse(tensor: object, what: str) -> Tensor:
    """Return the sparse tensor, or raise if it is strided or may store a position several times."""
    tensor = require_tensor(tensor, what)
    if not is_sparse(tensor):
        raise InputError(
            f"{what} is strided: it stores every entry, and has no pattern. Pass a sparse tensor, "
            f"for example {what}.to_sparse()."
        )
    if not is_distinct(tensor):
        raise InputError(
            f"{what} is an uncoalesced COO tensor: it may store one position several times. Pass {what}.coalesce()."
        )
    return tensor
