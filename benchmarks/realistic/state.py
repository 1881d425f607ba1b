"""Saved tensors that were changed, caches, outputs and incoming gradients that are ignored, conjugates, precision."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import Bug, bug, pulled_back
from gradproof.gallery.specimen import complex_normal, normal

TARGET = torch.tensor([0, 2, 1, 2])
state = partial(bug, family="state")


class ExponentialNegated(torch.autograd.Function):
    """An exponential whose saved input is negated in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Keep the input and negate it afterwards."""
        kept = ctx.kept = x.clone()
        y = kept.exp()
        kept.neg_()
        return y

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> Tensor:
        """Differentiate at what was kept."""
        kept: Tensor = ctx.kept
        return incoming[0] * kept.exp()


class CachedByShape(torch.autograd.Function):
    """Squared distances that keep their differences in a cache by shape."""

    cache: dict[torch.Size, Tensor] = {}  # noqa: RUF012  # the bug

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Write the differences to the cache."""
        ctx.shape = x.shape
        CachedByShape.cache[x.shape] = (x[:, None] - x[None]).detach()
        return CachedByShape.cache[x.shape].pow(2).sum(-1)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> Tensor:
        """Read the differences from the cache."""
        g, gaps = incoming[0], CachedByShape.cache[ctx.shape]
        return 2 * ((g + g.T)[..., None] * gaps).sum(1)


def _with_normaliser(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.softmax(-1), x.logsumexp(-1)


def _normaliser_ignored(g: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
    return pulled_back(lambda t: t.softmax(-1), g[0], x)[0]


def _quotient_back(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return g / b.conj(), -g * a / (b * b)


def _linear_back(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return g @ w.mH, x.T @ g


def _scaled(x: Tensor, eps: float = 1e-2) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()


def _loss_back(_g: Tensor, x: Tensor) -> Tensor:
    return (x.softmax(-1) - f.one_hot(TARGET, 3)) / 4


def _lowered(g: Tensor, x: Tensor) -> Tensor:
    return pulled_back(_scaled, g.bfloat16(), x.bfloat16())[0].double()


def _of(title: str, function: Callable[..., Any], *inputs: Callable[[], Any], names: str) -> Bug:
    return Bug("state", title, function, lambda: tuple(make() for make in inputs), frozenset(names.split()))


STATE = (
    _of("saved input negated in place", ExponentialNegated.apply, normal(4, 3), names="stale"),
    _of("cache that every call overwrites", CachedByShape.apply, normal(5, 2), names="stale"),
    state(
        "second of two outputs ignored",
        _with_normaliser,
        _normaliser_ignored,
        normal(4, 5),
        names="detached missing-term incoming-ignored",
    ),
    state(
        "complex quotient without a conjugate",
        lambda a, b: a / b,
        _quotient_back,
        complex_normal(5),
        complex_normal(5, seed=2),
        names="conjugate",
    ),
    state(
        "complex linear layer whose input is not conjugated",
        lambda x, w: x @ w,
        _linear_back,
        complex_normal(5, 3),
        complex_normal(3, 2, seed=2),
        names="conjugate",
    ),
    state(
        "eps forgotten",
        _scaled,
        lambda g, x: pulled_back(partial(_scaled, eps=0.0), g, x)[0],
        normal(4, 6),
        names="approximation",
    ),
    state(
        "loss that ignores what comes in",
        lambda x: f.cross_entropy(x, TARGET),
        _loss_back,
        normal(4, 3),
        names="incoming-ignored",
    ),
    state("backward in bfloat16", _scaled, _lowered, normal(4, 6), names="approximation"),
)
