"""The contraction of `bilinear` as a custom operator, one call in the graphs of `torch.compile`.

The compiler cannot trace an autograd Function that defines a jvp, as the one in `bilinear` does. This operator has the
same reverse mode and no jvp. A matrix comes as six tensors: its entries in row order and in column order, each as
compressed indices, plain indices and the permutation of the values.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from gradproof.sparse.autograd import kernels
from gradproof.sparse.autograd.kernels import Slot
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.compressed_rows import CompressedRows

INDICES = (
    "Tensor crow_indices, Tensor col_indices, Tensor? row_permutation, "
    "Tensor ccol_indices, Tensor row_indices, Tensor? column_permutation"
)


def contract(first: Tensor, second: Tensor, pattern: Pattern, missing: Slot) -> Tensor:
    """Contract two of values, rows and columns, in this order; `missing` names the third."""
    known = vars(pattern)  # not every compiler sees what a cached property holds
    rows, columns = known.get("by_rows") or pattern.by_rows, known.get("by_columns") or pattern.by_columns
    indices = ((order.crow_indices, order.col_indices, order.permutation) for order in (rows, columns))
    result: Tensor = _contract(first, second, *itertools.chain(*indices), missing)
    return result


@torch.library.custom_op(
    "gradproof::contract", mutates_args=(), schema=f"(Tensor first, Tensor second, {INDICES}, str missing) -> Tensor"
)
def _contract(first: Tensor, second: Tensor, *arguments: Any) -> Tensor:
    *indices, missing = arguments
    if missing == "columns":
        indices = [*indices[3:], *indices[:3]]
    lengths = indices[0].numel() - 1, indices[3].numel() - 1
    return kernels.contract(CompressedRows(*lengths, *indices[:3]), first, second, missing)


@_contract.register_fake
def _(first: Tensor, second: Tensor, *arguments: Any) -> Tensor:
    *indices, missing = arguments
    if missing == "values":
        return first.new_empty(indices[1].shape[0])
    return second.new_empty(indices[0 if missing == "rows" else 3].shape[0] - 1, second.shape[1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.missing = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    first, second, *indices = ctx.saved_tensors

    def contracted(one: Tensor, other: Tensor, missing: Slot) -> Tensor:
        result: Tensor = _contract(one, other, *indices, missing)
        return result

    found = kernels.pullback(contracted, (first, second), gradient, ctx.missing, ctx.needs_input_grad)
    return *found, *[None] * len(indices), None


_contract.register_autograd(_backward, setup_context=_save)
