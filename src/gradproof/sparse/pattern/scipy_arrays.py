"""Patterns and values from SciPy sparse arrays, and back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern.layouts import BLOCKED

LAYOUTS = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
}
FORMATS = {layout: name for name, layout in LAYOUTS.items() if name != "coo"}


def of_scipy(matrix: Any) -> tuple[torch.layout, tuple[int, ...], tuple[Tensor, ...], tuple[int, ...] | None]:
    """Return layout, shape, indices and blocksize of a SciPy matrix; formats that torch does not have become CSR."""
    if not hasattr(matrix, "tocsr"):
        raise InputError(
            f"A {type(matrix).__name__} is not a SciPy sparse matrix. Pass one, such as scipy.sparse.csr_array(...)."
        )
    if matrix.format not in LAYOUTS:
        matrix = matrix.tocsr()
    layout = LAYOUTS[matrix.format]
    shape = tuple(int(k) for k in matrix.shape)
    if layout is torch.sparse_coo:
        rows, columns = (torch.from_numpy(k).long() for k in (matrix.row, matrix.col))
        return layout, shape, (torch.stack([rows, columns]),), None
    if not matrix.has_sorted_indices:
        raise InputError(
            "The SciPy matrix has unsorted indices, so its values are not in the order of its pattern. "
            "Call matrix.sort_indices() first."
        )
    indices = torch.from_numpy(matrix.indptr).clone(), torch.from_numpy(matrix.indices).clone()
    return layout, shape, indices, tuple(matrix.blocksize) if layout in BLOCKED else None


def to_scipy(
    layout: torch.layout, indices: tuple[Tensor, ...], coordinates: Tensor, values: Tensor, shape: tuple[int, ...]
) -> Any:
    """Build a SciPy sparse array of the same layout; a COO array for BSC, which SciPy does not have."""
    import scipy.sparse

    arrays: Any = scipy.sparse
    data = values.detach().cpu().resolve_conj().numpy()
    if layout not in FORMATS:
        return arrays.coo_array((data.reshape(-1), tuple(coordinates.cpu().numpy())), shape=shape)
    compressed, plain = (index.cpu().numpy() for index in indices)
    build = getattr(arrays, f"{FORMATS[layout]}_array")
    return build((data, plain, compressed), shape=shape)
