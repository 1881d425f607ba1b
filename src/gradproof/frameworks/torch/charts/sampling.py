"""Full semantics: which of the entries that a sparse input does not store are probed along with those it stores."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.frameworks.torch.charts.chart import Semantics
from gradproof.frameworks.torch.layouts import on_cells, stored_values, with_values
from gradproof.frameworks.torch.patterns import Cells

ALL = 4096  # cells that are not stored, up to which every one is probed
LEAST = 512  # probed where there are more: an error in one of a hundred is then missed once in 170 checks


def extended(point: Tensor, semantics: Semantics) -> Tensor:
    """The point's pattern, and some or all of the cells that it does not store, drawn so that every line is visited."""
    cells = Cells(point)
    keys, free = cells.keys, cells.grid.cells - len(torch.unique(cells.keys))
    if free <= ALL or semantics.complete:
        every = torch.arange(cells.grid.cells, device=keys.device)
        extra = every[~torch.isin(every, keys)]
    else:
        count = min(free // 2, max(LEAST, min(len(keys), 2 * max(cells.grid.shape))))
        extra = _scattered(cells.grid.shape, count, semantics.seed).to(keys.device)
        extra = extra[~torch.isin(extra, keys)]
    if point.layout == torch.sparse_coo and not point.is_coalesced():
        zeros = stored_values(on_cells(point, extra))
        indices = torch.cat([point._indices(), torch.stack(torch.unravel_index(extra, cells.grid.shape))], 1)
        values = torch.cat([stored_values(point), zeros])
        return torch.sparse_coo_tensor(indices, values, point.shape, is_coalesced=False, check_invariants=False)
    template = on_cells(point, torch.cat([keys, extra]))
    return with_values(template, Cells(template).read(point).reshape(stored_values(template).shape))


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
