"""Wrong in size: factors and signs."""

from __future__ import annotations

import math

import torch

from gradproof.gallery.specimen import normal, positive, specimen

TARGET = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)


def _variance(x: torch.Tensor) -> torch.Tensor:
    return x.var(unbiased=True)


SIZES = (
    specimen(
        "square-twice",
        "The 2 of a square is applied twice",
        lambda x: x * x,
        lambda g, x: 4 * g * x,
        normal(7),
        diagnosis="factor",
    ),
    specimen(
        "mean-not-divided",
        "A mean whose gradient is not divided by the number of entries",
        lambda x: x.sin().mean(),
        lambda g, x: g * x.cos(),
        normal(5, 4),
        diagnosis="factor",
    ),
    specimen(
        "loss-divided-twice",
        "A mean squared error whose gradient is divided by the number of entries twice",
        lambda x: ((x - TARGET) ** 2).mean(),
        lambda g, x: g * 2 * (x - TARGET) / 144,
        normal(4, 3),
        diagnosis="factor",
    ),
    specimen(
        "log2-as-log",
        "A logarithm to base 2 with the derivative of the natural one",
        lambda x: x.log2(),
        lambda g, x: g / x,
        positive(6),
        diagnosis="factor",
    ),
    specimen(
        "energy-without-half",
        "½x² with the derivative of x²",
        lambda x: 0.5 * (x * x).sum(),
        lambda g, x: 2 * g * x,
        normal(9),
        diagnosis="factor",
    ),
    specimen(
        "degrees",
        "A sine of degrees that is differentiated as if of radians",
        lambda x: torch.sin(x * math.pi / 180),
        lambda g, x: g * torch.cos(x * math.pi / 180),
        normal(8),
        diagnosis="factor",
    ),
    specimen(
        "variance-bias",
        "An unbiased variance with the gradient of the biased one",
        _variance,
        lambda g, x: g * 2 * (x - x.mean()) / x.numel(),
        normal(10),
        diagnosis="factor",
    ),
    specimen(
        "bias-averaged",
        "A broadcast bias whose gradient is averaged over the batch",
        lambda x, b: (x + b).tanh(),
        lambda g, x, b: (g * (1 - (x + b).tanh() ** 2), (g * (1 - (x + b).tanh() ** 2)).mean(0)),
        normal(6, 3),
        normal(3, seed=2),
        diagnosis="factor",
    ),
    specimen(
        "temperature-forgotten",
        "A temperature of 0.3 that the backward forgets",
        lambda x: torch.tanh(x / 0.3),
        lambda g, x: g * (1 - torch.tanh(x / 0.3) ** 2),
        normal(3, 3),
        diagnosis="factor",
    ),
    specimen(
        "subtraction",
        "A subtraction whose second gradient lacks its minus",
        lambda a, b: (a - b) ** 3,
        lambda g, a, b: (g * 3 * (a - b) ** 2, g * 3 * (a - b) ** 2),
        normal(4),
        normal(4, seed=2),
        diagnosis="sign",
    ),
    specimen(
        "cosine",
        "A cosine with the derivative +sin",
        lambda x: x.cos(),
        lambda g, x: g * x.sin(),
        normal(3, 4),
        diagnosis="sign",
    ),
    specimen(
        "reciprocal",
        "A reciprocal whose derivative lacks its minus",
        lambda x: 1 / x,
        lambda g, x: g / (x * x),
        positive(5),
        diagnosis="sign",
    ),
    specimen(
        "inverse",
        "A matrix inverse whose derivative lacks its minus",
        torch.linalg.inv,
        lambda g, a: torch.linalg.inv(a).T @ g @ torch.linalg.inv(a).T,
        lambda: (torch.eye(3, dtype=torch.float64) * 3 + normal(3, 3)().detach()).requires_grad_(),
        diagnosis="sign",
    ),
)
