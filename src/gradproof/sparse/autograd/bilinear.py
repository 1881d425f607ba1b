"""The two products that all others are made of, with derivatives of every order.

With A the sparse matrix of some values v on a pattern: `multiply` is A·D, `sample` is X·Yᵀ read at the pattern. Each is
linear in either argument, and the derivatives of each are the other two or three:

    Ā·D:  v̄ = sample(G, D*),  D̄ = Aᴴ·G          X·Yᵀ:  X̄ = Ḡ·Y*,  Ȳ = Ḡᵀ·X*

so that backwards and pushforwards are written in these products, and nest to any order by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from gradproof.sparse.autograd import compiled, kernels
from gradproof.sparse.pattern import Pattern


def multiply(values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool = False) -> Tensor:
    """Compute A·D, or Aᵀ·D, for one value an entry in storage order."""
    if torch.compiler.is_compiling():
        return compiled.multiply(values, dense, pattern, transposed)
    result: Tensor = _Multiply.apply(values, dense, pattern, transposed)  # type: ignore[no-untyped-call]  # torch's own
    return result


def sample(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
    """Sum left[row, k] · right[column, k] over k for every entry, in storage order."""
    if torch.compiler.is_compiling():
        return compiled.sample(left, right, pattern)
    result: Tensor = _Sample.apply(left, right, pattern)  # type: ignore[no-untyped-call]  # torch's own
    return result


class _Multiply(Function):
    @staticmethod
    def forward(values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool) -> Tensor:
        matrix = pattern.by_columns if transposed else pattern.by_rows
        return kernels.multiply(matrix, matrix.in_row_order(values), dense)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        values, dense, ctx.pattern, ctx.transposed = inputs
        ctx.save_for_backward(values, dense)
        ctx.save_for_forward(values, dense)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        (gradient,) = incoming
        if gradient is None:
            return None, None, None, None
        values, dense = ctx.saved_tensors
        to_values = to_dense = None
        if ctx.needs_input_grad[0]:
            left, right = (dense.conj(), gradient) if ctx.transposed else (gradient, dense.conj())
            to_values = sample(left, right, ctx.pattern)
        if ctx.needs_input_grad[1]:
            to_dense = multiply(values.conj(), gradient, ctx.pattern, not ctx.transposed)
        return to_values, to_dense, None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        with _nested(ctx.saved_tensors) as (values, dense):
            along_values, along_dense = tangents[:2]
            return _total(
                None if along_values is None else multiply(along_values, dense, ctx.pattern, ctx.transposed),
                None if along_dense is None else multiply(values, along_dense, ctx.pattern, ctx.transposed),
            )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], values: Tensor, dense: Tensor, pattern: Pattern, transposed: bool
    ) -> tuple[Tensor, int]:
        if in_dims[0] is None:
            assert in_dims[1] is not None
            side_by_side = dense.movedim(in_dims[1], 1)
            product = multiply(values, side_by_side.flatten(1), pattern, transposed)
            return product.reshape(-1, *side_by_side.shape[1:]), 1
        each = _each(info.batch_size, in_dims, (values, dense))
        return torch.stack([multiply(v, d, pattern, transposed) for v, d in each]), 0


class _Sample(Function):
    @staticmethod
    def forward(left: Tensor, right: Tensor, pattern: Pattern) -> Tensor:
        if pattern.is_by_columns:
            matrix = pattern.by_columns
            left, right = right, left
        else:
            matrix = pattern.by_rows
        return matrix.in_storage_order(kernels.sample(matrix, left, right))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        left, right, ctx.pattern = inputs
        ctx.save_for_backward(left, right)
        ctx.save_for_forward(left, right)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
        (gradient,) = incoming
        if gradient is None:
            return None, None, None
        left, right = ctx.saved_tensors
        to_left = to_right = None
        if ctx.needs_input_grad[0]:
            to_left = multiply(gradient, right.conj(), ctx.pattern)
        if ctx.needs_input_grad[1]:
            to_right = multiply(gradient, left.conj(), ctx.pattern, True)
        return to_left, to_right, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        with _nested(ctx.saved_tensors) as (left, right):
            along_left, along_right = tangents[:2]
            return _total(
                None if along_left is None else sample(along_left, right, ctx.pattern),
                None if along_right is None else sample(left, along_right, ctx.pattern),
            )

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], left: Tensor, right: Tensor, pattern: Pattern
    ) -> tuple[Tensor, int]:
        each = _each(info.batch_size, in_dims, (left, right))
        return torch.stack([sample(x, y, pattern) for x, y in each]), 0


@contextmanager
def _nested(saved: tuple[Tensor, ...]) -> Iterator[list[Tensor]]:
    """Yield what was saved for a pushforward, without the tangents of its own level, with forward mode on.

    Torch turns forward mode off around a jvp, so a pushforward of a pushforward would silently be zero.
    """
    primals = [forward_ad.unpack_dual(tensor).primal for tensor in saved]  # type: ignore[no-untyped-call]  # torch's own
    with forward_ad._set_fwd_grad_enabled(True):
        yield primals


def _total(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second


def _each(size: int, dims: tuple[int | None, ...], tensors: tuple[Tensor, ...]) -> Any:
    """Return the arguments of each call of a batch."""
    spread = [
        [tensor] * size if dim is None else tensor.unbind(dim) for tensor, dim in zip(tensors, dims, strict=False)
    ]
    return zip(*spread, strict=True)
