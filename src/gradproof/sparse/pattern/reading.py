"""Reading one sparse tensor where another stores its entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from gradproof.sparse.pattern.grid import grid_of, is_increasing, key_pieces, keys_of
from gradproof.sparse.pattern.layouts import (
    index_tensors,
    is_distinct,
    same_indices,
    stored_count,
    stored_values,
    zeros_template,
)
from gradproof.sparse.pattern.membership import look_up
from gradproof.sparse.pattern.validation import require_well_formed

Rest = Callable[[Tensor, Tensor], None]  # takes the keys and values of what is stored elsewhere
REMEMBERED = 2  # patterns of other tensors whose matches a reader keeps


class EntryReader:
    """Reads tensors of any layout at the stored cells of a template."""

    def __init__(self, template: Tensor) -> None:
        self.template, self.grid = zeros_template(template), grid_of(template)
        self.count = stored_count(template)
        self._distinct = is_distinct(template)
        self._known: list[Match] = []

    def read(self, tensor: Tensor, rest: Rest | None = None) -> Tensor:
        """Return the tensor's entries, one row for each cell: zero where it stores none, the sum of duplicates.

        `rest` is called with the keys and values of what the tensor stores elsewhere.
        """
        tensor = tensor.detach()
        if tensor.layout == torch.strided:
            return self._read_strided(tensor)
        if self._distinct and same_pattern(tensor, self.template):
            return stored_values(tensor).reshape(self.count, *self.grid.payload)
        match = next((known for known in self._known if known.is_of(tensor)), None)
        if match is None:
            require_well_formed(tensor)
            if not is_distinct(tensor):
                return self.read(tensor.coalesce(), rest)
            match = Match(tensor, self)
            self._known = [match, *self._known[: REMEMBERED - 1]]
        return match.read(tensor, rest).reshape(self.count, *self.grid.payload)

    def forget(self) -> None:
        """Drop what is known of the patterns of tensors that were read."""
        self._known = []

    def index(self, number: int) -> tuple[int, ...]:
        """Return the index of an entry from its position among the values."""
        cell, offset = divmod(number, max(1, math.prod(self.grid.payload)))
        where, keys = next(piece for piece in key_pieces(self.template) if piece[0].stop > cell)
        return self.grid.index(int(keys[cell - where.start]), offset)

    def wanted(self, *, by_cell: bool) -> Iterator[tuple[slice, Tensor]]:
        """Yield the keys of the template's cells, or of their entries, a piece at a time."""
        size = 1 if by_cell else math.prod(self.grid.payload)
        for where, keys in key_pieces(self.template):
            entries = slice(size * where.start, size * where.stop)
            yield entries, keys if by_cell else self.grid.entry_keys(keys).reshape(-1)

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
            found[where] = tensor[grid.coordinates(keys)]
        return found


class Match:
    """The position of each entry of a reader's template among the values of tensors of one pattern."""

    def __init__(self, tensor: Tensor, reader: EntryReader) -> None:
        grid, keys = grid_of(tensor), keys_of(tensor)
        by_cell = grid == reader.grid
        if not by_cell:
            keys = grid.entry_keys(keys).reshape(-1)
        order = None if is_increasing(keys) else keys.argsort()
        keys = keys if order is None else keys[order]
        count = reader.count * (1 if by_cell else math.prod(reader.grid.payload))
        self._indices, self._kind = index_tensors(tensor), _kind(tensor)
        self._payload, self._count = grid.payload if by_cell else (), len(keys)
        self._position = torch.empty(count, dtype=torch.int64, device=keys.device)
        absent = torch.ones(count, dtype=torch.bool, device=keys.device)
        unread = torch.ones(len(keys), dtype=torch.bool, device=keys.device)
        for where, some in reader.wanted(by_cell=by_cell) if len(keys) else ():
            slot, found = look_up(some, keys)
            slot.clamp_(max=len(keys) - 1)
            absent[where] = ~found
            unread[slot[found]] = False
            self._position[where] = slot if order is None else order[slot]
        self.missing = int(absent.sum())  # entries of the template that the tensor does not store
        self._absent = absent if self.missing else None
        self._rest = unread.nonzero().reshape(-1)
        self._rest_keys = keys[self._rest]
        self.elsewhere = len(self._rest)  # cells or entries that the tensor stores and the template does not
        if order is not None:
            self._rest = order[self._rest]

    def is_of(self, tensor: Tensor) -> bool:
        """Return True if the tensor has the pattern that was matched."""
        return _kind(tensor) == self._kind and same_indices(index_tensors(tensor), self._indices)

    def read(self, tensor: Tensor, rest: Rest | None = None) -> Tensor:
        """Return the values of such a tensor at the template's entries."""
        values = stored_values(tensor).reshape(self._count, *self._payload)
        if rest is not None and len(self._rest):
            rest(self._rest_keys, values[self._rest])
        if not len(values):
            return values.new_zeros((len(self._position), *self._payload))
        found = values[self._position]
        if self._absent is not None:
            found[self._absent] = 0
        return found


def same_pattern(tensor: Tensor, other: Tensor) -> bool:
    """Return True if two tensors store the same cells in the same order."""
    return _kind(tensor) == _kind(other) and same_indices(index_tensors(tensor), index_tensors(other))


def increasing_keys(tensor: Tensor) -> Tensor:
    """Return the keys of all stored cells in increasing order, each once."""
    keys = keys_of(tensor)
    return keys if is_increasing(keys) else torch.unique(keys)


def _kind(tensor: Tensor) -> tuple[torch.layout, torch.Size, bool]:
    return tensor.layout, stored_values(tensor).shape, is_distinct(tensor)
