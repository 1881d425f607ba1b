"""Patterns and values as SciPy sparse arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gradproof.errors import InputError

if TYPE_CHECKING:
    from gradproof.sparse.pattern import Pattern


def to_scipy(pattern: Pattern, values: Tensor | None) -> Any:
    """A SciPy sparse array of the same layout (BSC, which SciPy has not, as COO), with these values or with ones."""
    import scipy.sparse

    if len(pattern.shape) != 2:
        raise InputError(
            f"{pattern!r} is no single matrix, and SciPy's sparse arrays are: convert one matrix at a time."
        )
    if values is None:
        values = torch.ones(pattern.values_shape)
    pattern.require_values(values.to(pattern.device))
    data = values.detach().cpu().resolve_conj().numpy()
    made: Any = scipy.sparse
    if pattern.layout is torch.sparse_coo or pattern.layout is torch.sparse_bsc:
        row, column = pattern.coordinates.cpu().numpy()
        return made.coo_array((data.reshape(-1), (row, column)), shape=pattern.shape)
    starts, places = (index.cpu().numpy() for index in pattern.indices)
    arrays = {torch.sparse_csr: made.csr_array, torch.sparse_csc: made.csc_array, torch.sparse_bsr: made.bsr_array}
    return arrays[pattern.layout]((data, places, starts), shape=pattern.shape)
