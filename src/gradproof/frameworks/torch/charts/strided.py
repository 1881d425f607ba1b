"""The chart of a strided tensor: every entry is a coordinate."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.frameworks.torch.charts.chart import Chart, added, as_complex, refusing_malformed
from gradproof.frameworks.torch.storage import as_real, fills_its_storage, overlaps, replica
from gradproof.sparse.pattern.grid import unravel
from gradproof.sparse.pattern.validation import require_well_formed


class Strided(Chart):
    """Every entry of a strided tensor, row by row."""

    def __init__(self, tensor: Tensor) -> None:
        self.shape, self.complex = tuple(tensor.shape), tensor.dtype.is_complex
        self.size = tensor.numel() * (2 if self.complex else 1)

    def read(self, tensor: Tensor) -> Tensor:
        """Read all entries; a sparse tensor, as a gradient may be, is made dense."""
        return as_real(densified(tensor.detach())).reshape(-1)

    def make(self, coordinates: Tensor) -> Tensor:
        """Return the tensor with the given coordinates, a view of them if possible."""
        return as_complex(coordinates, self.shape) if self.complex else coordinates.view(self.shape)

    def origin(self, point: Tensor) -> Tensor:
        """Return the entries of the point."""
        return as_real(point).reshape(-1)

    def moved(self, point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
        """Move the point, keeping its strides."""
        if fills_its_storage(point) or overlaps(point) or point.is_conj() or point.is_neg():
            return added(point, step, t, out)
        copy = replica(point)
        as_real(copy).add_(as_real(step), alpha=t)
        return copy

    def fits(self, tensor: Tensor) -> bool:
        """Return True if the other tensor is strided and has the same shape."""
        return tensor.shape == self.shape and tensor.layout is torch.strided and tensor.dtype.is_complex == self.complex

    def index(self, offset: int) -> tuple[tuple[int, ...], bool | None]:
        """Return the index of an entry in row-major order."""
        return unravel(offset, self.shape), None


def densified(tensor: Tensor) -> Tensor:
    """Make a tensor strided, after validating its indices."""
    if tensor.layout == torch.strided:
        return tensor
    with refusing_malformed():
        require_well_formed(tensor)
    return tensor.to_dense()
