"""Gradients without one of their factors, with another in its place, or with one too many."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import normal, positive

SOURCES = torch.tensor([0, 0, 1, 2, 3, 3, 4, 5, 5, 1, 2])
TARGETS = torch.tensor([1, 2, 2, 0, 4, 5, 0, 3, 1, 5, 0])
DEGREES = torch.bincount(TARGETS, minlength=6)[:, None].to(torch.float64)
CLASSES = torch.tensor([0, 2, 1, 1, 0, 2])
CLASS_WEIGHTS = torch.tensor([0.2, 1.7, 3.1], dtype=torch.float64)
KEPT = torch.tensor([1, 1, 0, 1, 0, 1, 1, 1], dtype=torch.float64)
factor = partial(bug, family="factor")


def _messages(x: Tensor, w: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, TARGETS, w[:, None] * x[SOURCES])


def _unweighted(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return torch.zeros_like(x).index_add(0, SOURCES, g[TARGETS]), pulled_back(_messages, g, x, w)[1]


def _neighbours(x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, TARGETS, x[SOURCES]) / DEGREES


def _undivided(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, SOURCES, g[TARGETS])


def _standardised(x: Tensor) -> Tensor:
    return (x - x.mean(0)) * (x.var(0, unbiased=False) + 1e-5).rsqrt()


def _without_rstd(g: Tensor, x: Tensor) -> Tensor:
    y = _standardised(x)
    return g - g.mean(0) - y * (g * y).mean(0)


def _gated(a: Tensor, b: Tensor) -> Tensor:
    return a * b.sigmoid()


def _ungated(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return g * b, pulled_back(_gated, g, a, b)[1]


def _tempered(x: Tensor, t: Tensor) -> Tensor:
    return (x * t).softmax(-1)


def _untempered(g: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    y = _tempered(x, t)
    return y * (g - (g * y).sum(-1, keepdim=True)), pulled_back(_tempered, g, x, t)[1]


def _weighted_loss(x: Tensor) -> Tensor:
    return -CLASS_WEIGHTS[CLASSES] * x.log_softmax(-1)[torch.arange(6), CLASSES]


def _unweighted_loss(g: Tensor, x: Tensor) -> Tensor:
    one_hot = torch.nn.functional.one_hot(CLASSES, 3)
    return g[:, None] * (x.softmax(-1) - one_hot)


def _quotient_back(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return g / b, -g * a / b


def _unit_back(g: Tensor, x: Tensor) -> Tensor:
    y = x / x.norm(dim=-1, keepdim=True)
    return g - y * (g * y).sum(-1, keepdim=True)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return (q @ k.T / 3).sigmoid()


def _scores_back(g: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    dq, dk = pulled_back(_scores, g, q, k)
    return dq, 3 * dk


FACTORS = (
    factor(
        "weight of the edges forgotten",
        _messages,
        _unweighted,
        normal(6, 3),
        positive(11, seed=2),
        names="wrong-factor",
    ),
    factor(
        "mean over neighbours not divided by the degree", _neighbours, _undivided, normal(6, 2), names="wrong-factor"
    ),
    factor("normalisation without its rstd", _standardised, _without_rstd, normal(7, 4), names="wrong-factor"),
    factor("gate without its sigmoid", _gated, _ungated, normal(4, 5), normal(4, 5, seed=2), names="wrong-factor"),
    factor(
        "third factor of a product forgotten",
        lambda a, b, c: a * b * c,
        lambda g, a, b, c: (g * b, g * a * c, g * a * b),
        normal(3, 5),
        normal(3, 5, seed=2),
        normal(3, 5, seed=3),
        names="wrong-factor",
    ),
    factor(
        "temperature of each row forgotten",
        _tempered,
        _untempered,
        normal(4, 5),
        positive(4, 1, seed=2),
        names="wrong-factor",
    ),
    factor("weights of the classes forgotten", _weighted_loss, _unweighted_loss, normal(6, 3), names="wrong-factor"),
    factor(
        "quotient without the square",
        lambda a, b: a / b,
        _quotient_back,
        normal(3, 6),
        positive(3, 6, seed=2),
        names="wrong-factor",
    ),
    factor(
        "power not lowered by one", lambda x: x**3.5, lambda g, x: 3.5 * g * x**3.5, positive(9), names="wrong-factor"
    ),
    factor(
        "logsumexp without the softmax",
        lambda x: x.logsumexp(-1),
        lambda g, x: g[:, None].expand(x.shape),
        normal(4, 5),
        names="wrong-factor pass-through",
    ),
    factor(
        "unit vectors not divided by their norm",
        lambda x: x / x.norm(dim=-1, keepdim=True),
        _unit_back,
        normal(5, 4),
        names="wrong-factor",
    ),
    factor(
        "tanh whose square is forgotten",
        lambda x: x.tanh(),
        lambda g, x: g * (1 - x.tanh()),
        normal(12),
        names="wrong-factor",
    ),
    factor(
        "exponential of a log scale forgotten",
        lambda x, s: x * s.exp(),
        lambda g, x, s: (g * s.exp(), (g * x).sum(0)),
        normal(6, 4),
        normal(4, seed=2),
        names="wrong-factor",
    ),
    factor("scale of the scores forgotten", _scores, _scores_back, normal(3, 9), normal(4, 9, seed=2), names="factor"),
    factor(
        "dropout without its scale", lambda x: x * KEPT / 0.75, lambda g, _x: g * KEPT, normal(3, 8), names="factor"
    ),
    factor(
        "minus of an inverse forgotten",
        lambda a: torch.linalg.inv(a),
        lambda g, a: torch.linalg.inv(a).T @ g @ torch.linalg.inv(a).T,
        lambda: (torch.eye(4, dtype=torch.float64) * 2 + fixed(4, 4) / 3).requires_grad_(),
        names="sign",
    ),
)
