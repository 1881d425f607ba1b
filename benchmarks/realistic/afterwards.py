"""More bugs of authors, written after the diagnosis that is measured on them.

At first 18 of the 24 were named right and three wrong. Kernels that are not flipped were added after that.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import complex_normal, indices, normal, positive

ROWS = torch.randint(0, 50, (80,), generator=torch.Generator().manual_seed(3))
COLUMNS = torch.randint(0, 50, (80,), generator=torch.Generator().manual_seed(4))
KERNEL = fixed(3, 2, 3, 3, seed=51)
TARGET = fixed(6, 4, seed=52)
later = partial(bug, family="afterwards")


def _spread(x: Tensor) -> Tensor:
    return torch.zeros(50, x.shape[1], dtype=x.dtype).index_add(0, ROWS, x[COLUMNS].tanh())


def _spread_back(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, ROWS, g[COLUMNS] * (1 - x[COLUMNS].tanh() ** 2))


def _group_norm(x: Tensor) -> Tensor:
    return f.group_norm(x, 2)


def _group_norm_back(g: Tensor, x: Tensor) -> Tensor:
    rows, r = g.reshape(len(g), 2, -1), x.reshape(len(x), 2, -1)
    rstd = (r.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    y = (r - r.mean(-1, keepdim=True)) * rstd
    return (rstd * (rows - rows.mean(-1, keepdim=True) + y * (rows * y).mean(-1, keepdim=True))).reshape(x.shape)


def _maximum_back(g: Tensor, x: Tensor) -> Tensor:
    return f.one_hot(x.argmin(-1), x.shape[-1]) * g[:, None]


def _convolved(x: Tensor) -> Tensor:
    return f.conv2d(x, KERNEL, padding=1)


def _convolved_back(g: Tensor, _x: Tensor) -> Tensor:
    return f.conv_transpose2d(g, KERNEL.flip(-1, -2), padding=1)


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.T / 2, -1) @ v


def _attention_added(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    p = torch.softmax(q @ k.T / 2, -1)
    dp = g @ v.T
    ds = p * (dp + (dp * p).sum(-1, keepdim=True))
    return ds @ k / 2, pulled_back(_attention, g, q, k, v)[1], p.T @ g


def _weighted_mean(x: Tensor, w: Tensor) -> Tensor:
    return (x * w).sum(0) / w.sum(0)


def _weighted_mean_back(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return g * w / w.sum(0), g * x / w.sum(0)


def _focal(x: Tensor) -> Tensor:
    return -((1 - x.sigmoid()) ** 2) * f.logsigmoid(x)


def _norms(x: Tensor) -> Tensor:
    return x.norm(dim=-1)


def _embedded_scaled(x: Tensor, rows: Tensor) -> Tensor:
    return x[rows] * 8.0


AFTERWARDS = (
    later("messages sent back along the edges", _spread, _spread_back, normal(50, 2), names="transposed"),
    later("group norm: correction added", _group_norm, _group_norm_back, normal(4, 6, 5), names="wrong-term"),
    later(
        "minimum's place for the maximum's", lambda x: x.amax(-1), _maximum_back, normal(20, 8), names="misplaced mask"
    ),
    later(
        "two-dimensional kernel flipped once too often",
        _convolved,
        _convolved_back,
        normal(1, 2, 4, 4),
        names="flipped misplaced transposed",
    ),
    later(
        "attention: correction added",
        _attention,
        _attention_added,
        normal(3, 4),
        normal(5, 4, seed=2),
        normal(5, 3, seed=3),
        names="wrong-term",
    ),
    later(
        "weights of a mean: normaliser held constant",
        _weighted_mean,
        _weighted_mean_back,
        normal(6, 3),
        positive(6, 3, seed=2),
        names="missing-term",
    ),
    later(
        "focal loss: modulation held constant",
        _focal,
        lambda g, x: -g * (1 - x.sigmoid()) ** 3,
        normal(14),
        names="missing-term",
    ),
    later("norm not divided", _norms, lambda g, x: g[:, None] * x, normal(5, 6), names="wrong-factor"),
    later(
        "embedding's scale forgotten",
        _embedded_scaled,
        lambda g, x, rows: (torch.zeros_like(x).index_add(0, rows, g), None),
        normal(30, 8),
        indices(1, 5, 5, 29, 3, 7),
        names="factor",
    ),
    later(
        "squared error with the sign of the target",
        lambda x: (x - TARGET) ** 2,
        lambda g, x: 2 * g * (TARGET - x),
        normal(6, 4),
        names="sign",
    ),
    later(
        "repeated entries interleaved",
        lambda x: x.repeat(3).sin(),
        lambda g, x: g.reshape(-1, 3).sum(1) * x.cos(),
        normal(8),
        names="misplaced transposed",
    ),
    later(
        "first difference without its second term",
        lambda x: x[1:] - x[:-1],
        lambda g, _x: f.pad(g, (1, 0)),
        normal(12),
        names="missing-term",
    ),
    later(
        "cumulative product over the value",
        lambda x: x.cumprod(0),
        lambda g, x: (g * x.cumprod(0)).flip(0).cumsum(0).flip(0),
        positive(7),
        names="wrong-factor",
    ),
    later(
        "roll along the other dimension",
        lambda x: x.exp().roll(1, 0),
        lambda g, x: g.roll(-1, 1) * x.exp(),
        normal(5, 5),
        names="misplaced shifted wrong-dimension",
    ),
    later(
        "softplus at a large slope",
        lambda x: f.softplus(x, beta=3.0),
        lambda g, x: g * x.sigmoid(),
        normal(12),
        names="stale",
    ),
    later(
        "hinge off by its margin", lambda x: (1 - x).clamp(min=0), lambda g, x: -g * (x < 0), normal(24), names="mask"
    ),
    later(
        "complex modulus, real part alone",
        lambda z: z.abs(),
        lambda g, z: g * (z.real / z.abs()).to(z.dtype),
        complex_normal(6),
        names="block",
    ),
    later(
        "outer product with its factors exchanged",
        lambda a, b: a[:, None] * b,
        lambda g, a, b: (g.T @ b, g @ a),
        normal(5),
        normal(5, seed=2),
        names="transposed wrong-dimension",
    ),
    later(
        "unbiased variance's gradient summed",
        lambda x: x.var(-1),
        lambda g, x: 2 * g[:, None] * (x - x.mean(-1, keepdim=True)),
        normal(4, 6),
        names="factor",
    ),
    later(
        "second derivative's rsqrt cubed",
        lambda x: x.rsqrt(),
        lambda g, x: -0.5 * g * x.rsqrt(),
        positive(10),
        names="wrong-factor",
    ),
    later(
        "dot product's other argument",
        lambda a, b: (a * b).sum(-1),
        lambda g, a, b: (g[:, None] * a, g[:, None] * a),
        normal(4, 5),
        normal(4, 5, seed=2),
        names="mixed wrong-factor stale",
    ),
    later(
        "batch's mean of a loss forgotten",
        lambda x: (x**4).mean(0),
        lambda g, x: 4 * g * x**3,
        normal(6, 20),
        names="factor",
    ),
    later(
        "window's offset forgotten",
        lambda x: x[:, 2:] ** 2,
        lambda g, x: f.pad(2 * g * x[:, 2:], (0, 2)),
        normal(6, 24),
        names="shifted misplaced",
    ),
    later(
        "gain of float32 summed over the batch's first half",
        lambda x, w: x * w,
        lambda g, x, w: (g * w, (g * x)[:4].sum(0)),
        normal(8, 5, dtype=torch.float32),
        normal(5, seed=2, dtype=torch.float32),
        names="missing-sum missing-term",
    ),
)
