"""Reading one sparse tensor where another stores its entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.faults import fault_of
from gradproof.frameworks.torch.layouts import (
    COMPRESSED,
    Grid,
    count_of,
    grid_of,
    index_tensors,
    key_pieces,
    keys_of,
    name_of,
    on_cells,
    pattern_of,
    rises,
    stored_values,
)

Rest = Callable[[Tensor, Tensor], None]  # takes the keys and values of what is stored elsewhere
REMEMBERED = 2  # patterns of other tensors that a template remembers its places in


class Cells:
    """The stored cells of a template: where other tensors are read."""

    def __init__(self, template: Tensor) -> None:
        self.template, self.grid = pattern_of(template), grid_of(template)
        self.count = count_of(template)
        self._distinct = is_distinct(template)
        self._known: list[_Match] = []

    def read(self, tensor: Tensor, rest: Rest | None = None) -> Tensor:
        """The entries of a tensor of any layout, one row a cell: zero where it stores none, the sum where several."""
        tensor = tensor.detach()
        if tensor.layout == torch.strided:
            return self._read_strided(tensor)
        if self._distinct and same_pattern(tensor, self.template):
            return stored_values(tensor).reshape(self.count, *self.grid.payload)
        match = self._remembered(tensor)
        if match is None:
            if fault := fault_of(tensor):
                raise DerivativeError(f"a {name_of(tensor.layout)} tensor is malformed: {fault}", malformed=True)
            if not is_distinct(tensor):
                return self.read(tensor.coalesce(), rest)
            match = self._matched(tensor)
        return match.read(tensor, rest).reshape(self.count, *self.grid.payload)

    def forget(self) -> None:
        """Let go of what is known of other tensors' patterns."""
        self._known = []

    def index(self, number: int) -> tuple[int, ...]:
        """The index of an entry, by its place among the values."""
        cell, offset = divmod(number, max(1, math.prod(self.grid.payload)))
        where, keys = next(piece for piece in key_pieces(self.template) if piece[0].stop > cell)
        return self.grid.index(int(keys[cell - where.start]), offset)

    def _read_strided(self, tensor: Tensor) -> Tensor:
        grid = self.grid
        if not grid.shape:
            return tensor.expand(self.count, *grid.payload)
        if grid.block:
            first = len(grid.batch)
            tensor = torch.unflatten(tensor, first, (grid.sparse[0], grid.block[0]))
            tensor = torch.unflatten(tensor, first + 2, (grid.sparse[1], grid.block[1])).movedim(first + 2, first + 1)
        found = torch.empty((self.count, *grid.payload), dtype=tensor.dtype, device=tensor.device)
        for where, keys in key_pieces(self.template):
            found[where] = tensor[grid.places(keys)]
        return found

    def _remembered(self, tensor: Tensor) -> _Match | None:
        """What is known of the tensor's pattern. A gradient comes with the same one again and again."""
        return next((match for match in self._known if match.is_of(tensor)), None)

    def _matched(self, tensor: Tensor) -> _Match:
        alike = grid_of(tensor) == self.grid
        keys = keys_of(tensor) if alike else entry_keys(keys_of(tensor), grid_of(tensor)).reshape(-1)
        order = None if rises(keys) else keys.argsort()
        keys = keys if order is None else keys[order]
        wanted = self.count * (1 if alike else math.prod(self.grid.payload))
        match = _Match(tensor, alike, keys, order, wanted, self._wanted(alike))
        self._known = [match, *self._known[: REMEMBERED - 1]]
        return match

    def _wanted(self, alike: bool) -> Iterator[tuple[slice, Tensor]]:
        """The keys of the template's cells, or of their entries, piece by piece."""
        size = 1 if alike else math.prod(self.grid.payload)
        for where, keys in key_pieces(self.template):
            entries = slice(size * where.start, size * where.stop)
            yield entries, keys if alike else entry_keys(keys, self.grid).reshape(-1)


class _Match:
    """Where each entry of a template lies among the values of tensors of one pattern."""

    def __init__(
        self,
        tensor: Tensor,
        alike: bool,
        keys: Tensor,
        order: Tensor | None,
        count: int,
        wanted: Iterable[tuple[slice, Tensor]],
    ) -> None:
        """`keys` are the tensor's, rising, and `order` where they lie among its values; `wanted` the template's."""
        self._indices, self._kind = index_tensors(tensor), _kind(tensor)
        self._payload = grid_of(tensor).payload if alike else ()
        self._count = len(keys)
        self._place = torch.empty(count, dtype=torch.int64, device=keys.device)
        missing = torch.ones(count, dtype=torch.bool, device=keys.device)
        unread = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
        for where, some in wanted if len(keys) else ():
            place = torch.searchsorted(keys, some).clamp_(max=len(keys) - 1)
            missing[where] = keys[place] != some
            unread[place[~missing[where]]] = False
            self._place[where] = place if order is None else order[place]
        self._missing = missing if bool(missing.any()) else None
        self._rest = unread.nonzero().reshape(-1)
        self._rest_keys = keys[self._rest]
        if order is not None:
            self._rest = order[self._rest]

    def is_of(self, tensor: Tensor) -> bool:
        return _kind(tensor) == self._kind and _same_indices(index_tensors(tensor), self._indices)

    def read(self, tensor: Tensor, rest: Rest | None) -> Tensor:
        values = stored_values(tensor).reshape(self._count, *self._payload)
        if rest is not None and len(self._rest):
            rest(self._rest_keys, values[self._rest])
        if not len(values):
            return values.new_zeros((len(self._place), *self._payload))
        found = values[self._place]
        if self._missing is not None:
            found[self._missing] = 0
        return found


@dataclass(frozen=True, slots=True)
class Merged:
    """Rising keys of two kinds in one order; `own` says which were there before."""

    keys: Tensor
    own: Tensor


def merge(keys: Tensor, others: Tensor) -> Merged:
    """Rising keys, and rising others that are not among them yet, without sorting the many."""
    place = torch.searchsorted(keys, others)
    if len(keys):
        new = keys[place.clamp(max=len(keys) - 1)] != others
        others, place = others[new], place[new]
    own = torch.ones(len(keys) + len(others), dtype=torch.bool, device=keys.device)
    own[place + torch.arange(len(others), device=keys.device)] = False
    whole = torch.empty(len(own), dtype=keys.dtype, device=keys.device)
    whole[own], whole[~own] = keys, others
    return Merged(whole, own)


def merged(tensors: list[Tensor]) -> Tensor:
    """A tensor that stores something wherever one of some tensors of one kind does, each cell once."""
    largest, *others = sorted((tensor.detach() for tensor in tensors), key=lambda tensor: -len(stored_values(tensor)))
    if is_distinct(largest):
        others = [other for other in others if not same_pattern(other, largest) and not _within(other, largest)]
        if not others:
            return largest
    grid = grid_of(largest)
    keys = _distinct_keys(largest)
    for other in others:
        if grid_of(other) == grid:
            keys = merge(keys, _distinct_keys(other)).keys
    return on_cells(largest, keys)


def _distinct_keys(tensor: Tensor) -> Tensor:
    """The keys of all stored cells, rising, each once."""
    keys = keys_of(tensor)
    return keys if is_distinct(tensor) and rises(keys) else torch.unique(keys)


def _within(tensor: Tensor, other: Tensor) -> bool:
    """Whether a tensor stores nothing where another, of distinct cells, does not."""
    if grid_of(tensor) == grid_of(other):
        keys = _distinct_keys(other)
        return all(bool(_are_among(some, keys).all()) for _, some in key_pieces(tensor))
    elsewhere: list[int] = []
    Cells(other).read(tensor, lambda keys, _: elsewhere.append(len(keys)))
    return not elsewhere


def _are_among(some: Tensor, keys: Tensor) -> Tensor:
    """Which of some keys are among rising ones."""
    if not len(keys):
        return torch.zeros_like(some, dtype=torch.bool)
    return keys[torch.searchsorted(keys, some).clamp_(max=len(keys) - 1)] == some


def entry_keys(keys: Tensor, grid: Grid) -> Tensor:
    """The number of every entry of some cells, counted row by row over the whole tensor: one row a cell."""
    cell = grid.places(keys)
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


def is_distinct(tensor: Tensor) -> bool:
    """Whether no cell is stored twice, as far as the tensor says."""
    return tensor.layout in COMPRESSED or tensor.is_coalesced()


def same_pattern(tensor: Tensor, other: Tensor) -> bool:
    """Whether two tensors store the same cells in the same order."""
    return _kind(tensor) == _kind(other) and _same_indices(index_tensors(tensor), index_tensors(other))


def _kind(tensor: Tensor) -> tuple[torch.layout, torch.Size, bool]:
    return tensor.layout, stored_values(tensor).shape, is_distinct(tensor)


def _same_indices(some: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    return all(
        (one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride())
        or torch.equal(one, other)
        for one, other in zip(some, others, strict=True)
    )
