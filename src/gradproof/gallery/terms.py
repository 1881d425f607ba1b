"""Wrong by a term, by a changed tensor, or by a little everywhere."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gradproof.gallery.specimen import Specimen, normal, positive, specimen

FORM = torch.tensor([[1.0, 2.0, -1.0], [0.5, 1.5, 3.0], [-2.0, 0.2, 0.7]], dtype=torch.float64)
EPS = 1e-2
SOURCES, TARGETS = torch.tensor([0, 0, 1, 2, 3, 3, 1]), torch.tensor([1, 2, 2, 0, 2, 3, 0])
DEGREES = torch.bincount(TARGETS)[:, None]


class OverwrittenByValue(torch.autograd.Function):
    """A sine that keeps a copy of its input and then works in place on that copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Overwrite the saved copy with the result."""
        kept = ctx.kept = x.clone()
        return kept.sin_().clone()

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> Tensor:
        """Differentiate at the value instead of the input."""
        kept: Tensor = ctx.kept
        return incoming[0] * kept.cos()


class ScaledAfterwards(torch.autograd.Function):
    """A tanh that scales its saved input after using it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Double the saved input in place."""
        kept = ctx.kept = x.clone()
        y = kept.tanh()
        kept.mul_(2)
        return y

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> Tensor:
        """Differentiate at twice the input."""
        kept: Tensor = ctx.kept
        return incoming[0] * (1 - kept.tanh() ** 2)


class SharedBuffer(torch.autograd.Function):
    """A square that keeps its input in a buffer which every call writes to."""

    buffer = torch.empty(6, dtype=torch.float64)

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        """Overwrite the buffer that all calls share."""
        SharedBuffer.buffer.copy_(x.detach())
        return x * x

    @staticmethod
    def backward(_ctx: Any, *incoming: Tensor) -> Tensor:
        """Differentiate at the point of the last call."""
        return 2 * incoming[0] * SharedBuffer.buffer


def _normalized(x: Tensor) -> Tensor:
    normed: Tensor = x / x.norm(dim=-1, keepdim=True)
    return normed


def _layer_norm(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=EPS)


def _layer_norm_scaled(g: Tensor, x: Tensor) -> Tensor:
    return g / (x.var(-1, unbiased=False, keepdim=True) + EPS).sqrt()


def _gelu_tanh(g: Tensor, x: Tensor) -> Tensor:
    c = math.sqrt(2 / math.pi)
    t = torch.tanh(c * (x + 0.044715 * x**3))
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x))


def _root_mean_square(x: Tensor) -> Tensor:
    normed: Tensor = x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
    return normed


def _root_mean_square_summed(g: Tensor, x: Tensor) -> Tensor:
    r = (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
    return g * r - x * r**3 * (g * x).sum(-1, keepdim=True)


def _softmax_added(g: Tensor, x: Tensor) -> Tensor:
    y = x.softmax(-1)
    return y * (g + (g * y).sum(-1, keepdim=True))


def _neighbours(x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, TARGETS, x[SOURCES]) / DEGREES


def _in_half(g: Tensor, x: Tensor) -> Tensor:
    return (g.half() * x.half().cos()).double()


TERMS = (
    specimen(
        "silu-one-term",
        "x·sigmoid(x) of which the sigmoid is not differentiated",
        lambda x: x * x.sigmoid(),
        lambda g, x: g * x.sigmoid(),
        normal(3, 4),
        diagnosis="missing-term",
    ),
    specimen(
        "product-other-term",
        "x·exp(x) of which the x is not differentiated",
        lambda x: x * x.exp(),
        lambda g, x: g * x * x.exp(),
        normal(7),
        diagnosis="missing-term",
    ),
    specimen(
        "softmax-without-sum",
        "A softmax without the term through its denominator",
        lambda x: x.softmax(-1),
        lambda g, x: g * x.softmax(-1),
        normal(3, 5),
        diagnosis="missing-term",
    ),
    specimen(
        "softmax-diagonal",
        "A softmax differentiated entry by entry",
        lambda x: x.softmax(-1),
        lambda g, x: g * x.softmax(-1) * (1 - x.softmax(-1)),
        normal(2, 6),
        diagnosis="missing-term",
    ),
    specimen(
        "norm-held-constant",
        "A normalization whose norm is held constant",
        _normalized,
        lambda g, x: g / x.norm(dim=-1, keepdim=True),
        normal(3, 4),
        diagnosis="missing-term",
    ),
    specimen(
        "layer-norm-scaled",
        "A layer norm whose mean and variance are held constant",
        _layer_norm,
        _layer_norm_scaled,
        normal(2, 6),
        diagnosis="missing-term",
    ),
    specimen(
        "gram-one-side",
        "X Xᵀ with the gradient of one of its two factors",
        lambda x: x @ x.T,
        lambda g, x: g @ x,
        normal(4, 3),
        diagnosis="missing-term",
    ),
    specimen(
        "quadratic-form",
        "xᵀA x with the gradient A x",
        lambda x: x @ FORM @ x,
        lambda g, x: g * (FORM @ x),
        normal(3),
        diagnosis="missing-term",
    ),
    specimen(
        "residual-forgotten",
        "x + tanh(x) without the 1 of the connection around",
        lambda x: x + x.tanh(),
        lambda g, x: g * (1 - x.tanh() ** 2),
        normal(3, 3),
        diagnosis="missing-term",
    ),
    specimen(
        "softmax-correction-added",
        "A softmax whose correction is added, not subtracted",
        lambda x: x.softmax(-1),
        _softmax_added,
        normal(3, 5),
        diagnosis="wrong-term",
    ),
    specimen(
        "root-mean-square-summed",
        "A root-mean-square norm whose correction is a sum, not a mean",
        _root_mean_square,
        _root_mean_square_summed,
        normal(4, 6),
        diagnosis="wrong-term",
    ),
    specimen(
        "weight-forgotten",
        "A weighted sine whose gradient leaves out the weight",
        lambda x, w: x.sin() * w,
        lambda g, x, w: (g * x.cos(), g * x.sin()),
        normal(4, 5),
        positive(4, 5, seed=2),
        diagnosis="wrong-factor",
    ),
    specimen(
        "degree-forgotten",
        "A mean over neighbours whose gradient is not divided by their number",
        _neighbours,
        lambda g, x: torch.zeros_like(x).index_add(0, SOURCES, g[TARGETS]),
        normal(4, 3),
        diagnosis="wrong-factor",
    ),
    Specimen(
        name="saved-overwritten",
        title="A saved input that the forward overwrites with its value",
        function=OverwrittenByValue.apply,
        right=torch.sin,
        inputs=lambda: (normal(5)(),),
        diagnosis="stale",
    ),
    Specimen(
        name="saved-scaled",
        title="A saved input that is scaled in place afterwards",
        function=ScaledAfterwards.apply,
        right=torch.tanh,
        inputs=lambda: (normal(3, 3)(),),
        diagnosis="stale",
    ),
    Specimen(
        name="shared-buffer",
        title="A buffer that every call overwrites",
        function=SharedBuffer.apply,
        right=torch.square,
        inputs=lambda: (normal(6)(),),
        diagnosis="stale",
    ),
    specimen(
        "wrong-tensor-saved",
        "a·sin(b) whose gradient for a reads a where b is meant",
        lambda a, b: a * b.sin(),
        lambda g, a, b: (g * a.sin(), g * a * b.cos()),
        normal(6),
        normal(6, seed=2),
        diagnosis="stale",
    ),
    specimen(
        "gelu-approximated",
        "An exact gelu with the derivative of its tanh approximation",
        torch.nn.functional.gelu,
        _gelu_tanh,
        normal(12),
        diagnosis="approximation",
    ),
    specimen(
        "backward-by-differences",
        "A backward by one-sided differences",
        lambda x: x.exp(),
        lambda g, x: g * ((x + 1e-3).exp() - (x - 1e-3 * x).exp()) / (1e-3 * (1 + x)),
        positive(9),
        diagnosis="approximation",
    ),
    specimen(
        "eps-forgotten",
        "A reciprocal root whose backward leaves out the eps under the root",
        lambda x: (x * x + EPS).rsqrt(),
        lambda g, x: -g * x.abs() / (x * x).pow(1.5) * x.sign(),
        positive(8),
        diagnosis="approximation",
    ),
    specimen(
        "backward-in-half",
        "A backward that computes in half precision",
        lambda x: x.sin(),
        _in_half,
        normal(4, 4),
        diagnosis="approximation",
    ),
)
