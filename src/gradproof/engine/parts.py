"""The tensors that a flat vector consists of, and operations along their dimensions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import Any

from gradproof.engine.subject import Array, Frame


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a tensor: its number, its length, and its stride (`below`) in coordinates."""

    number: int
    length: int
    below: int

    def split(self, vector: Array) -> Array:
        """Return a view of shape (before, length, below); leading dimensions of stacked vectors count as before."""
        return vector.reshape(-1, self.length, self.below)

    def indices(self, xp: Any, size: int, like: Array) -> Array:
        """Return the index of every coordinate along this dimension."""
        return xp.arange(0, size, device=like.device) // self.below % self.length

    def shifted(self, xp: Any, vector: Array, *, offset: int) -> Array:
        """Shift all entries by one or minus one along this dimension, and fill up with zeros."""
        pieces = self.split(xp.zeros_like(vector))
        source = self.split(vector)
        if offset > 0:
            pieces[:, 1:] = source[:, :-1]
        else:
            pieces[:, :-1] = source[:, 1:]
        return pieces.reshape(vector.shape)

    def rolled(self, xp: Any, vector: Array, *, offset: int) -> Array:
        """Shift all entries along this dimension, cyclically."""
        return xp.roll(self.split(vector), offset, 1).reshape(vector.shape)

    def averaged(self, xp: Any, vector: Array) -> Array:
        """Replace every entry by the mean along this dimension."""
        pieces = self.split(vector)
        return (xp.zeros_like(pieces) + pieces.sum(1)[:, None] / self.length).reshape(vector.shape)

    def only(self, xp: Any, vector: Array, *, index: int) -> Array:
        """Set all entries to zero but those at one index along this dimension."""
        pieces = self.split(xp.zeros_like(vector))
        pieces[:, index] = self.split(vector)[:, index]
        return pieces.reshape(vector.shape)


@dataclass(frozen=True, slots=True)
class Part:
    """The coordinates of one tensor within a flat vector."""

    path: str
    start: int
    stop: int
    shape: tuple[int, ...]
    is_complex: bool

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return self.stop - self.start

    @property
    def entries(self) -> int:
        """The number of entries; a complex entry has two coordinates."""
        return prod(self.shape)

    def of(self, vector: Array) -> Array:
        """Return the coordinates of this tensor in a vector, or in each of stacked vectors."""
        return vector[..., self.start : self.stop]

    def changed(self, vector: Array, change: Callable[[Array], Array]) -> Array:
        """Return a copy of a vector, or of stacked ones, with this tensor changed."""
        result = vector * 1.0
        result[..., self.start : self.stop] = change(self.of(vector))
        return result

    def alone(self, vector: Array) -> Array:
        """Return a copy of a vector, or of stacked ones, that is zero outside this tensor."""
        result = vector * 0.0
        result[..., self.start : self.stop] = self.of(vector)
        return result

    @property
    def axes(self) -> list[Axis]:
        """The dimensions with more than one entry."""
        found, below = [], self.size
        for number, length in enumerate(self.shape):
            below //= length
            if length > 1:
                found.append(Axis(number, length, below))
        return found

    def swaps(self) -> list[tuple[int, int]]:
        """Return all pairs of dimensions with more than one entry."""
        axes = [axis.number for axis in self.axes]
        return [(one, other) for k, one in enumerate(axes) for other in axes[k + 1 :]]

    def exchanged(self, pair: tuple[int, int]) -> Part:
        """Return this tensor with two dimensions exchanged."""
        laid = list(self.shape)
        laid[pair[0]], laid[pair[1]] = laid[pair[1]], laid[pair[0]]
        return replace(self, shape=tuple(laid))

    def swapped(self, xp: Any, vector: Array, *, pair: tuple[int, int]) -> Array:
        """Read a vector as this tensor with two dimensions exchanged, and exchange them back."""
        laid = self.exchanged(pair).shape
        whole = vector.reshape(*laid, 2) if self.is_complex else vector.reshape(laid)
        return xp.swapaxes(whole, *pair).reshape(-1)


def parts_of(frame: Frame) -> list[Part]:
    """Return the non-empty tensors of a frame, with shapes inferred from the names of their last coordinates.

    A tensor whose coordinates are only some of its entries, such as a sparse one, becomes one-dimensional. A last
    coordinate that belongs to no entry is left out.
    """
    found = []
    for start, stop in frame.spans:
        if stop > start:
            last = frame.locate(stop - 1)
            if not last.index and stop - start > (2 if last.part else 1):
                stop -= 1
                last = frame.locate(stop - 1)
            entries = (stop - start) // (2 if last.part else 1)
            shape = tuple(index + 1 for index in last.index)
            whole = prod(shape) == entries and frame.locate(start).index == (0,) * len(shape)
            found.append(Part(last.path, start, stop, shape if whole else (entries,), last.part is not None))
    return found


def quasirandom_indices(size: int, count: int) -> list[int]:
    """Return indices that cover a range evenly without a period: multiples of the golden ratio modulo one."""
    return [int(evenly_spread(k) * size) for k in range(1, count + 1)]


def evenly_spread(number: Any) -> Any:
    """Return a number from 0 to 1 for a number, or for each in an array: successive ones cover the range evenly."""
    return number * (sqrt(5) - 1) / 2 % 1


def conjugated(vector: Array) -> Array:
    """Return the conjugate of a vector that holds complex entries as pairs."""
    result = vector * 1.0
    result[..., 1::2] *= -1.0
    return result
