"""Points at which derivatives are taken: small tensors that require grad, the same in every run."""

from __future__ import annotations

import math

import torch


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return standard normal numbers that do not require grad, drawn in double precision and rounded to `dtype`."""
    return torch.randn(shape, dtype=_wide(dtype), generator=_drawing(seed)).to(dtype)


def point(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return standard normal numbers that require grad."""
    return normal(*shape, seed=seed, dtype=dtype).requires_grad_()


def positive(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return numbers between 0.5 and 1.5, drawn in double precision and rounded to `dtype`."""
    return (0.5 + torch.rand(shape, dtype=_wide(dtype), generator=_drawing(seed))).to(dtype).requires_grad_()


def ramp(*shape: int, low: float = 0.3, high: float = 1.2, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return evenly spaced numbers from `low` to `high`, both included."""
    return torch.linspace(low, high, math.prod(shape), dtype=_wide(dtype)).reshape(shape).to(dtype).requires_grad_()


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype.is_complex else torch.float64


def _drawing(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbers(*values: float) -> torch.Tensor:
    """Return these numbers in double precision; they do not require grad."""
    return torch.tensor(values, dtype=torch.float64)
