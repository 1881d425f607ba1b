"""A module with a pattern in its buffers, which is moved, saved and loaded with the module."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import nn

from gradproof.errors import InputError
from gradproof.sparse.pattern import Pattern


class PatternModule(nn.Module):
    """A module with index tensors among its buffers. Subclasses build the pattern from them."""

    @property
    @abstractmethod
    def pattern(self) -> Pattern:
        """The pattern of the buffers as they are now: moved, loaded or written to, in compiled code too."""


def require_differentiable(dtype: torch.dtype | None) -> None:
    """Raise unless parameters of this dtype can be trained; None is torch's default."""
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise InputError(f"dtype is a {type(dtype).__name__}: pass a torch.dtype, such as torch.float32.")
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise InputError(f"dtype={dtype}: parameters have gradients, so pass a floating-point or complex dtype.")
