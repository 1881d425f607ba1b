"""Sparse tensors: the entries that a template stores are the coordinates."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor

from gradproof.engine.pieces import slices
from gradproof.frameworks.torch.charts.chart import added, alike, shaped
from gradproof.frameworks.torch.layouts import name_of, stored_values, with_values
from gradproof.frameworks.torch.patterns import Cells
from gradproof.frameworks.torch.storage import as_real, refilled

MIXER = 0x9E3779B97F4A7C15 - 2**64  # odd, with bits everywhere: multiplying by it scatters neighbouring keys


class Stored:
    """The entries of a sparse input that a template stores.

    Under masked semantics the template is the point itself. Under full semantics it is a pattern with more cells than
    the point stores, which are zero, and `own` says which cells are the point's.
    """

    hidden = 0

    def __init__(self, point: Tensor, template: Tensor | None = None, own: Tensor | None = None) -> None:
        self.shape, self._cells = tuple(point.shape), Cells(point if template is None else template)
        self._values, self._own, self._masked = stored_values(point), own, own is None
        self._like = stored_values(self.template)
        self._starts: list[int] = []  # of the point's own cells in each piece of the template
        self._unread, self._strided = 0, False
        self.size = self._like.numel() * (2 if self._like.is_complex() else 1)

    @property
    def template(self) -> Tensor:
        """The pattern of the coordinates, without values."""
        return self._cells.template

    def read(self, tensor: Tensor) -> Tensor:
        """What is stored elsewhere counts for nothing; under full semantics it was not asked about."""
        self._strided = self._strided or tensor.layout == torch.strided
        return as_real(self._cells.read(tensor, self._count if self._masked else None)).reshape(-1)

    def make(self, coordinates: Tensor) -> Tensor:
        """On the template's pattern."""
        return with_values(self.template, shaped(coordinates, self._like))

    def origin(self, point: Tensor) -> Tensor:
        """The values at the point, zero where it stores none."""
        if self._own is None:
            return as_real(self._values).reshape(-1)
        return as_real(self._plus_own(torch.zeros_like(self._like, memory_format=torch.contiguous_format))).reshape(-1)

    def moved(self, point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
        """On the template's pattern; without a step, the point as it is."""
        if t == 0:
            return refilled(point)
        memory = None if out is None else stored_values(out)
        values = stored_values(step).reshape(self._like.shape)
        if self._own is None:
            return with_values(self.template, added(self._values, values, t, memory))
        return with_values(self.template, self._plus_own(torch.mul(values, t, out=memory)))

    def _plus_own(self, values: Tensor) -> Tensor:
        """Values on the template plus those at the point, in place, piece by piece."""
        assert self._own is not None
        if not self.size:
            return values
        width = self.size // len(self._own)
        rows, point = as_real(values).view(-1, width), as_real(self._values).reshape(-1, width)
        if not self._starts:
            counts = [int(self._own[where].sum()) for where in slices(0, len(rows))]
            self._starts = [0, *itertools.accumulate(counts)]
        for where, (start, stop) in zip(slices(0, len(rows)), itertools.pairwise(self._starts), strict=True):
            piece = torch.zeros_like(rows[where])
            rows[where].add_(piece.masked_scatter_(self._own[where, None], point[start:stop]))
        return values

    def fits(self, tensor: Tensor) -> bool:
        """Of the same layout and shape."""
        return alike(tensor, self.template)

    def index(self, offset: int) -> tuple[tuple[int, ...], bool | None]:
        """Batch, row, column, dense index."""
        own = True
        if self._own is not None:
            own = bool(self._own[offset // max(1, math.prod(self._cells.grid.payload))])
        return self._cells.index(offset), own

    def words(self) -> str:
        """The layout, and how much is stored."""
        return f"{name_of(self.template.layout)}, {self._stored():,} stored"

    def remarks(self, path: str) -> list[str]:
        """What the gradient held beside the stored entries, or how many of the others were probed."""
        if self._masked:
            return self._ignored(path)
        probed = self._cells.count - self._stored()
        free = self._cells.grid.cells - self._stored()
        if probed >= free:
            return []
        share = 1 - 0.01 ** (1 / max(1, probed))
        return [
            f"{path} was probed at {probed:,} of the {free:,} places where nothing is stored (masked=False): an error "
            f"in {100 * share:.2g} % of them would be missed once in a hundred checks."
        ]

    def _ignored(self, path: str) -> list[str]:
        gradient = f"The gradient with respect to {path}"
        if self._unread:
            return [f"{gradient} holds {self._unread:,} numbers where nothing is stored: masked=True ignores them."]
        return [f"{gradient} is read only where something is stored (masked=True)."] if self._strided else []

    def _stored(self) -> int:
        return self._cells.count if self._own is None else int(self._own.sum())

    def _count(self, _: Tensor, values: Tensor) -> None:
        self._unread = max(self._unread, int((values != 0).sum()))


class Observed:
    """The entries of a sparse output where it stores some at the point or right beside it.

    What it stores elsewhere, further away, is one last coordinate: a sum with signs of its own, lest things cancel. It
    stays zero where the template is all that can be asked about.
    """

    hidden = 1

    def __init__(self, template: Tensor, *, everywhere: bool = True) -> None:
        self._everywhere = everywhere
        self.shape, self._cells = tuple(template.shape), Cells(template)
        self._like = stored_values(self._cells.template)
        self.size = 1 + self._like.numel() * (2 if self._like.is_complex() else 1)

    def read(self, tensor: Tensor) -> Tensor:
        """The entries, and what is elsewhere."""
        elsewhere = torch.zeros((), dtype=torch.float64, device=tensor.device)

        def rest(keys: Tensor, values: Tensor) -> None:
            signs = torch.where(keys * MIXER > 0, 1.0, -1.0).reshape(-1, *(1,) * (as_real(values).dim() - 1))
            elsewhere.add_((as_real(values) * signs).sum())

        found = as_real(self._cells.read(tensor, rest if self._everywhere else None)).reshape(-1)
        return torch.cat([found, elsewhere.reshape(1).to(found.dtype)])

    def make(self, coordinates: Tensor) -> Tensor:
        """On the pattern of the point and its surroundings."""
        return with_values(self._cells.template, shaped(coordinates[:-1], self._like))

    def forget(self) -> None:
        """Let go of what is known of the patterns of tensors that were read."""
        self._cells.forget()

    def origin(self, point: Tensor) -> Tensor:
        """An output is not moved."""
        return self.read(point)

    def moved(self, point: Tensor, step: Tensor, t: float, out: Tensor | None) -> Tensor:
        """An output is not moved."""
        raise NotImplementedError

    def fits(self, tensor: Tensor) -> bool:
        """Of the same layout and shape."""
        return alike(tensor, self._cells.template)

    def index(self, offset: int) -> tuple[tuple[int, ...], bool | None]:
        """Batch, row, column, dense index; nothing for what is elsewhere."""
        if offset >= self._like.numel():
            return (), None
        return self._cells.index(offset), None

    def words(self) -> str:
        """The layout."""
        return f"{name_of(self._cells.template.layout)}, {self._cells.count:,} stored"

    def remarks(self, path: str) -> list[str]:
        """None."""
        return []
