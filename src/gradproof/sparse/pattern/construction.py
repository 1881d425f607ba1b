"""What a pattern is built from: tensors, masks, indices, graphs, random draws. Each gives valid index tensors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern.compressed_rows import compress
from gradproof.sparse.pattern.layouts import (
    BLOCKED,
    SPARSE,
    index_tensors,
    name_of,
    require_sparse,
    require_tensor,
    split_shape,
)
from gradproof.sparse.pattern.validation import require_shape

SHUFFLED = 0.25  # the density from which positions are drawn by shuffling all of them
Blocksize = tuple[int, ...] | None
Indices = tuple[torch.layout, tuple[int, ...], tuple[Tensor, ...], Blocksize]  # the arguments of a Pattern


def of_tensor(tensor: Tensor) -> Indices:
    """Return the indices of a sparse tensor, shared and not copied."""
    shape, _, block = split_shape(require_sparse(tensor, "tensor"))
    return tensor.layout, shape, index_tensors(tensor), block or None


def of_mask(mask: Tensor, layout: torch.layout, blocksize: tuple[int, int] | None) -> Indices:
    """Return the positions at which a mask is true; of a blocked layout, the blocks in which it is true anywhere."""
    if require_tensor(mask, "The mask").dtype is not torch.bool:
        raise InputError(f"The mask has dtype {mask.dtype}: a mask is boolean. Pass mask != 0.")
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


def of_indices(indices: Tensor, shape: tuple[int, ...]) -> Indices:
    """Return COO positions in the order given, which is the order of their values."""
    if isinstance(shape, int):
        raise InputError(f"The shape is {shape}: pass one size for each dimension, such as ({shape},).")
    return torch.sparse_coo, tuple(shape), (torch.as_tensor(indices).clone(),), None


def of_edge_index(edge_index: Tensor, nodes: int | tuple[int, int] | None) -> Indices:
    """Return the adjacency matrix with row = target and column = source, its entries in the order of the edges."""
    if require_tensor(edge_index, "edge_index").ndim != 2 or edge_index.shape[0] != 2:
        raise InputError(f"edge_index has shape {list(edge_index.shape)}: it needs [2, edges], sources above targets.")
    if nodes is None:
        nodes = int(edge_index.max()) + 1 if edge_index.numel() else 0
    if not isinstance(nodes, int) and not (isinstance(nodes, (tuple, list)) and len(nodes) == 2):
        raise InputError(f"nodes={nodes!r}: pass the number of nodes, or a pair, of targets and of sources.")
    targets, sources = (nodes, nodes) if isinstance(nodes, int) else nodes
    return torch.sparse_coo, (targets, sources), (edge_index.flip(0),), None


def of_random(shape: tuple[int, int], density: float, generator: torch.Generator | None) -> Indices:
    """Draw positions without repetition, all equally likely, in row order."""
    require_shape(shape)
    if len(shape) != 2:
        raise InputError(f"The shape is {shape!r}: a matrix has rows and columns, such as (3, 4).")
    if not isinstance(density, (int, float)) or not 0 <= density <= 1:
        raise InputError(f"The density is {density}: it is the fraction of positions that are stored, from 0 to 1.")
    size = math.prod(shape)
    count = round(density * size)
    if density >= SHUFFLED:
        chosen = torch.randperm(size, generator=generator)[:count]
    else:
        chosen = torch.empty(0, dtype=torch.int64)
        while chosen.numel() < count:
            more = torch.randint(size, (count - chosen.numel() + 16,), generator=generator)
            chosen = torch.unique_consecutive(torch.cat([chosen, more]).sort().values)
        # They are sorted: keeping the first ones would leave the last rows empty.
        chosen = chosen[torch.randperm(chosen.numel(), generator=generator)[:count]]
    chosen = chosen.sort().values
    rows = torch.div(chosen, shape[1], rounding_mode="floor") if size else chosen
    return torch.sparse_csr, shape, (compress(rows, shape[0]), chosen - rows * shape[1]), None
