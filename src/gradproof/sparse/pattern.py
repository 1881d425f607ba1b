"""Where the entries of a sparse tensor are, without what they are.

A pattern is validated once, never changes, and keeps what products read from it: the entries in row order and in column
order, the position of each, the transposed pattern. Two patterns are equal if their contents are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch.layouts import BY_ROW, name_of
from gradproof.sparse import sources
from gradproof.sparse.compression import Compression, in_order
from gradproof.sparse.coordinates import counted_on, expanded, positions
from gradproof.sparse.layouts import TRANSPOSED, require_sparse, require_tensor
from gradproof.sparse.recollection import Recollection
from gradproof.sparse.sources import Source
from gradproof.sparse.validation import validate

MIXER = 0x9E3779B97F4A7C15 - (1 << 64)  # an odd number without structure, in 64 bits, for hashing


@final
@dataclass(frozen=True, eq=False, repr=False)
class Pattern:
    """The positions of the stored entries of a sparse tensor, in one of torch's five layouts.

    `shape` holds batch dimensions, rows and columns; what torch calls dense dimensions belongs to the values. Values of
    a pattern have shape `values_shape`, plus dense dimensions where an operation takes them.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.eye(3, dtype=torch.bool))
    >>> pattern
    Pattern(CSR, shape=[3, 3], entries=3)
    >>> pattern.tensor(torch.ones(3)).to_dense().equal(torch.eye(3))
    True
    >>> pattern == Pattern.from_mask(torch.eye(3) > 0), len({pattern, pattern.to("cpu")})
    (True, 1)
    """

    layout: torch.layout
    shape: tuple[int, ...]
    indices: tuple[Tensor, ...]
    blocksize: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        validate(self.layout, self.shape, self.indices, self.blocksize)

    # --- where it comes from

    @classmethod
    def of(cls, tensor: Tensor) -> Pattern:
        """The pattern of a sparse tensor: looked at once, and remembered for as long as the tensor lives.

        >>> import torch
        >>> Pattern.of(torch.eye(3).to_sparse_csc())
        Pattern(CSC, shape=[3, 3], entries=3)
        """
        known = _KNOWN.of(require_sparse(tensor, "tensor"))
        if known is None:
            known = cls._made(sources.of_tensor(tensor))
            _KNOWN.remember(tensor, known)
        return known

    @staticmethod
    def kept(tensor: Tensor) -> None:
        """Say that values of a tensor were written to and indices were not: to torch the two have one version."""
        _KNOWN.keep(tensor)

    @classmethod
    def from_mask(
        cls, mask: Tensor, *, layout: torch.layout = torch.sparse_csr, blocksize: tuple[int, int] | None = None
    ) -> Pattern:
        """The positions at which a strided mask is true.

        >>> import torch
        >>> Pattern.from_mask(torch.ones(4, 4).tril() > 0, layout=torch.sparse_bsr, blocksize=(2, 2))
        Pattern(BSR, shape=[4, 4], entries=12, blocks of [2, 2])
        """
        return cls._made(sources.of_mask(mask, layout, blocksize))

    @classmethod
    def from_indices(cls, indices: Tensor, shape: tuple[int, ...]) -> Pattern:
        """Positions as COO has them, one column each, in any order: values are in the same order.

        >>> import torch
        >>> Pattern.from_indices(torch.tensor([[2, 0], [1, 1]]), (3, 3))
        Pattern(COO, shape=[3, 3], entries=2)
        """
        return cls._made(sources.of_indices(indices, shape))

    @classmethod
    def from_scipy(cls, matrix: Any) -> Pattern:
        """The pattern of a SciPy sparse matrix or array; its values fit as `torch.from_numpy(matrix.data)`.

        >>> import scipy.sparse
        >>> Pattern.from_scipy(scipy.sparse.eye_array(3, format="csr"))
        Pattern(CSR, shape=[3, 3], entries=3)
        """
        return cls._made(sources.of_scipy(matrix))

    @classmethod
    def from_edge_index(cls, edge_index: Tensor, *, nodes: int | tuple[int, int] | None = None) -> Pattern:
        """The matrix that carries messages along the edges of a graph, sources above targets, in the edges' order.

        Row = target, column = source. `nodes` is the number of nodes, or those of targets and of sources.

        >>> import torch
        >>> Pattern.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]])).mask().int().tolist()
        [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
        """
        return cls._made(sources.of_edge_index(edge_index, nodes))

    @classmethod
    def random(cls, shape: tuple[int, int], density: float, *, generator: torch.Generator | None = None) -> Pattern:
        """A CSR pattern with the given fraction of all positions, drawn without repetition.

        >>> Pattern.random((100, 50), 0.1)
        Pattern(CSR, shape=[100, 50], entries=500)
        """
        return cls._made(sources.of_chance(shape, density, generator))

    @classmethod
    def _made(cls, source: Source) -> Pattern:
        return cls(source.layout, source.shape, source.indices, source.blocksize)

    def _derived(self, **known: Any) -> Pattern:
        """A pattern whose indices follow from this one's, and need no second look."""
        made = object.__new__(Pattern)
        made.__dict__.update(layout=self.layout, shape=self.shape, indices=self.indices, blocksize=self.blocksize)
        made.__dict__.update(known)
        return made

    # --- what it is

    @property
    def device(self) -> torch.device:
        """Where the indices are."""
        return self.indices[0].device

    @property
    def batch(self) -> tuple[int, ...]:
        """The dimensions before rows and columns."""
        return self.shape[:-2]

    @property
    def values_shape(self) -> tuple[int, ...]:
        """The shape of the values, before any dense dimensions."""
        if self.layout is torch.sparse_coo:
            return (self.indices[0].shape[1],)
        return (*self.indices[1].shape, *(self.blocksize or ()))

    @property
    def entries(self) -> int:
        """The number of stored entries, over all batches and blocks."""
        return math.prod(self.values_shape)

    @property
    def density(self) -> float:
        """The fraction of all positions that are stored."""
        return self.entries / max(1, math.prod(self.shape))

    def __repr__(self) -> str:
        blocks = f", blocks of {list(self.blocksize)}" if self.blocksize else ""
        return f"Pattern({name_of(self.layout)}, shape={list(self.shape)}, entries={self.entries}{blocks})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        if self is other:
            return True
        if (self.layout, self.shape, self.blocksize, self.values_shape) != (
            other.layout,
            other.shape,
            other.blocksize,
            other.values_shape,
        ):
            return False
        return all(_same(mine, its) for mine, its in zip(self.indices, other.indices, strict=True))

    def __hash__(self) -> int:
        return self._digest

    @cached_property
    def _digest(self) -> int:
        sums: list[Any] = [self.layout, self.shape, self.blocksize]
        for index in self.indices:
            flat = index.reshape(-1).long()
            weights = torch.arange(1, flat.numel() + 1, device=flat.device) * MIXER
            sums.append(int(((flat + 1) * weights).sum()))
        return hash(tuple(sums))

    def __deepcopy__(self, memo: Any) -> Pattern:
        return self  # it never changes

    def __reduce__(self) -> tuple[Callable[..., Pattern], tuple[Any, ...]]:
        return Pattern, (self.layout, self.shape, self.indices, self.blocksize)

    # --- what products read

    @cached_property
    def coordinates(self) -> Tensor:
        """The index of every entry, one row for each dimension of `shape`, in the order of storage."""
        if self.layout is torch.sparse_coo:
            return self.indices[0].long()
        by_rows = self.layout in BY_ROW
        starts, places = self.indices
        return expanded(starts, places, self.batch, self.blocksize, by_rows=by_rows)

    @cached_property
    def row_of_entry(self) -> Tensor:
        """The row of every entry; the rows of a batch are counted on."""
        self.require_matrix()
        return counted_on(self.coordinates, self.shape, -2)

    @cached_property
    def column_of_entry(self) -> Tensor:
        """The column of every entry; the columns of a batch are counted on."""
        self.require_matrix()
        return counted_on(self.coordinates, self.shape, -1)

    @cached_property
    def by_rows(self) -> Compression:
        """The entries in row order, a batch as one block-diagonal matrix."""
        if self.is_by_columns:
            return self.by_columns.flipped()
        self.require_matrix()
        times = math.prod(self.batch)
        shape = (times * self.shape[-2], times * self.shape[-1])
        if self.layout is torch.sparse_csr and not self.batch:
            return Compression.of_compressed(self.indices[0], self.indices[1], shape)
        return Compression.of_positions(self.row_of_entry, self.column_of_entry, shape)

    @cached_property
    def by_columns(self) -> Compression:
        """The entries in column order: the row order of the transposed matrix."""
        if self.is_by_columns:
            return Compression.of_compressed(self.indices[0], self.indices[1], (self.shape[1], self.shape[0]))
        return self.by_rows.flipped()

    @property
    def is_by_columns(self) -> bool:
        """Whether values are stored column by column."""
        return self.layout is torch.sparse_csc and not self.batch

    def require_matrix(self) -> None:
        """Raise where there are no rows and columns to multiply by."""
        if len(self.shape) < 2:
            raise InputError(f"{self!r} has no rows and columns: products and sums along rows need a matrix.")

    def require_values(self, values: Tensor, *, dense: bool = False) -> None:
        """Raise unless these can be the values: as many, of a differentiable dtype, on the same device."""
        expected = self.values_shape
        require_tensor(values, "values")
        fits = tuple(values.shape[: len(expected)]) == expected and (dense or values.ndim == len(expected))
        if not fits or values.layout is not torch.strided:
            more = " + dense dimensions" if dense else ""
            raise InputError(
                f"The values have shape {list(values.shape)} ({name_of(values.layout)}), where {self!r} needs strided "
                f"values of shape {list(expected)}{more}: one for each stored entry."
            )
        if not (values.is_floating_point() or values.is_complex()):
            raise InputError(f"The values have dtype {values.dtype}: pass floating-point or complex ones.")
        self.require_device(values, "The values")

    def require_device(self, tensor: Tensor, what: str) -> None:
        """Raise where a tensor is on another device."""
        if tensor.device != self.device:
            raise InputError(
                f"{what} are on {tensor.device} and the pattern is on {self.device}: move one, for example with "
                f"pattern.to({str(tensor.device)!r})."
            )

    # --- what it turns into

    def tensor(self, values: Tensor) -> Tensor:
        """The sparse tensor with these values at these positions; differentiable."""
        from gradproof.sparse.entries import assemble

        return assemble(self, values)

    def mask(self) -> Tensor:
        """A strided mask, true where an entry is stored."""
        mask = torch.zeros(self.shape, dtype=torch.bool, device=self.device)
        mask[tuple(self.coordinates)] = True
        return mask

    def edge_index(self) -> Tensor:
        """The edges of the graph whose messages this matrix carries: sources above targets."""
        self.require_matrix()
        return self.coordinates[-2:].flip(0)

    def scipy(self, values: Tensor | None = None) -> Any:
        """A SciPy sparse array of the same layout, with these values or with ones."""
        from gradproof.sparse.exchange import to_scipy

        return to_scipy(self, values)

    def to(self, device: torch.device | str) -> Pattern:
        """The same pattern on another device, with what is known of it."""
        device = torch.device(device)
        if device == self.device:
            return self
        orders = {name: self.__dict__[name].to(device) for name in ("by_rows", "by_columns") if name in self.__dict__}
        return self._derived(indices=tuple(index.to(device) for index in self.indices), **orders)

    @cached_property
    def transposed(self) -> Pattern:
        """The pattern of the transposed matrix; values keep their order, and blocks are transposed each."""
        self.require_matrix()
        indices = self.indices
        if self.layout is torch.sparse_coo:
            swapped = [*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2]
            indices = (self.indices[0][swapped],)
        return self._derived(
            layout=TRANSPOSED[self.layout],
            shape=(*self.batch, self.shape[-1], self.shape[-2]),
            indices=indices,
            blocksize=self.blocksize and self.blocksize[::-1],
        )

    def sorted(self) -> tuple[Pattern, Tensor | None]:
        """The pattern with its entries in the order that torch has them, and where each of them is stored here."""
        if self.layout is not torch.sparse_coo:
            return self, None
        position = positions(self.indices[0], self.shape)
        if in_order(position):
            return self, None
        order = torch.argsort(position)
        return self._derived(indices=(self.indices[0][:, order],)), order

    def as_csr(self) -> tuple[Pattern, Tensor | None]:
        """The same matrix as CSR, and where each of its entries is stored here (None: in the same order)."""
        self.require_matrix()
        if self.batch:
            raise InputError(f"{self!r} is a batch: only a single matrix is turned into CSR.")
        rows = self.by_rows
        plain = replace(rows, order=None)
        order = None if rows.order is None else rows.order.long()
        indices = (rows.starts, rows.places)
        return self._derived(layout=torch.sparse_csr, indices=indices, blocksize=None, by_rows=plain), order


_KNOWN = Recollection[Pattern]()


def _same(mine: Tensor, its: Tensor) -> bool:
    if mine.device != its.device:
        mine, its = mine.cpu(), its.cpu()
    return mine.data_ptr() == its.data_ptr() or torch.equal(mine.long(), its.long())
