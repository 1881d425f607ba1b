"""Small modules whose weights may have a wrong gradient."""

from __future__ import annotations

import torch
from torch import nn

from support.functions import Spoiled


class Scale(nn.Module):
    """A weight whose gradient is doubled on demand."""

    def __init__(self, change=lambda gradient: gradient):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, 1.5, -2.0], dtype=torch.float64))
        self.bias = nn.Parameter(torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
        self.register_buffer("offset", torch.ones(3, dtype=torch.float64))
        self.change = change

    def forward(self, x, *, shift=0.0):
        return (Spoiled.apply(self.weight, self.change) * x + self.bias + self.offset + shift).sin()


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.layer = inner

    def forward(self, x):
        return self.layer(x)
