"""Full semantics: which of the entries that a sparse input does not store are probed along with those it stores."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.frameworks.torch.charts.chart import Semantics
from gradproof.frameworks.torch.layouts import Grid, count_of, grid_of, keys_of, on_cells, stored_values
from gradproof.frameworks.torch.patterns import is_distinct, merge

ALL = 4096  # cells that are not stored, up to which every one is probed
LEAST = 512  # probed where there are more: an error in one of a hundred is then missed once in 170 checks


def extended(point: Tensor, semantics: Semantics) -> tuple[Tensor, Tensor]:
    """The pattern of the point with some or all of the cells that it does not store; and which of them it does."""
    if not is_distinct(point):
        return _appended(point, semantics)
    keys = keys_of(point)
    both = merge(keys, _free(grid_of(point), len(keys), semantics).to(keys.device))
    template = on_cells(point, both.keys)
    evened = count_of(template) != len(both.own)  # batches
    return template, torch.isin(keys_of(template), keys) if evened else both.own


def _appended(point: Tensor, semantics: Semantics) -> tuple[Tensor, Tensor]:
    """The same for duplicates, which stay as they are."""
    grid, keys = grid_of(point), keys_of(point)
    others = _free(grid, len(keys), semantics).to(keys.device)
    others = others[~torch.isin(others, keys)]
    places = torch.stack(grid.places(others)) if grid.shape else others.new_zeros((0, len(others)))
    indices = torch.cat([point._indices(), places], 1)
    values = stored_values(point).new_zeros(()).expand(indices.shape[1], *grid.payload)
    template = torch.sparse_coo_tensor(indices, values, point.shape, is_coalesced=False, check_invariants=False)
    return template, torch.arange(len(values), device=keys.device) < len(keys)


def _free(grid: Grid, stored: int, semantics: Semantics) -> Tensor:
    """Rising keys of cells to probe beside the stored ones; a few of them may be stored."""
    if semantics.complete or grid.cells - stored <= ALL:
        return torch.arange(grid.cells, device="cpu")
    longest = max(grid.shape)
    count = min((grid.cells - stored) // 2, max(LEAST, min(stored, 2 * longest)))
    return _scattered(grid.counted, count, semantics.seed)


def _scattered(shape: tuple[int, ...], count: int, seed: int) -> Tensor:
    """Random cells, each once; of every dimension all positions are visited where there are enough cells."""
    generator = torch.Generator("cpu").manual_seed(seed)
    keys = torch.zeros(count, dtype=torch.int64, device="cpu")
    for length in shape:
        jitter = torch.rand(count, generator=generator, dtype=torch.float64, device="cpu")
        order = torch.randperm(count, generator=generator, device="cpu")
        lines = ((order + jitter) * (length / count)).long()
        keys = keys * length + lines.clamp_(max=length - 1)
    distinct: Tensor = torch.unique(keys)
    return distinct
