"""Gradients of several terms, of which one is missing, has the wrong sign or factor, or is one too many."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import normal

KEYS, VALUES = fixed(5, 4, seed=41), fixed(5, 3, seed=42)
PAIR = torch.tensor([0.3, 0.7], dtype=torch.float64)
BETA = 1.5
EPS = 1e-5
term = partial(bug, family="term")


def _layer_norm(x: Tensor) -> Tensor:
    return f.layer_norm(x, x.shape[-1:], eps=EPS)


def _layer_norm_back(g: Tensor, x: Tensor, sign: float = 1.0, times: float = 1.0) -> Tensor:
    rstd = (x.var(-1, unbiased=False, keepdim=True) + EPS).rsqrt()
    y = (x - x.mean(-1, keepdim=True)) * rstd
    return rstd * (g - g.mean(-1, keepdim=True) - sign * times * y * (g * y).mean(-1, keepdim=True))


def _rms_norm(x: Tensor) -> Tensor:
    return x * (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()


def _rms_norm_back(g: Tensor, x: Tensor) -> Tensor:
    r = (x.pow(2).mean(-1, keepdim=True) + EPS).rsqrt()
    return g * r - x * r**2 * (g * x).mean(-1, keepdim=True)


def _batch_norm(x: Tensor) -> Tensor:
    return f.batch_norm(x, None, None, training=True)


def _batch_norm_evaluated(g: Tensor, x: Tensor) -> Tensor:
    return g * (x.var(0, unbiased=False) + EPS).rsqrt()


def _batch_norm_mean_forgotten(g: Tensor, x: Tensor) -> Tensor:
    r = (x.var(0, unbiased=False) + EPS).rsqrt()
    y = (x - x.mean(0)) * r
    return r * (g - y * (g * y).mean(0))


def _softmax_back(g: Tensor, x: Tensor) -> Tensor:
    y = x.softmax(-1)
    return y * (g + (g * y).sum(-1, keepdim=True))


def _softmax_over_rows(g: Tensor, x: Tensor) -> Tensor:
    y = x.softmax(-1)
    return y * (g - (g * y).sum(0, keepdim=True))


def _log_softmax_back(g: Tensor, x: Tensor) -> Tensor:
    return g - x.softmax(-1) * g.mean(-1, keepdim=True)


def _attention(q: Tensor) -> Tensor:
    return torch.softmax(q @ KEYS.T / 2, -1) @ VALUES


def _attention_back(g: Tensor, q: Tensor) -> Tensor:
    p = torch.softmax(q @ KEYS.T / 2, -1)
    return (p * (g @ VALUES.T)) @ KEYS / 2


def _unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def _unit_uncubed(g: Tensor, x: Tensor) -> Tensor:
    n = x.norm(dim=-1, keepdim=True)
    return g / n - x * (g * x).sum(-1, keepdim=True) / n


def _gelu(x: Tensor) -> Tensor:
    return f.gelu(x, approximate="tanh")


def _gelu_back(g: Tensor, x: Tensor, cubic: float = 0.0, second: float = 1.0) -> Tensor:
    c = math.sqrt(2 / math.pi)
    t = torch.tanh(c * (x + 0.044715 * x**3))
    return g * (0.5 * (1 + t) + second * 0.5 * x * (1 - t * t) * c * (1 + cubic * 0.044715 * x * x))


def _swiglu(a: Tensor, b: Tensor) -> Tensor:
    return f.silu(a) * b


def _swish_back(g: Tensor, x: Tensor) -> Tensor:
    s = (BETA * x).sigmoid()
    return g * (s + x * s * (1 - s))


def _triplet(a: Tensor, p: Tensor, n: Tensor) -> Tensor:
    return ((a - p) ** 2).sum(-1) - ((a - n) ** 2).sum(-1)


def _triplet_back(g: Tensor, a: Tensor, p: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    g = g[:, None]
    return 2 * g * (a - p), -2 * g * (a - p), 2 * g * (a - n)


def _wrapped(x: Tensor) -> Tensor:
    return 0.3 * x + 0.7 * x.roll(-1, -1)


def _unwrapped(g: Tensor, _x: Tensor) -> Tensor:
    return 0.3 * g + 0.7 * f.pad(g[..., :-1], (1, 0))


def _entropy(x: Tensor) -> Tensor:
    return -(x.softmax(-1) * x.log_softmax(-1)).sum(-1)


def _entropy_back(g: Tensor, x: Tensor) -> Tensor:
    p = x.softmax(-1)
    return -g[:, None] * p * (x.log_softmax(-1) - _entropy(x)[:, None])


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return f.cosine_similarity(a, b, dim=-1)


def _cosine_back(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    n, m, y = a.norm(dim=-1, keepdim=True), b.norm(dim=-1, keepdim=True), _cosine(a, b)[:, None]
    return g[:, None] * (b / (n * m) + y * a / n**2), pulled_back(_cosine, g, a, b)[1]


TERMS = (
    term(
        "layer norm: correction added",
        _layer_norm,
        partial(_layer_norm_back, sign=-1.0),
        normal(4, 6),
        names="wrong-term",
    ),
    term(
        "layer norm: sum for mean in the correction",
        _layer_norm,
        partial(_layer_norm_back, times=16.0),
        normal(12, 16),
        names="wrong-term",
    ),
    term("RMS norm: rstd² for rstd³", _rms_norm, _rms_norm_back, normal(5, 6), names="wrong-term"),
    term(
        "batch norm differentiated as in evaluation",
        _batch_norm,
        _batch_norm_evaluated,
        normal(8, 3),
        names="missing-term",
    ),
    term(
        "batch norm: the mean's term forgotten",
        _batch_norm,
        _batch_norm_mean_forgotten,
        normal(24, 5),
        names="missing-term",
    ),
    term("softmax: correction added", lambda x: x.softmax(-1), _softmax_back, normal(3, 5), names="wrong-term"),
    term(
        "softmax: correction over the rows",
        lambda x: x.softmax(-1),
        _softmax_over_rows,
        normal(5, 5),
        names="wrong-term wrong-dimension",
    ),
    term("log-softmax: mean for sum", lambda x: x.log_softmax(-1), _log_softmax_back, normal(3, 6), names="wrong-term"),
    term("attention without the softmax's correction", _attention, _attention_back, normal(3, 4), names="missing-term"),
    term("unit vectors: norm for its cube", _unit, _unit_uncubed, normal(4, 5), names="wrong-term"),
    term("GELU: the cubic term's slope forgotten", _gelu, _gelu_back, normal(5, 4), names="missing-term approximation"),
    term(
        "GELU: the second term forgotten",
        _gelu,
        partial(_gelu_back, cubic=3.0, second=0.0),
        normal(3, 7),
        names="missing-term",
    ),
    term(
        "SwiGLU: the sigmoid held constant",
        _swiglu,
        lambda g, a, b: (g * a.sigmoid() * b, g * f.silu(a)),
        normal(4, 5),
        normal(4, 5, seed=2),
        names="missing-term",
    ),
    term(
        "swish: the inner slope forgotten",
        lambda x: x * (BETA * x).sigmoid(),
        _swish_back,
        normal(13),
        names="wrong-term",
    ),
    term(
        "triplet loss: the anchor's second term forgotten",
        _triplet,
        _triplet_back,
        normal(5, 3),
        normal(5, 3, seed=2),
        normal(5, 3, seed=3),
        names="missing-term",
    ),
    term("circular padding not wrapped back", _wrapped, _unwrapped, normal(2, 8), names="missing-term"),
    term("entropy: sign of the constant", _entropy, _entropy_back, normal(4, 5), names="wrong-term"),
    term(
        "cosine similarity: correction added",
        _cosine,
        _cosine_back,
        normal(4, 3),
        normal(4, 3, seed=2),
        names="wrong-term",
    ),
)
