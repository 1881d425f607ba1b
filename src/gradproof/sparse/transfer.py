"""The linear maps between sparse tensors, their values and their layouts.

Two of them are each other's transpose: reading a tensor where a template stores entries, and putting values where it
does. Their derivatives are made of themselves, so they can be differentiated any number of times, and nothing is ever
as large as the sparse shape. Gradients of tensors that torch cannot add travel as COO (see `arrivals`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradproof.frameworks.torch.layouts import (
    Grid,
    grid_of,
    keys_of,
    on_cells,
    stored_values,
    with_values,
    zeros_on,
)
from gradproof.frameworks.torch.patterns import Cells, entry_keys
from gradproof.sparse.arrivals import settled
from gradproof.sparse.layouts import addable


def read(tensor: Tensor, template: Tensor) -> Tensor:
    """The entries of a tensor where a template stores some."""
    values: Tensor = _Read.apply(tensor, template)  # type: ignore[no-untyped-call]  # torch's own
    return settled(tensor, values)


def put(values: Tensor, template: Tensor) -> Tensor:
    """A tensor with these values where a template stores some."""
    tensor: Tensor = _Put.apply(values, template)  # type: ignore[no-untyped-call]  # torch's own
    return tensor


def spread(tensor: Tensor) -> Tensor:
    """The same numbers in a strided tensor."""
    if addable(tensor):
        return settled(tensor, tensor.to_dense(masked_grad=False))
    result: Tensor = _Spread.apply(tensor)  # type: ignore[no-untyped-call]  # torch's own
    return settled(tensor, result)


def converted(tensor: Tensor, layout: torch.layout, grid: Grid) -> Tensor:
    """The same numbers in a sparse layout, on the grid of cells that the tensor has there."""
    if tensor.layout == layout and grid_of(tensor) == grid:
        return tensor
    if tensor.layout == torch.sparse_coo and not tensor.is_coalesced():
        tensor = tensor.coalesce()
    result: Tensor = _Convert.apply(tensor, layout, grid)  # type: ignore[no-untyped-call]  # torch's own
    return settled(tensor, result)


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """The numbers of a sparse tensor in the layout of another, with its blocks and its kind of index."""
    template = _template_like(other, tensor.detach())
    return put(read(tensor, template), template)


def coordinate_grid(tensor: Tensor) -> Grid:
    """The cells that a sparse tensor has as COO."""
    dense = grid_of(tensor).dense
    shape = tuple(tensor.shape)
    return Grid((), shape[: len(shape) - len(dense)], (), dense)


class _Convert(torch.autograd.Function):
    """The same numbers in another layout: of any incoming gradient, wherever it has entries, nothing is lost."""

    @staticmethod
    def forward(tensor: Tensor, layout: torch.layout, grid: Grid) -> Tensor:
        if tensor.layout == torch.strided:
            entries = tensor.reshape(-1).nonzero().reshape(-1)
        else:
            entries = entry_keys(keys_of(tensor), grid_of(tensor)).reshape(-1)
        template = zeros_on(_cells_around(entries, grid), grid, layout, tensor.dtype)
        return with_values(template, Cells(template).read(tensor).reshape(stored_values(template).shape))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, torch.layout, Grid], output: Tensor) -> None:
        tensor = inputs[0]
        ctx.way_back = None
        if tensor.layout != torch.strided:
            ctx.way_back = (
                (tensor.layout, grid_of(tensor)) if addable(tensor) else (torch.sparse_coo, coordinate_grid(tensor))
            )
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None, None]:
        (gradient,) = incoming
        if gradient is None or gradient.layout == torch.strided:
            return gradient, None, None
        return spread(gradient) if ctx.way_back is None else converted(gradient, *ctx.way_back), None, None


class _Spread(torch.autograd.Function):
    """A strided tensor of a layout that torch does not add up: so its gradient, which is strided, stays so.

    Torch would make it sparse, and fail where one matrix of a batch then stores more entries than the next.
    """

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        return tensor.to_dense()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> Tensor | None:
        return incoming[0]


class _Read(torch.autograd.Function):
    """Reading a tensor where a template stores entries."""

    @staticmethod
    def forward(tensor: Tensor, template: Tensor) -> Tensor:
        cells = Cells(template)
        return cells.read(tensor).reshape(stored_values(template).shape).clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        tensor, ctx.template = inputs
        ctx.set_materialize_grads(False)  # torch has no zeros in every layout
        ctx.like = None if tensor.layout == torch.strided else _gradient_template(tensor, ctx.template)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None]:
        if incoming[0] is None:
            return None, None
        gradient = put(incoming[0], ctx.template)
        if ctx.like is None:
            return gradient.to_dense(), None
        return put(read(gradient, ctx.like), ctx.like), None


class _Put(torch.autograd.Function):
    """Putting values where a template stores entries."""

    @staticmethod
    def forward(values: Tensor, template: Tensor) -> Tensor:
        return with_values(template, values.clone())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.template = inputs[1]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None]:
        return None if incoming[0] is None else read(incoming[0], ctx.template), None


def _gradient_template(tensor: Tensor, template: Tensor) -> Tensor:
    """Zeros at the entries of a template, as gradients of a tensor travel."""
    if addable(tensor):
        return _template_like(tensor.detach(), template)
    grid = coordinate_grid(tensor)
    return zeros_on(_cells_of(template, grid), grid, torch.sparse_coo, tensor.dtype)


def _template_like(like: Tensor, template: Tensor) -> Tensor:
    return on_cells(like, _cells_of(template, grid_of(like)))


def _cells_of(template: Tensor, grid: Grid) -> Tensor:
    """The cells of a grid that hold the entries of a template."""
    keys, theirs = keys_of(template), grid_of(template)
    return keys if grid == theirs else _cells_around(entry_keys(keys, theirs).reshape(-1), grid)


def _cells_around(entries: Tensor, grid: Grid) -> Tensor:
    """The cells that hold some entries, these being numbered row by row over the whole tensor."""
    if not grid.shape:
        return entries.new_zeros(min(1, len(entries)))
    places = list(torch.unravel_index(entries, grid.whole)[: len(grid.shape)])
    spans = (*(1,) * len(grid.batch), *(grid.block or (1,) * len(grid.sparse)))
    places = [place // span for place, span in zip(places, spans, strict=True)]
    if grid.by_column:
        places[-2:] = reversed(places[-2:])
    key = torch.zeros_like(entries)
    for length, place in zip(grid.counted, places, strict=True):
        key = key * length + place
    distinct: Tensor = torch.unique(key)
    return distinct
