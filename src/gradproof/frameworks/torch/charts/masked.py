"""The chart of a masked tensor: the coordinates are the entries that are not masked out."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.masked import MaskedTensor

from gradproof.frameworks.torch.charts.chart import Chart
from gradproof.frameworks.torch.storage import data_and_mask, masked
from gradproof.sparse.pattern.layouts import stored_values, with_values


class Unmasked(Chart):
    """The entries of a masked tensor that are not masked out: some of the coordinates of its data."""

    def __init__(self, data: Chart, mask: Tensor, point: Tensor) -> None:
        self._data, self._mask, self._point, self.shape = data, mask, point, data.shape
        valid = (mask if mask.layout == torch.strided else stored_values(mask)).reshape(-1)
        self._kept = valid.nonzero().reshape(-1)  # torch has no masked complex numbers
        self._components = data.size
        self.size = len(self._kept)

    def read(self, tensor: Tensor) -> Tensor:
        """Read the entries; those that another mask hides are zero."""
        if isinstance(tensor, MaskedTensor):
            tensor = _valid(*data_and_mask(tensor))
        return self._data.read(tensor)[self._kept]

    def make(self, coordinates: Tensor) -> Tensor:
        """Return the masked tensor with the given coordinates, and zeros where it is masked out."""
        whole = coordinates.new_zeros(self._components)
        whole[self._kept] = coordinates
        return masked(self._data.make(whole), self._mask)

    def origin(self, point: Tensor) -> Tensor:
        """Return the entries that are not masked out."""
        return self._data.origin(self._point)[self._kept]

    def moved(self, point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
        """Move the data, keeping the mask."""
        assert isinstance(step, MaskedTensor)
        return masked(self._data.moved(self._point, data_and_mask(step)[0], t, None), self._mask)

    def fits(self, tensor: Tensor) -> bool:
        """Return True if the other tensor is masked and has data of the same kind."""
        return isinstance(tensor, MaskedTensor) and self._data.fits(data_and_mask(tensor)[0])

    def index(self, offset: int) -> tuple[tuple[int, ...], bool | None]:
        """Return the index of an entry in the data."""
        return self._data.index(int(self._kept[offset]))[0], None

    def words(self) -> str:
        """Describe the kind of data, and how much of it is not masked out."""
        return f"masked {self._data.words()}".rstrip() + f", {self.size:,} valid"


def _valid(data: Tensor, mask: Tensor) -> Tensor:
    """Set the data to zero where it is masked out."""
    if mask.layout == torch.strided:
        return torch.where(mask, data, 0)
    return with_values(data, torch.where(stored_values(mask), stored_values(data), 0))
