"""Attention along the stored entries of a pattern: a sampled product, a softmax over each row, and a product.

No step makes a line of features for each entry: time is proportional to entries × heads × features, memory beside
operands and result to entries × heads.
"""

from __future__ import annotations

import math

from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.autograd.products import matmul, sampled_matmul
from gradproof.sparse.autograd.reductions import row_softmax
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.arguments import require_number, require_strided
from gradproof.sparse.pattern.pattern import require_pattern


def attention(
    pattern: Pattern,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Let each row attend to the columns at its stored entries: softmax(query · keyᵀ · scale + bias) · value.

    Query is [rows, heads, k], key is [columns, heads, k], value is [columns, heads, features], or all without heads.

    >>> import torch
    >>> chain = Pattern.from_mask(torch.ones(3, 3).tril() > 0)
    >>> x = torch.eye(3)
    >>> attention(chain, x, x, x)[0]
    tensor([1., 0., 0.])

    Args:
        pattern: which columns each row attends to, one matrix.
        query: one vector for each row, and head.
        key: one vector for each column, and head, whose products with the queries are the scores.
        value: the features of each column, and head, that are averaged.
        bias: added to the scores before the softmax: one number for each entry and head, such as from edge features.
        scale: the factor of the scores; 1/√k by default.
    """
    require_pattern(pattern).require_matrix()
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if require_strided(tensor, name).ndim not in (2, 3) or tensor.ndim != query.ndim:
            raise InputError(
                f"{name} has shape {list(tensor.shape)}: pass [nodes, heads, k], or [nodes, k], for all three."
            )
    if pattern.batch:
        raise InputError(f"{pattern!r} is a batch: attention takes one matrix. Join the batch with block_diagonal.")
    if scale is None:
        scale = 1 / math.sqrt(max(1, query.shape[-1]))
    require_number(scale, "scale")
    scores = sampled_matmul(pattern, query * scale, key.transpose(0, -1))
    return weighted_mean(pattern, scores if bias is None else scores + _fitting(bias, scores), value)


def weighted_mean(pattern: Pattern, scores: Tensor, value: Tensor) -> Tensor:
    """Return for each row the mean of the values in its columns, weighted by the softmax of its scores."""
    return matmul((pattern, row_softmax((pattern, scores))), value)


def _fitting(bias: Tensor, scores: Tensor) -> Tensor:
    fits = require_strided(bias, "bias").shape == scores.shape[: bias.ndim] and bias.ndim
    if not fits or bias.is_complex() or bias.device != scores.device:
        raise InputError(
            f"bias has shape {list(bias.shape)}, and there are scores of shape {list(scores.shape)}: pass one number "
            "for each stored entry and head."
        )
    return bias.reshape(*bias.shape, *[1] * (scores.ndim - bias.ndim))
