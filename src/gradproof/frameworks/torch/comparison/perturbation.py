"""Points a unit in the last place away, and random incoming gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from gradproof.frameworks.torch.storage import as_real, real_dtype
from gradproof.frameworks.torch.subject.arguments import differentiable

SPACINGS = 0.75  # of the spacing at one: 0.75 to 1.5 spacings of the number itself, which round to one or two


def moved(tensors: Sequence[Tensor], seed: int, *, far: bool = False) -> list[Tensor]:
    """Return the tensors with every floating entry moved by a unit in the last place, up or down at random.

    If `far`, they move by up to the root of the spacing at one: enough to draw every rounding error afresh, where a
    unit in the last place leaves an intermediate number on the same plateau. Zeros, infinities and NaN stay.
    """
    return [
        _moved(tensor, seed + 7919 * number, far) if differentiable(tensor) else tensor
        for number, tensor in enumerate(tensors)
    ]


def incoming_like(tensor: Tensor, seed: int) -> Tensor:
    """Draw an incoming gradient for a result, of random signs times magnitudes from one half to one."""
    generator = torch.Generator(tensor.device).manual_seed(seed)
    shape = as_real(tensor).shape
    numbers = torch.rand(shape, generator=generator, dtype=torch.float64, device=tensor.device)
    signed = torch.where(numbers < 0.5, numbers - 1, numbers).to(real_dtype(tensor.dtype))
    return torch.view_as_complex(signed) if tensor.is_complex() else signed


def _moved(tensor: Tensor, seed: int, far: bool) -> Tensor:
    generator = torch.Generator(tensor.device).manual_seed(seed)
    real = as_real(tensor.detach())
    spacing = torch.finfo(real.dtype).eps
    steps = torch.rand(real.shape, generator=generator, dtype=torch.float64, device=tensor.device).mul_(2).sub_(1)
    steps = steps.mul_(math.sqrt(spacing)) if far else steps.sign_().mul_(SPACINGS * spacing)
    result = (real.to(torch.float64) * steps.add_(1)).to(real.dtype)
    return torch.view_as_complex(result) if tensor.is_complex() else result
