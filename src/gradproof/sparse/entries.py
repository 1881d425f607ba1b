"""Between a sparse tensor and its stored values, both ways, differentiable.

The gradient of a sparse tensor lives on its stored entries. In a leaf it has the leaf's layout; `torch.autograd.grad`
hands it out as COO for layouts that torch cannot add (see `arrivals`), and else in the tensor's layout.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradproof.errors import InputError
from gradproof.sparse.arrivals import settled
from gradproof.sparse.layouts import addable, require_sparse
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.reading import read_at


def entries(tensor: Tensor) -> Tensor:
    """The stored values of a sparse tensor, with the gradient flowing back to them and to no other entry.

    >>> import torch
    >>> a = torch.eye(3).to_sparse_csc().requires_grad_()
    >>> entries(a).square().sum().backward()
    >>> a.grad.values()
    tensor([2., 2., 2.])
    """
    return read(tensor, Pattern.of(require_sparse(tensor, "tensor")))


def assemble(pattern: Pattern, values: Tensor) -> Tensor:
    """The sparse tensor with these values at the pattern's positions.

    >>> import torch
    >>> pattern = Pattern.from_indices(torch.tensor([[1, 0], [0, 1]]), (2, 2))
    >>> assemble(pattern, torch.tensor([5.0, 7.0])).to_dense()
    tensor([[0., 7.],
            [5., 0.]])
    """
    if not isinstance(pattern, Pattern):
        raise InputError(f"The pattern is a {type(pattern).__name__}. Pass a Pattern, such as Pattern.of(tensor).")
    pattern.require_values(values, dense=True)
    ordered, order = pattern.sorted()
    if order is not None:
        values = values.index_select(0, order)
    return assembled(values, ordered)


def put_together(pattern: Pattern, values: Tensor) -> Tensor:
    """The sparse tensor, without a history; the pattern's entries are in torch's order."""
    shape = (*pattern.shape, *values.shape[len(pattern.values_shape) :])
    if pattern.layout is torch.sparse_coo:
        indices = pattern.indices[0]
        return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False, is_coalesced=True)
    starts, places = pattern.indices
    layout = pattern.layout
    return torch.sparse_compressed_tensor(starts, places, values, shape, layout=layout, check_invariants=False)


def put_together_as_coo(pattern: Pattern, values: Tensor) -> Tensor:
    """The same as an uncoalesced COO tensor, its entries in the pattern's order."""
    lead = len(pattern.values_shape)
    shape = (*pattern.shape, *values.shape[lead:])
    return torch.sparse_coo_tensor(pattern.coordinates, values.flatten(0, lead - 1), shape, check_invariants=False)


def read(tensor: Tensor, pattern: Pattern) -> Tensor:
    """A tensor's values at a pattern; zero where it stores nothing."""
    if tensor.layout is torch.strided:
        values = tensor[tuple(pattern.coordinates)]
        return values.reshape(*pattern.values_shape, *values.shape[1:])
    result: Tensor = _Read.apply(tensor, pattern)  # type: ignore[no-untyped-call]  # torch's own
    return settled(tensor, result)


def assembled(values: Tensor, pattern: Pattern, *, as_coo: bool = False) -> Tensor:
    """The sparse tensor, in the pattern's layout or as COO; the pattern's entries are in torch's order."""
    result: Tensor = _Assemble.apply(values, pattern, as_coo)  # type: ignore[no-untyped-call]  # torch's own
    return result


class _Read(Function):
    @staticmethod
    def forward(tensor: Tensor, pattern: Pattern) -> Tensor:
        return read_at(pattern, tensor, on_mismatch="project").data  # no view of the tensor: steps write to its memory

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        tensor, ctx.pattern = inputs
        ctx.as_coo = not addable(tensor) or tensor.layout is not ctx.pattern.layout
        ctx.save_for_backward(tensor)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None]:
        (gradient,) = incoming
        _ = ctx.saved_tensors  # values are the tensor's memory: torch says here if a step was taken meanwhile
        return None if gradient is None else assembled(gradient, ctx.pattern, as_coo=ctx.as_coo), None


class _Assemble(Function):
    @staticmethod
    def forward(values: Tensor, pattern: Pattern, as_coo: bool) -> Tensor:
        make = put_together_as_coo if as_coo else put_together
        return make(pattern, values.resolve_conj().contiguous())  # only such values does torch add entry by entry

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.pattern, _ = inputs
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None, None]:
        (gradient,) = incoming
        return None if gradient is None else read(gradient, ctx.pattern), None, None
