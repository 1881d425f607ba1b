"""Which entries a sparse tensor stores, without their values.

A pattern is validated once and never changes. It caches what products read from it: the entries in row order and in
column order, the coordinates of each, the transposed pattern. Two patterns are equal if their contents are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern.cache import facts_at, facts_of, hold_same
from gradproof.sparse.pattern.compressed_rows import CompressedRows
from gradproof.sparse.pattern.construction import StoredIndices, edges_of
from gradproof.sparse.pattern.grid import Grid, is_increasing, keys_of, ravel
from gradproof.sparse.pattern.layouts import (
    TRANSPOSED,
    name_of,
    require_sparse,
    require_tensor,
    sparse_tensor,
)
from gradproof.sparse.pattern.scipy_arrays import to_scipy
from gradproof.sparse.pattern.validation import require_well_formed

MIXER = 0x9E3779B97F4A7C15 - (1 << 64)  # odd, 2**64 over the golden ratio: spreads the bits of a hash


@final
@dataclass(frozen=True, eq=False, repr=False)
class Pattern(StoredIndices):
    """The positions of the stored entries of a sparse tensor, in one of torch's five layouts.

    `shape` holds batch dimensions, rows and columns; dense dimensions belong to the values. Values of a pattern have
    shape `values_shape`, plus dense dimensions where an operation takes them. `repack` builds the tensor from both.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.eye(3, dtype=torch.bool))
    >>> pattern
    Pattern(CSR, shape=[3, 3], entries=3)
    >>> pattern == Pattern.from_mask(torch.eye(3) > 0), len({pattern, pattern.to("cpu")})
    (True, 1)
    """

    @classmethod
    def of(cls, tensor: Tensor) -> Pattern:
        """Return the pattern of a sparse tensor, validated once and cached as long as the tensor lives.

        >>> import torch
        >>> Pattern.of(torch.eye(3).to_sparse_csc())
        Pattern(CSC, shape=[3, 3], entries=3)
        """
        facts = facts_of(require_sparse(tensor, "tensor"))
        if facts.pattern is None:
            require_well_formed(tensor, "The")
            facts.pattern = cls._of_tensor(tensor)
        found: Pattern = facts.pattern
        return found

    @classmethod
    def at(cls, layout: torch.layout, shape: tuple[int, ...], indices: tuple[Tensor, ...], **options: Any) -> Pattern:
        """Return the pattern of index tensors as they are now: built again once one of them was written to.

        It is cached as long as the index tensors live. Options are the other fields.

        >>> indices = torch.tensor([[0, 1], [0, 1]])
        >>> diagonal = Pattern.at(torch.sparse_coo, (2, 2), (indices,))
        >>> Pattern.at(torch.sparse_coo, (2, 2), (indices,)) is diagonal
        True
        >>> indices[1].copy_(torch.tensor([1, 0]))
        tensor([1, 0])
        >>> Pattern.at(torch.sparse_coo, (2, 2), (indices,)) == diagonal
        False
        """
        if torch.compiler.is_compiling():
            return cls(layout, shape, indices, **options)
        facts = facts_at(indices)
        fields = (layout, shape, options)
        if facts.pattern is None or facts.equal_to != fields or not hold_same(indices, facts.pattern.indices):
            copies = tuple(index.detach().clone() for index in indices)  # the cache must keep no index tensor alive
            facts.pattern, facts.equal_to = cls(layout, shape, copies, **options), fields
        found: Pattern = facts.pattern
        return found

    @classmethod
    def of_graph(cls, edge_index: Tensor, *, nodes: tuple[int, int]) -> Pattern:
        """Return the adjacency matrix of an edge index, with parallel edges kept, cached as long as the tensor lives.

        `nodes` is the number of targets and of sources; see `from_edge_index`.
        """
        edges, (targets, sources) = edges_of(edge_index), nodes
        if torch.compiler.is_compiling():  # nothing is cached there
            return cls.from_edge_index(edges, nodes=nodes, parallel=True)
        return cls.at(torch.sparse_coo, (sources, targets), (edges,), parallel=True).transposed

    def __repr__(self) -> str:
        blocks = f", blocks of {list(self.blocksize)}" if self.blocksize else ""
        return f"Pattern({name_of(self.layout)}, shape={list(self.shape)}, entries={self.entries}{blocks})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pattern):
            return NotImplemented
        if (self.layout, self.grid, self.values_shape) != (other.layout, other.grid, other.values_shape):
            return False
        pairs = zip(self.indices, other.indices, strict=True)
        return all(
            one.data_ptr() == two.data_ptr() or one.long().equal(two.to(one.device).long()) for one, two in pairs
        )

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
        return self  # it is immutable

    def __reduce__(self) -> tuple[Callable[..., Pattern], tuple[Any, ...]]:
        return Pattern, (self.layout, self.shape, self.indices, self.blocksize, self.parallel)

    @cached_property
    def grid(self) -> Grid:
        """The grid of cells."""
        return Grid.of_layout(self.layout, self.shape, (), self.blocksize or ())

    @cached_property
    def coordinates(self) -> Tensor:
        """The index of every entry, one row for each dimension of `shape`, in storage order."""
        if self.layout is torch.sparse_coo:
            return self.indices[0].long()
        entries = self.grid.entry_keys(keys_of(self.template())).reshape(-1)
        return torch.stack(torch.unravel_index(entries, self.shape))

    @cached_property
    def row_of_entry(self) -> Tensor:
        """The row of every entry; rows are numbered on over a batch."""
        return self._line_of_entry(-2)

    @cached_property
    def column_of_entry(self) -> Tensor:
        """The column of every entry; columns are numbered on over a batch."""
        return self._line_of_entry(-1)

    def _line_of_entry(self, dimension: int) -> Tensor:
        self.require_matrix()
        lines = self.coordinates[dimension]
        return ravel((*self.coordinates[:-2], lines), (*self.batch, self.shape[dimension])) if self.batch else lines

    @cached_property
    def by_rows(self) -> CompressedRows:
        """The entries in row order, a batch as one block-diagonal matrix."""
        if self.is_by_columns:
            return self.by_columns.transposed()
        self.require_matrix()
        times = math.prod(self.batch)
        shape = (times * self.shape[-2], times * self.shape[-1])
        if self.layout is torch.sparse_csr and not self.batch:
            return CompressedRows.of_compressed(self.indices[0], self.indices[1], shape)
        return CompressedRows.of_coordinates(self.row_of_entry, self.column_of_entry, shape)

    @cached_property
    def by_columns(self) -> CompressedRows:
        """The entries in column order: the row order of the transposed matrix."""
        if self.is_by_columns:
            return CompressedRows.of_compressed(self.indices[0], self.indices[1], (self.shape[1], self.shape[0]))
        return self.by_rows.transposed()

    @property
    def is_by_columns(self) -> bool:
        """True if values are stored column by column."""
        return self.layout is torch.sparse_csc and not self.batch

    def require_matrix(self) -> None:
        """Raise if there are no rows and columns to multiply by."""
        if len(self.shape) < 2:
            raise InputError(f"{self!r} has no rows and columns: products and sums along rows need a matrix.")

    def require_values(self, values: Tensor, *, dense: bool = False) -> None:
        """Raise unless these can be the values: one for each entry, differentiable, on the same device."""
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
        """Raise if a tensor is on another device."""
        if tensor.device != self.device:
            raise InputError(
                f"{what} are on {tensor.device} and the pattern is on {self.device}: move one, for example with "
                f"pattern.to({str(tensor.device)!r})."
            )

    def template(self, dense: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> Tensor:
        """Build a tensor of this pattern whose values are one zero, expanded: it takes no memory."""
        zeros = torch.zeros((), dtype=dtype, device=self.device).expand(*self.values_shape, *dense)
        shape = (*self.shape, *dense)
        return sparse_tensor(
            self.layout, self.indices, zeros, shape, coalesced=self._order is None and not self.parallel
        )

    def mask(self) -> Tensor:
        """Return a strided mask that is true where an entry is stored."""
        mask = torch.zeros(self.shape, dtype=torch.bool, device=self.device)
        mask[tuple(self.coordinates)] = True
        return mask

    def edge_index(self) -> Tensor:
        """Return the edges of the graph with this adjacency matrix: sources above targets."""
        self.require_matrix()
        return self.coordinates[-2:].flip(0)

    def scipy(self, values: Tensor | None = None) -> Any:
        """Return a SciPy sparse array of the same layout, with these values or with ones."""
        if len(self.shape) != 2:
            raise InputError(
                f"{self!r} is not a single matrix, as a SciPy sparse array is. Convert one matrix at a time."
            )
        values = torch.ones(self.values_shape) if values is None else values
        self.require_values(values.to(self.device))
        return to_scipy(self.layout, self.indices, self.coordinates, values, self.shape)

    def to(self, device: torch.device | str) -> Pattern:
        """Copy to another device, with what is cached."""
        device = torch.device(device)
        if device == self.device:
            return self
        cached = {name: self.__dict__[name].to(device) for name in ("by_rows", "by_columns") if name in self.__dict__}
        indices = tuple(index.to(device) for index in self.indices)
        return self._trusted(self.layout, self.shape, indices, self.blocksize, parallel=self.parallel, **cached)

    @cached_property
    def transposed(self) -> Pattern:
        """The pattern of the transposed matrix. Values keep their order, and each block is transposed."""
        self.require_matrix()
        indices = self.indices
        if self.layout is torch.sparse_coo:
            swapped = [*range(len(self.shape) - 2), len(self.shape) - 1, len(self.shape) - 2]
            indices = (self.indices[0][swapped],)
        shape = (*self.batch, self.shape[-1], self.shape[-2])
        blocks = self.blocksize and self.blocksize[::-1]
        return self._trusted(TRANSPOSED[self.layout], shape, indices, blocks, parallel=self.parallel)

    def sorted(self) -> tuple[Pattern, Tensor | None]:
        """Return the pattern in torch's order of entries, and the position in storage here of each (None: the same)."""
        order = self._order
        if order is None:
            return self, None
        indices = (self.indices[0][:, order],)
        return self._trusted(self.layout, self.shape, indices, parallel=self.parallel, _order=None), order

    @cached_property
    def _order(self) -> Tensor | None:
        """The position in storage of each entry in torch's order; None if it is the same."""
        if self.layout is not torch.sparse_coo:
            return None
        keys = ravel(self.indices[0], self.shape)
        return None if is_increasing(keys, strictly=not self.parallel) else torch.argsort(keys, stable=True)

    @cached_property
    def products(self) -> MutableMapping[Pattern, Any]:
        """The cache for products with other patterns, kept as long as both patterns live."""
        return WeakKeyDictionary()

    def as_csr(self) -> tuple[Pattern, Tensor | None]:
        """Return the same matrix as CSR, and the position in storage here of each of its entries (None: the same)."""
        self.require_matrix()
        if self.batch:
            raise InputError(f"{self!r} is a batch: only a single matrix is turned into CSR.")
        if self.parallel:
            raise InputError(f"{self!r} may store a position several times, and CSR may not. Call merged() first.")
        rows = self.by_rows
        order = None if rows.permutation is None else rows.permutation.long()
        indices = rows.crow_indices, rows.col_indices
        plain = replace(rows, permutation=None)
        return self._trusted(torch.sparse_csr, self.shape, indices, by_rows=plain), order


def require_pattern(pattern: object) -> Pattern:
    """Return the pattern, or raise with the type that came instead."""
    if not isinstance(pattern, Pattern):
        raise InputError(f"The pattern is a {type(pattern).__name__}. Pass a Pattern, such as Pattern.of(tensor).")
    return pattern
