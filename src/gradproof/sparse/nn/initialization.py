"""Initial values scaled by the number of stored entries in each row instead of the number of columns."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.pattern import require_pattern


def fan_in(pattern: Pattern) -> Tensor:
    """Count the stored entries in each row.

    >>> import torch
    >>> fan_in(Pattern.from_mask(torch.ones(3, 3).tril() > 0)).tolist()
    [1, 2, 3]
    """
    return require_pattern(pattern).by_rows.crow_indices.diff().long()


@torch.no_grad()
def scaled_by_fan_in_(
    pattern: Pattern, values: Tensor, *, gain: float = 1 / math.sqrt(3), generator: torch.Generator | None = None
) -> Tensor:
    """Fill values in place, uniformly, with standard deviation gain / √(entries in the row).

    The default gain is that of `nn.Linear`: a full pattern is initialized as one is.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.ones(2, 300, dtype=torch.bool))
    >>> values = scaled_by_fan_in_(pattern, torch.empty(600))
    >>> bool(values.abs().max() <= 1 / 300**0.5)
    True
    """
    require_pattern(pattern).require_values(values)
    if pattern.is_meta:
        return values
    plain = torch.view_as_real(values) if values.is_complex() else values
    plain.uniform_(-1, 1, generator=generator)
    parts = 2 if values.is_complex() else 1
    bound = gain * math.sqrt(3 / parts) / fan_in(pattern).clamp(min=1).to(plain.dtype).sqrt()
    of_entry = bound.index_select(0, pattern.row_of_entry).reshape(pattern.values_shape)
    return values.mul_(of_entry)
