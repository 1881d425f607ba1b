"""Reading one sparse tensor where another stores its entries."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.faults import fault_of
from gradproof.frameworks.torch.layouts import (
    Grid,
    cells_of,
    grid_of,
    index_tensors,
    name_of,
    on_cells,
    stored_values,
)

Rest = Callable[[Tensor, Tensor], None]  # takes the keys and values of what is stored elsewhere


class Cells:
    """The stored cells of a template: where other tensors are read."""

    def __init__(self, template: Tensor) -> None:
        self.template, self.grid = template.detach(), grid_of(template)
        self.count = math.prod(stored_values(template).shape[: 1 + len(self.grid.batch)])
        self._distinct = template.layout != torch.sparse_coo or template.is_coalesced()
        self._keys: Tensor | None = None

    @property
    def keys(self) -> Tensor:
        """The cells' numbers."""
        if self._keys is None:
            self._keys = cells_of(self.template)[0]
        return self._keys

    def read(self, tensor: Tensor, rest: Rest | None = None) -> Tensor:
        """The entries of a tensor of any layout, one row a cell: zero where it stores none, the sum where several."""
        tensor = tensor.detach()
        if tensor.layout == torch.strided:
            return _at(tensor, self.keys, self.grid)
        if self._distinct and _same_pattern(tensor, self.template):
            return stored_values(tensor).reshape(-1, *self.grid.payload)
        if fault := fault_of(tensor):
            raise DerivativeError(f"a {name_of(tensor.layout)} tensor is malformed: {fault}", malformed=True)
        if grid_of(tensor) == self.grid:
            keys, values = cells_of(tensor)
            return _looked_up(keys, values, self.keys, rest)
        keys, values = _entries_of(tensor)
        whole = _looked_up(keys, values, entry_keys(self.keys, self.grid).reshape(-1), rest)
        return whole.reshape(-1, *self.grid.payload)

    def index(self, number: int) -> tuple[int, ...]:
        """The index of an entry, by its place among the values."""
        cell, offset = divmod(number, max(1, math.prod(self.grid.payload)))
        return self.grid.index(int(self.keys[cell]), offset)


def merged(tensors: list[Tensor]) -> Tensor:
    """Zeros stored wherever one of some tensors of one kind stores something, each cell once."""
    first = tensors[0].detach()
    distinct = first.layout != torch.sparse_coo or first.is_coalesced()
    if distinct and all(_same_pattern(tensor, first) for tensor in tensors[1:]):
        return first
    grid = grid_of(first)
    keys = [cells_of(tensor.detach())[0] for tensor in tensors if grid_of(tensor) == grid]
    return on_cells(first, torch.unique(torch.cat(keys)))


def entry_keys(keys: Tensor, grid: Grid) -> Tensor:
    """The number of every entry of some cells, counted row by row over the whole tensor: one row a cell."""
    cell = torch.unravel_index(keys, grid.shape) if grid.shape else ()
    within = torch.unravel_index(torch.arange(math.prod(grid.payload), device=keys.device), grid.payload)
    spans = (*(1,) * len(grid.batch), *(grid.block or (1,) * len(grid.sparse)))
    steps = iter(within)
    number = keys.new_zeros((len(keys), math.prod(grid.payload)))
    blocked = len(grid.batch) if grid.block else len(cell)
    for dimension, (length, span, place) in enumerate(zip(grid.shape, spans, cell, strict=True)):
        number = number * (length * span) + (place * span)[:, None]
        if dimension >= blocked:
            number = number + next(steps)
    for length, place in zip(grid.dense, steps, strict=True):
        number = number * length + place
    return number


def _entries_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    keys, values = cells_of(tensor)
    return entry_keys(keys, grid_of(tensor)).reshape(-1), values.reshape(-1)


def _same_pattern(tensor: Tensor, template: Tensor) -> bool:
    if tensor.layout != template.layout or stored_values(tensor).shape != stored_values(template).shape:
        return False
    pairs = zip(index_tensors(tensor), index_tensors(template), strict=True)
    return all(
        (one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride())
        or torch.equal(one, other)
        for one, other in pairs
    )


def _at(tensor: Tensor, keys: Tensor, grid: Grid) -> Tensor:
    """The entries of a strided tensor in some cells."""
    if not grid.shape:
        return tensor.expand(len(keys), *grid.payload)
    if grid.block:
        first = len(grid.batch)
        tensor = torch.unflatten(tensor, first, (grid.sparse[0], grid.block[0]))
        tensor = torch.unflatten(tensor, first + 2, (grid.sparse[1], grid.block[1])).movedim(first + 2, first + 1)
    return tensor[torch.unravel_index(keys, grid.shape)]


def _looked_up(keys: Tensor, values: Tensor, wanted: Tensor, rest: Rest | None) -> Tensor:
    """The values under some keys, zero where there are none."""
    if len(keys) > 1 and not bool((keys[1:] > keys[:-1]).all()):
        distinct, which = torch.unique(keys, return_inverse=True)
        summed = values.new_zeros((len(distinct), *values.shape[1:]))
        keys, values = distinct, summed.index_add_(0, which, values)
    if not len(keys):
        return values.new_zeros((len(wanted), *values.shape[1:]))
    place = torch.searchsorted(keys, wanted).clamp_(max=len(keys) - 1)
    hit = keys[place] == wanted
    if rest is not None:
        unread = torch.ones_like(keys, dtype=torch.bool)
        unread[place[hit]] = False
        if bool(unread.any()):
            rest(keys[unread], values[unread])
    found = values[place]
    if not bool(hit.all()):
        found[~hit] = 0
    return found
