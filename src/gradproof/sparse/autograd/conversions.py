"""Sparse tensors to strided values and back, masked onto patterns, from layout to layout: all of it differentiable.

Gradients have an entry wherever one was read, stored or not. A leaf gets them in its layout; `torch.autograd.grad`
returns them as COO for layouts that torch cannot add.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradproof.errors import InputError
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import require_flag
from gradproof.sparse.pattern.grid import Grid, grid_of, keys_of, zeros_on
from gradproof.sparse.pattern.layouts import (
    COMPRESSED,
    is_addable,
    is_distinct,
    is_sparse,
    name_of,
    require_layout,
    require_sparse,
    require_tensor,
    split_shape,
    stored_values,
    with_values,
)
from gradproof.sparse.pattern.reading import EntryReader
from gradproof.sparse.pattern.templates import extended
from gradproof.sparse.pattern.validation import require_well_formed
from gradproof.sparse.pattern.values import accumulated, build, read, to_strided


def unpack(tensor: Tensor, *, masked: bool = True, seed: int = 0) -> tuple[Tensor, Pattern]:
    """Return the entries of a sparse tensor as strided values, and the pattern with which `repack` puts them back.

    With `masked=True` these are the stored entries, and the gradient has no others. With `masked=False` there are also
    zeros, for positions that are not stored: all of them up to some thousands, else a sample, drawn from `seed`, that
    visits every row and column if it is large enough. Duplicates are summed. Stored values share the tensor's memory.

    >>> import torch
    >>> a = torch.eye(3).to_sparse_csc().requires_grad_()
    >>> values, pattern = unpack(a)
    >>> values.square().sum().backward()
    >>> a.grad.values()
    tensor([2., 2., 2.])
    """
    require_flag(masked, "masked")
    tensor = _coalesced(tensor, "tensor")
    pattern = Pattern.of(tensor)
    if not masked:
        pattern = Pattern.of(extended(tensor.detach(), seed=seed)[0])
    return read(tensor, pattern), pattern


def repack(values: Tensor, pattern: Pattern) -> Tensor:
    """Build the sparse tensor with these values, in storage order, at the positions of a pattern.

    >>> import torch
    >>> pattern = Pattern.from_indices(torch.tensor([[1, 0], [0, 1]]), (2, 2))
    >>> repack(torch.tensor([5.0, 7.0]), pattern).to_dense()
    tensor([[0., 7.],
            [5., 0.]])
    """
    if not isinstance(pattern, Pattern):
        raise InputError(f"The pattern is a {type(pattern).__name__}. Pass a Pattern, such as Pattern.of(tensor).")
    pattern.require_values(values, dense=True)
    ordered, order = pattern.sorted()
    return build(values if order is None else values.index_select(0, order), ordered)


def mask(tensor: Tensor, pattern: Tensor | Pattern) -> Tensor:
    """Keep the entries of a tensor, of any layout, where a pattern or a sparse tensor stores some, in its layout.

    >>> import torch
    >>> mask(torch.arange(9.0).reshape(3, 3), torch.eye(3).to_sparse_csr()).values()
    tensor([0., 4., 8.])
    """
    require_tensor(tensor, "The tensor")
    shape = pattern.shape if isinstance(pattern, Pattern) else tuple(require_tensor(pattern, "pattern").shape)
    if tuple(tensor.shape[: len(shape)]) != shape:
        raise InputError(
            f"The tensor has the shape {tuple(tensor.shape)} and the pattern {shape}: masking keeps the shape. Pass "
            "a pattern of the same shape."
        )
    if not isinstance(pattern, Pattern):
        pattern = Pattern.of(_coalesced(pattern, "pattern").detach())
    pattern.require_device(tensor, "The tensor's entries")
    require_well_formed(tensor, "The tensor, a")
    ordered, _ = pattern.sorted()
    return build(read(tensor, ordered).clone(), ordered)


def _coalesced(tensor: Tensor, what: str) -> Tensor:
    """Return the sparse tensor with its duplicates summed."""
    if is_sparse(require_tensor(tensor, what)) and not is_distinct(tensor):
        require_well_formed(tensor, f"The {what}, a")
        return tensor.coalesce()
    return require_sparse(tensor, what)


def convert(tensor: Tensor, layout: torch.layout, *, blocksize: tuple[int, int] | None = None) -> Tensor:
    """Convert a tensor to another layout. Of a strided tensor, the entries that are not zero are stored.

    >>> import torch
    >>> convert(torch.eye(4).to_sparse(), torch.sparse_bsr, blocksize=(2, 2)).values().shape
    torch.Size([2, 2, 2])
    """
    if require_tensor(tensor, "The tensor").is_meta:
        raise InputError("The tensor is on the meta device: what it stores cannot be known. Pass one that has memory.")
    require_well_formed(tensor, "The tensor, a")
    if layout is torch.strided:
        return tensor if tensor.layout is torch.strided else to_strided(tensor)
    return _converted(tensor, layout, _grid(tensor, layout, blocksize))


def _converted(tensor: Tensor, layout: torch.layout, grid: Grid) -> Tensor:
    if tensor.layout == layout and grid_of(tensor) == grid:
        return tensor
    if tensor.layout == torch.sparse_coo and not tensor.is_coalesced():
        tensor = tensor.coalesce()
    result: Tensor = _Convert.apply(tensor, layout, grid)  # type: ignore[no-untyped-call]  # torch's own
    return accumulated(tensor, result)


class _Convert(Function):
    """The same entries in another layout. An incoming gradient keeps all its entries, stored by the tensor or not."""

    @staticmethod
    def forward(tensor: Tensor, layout: torch.layout, grid: Grid) -> Tensor:
        if tensor.layout == torch.strided:
            entries = tensor.reshape(-1).nonzero().reshape(-1)
        else:
            entries = grid_of(tensor).entry_keys(keys_of(tensor)).reshape(-1)
        template = zeros_on(grid.cells_around(entries), grid, layout, tensor.dtype)
        return with_values(template, EntryReader(template).read(tensor).reshape(stored_values(template).shape))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.layout, Grid], _output: Tensor) -> None:
        tensor = inputs[0]
        ctx.back = None
        if is_sparse(tensor):
            shape, dense, _ = split_shape(tensor)
            coo = torch.sparse_coo, Grid((), shape, (), dense)
            ctx.back = (tensor.layout, grid_of(tensor)) if is_addable(tensor) else coo
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None, None]:
        (gradient,) = incoming
        if gradient is None or gradient.layout == torch.strided:
            return gradient, None, None
        return to_strided(gradient) if ctx.back is None else _converted(gradient, *ctx.back), None, None


def _grid(tensor: Tensor, layout: torch.layout, blocksize: tuple[int, int] | None) -> Grid:
    """Return the grid that a tensor has in a layout, or raise if it has none."""
    require_layout(layout, blocksize)
    shape = tuple(tensor.shape)
    leading, dense, _ = split_shape(tensor) if is_sparse(tensor) else (shape, (), ())
    if layout in COMPRESSED and len(leading) < 2:
        raise InputError(
            f"A {name_of(layout)} tensor has two sparse dimensions, and this one, of shape {shape}, has "
            f"{len(leading)}. Choose torch.sparse_coo, or reshape it."
        )
    if blocksize and any(size < 1 or n % size for n, size in zip(leading[-2:], blocksize, strict=True)):
        raise InputError(f"Blocks of {blocksize} do not tile the {leading[-2:]} of this tensor: choose divisors.")
    return Grid.of_layout(layout, leading, dense, tuple(blocksize or ()))
