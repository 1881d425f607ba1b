"""The softmax over the stored entries of each row, with derivatives of every order and no more memory than its result.

With y = softmax(v) and s(g) = Σ g·y over a row, the pullback is y·(g − s(g)). It is its own pushforward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradproof.sparse.autograd import kernels, lines
from gradproof.sparse.autograd.transforms import apply, nested
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.values import with_signature


def over_rows(values: Tensor, pattern: Pattern) -> Tensor:
    """Return the softmax of the values over each row, one line of values an entry, in storage order."""
    if torch.compiler.is_compiling() or values.is_meta:
        return _traceable(values, pattern)
    return apply(_Softmax, values, pattern)


def _centred(output: Tensor, gradient: Tensor, pattern: Pattern) -> Tensor:
    """Return y·(g − s(g)), differentiable."""
    weighted = output * gradient
    return torch.addcmul(weighted, output, lines.spread(lines.collect(weighted, pattern, -2), pattern, -2), value=-1)


def _traceable(values: Tensor, pattern: Pattern) -> Tensor:
    row = lines.of_entries(pattern, -2)
    index = row.reshape(-1, *[1] * (values.ndim - 1)).expand(values.shape)
    top = values.detach().new_zeros(lines.count(pattern, -2), *values.shape[1:])
    top = top.scatter_reduce(0, index, values.detach(), "amax", include_self=False)
    weights = (values - top.index_select(0, row)).exp()
    return weights / lines.spread(lines.collect(weights, pattern, -2), pattern, -2)


class _Softmax(Function):
    @staticmethod
    @with_signature
    def forward(values: Tensor, pattern: Pattern) -> Tensor:
        matrix = pattern.by_rows
        result = matrix.in_row_order(values)
        row = matrix.row_indices()
        result = (result - kernels.largest_in_rows(matrix, result).index_select(0, row)).exp_()
        result = result.div_(kernels.sum_rows(matrix, result).index_select(0, row))
        return matrix.in_storage_order(result)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.pattern = inputs
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None]:
        (gradient,) = incoming
        (output,) = ctx.saved_tensors
        return None if gradient is None else _centred(output, gradient, ctx.pattern), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _pattern: None) -> Tensor:
        with nested(ctx.saved_tensors) as (output,):
            return _centred(output, tangent, ctx.pattern)

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[int | None, ...], values: Tensor, pattern: Pattern) -> tuple[Tensor, int]:
        assert in_dims[0] is not None
        return apply(_Softmax, values.movedim(in_dims[0], 1), pattern), 1
