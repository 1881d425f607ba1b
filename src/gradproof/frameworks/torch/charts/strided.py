"""Strided tensors: every entry is a coordinate."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.charts.chart import added, as_complex
from gradproof.frameworks.torch.faults import fault_of
from gradproof.frameworks.torch.layouts import name_of, unravelled
from gradproof.frameworks.torch.storage import as_real, fills_its_storage, overlaps, replica


class Strided:
    """Every entry of a strided tensor, row by row."""

    hidden = 0

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.complex = tuple(tensor.shape), tensor.dtype.is_complex
        self.size = tensor.numel() * (2 if self.complex else 1)

    def read(self, tensor: Tensor) -> Tensor:
        """A sparse tensor, as a gradient may be, is spread out."""
        return as_real(spread(tensor.detach())).reshape(-1)

    def make(self, coordinates: Tensor) -> Tensor:
        """A view of the coordinates, where that can be."""
        return as_complex(coordinates, self.shape) if self.complex else coordinates.view(self.shape)

    def origin(self, point: Tensor) -> Tensor:
        """The point's own entries."""
        return as_real(point).reshape(-1)

    def moved(self, point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
        """With the strides of the point."""
        if fills_its_storage(point) or overlaps(point) or point.is_conj() or point.is_neg():
            return added(point, step, t, out)
        copy = replica(point)
        as_real(copy).add_(as_real(step), alpha=t)
        return copy

    def fits(self, tensor: Tensor) -> bool:
        """Strided as well, of the same shape."""
        return tensor.shape == self.shape and tensor.layout is torch.strided and tensor.dtype.is_complex == self.complex

    def index(self, offset: int) -> tuple[tuple[int, ...], bool | None]:
        """Row by row."""
        return unravelled(offset, self.shape), None

    def words(self) -> str:
        """None."""
        return ""

    def remarks(self, path: str) -> list[str]:
        """None."""
        return []


def spread(tensor: Tensor) -> Tensor:
    """A tensor as a strided one, once it is known to be well formed."""
    if tensor.layout == torch.strided:
        return tensor
    if fault := fault_of(tensor):
        raise DerivativeError(f"a {name_of(tensor.layout)} tensor is malformed: {fault}", malformed=True)
    return tensor.to_dense()
