"""The index tensors of a pattern, validated, from masks, indices, SciPy matrices, graphs or random draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern.arguments import require_flag
from gradproof.sparse.pattern.compressed_rows import compress
from gradproof.sparse.pattern.layouts import (
    index_tensors,
    name_of,
    require_layout,
    require_sparse,
    require_tensor,
    split_shape,
)
from gradproof.sparse.pattern.scipy_arrays import of_scipy
from gradproof.sparse.pattern.validation import require_shape, require_valid

SHUFFLED = 0.25  # the density from which positions are drawn by shuffling all of them


@dataclass(frozen=True, eq=False, repr=False)
class StoredIndices:
    """The layout, the shape without dense dimensions, the index tensors and the blocksize of a sparse tensor.

    With `parallel`, which is for COO alone, a position may be stored several times, as parallel edges of a graph are.
    """

    layout: torch.layout
    shape: tuple[int, ...]
    indices: tuple[Tensor, ...]
    blocksize: tuple[int, ...] | None = None
    parallel: bool = False

    def __post_init__(self) -> None:
        if not torch.compiler.is_compiling():  # what is compiled validates them when it runs
            require_valid(self.layout, self.shape, self.indices, self.blocksize, distinct=not self.parallel)

    @classmethod
    def _trusted(
        cls,
        layout: torch.layout,
        shape: tuple[int, ...],
        indices: tuple[Tensor, ...],
        blocksize: tuple[int, ...] | None = None,
        *,
        parallel: bool = False,
        **cached: Any,
    ) -> Self:
        """Build from indices that are known to be valid, with what is known of them already."""
        made = object.__new__(cls)
        fields = {"layout": layout, "shape": shape, "indices": indices, "blocksize": blocksize, "parallel": parallel}
        made.__dict__.update(fields, **cached)
        return made

    @property
    def device(self) -> torch.device:
        """The device of the indices."""
        return self.indices[0].device

    @property
    def is_meta(self) -> bool:
        """True if the indices have no memory."""
        return self.indices[0].is_meta

    @property
    def batch(self) -> tuple[int, ...]:
        """The batch dimensions: those before rows and columns."""
        return self.shape[:-2]

    @property
    def values_shape(self) -> tuple[int, ...]:
        """The shape of the values, without dense dimensions."""
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

    @classmethod
    def _of_tensor(cls, tensor: Tensor) -> Self:
        """Return the indices of a well-formed sparse tensor, shared and not copied."""
        shape, _, block = split_shape(require_sparse(tensor, "tensor"))
        return cls._trusted(tensor.layout, shape, index_tensors(tensor), block or None)

    @classmethod
    def from_mask(
        cls, mask: Tensor, *, layout: torch.layout = torch.sparse_csr, blocksize: tuple[int, int] | None = None
    ) -> Self:
        """Return the positions at which a mask is true; of a blocked layout, the blocks in which it is true anywhere.

        >>> import torch
        >>> from gradproof.sparse import Pattern
        >>> Pattern.from_mask(torch.ones(4, 4).tril() > 0, layout=torch.sparse_bsr, blocksize=(2, 2))
        Pattern(BSR, shape=[4, 4], entries=12, blocks of [2, 2])
        """
        if require_tensor(mask, "The mask").dtype is not torch.bool:
            raise InputError(f"The mask has dtype {mask.dtype}: a mask is boolean. Pass mask != 0.")
        require_layout(layout, blocksize)
        if mask.ndim < (1 if layout is torch.sparse_coo else 2):
            raise InputError(f"The mask has shape {list(mask.shape)}: {name_of(layout)} needs rows and columns.")
        if mask.ndim > 2 and layout is not torch.sparse_coo:
            counts = mask.flatten(-2).sum(-1)
            if bool((counts != counts.flatten()[0]).any()):
                raise InputError(
                    "The mask stores more entries in some matrices of the batch than in others: compressed layouts "
                    "store the same number in each. Use layout=torch.sparse_coo."
                )
        return cls._of_tensor(mask.to(torch.uint8).to_sparse(layout=layout, blocksize=blocksize))

    @classmethod
    def from_indices(cls, indices: Tensor, shape: tuple[int, ...], *, parallel: bool = False) -> Self:
        """Build a COO pattern from one column of indices for each entry, in any order: values are in the same order.

        With `parallel` a position may occur several times, each with a value of its own, as in an uncoalesced tensor.

        >>> import torch
        >>> from gradproof.sparse import Pattern
        >>> Pattern.from_indices(torch.tensor([[2, 0], [1, 1]]), (3, 3))
        Pattern(COO, shape=[3, 3], entries=2)
        """
        require_flag(parallel, "parallel")
        if not isinstance(shape, (tuple, list)):
            raise InputError(f"The shape is {shape!r}: pass one size for each dimension, such as (3, 4).")
        try:
            columns = torch.as_tensor(indices).clone()
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"The indices are {indices!r}: pass an integer tensor, a column for each entry."
            ) from error
        return cls(torch.sparse_coo, tuple(shape), (columns,), parallel=parallel)

    @classmethod
    def from_scipy(cls, matrix: Any) -> Self:
        """Return the pattern of a SciPy sparse matrix or array; its values are `torch.from_numpy(matrix.data)`.

        >>> import scipy.sparse
        >>> from gradproof.sparse import Pattern
        >>> Pattern.from_scipy(scipy.sparse.eye_array(3, format="csr"))
        Pattern(CSR, shape=[3, 3], entries=3)
        """
        return cls(*of_scipy(matrix))

    @classmethod
    def from_edge_index(
        cls,
        edge_index: Tensor | tuple[Tensor, Tensor],
        *,
        nodes: int | tuple[int, int] | None = None,
        parallel: bool = False,
    ) -> Self:
        """Return the adjacency matrix of a graph, with row = target and column = source, in the order of the edges.

        `edge_index` has sources above targets, as PyTorch Geometric has it; or it is a pair of sources and targets, as
        DGL's `graph.edges()` returns. `nodes` is their number, or a pair: of targets and of sources. With `parallel`
        an edge may occur several times, and each has a value of its own.

        >>> import torch
        >>> from gradproof.sparse import Pattern
        >>> Pattern.from_edge_index(torch.tensor([[0, 1, 2], [1, 2, 0]])).mask().int().tolist()
        [[0, 0, 1], [1, 0, 0], [0, 1, 0]]
        """
        require_flag(parallel, "parallel")
        edges = edges_of(edge_index)
        if nodes is None:
            nodes = int(edges.max()) + 1 if edges.numel() else 0
        if not isinstance(nodes, int) and not (isinstance(nodes, (tuple, list)) and len(nodes) == 2):
            raise InputError(f"nodes={nodes!r}: pass the number of nodes, or a pair, of targets and of sources.")
        shape = (nodes, nodes) if isinstance(nodes, int) else tuple(nodes)
        return cls(torch.sparse_coo, shape, (edges.flip(0),), parallel=parallel)

    @classmethod
    def random(cls, shape: tuple[int, int], density: float, *, generator: torch.Generator | None = None) -> Self:
        """Draw a CSR pattern with the given fraction of all positions, all equally likely.

        >>> from gradproof.sparse import Pattern
        >>> Pattern.random((100, 50), 0.1)
        Pattern(CSR, shape=[100, 50], entries=500)
        """
        require_shape(shape)
        if len(shape) != 2:
            raise InputError(f"The shape is {shape!r}: a matrix has rows and columns, such as (3, 4).")
        if not isinstance(density, (int, float)) or not 0 <= density <= 1:
            raise InputError(f"The density is {density}: it is the fraction of positions that are stored, from 0 to 1.")
        device = "cpu" if generator is None else generator.device  # also where tensors are made on the meta device
        size = math.prod(shape)
        count = round(density * size)
        if density >= SHUFFLED:
            chosen = torch.randperm(size, generator=generator, device=device)[:count]
        else:
            chosen = torch.empty(0, dtype=torch.int64, device=device)
            while chosen.numel() < count:
                more = torch.randint(size, (count - chosen.numel() + 16,), generator=generator, device=device)
                chosen = torch.unique_consecutive(torch.cat([chosen, more]).sort().values)
            # They are sorted: keeping the first ones would leave the last rows empty.
            chosen = chosen[torch.randperm(chosen.numel(), generator=generator, device=device)[:count]]
        chosen = chosen.sort().values
        rows = torch.div(chosen, shape[1], rounding_mode="floor") if size else chosen
        return cls(torch.sparse_csr, shape, (compress(rows, shape[0]), chosen - rows * shape[1]))


def edges_of(edge_index: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """Return edges as a plain tensor of shape [2, edges]; PyTorch Geometric's EdgeIndex is a subclass of Tensor."""
    if isinstance(edge_index, (tuple, list)) and len(edge_index) == 2:
        edge_index = torch.stack([require_tensor(end, "An end of the edges") for end in edge_index])
    edges: Tensor = getattr(edge_index, "as_tensor", lambda: edge_index)()
    if require_tensor(edges, "edge_index").ndim != 2 or edges.shape[0] != 2:
        raise InputError(f"edge_index has shape {list(edges.shape)}: pass [2, edges], sources above targets.")
    return edges
