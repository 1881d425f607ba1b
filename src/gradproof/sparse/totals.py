"""Gradients of one sparse leaf added up, none of their entries lost."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.sparse.entries import assembled, put_together, read
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.reading import lies_within
from gradproof.sparse.transfer import converted, coordinate_grid, like


def total(pattern: Pattern, *gradients: Tensor) -> Tensor:
    """The sum of sparse gradients of a leaf with this pattern, in its layout.

    It stores what the leaf stores, and other entries only where a gradient does.

    >>> import torch
    >>> pattern = Pattern.of(torch.eye(2).to_sparse_csc())
    >>> total(pattern, torch.tensor([[0.0, 3.0], [0.0, 0.0]]).to_sparse()).values()
    tensor([0., 3., 0.])
    """
    nothing = gradients[0].new_zeros((), layout=torch.strided)
    if all(lies_within(pattern, gradient) for gradient in gradients):
        return assembled(sum([read(gradient, pattern) for gradient in gradients], nothing), pattern)
    dense = gradients[0].shape[len(pattern.shape) :]
    own = put_together(pattern, nothing.expand(*pattern.values_shape, *dense))
    grid = coordinate_grid(own)
    whole = converted(own, torch.sparse_coo, grid)
    for gradient in gradients:
        whole = whole + converted(gradient, torch.sparse_coo, grid)
    return like(whole.coalesce(), own)
