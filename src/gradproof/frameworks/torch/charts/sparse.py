"""Charts of sparse tensors: the coordinates are the entries that a template stores."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from gradproof.engine.pieces import slices
from gradproof.frameworks.torch.charts.chart import Chart, added, alike, refusing_malformed, shaped
from gradproof.frameworks.torch.storage import as_real, refilled
from gradproof.sparse.pattern.layouts import name_of, stored_values, with_values
from gradproof.sparse.pattern.pattern import MIXER
from gradproof.sparse.pattern.reading import EntryReader, Rest


class _OnTemplate(Chart):
    """A chart whose coordinates are the entries that a template stores."""

    def __init__(self, template: Tensor) -> None:
        self.shape, self._reader = tuple(template.shape), EntryReader(template)
        self.template = self._reader.template
        self._like = stored_values(self.template)
        self.size = self.hidden + self._like.numel() * (2 if self._like.is_complex() else 1)

    def _read(self, tensor: Tensor, rest: Rest | None) -> Tensor:
        with refusing_malformed():
            return as_real(self._reader.read(tensor, rest)).reshape(-1)

    def make(self, coordinates: Tensor) -> Tensor:
        """Return the tensor with the template's pattern and the given values."""
        return with_values(self.template, shaped(coordinates[: self.size - self.hidden], self._like))

    def fits(self, tensor: Tensor) -> bool:
        """Return True if layout and shape are those of the template."""
        return alike(tensor, self.template)

    def words(self) -> str:
        """Describe the layout, and how many entries are stored."""
        return f"{name_of(self.template.layout)}, {self._stored():,} stored"

    def _stored(self) -> int:
        return self._reader.count


class Stored(_OnTemplate):
    """The entries of a sparse input that a template stores.

    Under masked semantics the template is the point itself. Under full semantics it is a pattern with more cells than
    the point stores, which are zero, and `own` says which cells are the point's.
    """

    def __init__(self, point: Tensor, template: Tensor | None = None, own: Tensor | None = None) -> None:
        super().__init__(point if template is None else template)
        self._values, self._own, self._masked = stored_values(point), own, own is None
        self._first: list[int] = []  # of the point's own cells in each piece of the template
        self._unread, self._strided = 0, False

    def read(self, tensor: Tensor) -> Tensor:
        """Read the entries at the template; those stored elsewhere are counted and ignored."""
        self._strided = self._strided or tensor.layout == torch.strided
        return self._read(tensor, self._count if self._masked else None)

    def origin(self, point: Tensor) -> Tensor:
        """Return the values at the point, and zero in cells that it does not store."""
        if self._own is None:
            return as_real(self._values).reshape(-1)
        return as_real(self._plus_own(torch.zeros_like(self._like, memory_format=torch.contiguous_format))).reshape(-1)

    def moved(self, point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
        """Move the point on the template's pattern; with t = 0, copy the point as it is."""
        if t == 0:
            return refilled(point)
        memory = None if out is None else stored_values(out)
        values = stored_values(step).reshape(self._like.shape)
        if self._own is None:
            return with_values(self.template, added(self._values, values, t, memory))
        return with_values(self.template, self._plus_own(torch.mul(values, t, out=memory)))

    def _plus_own(self, values: Tensor) -> Tensor:
        """Add the point's values to values on the template, in place, piece by piece."""
        assert self._own is not None
        if not self.size:
            return values
        width = self.size // len(self._own)
        rows, point = as_real(values).view(-1, width), as_real(self._values).reshape(-1, width)
        if not self._first:
            counts = [int(self._own[where].sum()) for where in slices(0, len(rows))]
            self._first = [0, *itertools.accumulate(counts)]
        for where, (start, stop) in zip(slices(0, len(rows)), itertools.pairwise(self._first), strict=True):
            piece = torch.zeros_like(rows[where])
            rows[where].add_(piece.masked_scatter_(self._own[where, None], point[start:stop]))
        return values

    def index(self, offset: int) -> tuple[tuple[int, ...], bool | None]:
        """Return the index of an entry, and whether the point stores it."""
        own = True
        if self._own is not None:
            own = bool(self._own[offset // max(1, math.prod(self._reader.grid.payload))])
        return self._reader.index(offset), own

    def remarks(self, path: str) -> list[str]:
        """Note what the gradient holds elsewhere, or how many of the unstored entries were probed."""
        if self._masked:
            return self._ignored(path)
        probed = self._reader.count - self._stored()
        free = self._reader.grid.cells - self._stored()
        if probed >= free:
            return []
        share = 1 - 0.01 ** (1 / max(1, probed))
        return [
            f"{path} was probed at {probed:,} of the {free:,} entries that are not stored (masked=False): an error "
            f"in {100 * share:.2g} % of them would be missed once in a hundred checks."
        ]

    def _ignored(self, path: str) -> list[str]:
        gradient = f"The gradient with respect to {path}"
        if self._unread:
            return [f"{gradient} holds {self._unread:,} numbers where nothing is stored: masked=True ignores them."]
        return [f"{gradient} is read only where something is stored (masked=True)."] if self._strided else []

    def _stored(self) -> int:
        return self._reader.count if self._own is None else int(self._own.sum())

    def _count(self, _: Tensor, values: Tensor) -> None:
        self._unread = max(self._unread, int((values != 0).sum()))


class Observed(_OnTemplate):
    """The entries of a sparse output where it stores some at the point or right beside it.

    Entries that it stores elsewhere, further away, are one last coordinate: their sum with random signs. It stays zero
    if `everywhere` is False.
    """

    hidden = 1

    def __init__(self, template: Tensor, *, everywhere: bool = True) -> None:
        super().__init__(template)
        self._everywhere = everywhere

    def read(self, tensor: Tensor) -> Tensor:
        """Read the entries at the template, and the sum of those elsewhere."""
        elsewhere = torch.zeros((), dtype=torch.float64, device=tensor.device)

        def rest(keys: Tensor, values: Tensor) -> None:
            signs = torch.where(keys * MIXER > 0, 1.0, -1.0).reshape(-1, *(1,) * (as_real(values).dim() - 1))
            elsewhere.add_((as_real(values) * signs).sum())

        found = self._read(tensor, rest if self._everywhere else None)
        return torch.cat([found, elsewhere.reshape(1).to(found.dtype)])

    def forget(self) -> None:
        """Drop what is known of the patterns of tensors that were read."""
        self._reader.forget()

    def origin(self, point: Tensor) -> Tensor:
        """Return the coordinates of the output."""
        return self.read(point)

    def moved(self, point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
        """Raise: an output is not moved."""
        raise NotImplementedError

    def index(self, offset: int) -> tuple[tuple[int, ...], bool | None]:
        """Return the index of an entry; an empty one for the last coordinate."""
        if offset >= self._like.numel():
            return (), None
        return self._reader.index(offset), None
