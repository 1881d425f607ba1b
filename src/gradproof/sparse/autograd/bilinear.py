"""The products that all others are made of, with derivatives of every order.

All of them come from one trilinear form of values v, one for each entry of a pattern, and two dense matrices:

    T(v, X, Y) = Σ over entries e of v[e] · ⟨X[row of e], Y[column of e]⟩

Values may have heads, further dimensions behind the entries, over which T sums as well. Then X and Y have the same
heads behind their rows: values are [entries, heads], and X and Y [rows, heads, k].

With one of the three missing, T is linear in it, and `contract` returns its coefficients: A·Y if X is missing, Aᵀ·X if
Y is missing, and X·Yᵀ read at the pattern if v is missing, where A is the sparse matrix of the values. The derivatives
of a contraction are contractions again, so pullbacks and pushforwards nest to any order.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradproof.sparse.autograd import compiled, kernels
from gradproof.sparse.autograd.kernels import Slot
from gradproof.sparse.autograd.transforms import apply, nested
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.values import with_signature


def multiply(values: Tensor, dense: Tensor, pattern: Pattern, *, transposed: bool = False) -> Tensor:
    """Compute A·D, or Aᵀ·D, for the values of each entry in storage order."""
    return contract(values, dense, pattern, "columns" if transposed else "rows")


def sample(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
    """Sum left[row, k] · right[column, k] over k for every entry, in storage order."""
    return contract(left, right, pattern, "values")


def contract(first: Tensor, second: Tensor, pattern: Pattern, missing: Slot) -> Tensor:
    """Contract two of values, rows and columns, in this order; `missing` names the third."""
    if torch.compiler.is_compiling():
        return compiled.contract(first, second, pattern, missing)
    return apply(_Contract, first, second, pattern, missing)


class _Contract(Function):
    @staticmethod
    @with_signature
    def forward(first: Tensor, second: Tensor, pattern: Pattern, missing: Slot) -> Tensor:
        if first.is_meta or second.is_meta:
            return _without_memory(first, second, pattern, missing)
        return kernels.contract(pattern, first, second, missing)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        first, second, ctx.pattern, ctx.missing = inputs
        ctx.save_for_backward(first, second)
        ctx.save_for_forward(first, second)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        (gradient,) = incoming
        if gradient is None:
            return None, None, None, None

        def contracted(one: Tensor, other: Tensor, missing: Slot) -> Tensor:
            return contract(one, other, ctx.pattern, missing)

        found = kernels.pullback(contracted, ctx.saved_tensors, gradient, ctx.missing, ctx.needs_input_grad)
        return *found, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        with nested(ctx.saved_tensors) as (first, second):
            terms = [
                contract(one, other, ctx.pattern, ctx.missing)
                for one, other in ((tangents[0], second), (first, tangents[1]))
                if one is not None and other is not None
            ]
            return sum(terms[1:], terms[0]) if terms else None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
        first, second, pattern, missing = arguments
        if missing != "values" and in_dims[0] is None:
            assert in_dims[1] is not None
            stacked = second.movedim(in_dims[1], -1)
            product = contract(first, stacked.flatten(-2), pattern, missing)
            return product.reshape(*product.shape[:-1], *stacked.shape[-2:]), product.ndim
        first, second = (
            tensor.unsqueeze(1).expand(-1, info.batch_size, *[-1] * (tensor.ndim - 1))
            if dim is None
            else tensor.movedim(dim, 1)
            for tensor, dim in zip((first, second), in_dims[:2], strict=True)
        )
        return contract(first, second, pattern, missing), 1


def _without_memory(first: Tensor, second: Tensor, pattern: Pattern, missing: Slot) -> Tensor:
    """Return a result on the meta device, of the shape alone."""
    if missing == "values":
        return torch.empty(pattern.entries, *first.shape[1:-1], dtype=first.dtype, device="meta")
    lines = math.prod(pattern.batch) * pattern.shape[-2 if missing == "rows" else -1]
    return torch.empty(lines, *second.shape[1:], dtype=second.dtype, device="meta")
