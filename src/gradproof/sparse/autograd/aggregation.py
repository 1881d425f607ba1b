"""Aggregation of features over the stored entries of each row: sum, mean, maximum, minimum."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradproof.errors import InputError
from gradproof.sparse.autograd.products import Sparse, matmul, parts
from gradproof.sparse.autograd.transforms import apply
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import require_choice, require_strided
from gradproof.sparse.pattern.values import with_signature

REDUCTIONS = ("sum", "mean", "max", "min")


def aggregate(sparse: Pattern | Sparse, features: Tensor, *, reduce: str = "sum") -> Tensor:
    """Reduce, for each row, the features of the columns at its stored entries; a row without entries gets zeros.

    A sparse tensor, or a pair of pattern and values, weights the features in a sum, and in a mean, which divides by the
    number of entries. A maximum and a minimum take a pattern alone; of equal numbers the first gets the gradient.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.tensor([[True, True], [False, True]]))
    >>> aggregate(pattern, torch.tensor([[1.0, 8.0], [3.0, 4.0]]), reduce="max")
    tensor([[3., 8.],
            [3., 4.]])

    Args:
        sparse: whose columns each row takes features from.
        features: one line for each column, of any further dimensions.
        reduce: "sum", "mean", "max" or "min".
    """
    require_choice(reduce, "reduce", REDUCTIONS)
    pattern, values = (sparse, None) if isinstance(sparse, Pattern) else parts(sparse)
    pattern.require_matrix()
    pattern.require_device(require_strided(features, "features"), "The features")
    if pattern.batch or features.ndim < 1 or features.shape[0] != pattern.shape[1]:
        raise InputError(
            f"The features have shape {list(features.shape)}, and the pattern is {pattern!r}: pass one matrix, and one "
            "line of features for each of its columns."
        )
    if not (features.is_floating_point() or features.is_complex()):
        raise InputError(f"The features have dtype {features.dtype}: pass floating-point or complex ones.")
    flat = features.reshape(pattern.shape[1], math.prod(features.shape[1:]))
    if reduce in ("sum", "mean"):
        weights = flat.new_ones(pattern.values_shape) if values is None else values
        found = matmul((pattern, weights), flat)
        if reduce == "mean":
            found = found / pattern.by_rows.crow_indices.diff().clamp(min=1).unsqueeze(1)
        return found.reshape(pattern.shape[0], *features.shape[1:])
    if values is not None:
        raise InputError(f"reduce={reduce!r} takes no weights. Pass the pattern alone, or multiply the features first.")
    if flat.is_complex():
        raise InputError(f"Complex numbers have no order for reduce={reduce!r}. Pass real features.")
    sign = 1 if reduce == "max" else -1
    return _largest(pattern, sign * flat).mul(sign).reshape(pattern.shape[0], *features.shape[1:])


def _largest(pattern: Pattern, features: Tensor) -> Tensor:
    column = apply(_LargestColumn, features.detach(), pattern)
    is_empty = (pattern.by_rows.crow_indices.diff() == 0).unsqueeze(1)
    if not pattern.shape[1]:
        return features.new_zeros(pattern.shape[0], features.shape[1])
    return features.gather(0, column).masked_fill(is_empty, 0)


class _LargestColumn(Function):
    """The column with the largest feature, for each row and feature; 0 in an empty row."""

    @staticmethod
    @with_signature
    def forward(features: Tensor, pattern: Pattern) -> Tensor:
        matrix = pattern.by_rows
        if not features.numel() or not matrix.entries:
            return torch.zeros(matrix.rows, features.shape[1], dtype=torch.int64, device=features.device)
        found = torch.embedding_bag(
            features.contiguous(), matrix.col_indices, matrix.crow_indices, mode=2, include_last_offset=True
        )
        return found[3].long().clamp_(min=0)

    @staticmethod
    def setup_context(ctx: Any, _inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(_ctx: Any, *_incoming: Tensor | None) -> tuple[None, None]:
        return None, None

    @staticmethod
    def jvp(_ctx: Any, *_tangents: Tensor | None) -> None:
        return None

    @staticmethod
    def vmap(_info: Any, in_dims: tuple[int | None, ...], features: Tensor, pattern: Pattern) -> tuple[Tensor, int]:
        assert in_dims[0] is not None
        stacked = features.movedim(in_dims[0], 1)
        found = apply(_LargestColumn, stacked.flatten(1), pattern)
        return found.reshape(-1, *stacked.shape[1:]), 1
