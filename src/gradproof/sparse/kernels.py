"""Products on plain tensors, without derivatives: whatever torch has that is fastest, and a way that always works.

Measured on two cores with ten entries a row: with 16 columns or more of single precision, a weighted bag of embeddings
is up to twice as fast as the vendor's sparse product, which is the faster one below. Nothing here takes more memory
than the result and a piece of fixed size.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from gradproof.sparse.compression import Compression

NATIVE = (torch.float32, torch.float64, torch.complex64, torch.complex128)
BAGGED = 16  # columns from which a bag of embeddings is faster than a sparse product
PIECE = 1 << 18  # numbers gathered at once by the way that always works: some fit into a processor's cache


def multiply(matrix: Compression, values: Tensor, dense: Tensor) -> Tensor:
    """The matrix with these values, given in row order, times a dense matrix."""
    if not values.numel() or not dense.shape[1]:
        return dense.new_zeros(matrix.rows, dense.shape[1])
    values, dense = values.resolve_conj().contiguous(), dense.resolve_conj().contiguous()
    if values.dtype not in NATIVE:
        return _multiply_in_pieces(matrix, values, dense)
    if dense.dtype is torch.float32 and dense.shape[1] >= BAGGED and dense.device.type == "cpu":
        return functional.embedding_bag(
            matrix.places, dense, matrix.starts, mode="sum", per_sample_weights=values, include_last_offset=True
        )
    with torch.autocast(dense.device.type, enabled=False):  # it would ask for a precision that there is no product for
        return _as_csr(matrix, values) @ dense


def sample(matrix: Compression, left: Tensor, right: Tensor) -> Tensor:
    """For every entry in row order, the sum over k of left[row, k] · right[column, k]."""
    if not matrix.entries or not left.shape[1]:
        return left.new_zeros(matrix.entries)
    left, right = left.resolve_conj().contiguous(), right.resolve_conj().contiguous()
    if left.dtype not in NATIVE:
        return _sample_in_pieces(matrix, left, right)
    values = left.new_zeros(matrix.entries)
    blank = _as_csr(matrix, values)
    torch.sparse.sampled_addmm(blank, left, right.t(), beta=0.0, out=blank)
    return values  # written to through the sparse tensor; taken from there, autograd would see a view of it


def _as_csr(matrix: Compression, values: Tensor) -> Tensor:
    return torch.sparse_csr_tensor(
        matrix.starts, matrix.places, values, (matrix.rows, matrix.columns), check_invariants=False
    )


def _pieces(matrix: Compression, width: int) -> list[slice]:
    """Ranges of entries, of which so many rows of a dense matrix make a piece."""
    length = max(1, PIECE // max(1, width))
    return [slice(start, start + length) for start in range(0, matrix.entries, length)]


def _rows(matrix: Compression) -> Tensor:
    lines = torch.arange(matrix.rows, dtype=matrix.places.dtype, device=matrix.places.device)
    return torch.repeat_interleave(lines, matrix.starts.diff(), output_size=matrix.entries)


def _multiply_in_pieces(matrix: Compression, values: Tensor, dense: Tensor) -> Tensor:
    """In single precision or better, so that a long row does not lose what it adds up."""
    wide = torch.promote_types(dense.dtype, torch.float32)
    result = torch.zeros(matrix.rows, dense.shape[1], dtype=wide, device=dense.device)
    row = _rows(matrix)
    for piece in _pieces(matrix, dense.shape[1]):
        terms = dense.index_select(0, matrix.places[piece]).to(wide) * values[piece].to(wide).unsqueeze(1)
        result.index_add_(0, row[piece], terms)
    return result.to(dense.dtype)


def _sample_in_pieces(matrix: Compression, left: Tensor, right: Tensor) -> Tensor:
    wide = torch.promote_types(left.dtype, torch.float32)
    row = _rows(matrix)
    result = left.new_empty(matrix.entries)
    for piece in _pieces(matrix, left.shape[1]):
        terms = left.index_select(0, row[piece]).to(wide) * right.index_select(0, matrix.places[piece]).to(wide)
        result[piece] = terms.sum(1)
    return result
