"""Templates with more cells than one tensor stores: unions, and samples of what is not stored."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.sparse.pattern.grid import Grid, grid_of, keys_of, on_cells
from gradproof.sparse.pattern.layouts import index_tensors, is_distinct, sparse_tensor, stored_count, stored_values
from gradproof.sparse.pattern.membership import merge
from gradproof.sparse.pattern.reading import increasing_keys, same_pattern

ALL = 4096  # cells that are not stored, up to which every one is included
LEAST = 512  # cells included where there are more: an error in 1 % of them is missed once in 170 checks


def union(tensors: list[Tensor]) -> Tensor:
    """Return a tensor that stores each cell that one of some tensors of one kind stores, once."""
    largest, *others = sorted((tensor.detach() for tensor in tensors), key=lambda tensor: -len(stored_values(tensor)))
    grid, others = grid_of(largest), [other for other in others if not same_pattern(other, largest)]
    if is_distinct(largest) and not others:
        return largest
    keys = increasing_keys(largest)
    own = len(keys)
    for other in others:
        if grid_of(other) == grid:
            keys, _ = merge(keys, increasing_keys(other))
    return largest if is_distinct(largest) and len(keys) == own else on_cells(largest, keys)


def extended(point: Tensor, *, complete: bool = False, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return a template with the cells of a tensor and others that it does not store, and which are the tensor's.

    The others are all cells if `complete`, or if there are few; else a sample, drawn from `seed`.
    """
    grid, keys = grid_of(point), keys_of(point)
    others = _others(grid, len(keys), complete=complete, seed=seed).to(keys.device)
    if is_distinct(point):
        both, own = merge(keys, others)
        template = on_cells(point, both)
        padded = stored_count(template) != len(own)  # batches
        return template, torch.isin(keys_of(template), keys) if padded else own
    others = others[~torch.isin(others, keys)]  # duplicates stay as they are
    coordinates = torch.stack(grid.coordinates(others)) if grid.shape else others.new_zeros((0, len(others)))
    indices = torch.cat([*index_tensors(point), coordinates], 1)
    values = stored_values(point).new_zeros(()).expand(indices.shape[1], *grid.payload)
    template = sparse_tensor(point.layout, (indices,), values, point.shape, coalesced=False)
    return template, torch.arange(len(values), device=keys.device) < len(keys)


def _others(grid: Grid, stored: int, *, complete: bool, seed: int) -> Tensor:
    """Return increasing keys of cells beside the stored ones; a few of them may be stored."""
    if complete or grid.cells - stored <= ALL:
        return torch.arange(grid.cells, device="cpu")
    count = min((grid.cells - stored) // 2, max(LEAST, min(stored, 2 * max(grid.shape))))
    return _scattered(grid.key_shape, count, seed)


def _scattered(shape: tuple[int, ...], count: int, seed: int) -> Tensor:
    """Draw random cells, each once, that visit every position of every dimension if there are enough of them."""
    generator = torch.Generator("cpu").manual_seed(seed)
    keys = torch.zeros(count, dtype=torch.int64, device="cpu")
    for length in shape:
        jitter = torch.rand(count, generator=generator, dtype=torch.float64, device="cpu")
        order = torch.randperm(count, generator=generator, device="cpu")
        lines = ((order + jitter) * (length / count)).long()
        keys = keys * length + lines.clamp_(max=length - 1)
    distinct: Tensor = torch.unique(keys)
    return distinct
