"""The protocol of charts, and the arithmetic that they share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.masked import MaskedTensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.storage import as_real
from gradproof.sparse.pattern.validation import MalformedTensorError


class Chart(Protocol):
    """The coordinates of one tensor."""

    size: int
    shape: tuple[int, ...]
    hidden: int = 0  # coordinates that stand for no entry

    def read(self, tensor: Tensor) -> Tensor:
        """Return a tensor's coordinates as real numbers in its own precision."""
        ...

    def make(self, coordinates: Tensor) -> Tensor:
        """Return the tensor with the given coordinates."""
        ...

    def origin(self, point: Tensor) -> Tensor:
        """Return the coordinates of the point."""
        ...

    def moved(self, point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
        """Return the point plus t times a step, in new memory or in the given memory."""
        ...

    def fits(self, tensor: Tensor) -> bool:
        """Return True if another tensor has the same shape, layout and kind of numbers."""
        ...

    def index(self, offset: int) -> tuple[tuple[int, ...], bool | None]:
        """Return the index of an entry, and whether it is stored (None for a strided tensor)."""
        ...

    def words(self) -> str:
        """Describe the kind of tensor in a few words; return an empty text for a strided one."""
        return ""

    def remarks(self, path: str) -> list[str]:
        """Return notes for the report; none by default."""
        return []


@dataclass(frozen=True, slots=True)
class Semantics:
    """Which entries of a sparse input are varied: the stored ones (`masked`), or all, the others being zeros.

    If `complete`, every entry that is not stored is probed; otherwise a sample of them, drawn from `seed`.
    """

    masked: bool = False
    complete: bool = False
    seed: int = 0


@contextmanager
def refusing_malformed() -> Iterator[None]:
    """Raise the error about a malformed gradient as a `DerivativeError`."""
    try:
        yield
    except MalformedTensorError as error:
        raise DerivativeError(str(error), malformed=True) from error


def alike(tensor: Tensor, other: Tensor) -> bool:
    """Return True if two tensors have the same shape and layout, are both real or both complex, and not masked."""
    return (
        tensor.shape == other.shape
        and tensor.layout == other.layout
        and tensor.is_complex() == other.is_complex()
        and not isinstance(tensor, MaskedTensor)
    )


def shaped(coordinates: Tensor, like: Tensor) -> Tensor:
    """Return coordinates in the shape of another tensor, as complex numbers if that tensor is complex."""
    return as_complex(coordinates, tuple(like.shape)) if like.is_complex() else coordinates.view(like.shape)


def as_complex(coordinates: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return pairs of coordinates as complex numbers, as a view if possible."""
    if coordinates.data_ptr() % (2 * coordinates.element_size()):
        coordinates = coordinates.clone()  # complex numbers are aligned to pairs
    return torch.view_as_complex(coordinates.view(*shape, 2))


def added(point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
    """Return the point plus t times a step, in new memory or in `out`."""
    if not point.is_complex():
        return torch.add(point, step, alpha=t, out=out)
    point, step = as_real(point), as_real(step)
    return torch.view_as_complex(torch.add(point, step, alpha=t, out=None if out is None else as_real(out)))
