"""Where patterns come from: tensors, masks, indices, SciPy matrices, graphs, chance. Each gives plain index tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch.layouts import BLOCKED, SPARSE, index_tensors, name_of, stored_values
from gradproof.sparse.layouts import require_sparse, require_tensor
from gradproof.sparse.validation import require_shape

CROWDED = 0.25  # the density from which positions are drawn by shuffling them all
SCIPY_LAYOUTS = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
}


@dataclass(frozen=True, slots=True)
class Source:
    """What a pattern is made of."""

    layout: torch.layout
    shape: tuple[int, ...]
    indices: tuple[Tensor, ...]
    blocksize: tuple[int, int] | None = None


def of_tensor(tensor: Tensor) -> Source:
    """The stored positions of a sparse tensor; its indices are shared, not copied."""
    require_sparse(tensor, "tensor")
    values = stored_values(tensor)
    if tensor.layout is torch.sparse_coo:
        return Source(tensor.layout, tuple(tensor.shape[: tensor.sparse_dim()]), index_tensors(tensor))
    indices = index_tensors(tensor)
    batch = indices[0].ndim - 1
    blocksize = None
    if tensor.layout in BLOCKED:
        blocksize = (values.shape[batch + 1], values.shape[batch + 2])
    return Source(tensor.layout, tuple(tensor.shape[: batch + 2]), indices, blocksize)


def of_mask(mask: Tensor, layout: torch.layout, blocksize: tuple[int, int] | None) -> Source:
    """The positions at which a mask is true; of a blocked layout the blocks in which it is anywhere."""
    if require_tensor(mask, "The mask").dtype is not torch.bool:
        raise InputError(f"The mask has dtype {mask.dtype}: it says yes or no. Pass mask != 0.")
    if layout not in SPARSE:
        raise InputError(f"{layout} is no sparse layout. Pass one of {', '.join(map(str, SPARSE))}.")
    if (layout in BLOCKED) != (blocksize is not None):
        raise InputError(
            f"{name_of(layout)} with blocksize={blocksize}: blocked layouts need one, the others have none."
        )
    if mask.ndim < (1 if layout is torch.sparse_coo else 2):
        raise InputError(f"The mask has shape {list(mask.shape)}: a {name_of(layout)} pattern needs rows and columns.")
    if mask.ndim > 2 and layout is not torch.sparse_coo:
        counts = mask.flatten(-2).sum(-1)
        if bool((counts != counts.flatten()[0]).any()):
            raise InputError(
                "The mask stores more entries in some matrices of the batch than in others: compressed layouts store "
                "the same number in each. Use layout=torch.sparse_coo."
            )
    return of_tensor(mask.to(torch.uint8).to_sparse(layout=layout, blocksize=blocksize))


def of_indices(indices: Tensor, shape: tuple[int, ...]) -> Source:
    """Positions in the order given, which is the order of their values."""
    if isinstance(shape, int):
        raise InputError(f"The shape is {shape}: pass one size for each dimension, such as ({shape},).")
    return Source(torch.sparse_coo, tuple(shape), (torch.as_tensor(indices).clone(),))


def of_scipy(matrix: Any) -> Source:
    """The positions of a SciPy sparse matrix or array: CSR, CSC, BSR and COO as they are, others as CSR."""
    if not hasattr(matrix, "tocsr"):
        raise InputError(f"A {type(matrix).__name__} is no SciPy sparse matrix. Pass scipy.sparse.csr_array(...), say.")
    if matrix.format not in SCIPY_LAYOUTS:
        matrix = matrix.tocsr()
    layout = SCIPY_LAYOUTS[matrix.format]
    shape = tuple(int(k) for k in matrix.shape)
    if layout is torch.sparse_coo:
        rows, columns = (torch.from_numpy(k).long() for k in (matrix.row, matrix.col))
        return Source(layout, shape, (torch.stack([rows, columns]),))
    if not matrix.has_sorted_indices:
        raise InputError(
            "The SciPy matrix has unsorted indices, so that its values are not in the order of its pattern. "
            "Call matrix.sort_indices() first."
        )
    indices = torch.from_numpy(matrix.indptr).clone(), torch.from_numpy(matrix.indices).clone()
    return Source(layout, shape, indices, tuple(matrix.blocksize) if layout in BLOCKED else None)


def of_edge_index(edge_index: Tensor, nodes: int | tuple[int, int] | None) -> Source:
    """The matrix that carries messages along edges: row = target, column = source, entries in the edges' order."""
    if require_tensor(edge_index, "edge_index").ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(f"edge_index has shape {list(edge_index.shape)}: it needs [2, edges], sources above targets.")
    if nodes is None:
        nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    if not isinstance(nodes, int) and not (isinstance(nodes, (tuple, list)) and len(nodes) == 2):
        raise InputError(f"nodes={nodes!r}: pass the number of nodes, or a pair, of targets and of sources.")
    targets, sources = (nodes, nodes) if isinstance(nodes, int) else nodes
    return Source(torch.sparse_coo, (targets, sources), (edge_index.flip(0),))


def of_chance(shape: tuple[int, int], density: float, generator: torch.Generator | None) -> Source:
    """Positions drawn without repetition, all equally likely, in row order."""
    require_shape(shape)
    if len(shape) != 2:
        raise InputError(f"The shape is {shape!r}: a matrix has rows and columns, such as (3, 4).")
    if not isinstance(density, (int, float)) or not 0 <= density <= 1:
        raise InputError(f"The density is {density}: it is the fraction of positions that are stored, from 0 to 1.")
    size = math.prod(shape)
    count = round(density * size)
    if density >= CROWDED:
        chosen = torch.randperm(size, generator=generator)[:count]
    else:
        chosen = torch.empty(0, dtype=torch.int64)
        while chosen.numel() < count:
            more = torch.randint(size, (count - chosen.numel() + 16,), generator=generator)
            chosen = torch.unique_consecutive(torch.cat([chosen, more]).sort().values)
        # they are sorted, and to keep the first would leave the last rows empty
        chosen = chosen[torch.randperm(chosen.numel(), generator=generator)[:count]]
    chosen = chosen.sort().values
    rows = torch.div(chosen, shape[1], rounding_mode="floor") if size else chosen
    starts = torch.zeros(shape[0] + 1, dtype=torch.int64)
    torch.cumsum(torch.bincount(rows, minlength=shape[0]), 0, out=starts[1:])
    return Source(torch.sparse_csr, shape, (starts, chosen - rows * shape[1]))
