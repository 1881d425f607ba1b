"""The products that all others are made of, with derivatives of every order.

All of them come from one trilinear form of values v, one for each entry of a pattern, and two dense matrices:

    T(v, X, Y) = Σ over entries e of v[e] · ⟨X[row of e], Y[column of e]⟩

With one of the three missing, T is linear in it, and `contract` returns its coefficients: A·Y if X is missing, Aᵀ·X if
Y is missing, and X·Yᵀ read at the pattern if v is missing, where A is the sparse matrix of the values. The derivatives
of a contraction are contractions again, so pullbacks and pushforwards nest to any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from gradproof.sparse.autograd import compiled, kernels
from gradproof.sparse.autograd.kernels import Slot
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.values import with_signature


def multiply(values: Tensor, dense: Tensor, pattern: Pattern, *, transposed: bool = False) -> Tensor:
    """Compute A·D, or Aᵀ·D, for one value an entry in storage order."""
    return contract(values, dense, pattern, "columns" if transposed else "rows")


def sample(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
    """Sum left[row, k] · right[column, k] over k for every entry, in storage order."""
    return contract(left, right, pattern, "values")


def contract(first: Tensor, second: Tensor, pattern: Pattern, missing: Slot) -> Tensor:
    """Contract two of values, rows and columns, in this order; `missing` names the third."""
    if torch.compiler.is_compiling():
        return compiled.contract(first, second, pattern, missing)
    result: Tensor = _Contract.apply(first, second, pattern, missing)  # type: ignore[no-untyped-call]  # torch's own
    return result


class _Contract(Function):
    @staticmethod
    @with_signature
    def forward(first: Tensor, second: Tensor, pattern: Pattern, missing: Slot) -> Tensor:
        if missing == "values" and pattern.is_by_columns:
            return kernels.contract(pattern.by_columns, second, first, missing)
        matrix = pattern.by_columns if missing == "columns" else pattern.by_rows
        return kernels.contract(matrix, first, second, missing)

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
        with _nested(ctx.saved_tensors) as (first, second):
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
            side_by_side = second.movedim(in_dims[1], 1)
            product = contract(first, side_by_side.flatten(1), pattern, missing)
            return product.reshape(-1, *side_by_side.shape[1:]), 1
        one, other = (
            [tensor] * info.batch_size if dim is None else tensor.unbind(dim)
            for tensor, dim in zip((first, second), in_dims[:2], strict=True)
        )
        return torch.stack([contract(*pair, pattern, missing) for pair in zip(one, other, strict=True)]), 0


@contextmanager
def _nested(saved: tuple[Tensor, ...]) -> Iterator[list[Tensor]]:
    """Yield what was saved for a pushforward, without the tangents of its own level, with forward mode on.

    Torch turns forward mode off around a jvp, so a pushforward of a pushforward would silently be zero.
    """
    primals = [forward_ad.unpack_dual(tensor).primal for tensor in saved]  # type: ignore[no-untyped-call]  # torch's own
    with forward_ad._set_fwd_grad_enabled(True):
        yield primals
