"""Products on strided tensors, without derivatives: torch's fastest kernel for the case, and a general fallback.

Measured on two cores with ten entries a row: with 16 columns or more of single precision, a weighted bag of embeddings
is up to twice as fast as the vendor's sparse product, which is the faster one below. Nothing here takes more memory
than the result and a piece of fixed size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from gradproof.sparse.pattern.compressed_rows import CompressedRows

NATIVE = (torch.float32, torch.float64, torch.complex64, torch.complex128)
BAGGED = 16  # columns from which a bag of embeddings is faster than a sparse product
PIECE = 1 << 18  # numbers gathered at once by the fallback: they fit into a processor's cache

Slot = Literal["values", "rows", "columns"]
GIVEN: dict[Slot, tuple[Slot, Slot]] = {
    "values": ("rows", "columns"),
    "rows": ("values", "columns"),
    "columns": ("values", "rows"),
}


def contract(matrix: CompressedRows, first: Tensor, second: Tensor, missing: Slot) -> Tensor:
    """Contract two of values, rows and columns, values in storage order; `matrix` is transposed for columns."""
    if missing == "values":
        return matrix.in_storage_order(sample(matrix, first, second))
    return multiply(matrix, matrix.in_row_order(first), second)


def pullback(
    contract: Callable[[Tensor, Tensor, Slot], Tensor],
    given: tuple[Tensor, Tensor],
    gradient: Tensor,
    missing: Slot,
    needed: tuple[bool, ...],
) -> Iterator[Tensor | None]:
    """Yield the gradients of a contraction with respect to the two tensors given, where needed."""
    for number, slot in enumerate(GIVEN[missing]):
        if needed[number]:
            other = given[1 - number].conj()
            pair = (gradient, other) if GIVEN[slot][0] == missing else (other, gradient)
            yield contract(*pair, slot)
        else:
            yield None


def multiply(matrix: CompressedRows, values: Tensor, dense: Tensor) -> Tensor:
    """Multiply the matrix with these values, given in row order, by a dense matrix."""
    if not values.numel() or not dense.shape[1]:
        return dense.new_zeros(matrix.rows, dense.shape[1])
    values, dense = values.resolve_conj().contiguous(), dense.resolve_conj().contiguous()
    if values.dtype not in NATIVE:
        return _multiply_in_pieces(matrix, values, dense)
    if dense.dtype is torch.float32 and dense.shape[1] >= BAGGED and dense.device.type == "cpu":
        return functional.embedding_bag(
            matrix.col_indices,
            dense,
            matrix.crow_indices,
            mode="sum",
            per_sample_weights=values,
            include_last_offset=True,
        )
    with torch.autocast(dense.device.type, enabled=False):  # there is no product in its precision
        return _as_csr(matrix, values) @ dense


def sample(matrix: CompressedRows, left: Tensor, right: Tensor) -> Tensor:
    """Sum left[row, k] · right[column, k] over k for every entry, in row order."""
    if not matrix.entries or not left.shape[1]:
        return left.new_zeros(matrix.entries)
    left, right = left.resolve_conj().contiguous(), right.resolve_conj().contiguous()
    if left.dtype not in NATIVE:
        return _sample_in_pieces(matrix, left, right)
    values = left.new_zeros(matrix.entries)
    blank = _as_csr(matrix, values)
    torch.sparse.sampled_addmm(blank, left, right.t(), beta=0.0, out=blank)
    return values  # written through `blank`; its own values() would be a view to autograd


def _as_csr(matrix: CompressedRows, values: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(
        matrix.crow_indices, matrix.col_indices, values, (matrix.rows, matrix.columns), check_invariants=False
    )


def _pieces(matrix: CompressedRows, width: int) -> list[slice]:
    """Split the entries into ranges whose rows of a dense matrix make one piece."""
    length = max(1, PIECE // max(1, width))
    return [slice(start, start + length) for start in range(0, matrix.entries, length)]


def _multiply_in_pieces(matrix: CompressedRows, values: Tensor, dense: Tensor) -> Tensor:
    """Multiply in single precision or better, so that long rows keep their accuracy."""
    wide = torch.promote_types(dense.dtype, torch.float32)
    result = torch.zeros(matrix.rows, dense.shape[1], dtype=wide, device=dense.device)
    row = matrix.row_indices()
    for piece in _pieces(matrix, dense.shape[1]):
        terms = dense.index_select(0, matrix.col_indices[piece]).to(wide) * values[piece].to(wide).unsqueeze(1)
        result.index_add_(0, row[piece], terms)
    return result.to(dense.dtype)


def _sample_in_pieces(matrix: CompressedRows, left: Tensor, right: Tensor) -> Tensor:
    wide = torch.promote_types(left.dtype, torch.float32)
    row = matrix.row_indices()
    result = left.new_empty(matrix.entries)
    for piece in _pieces(matrix, left.shape[1]):
        terms = left.index_select(0, row[piece]).to(wide) * right.index_select(0, matrix.col_indices[piece]).to(wide)
        result[piece] = terms.sum(1)
    return result


with warnings.catch_warnings():  # torch warns once in a process that CSR is in beta: not in the middle of a product
    warnings.simplefilter("ignore")
    torch.zeros(1, 1).to_sparse_csr()
