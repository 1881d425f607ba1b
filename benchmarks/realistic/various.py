"""Bugs of all kinds, written after the diagnosis had been widened on physics, kernels and cells.

They were written, with the names that are right for them, before the diagnosis ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import complex_normal, normal, positive

various = partial(bug, family="various")
EYE = torch.eye(5, dtype=torch.float64)
TIMES, FILTER = torch.linspace(0.2, 3, 9, dtype=torch.float64), fixed(2, 3, 3, 3, seed=121)
WALK = fixed(5, 5, seed=122).exp()
WALK = WALK / WALK.sum(0)
COSINES = (torch.arange(6)[:, None] * (2 * torch.arange(6) + 1) * torch.pi / 12).double().cos()
RELATIVE = torch.arange(4)[:, None] - torch.arange(4) + 3
TAKEN = torch.tensor([[0, 3, 5], [2, 2, 4], [1, 0, 5], [3, 4, 1]])
CLASSES = torch.tensor([0, 1, 1, 0, 2, 2, 0])
MEMBERS = f.one_hot(CLASSES).double()
COUNTS = fixed(6, 3, seed=123).abs().round() + 1


def _styled(c: Tensor, s: Tensor) -> Tensor:
    unit = (c - c.mean(-1, keepdim=True)) / c.std(-1, keepdim=True)
    return unit * s.std(-1, keepdim=True) + s.mean(-1, keepdim=True)


def _deviation_forgotten(g: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    flow = g.sum(-1, keepdim=True) / s.shape[-1]
    return pulled_back(_styled, g, c, s)[0], flow.expand(s.shape).clone()


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def _norms_confused(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    size = (a.norm(dim=-1) * b.norm(dim=-1))[:, None]
    wrong = a / size - _cosine(a, b)[:, None] * b / a.norm(dim=-1)[:, None] ** 2
    return pulled_back(_cosine, g, a, b)[0], g[:, None] * wrong


def _fused(x: Tensor, z: Tensor, p: Tensor, q: Tensor) -> Tensor:
    return (p * x + q * z) / (p + q)


def _precision_in_the_sum(g: Tensor, x: Tensor, z: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, ...]:
    return g * p / (p + q), g * q / (p + q), g * x / (p + q), g * z / (p + q)


def _biased(scores: Tensor, table: Tensor) -> Tensor:
    return scores.sin() + table[RELATIVE]


def _midpoint(x: Tensor) -> Tensor:
    return x + 0.4 * (x + 0.2 * x.cos()).cos()


def _reflected(x: Tensor) -> Tensor:
    return f.pad(x[None], (2, 2), mode="reflect")[0].exp()


def _grouped(x: Tensor) -> Tensor:
    return f.conv1d(x, FILTER[..., 0].repeat(2, 1, 1)[:4, :2], groups=2)


def _groups_interleaved(g: Tensor, x: Tensor) -> Tensor:
    flow = pulled_back(_grouped, g, x)[0]
    return flow.unflatten(1, (2, 2)).transpose(1, 2).flatten(1, 2)


def _updated(n: Tensor, z: Tensor, h: Tensor) -> Tensor:
    return (1 - z) * n + z * h


def _symmetric_loss(scores: Tensor) -> Tensor:
    return scores.logsumexp(0) + scores.logsumexp(1) - 2 * scores.diagonal()


def _to_centres(x: Tensor) -> Tensor:
    centres = MEMBERS.mT @ x / MEMBERS.sum(0)[:, None]
    return ((x - centres[CLASSES]) ** 3).sum(-1)


def _centres_held(g: Tensor, x: Tensor) -> Tensor:
    centres = MEMBERS.mT @ x / MEMBERS.sum(0)[:, None]
    return 3 * g[:, None] * (x - centres[CLASSES]) ** 2


def _variation(x: Tensor) -> Tensor:
    down, right = x[1:, :-1] - x[:-1, :-1], x[:-1, 1:] - x[:-1, :-1]
    return (down**2 + right**2 + 0.1).sqrt()


def _own_pixel(g: Tensor, x: Tensor) -> Tensor:
    down, right = x[1:, :-1] - x[:-1, :-1], x[:-1, 1:] - x[:-1, :-1]
    return f.pad(-g * (down + right) / _variation(x), (0, 1, 0, 1))


def _bounded(x: Tensor) -> Tensor:
    return x * (1.5 / x.norm(dim=-1, keepdim=True)).clamp(max=1)


def _spectrum(x: Tensor) -> Tensor:
    return torch.fft.rfft(x.unfold(-1, 6, 3)).abs()


def _magnitude_forgotten(g: Tensor, x: Tensor) -> Tensor:
    def half(t: Tensor) -> Tensor:
        return 0.5 * torch.fft.rfft(t.unfold(-1, 6, 3)).abs() ** 2

    return pulled_back(half, g, x)[0]


def _pooled_by_weights(scores: Tensor, v: Tensor) -> Tensor:
    weights = (MEMBERS * scores.exp()[:, None]) / (MEMBERS.mT @ scores.exp())
    return weights.mT @ v


def _weights_not_balanced(g: Tensor, scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = ((MEMBERS * scores.exp()[:, None]) / (MEMBERS.mT @ scores.exp())).sum(1)
    return weights * (g[CLASSES] * v).sum(-1), weights[:, None] * g[CLASSES]


def _batch_norm(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / x.var(0, unbiased=False).sqrt()


def _one_less(g: Tensor, x: Tensor) -> Tensor:
    y, rstd = _batch_norm(x), x.var(0, unbiased=False).rsqrt()
    return rstd * (g - g.mean(0) - y * (g * y).sum(0) / (len(x) - 1))


VARIOUS = (
    various(
        "deviation of a style forgotten",
        _styled,
        _deviation_forgotten,
        normal(3, 6),
        normal(3, 6, seed=2),
        names="missing-term",
    ),
    various(
        "nearest neighbours averaged",
        lambda x: x.repeat_interleave(3, -1).sin(),
        lambda g, x: g.unflatten(-1, (-1, 3)).mean(-1) * x.cos(),
        normal(3, 5),
        names="wrong-term factor wrong-factor",
    ),
    various(
        "norms of a cosine confused",
        _cosine,
        _norms_confused,
        normal(5, 4),
        normal(5, 4, seed=2),
        names="wrong-term wrong-factor",
    ),
    various(
        "sign of a learned temperature",
        lambda x, t: (x / t[:, None]).sinh(),
        lambda g, x, t: (g * (x / t[:, None]).cosh() / t[:, None], (g * (x / t[:, None]).cosh() * x).sum(-1) / t**2),
        normal(5, 4),
        positive(5),
        names="sign",
    ),
    various(
        "counts of a Poisson loss forgotten",
        lambda x: x.exp() - COUNTS * x,
        lambda g, x: g * x.exp(),
        normal(6, 3),
        names="missing-term",
    ),
    various(
        "margin of a squared hinge forgotten",
        lambda x: (1 - x).clamp(min=0) ** 2,
        lambda g, x: -2 * g * (x < 1),
        normal(19),
        names="wrong-factor",
    ),
    various(
        "precision's part in the sum forgotten",
        _fused,
        _precision_in_the_sum,
        normal(8),
        normal(8, seed=2),
        positive(8),
        positive(8, seed=2),
        names="missing-term",
    ),
    various(
        "sigmoid of a softplus scale forgotten",
        lambda x, s: x * f.softplus(s),
        lambda g, x, s: (g * f.softplus(s), (g * x).sum(0)),
        normal(7, 4),
        normal(4, seed=2),
        names="wrong-factor",
    ),
    various(
        "square of the argument for that of its tanh",
        lambda x: x.tanh(),
        lambda g, x: g * (1 - x * x),
        normal(17),
        names="wrong-factor stale wrong-term",
    ),
    various(
        "relative positions the other way round",
        _biased,
        lambda g, s, table: (g * s.cos(), torch.zeros_like(table).index_add(0, RELATIVE.mT.flatten(), g.flatten())),
        normal(4, 4),
        normal(7, seed=2),
        names="flipped misplaced transposed",
    ),
    various(
        "flat indices with a wrong row length",
        lambda x: x.gather(1, TAKEN).cosh(),
        lambda g, x: (
            torch.zeros(24, dtype=x.dtype)
            .index_add(0, (TAKEN + 5 * torch.arange(4)[:, None]).flatten(), (g * x.gather(1, TAKEN).sinh()).flatten())
            .reshape(x.shape)
        ),
        normal(4, 6),
        names="misplaced shifted",
    ),
    various(
        "walk not reversed",
        lambda x: 0.2 * torch.linalg.solve(EYE - 0.8 * WALK, x),
        lambda g, x: 0.2 * torch.linalg.solve(EYE - 0.8 * WALK, g),
        normal(5, 2),
        names="transposed",
    ),
    various(
        "latitude forgotten",
        lambda a, b: torch.stack([a.cos() * b.cos(), a.cos() * b.sin()]),
        lambda g, a, b: (-a.sin() * (g[0] * b.cos() + g[1] * b.sin()), -g[0] * b.sin() + g[1] * b.cos()),
        normal(8),
        normal(8, seed=2),
        names="wrong-factor",
    ),
    various(
        "past of a wave with the sign of the present",
        lambda u, past: 2 * u.sin() - past,
        lambda g, u, past: (2 * g * u.cos(), g.clone()),
        normal(10),
        normal(10, seed=2),
        names="sign pass-through",
    ),
    various(
        "inner step of a midpoint rule held constant",
        _midpoint,
        lambda g, x: g * (1 - 0.4 * (x + 0.2 * x.cos()).sin()),
        normal(16),
        names="missing-term",
    ),
    various(
        "time of a decay forgotten",
        lambda k: (-k[:, None] * TIMES).exp(),
        lambda g, k: -(g * (-k[:, None] * TIMES).exp()).sum(-1),
        positive(5),
        names="wrong-factor",
    ),
    various(
        "factors of a square in one order",
        lambda x: x @ x,
        lambda g, x: 2 * x.mT @ g,
        normal(4, 4),
        names="missing-term wrong-term transposed",
    ),
    various(
        "trace of a normalised matrix held constant",
        lambda x: x / x.diagonal(dim1=-2, dim2=-1).sum(),
        lambda g, x: g / x.diagonal(dim1=-2, dim2=-1).sum(),
        positive(4, 4),
        names="missing-term",
    ),
    various("magnitudes of a spectrum forgotten", _spectrum, _magnitude_forgotten, normal(12), names="wrong-factor"),
    various(
        "cosine transform taken for its inverse",
        lambda x: x.tanh() @ COSINES.mT,
        lambda g, x: (g @ COSINES.mT) * (1 - x.tanh() ** 2),
        normal(3, 6),
        names="transposed",
    ),
    various(
        "modulus not squared under a logarithm",
        lambda z: z.abs().log(),
        lambda g, z: g * z / z.abs(),
        complex_normal(7),
        names="wrong-factor",
    ),
    various(
        "rate's logarithm forgotten",
        lambda x, a, b: a * b.log() - b * x.exp() + (a - 1) * x - a.lgamma(),
        lambda g, x, a, b: (g * (a - 1 - b * x.exp()), g * (b.log() + x - a.digamma()), -g * x.exp()),
        normal(9),
        positive(9),
        positive(9, seed=2),
        names="missing-term",
    ),
    various(
        "width of a Laplace density forgotten in its norm",
        lambda x, b: -(x.abs() / b) - (2 * b).log(),
        lambda g, x, b: (-g * x.sign() / b, g * x.abs() / b**2),
        normal(12),
        positive(12),
        names="missing-term",
    ),
    various(
        "bound of an embedding's norm held constant",
        _bounded,
        lambda g, x: g * (1.5 / x.norm(dim=-1, keepdim=True)).clamp(max=1),
        normal(6, 4),
        names="missing-term",
    ),
    various(
        "reflected border forgotten", _reflected, lambda g, x: g[:, 2:-2] * x.exp(), normal(2, 7), names="missing-term"
    ),
    various(
        "groups of a convolution interleaved",
        _grouped,
        _groups_interleaved,
        normal(2, 4, 7),
        names="misplaced transposed",
    ),
    various(
        "shares of old and new state exchanged",
        _updated,
        lambda g, n, z, h: (g * z, g * (h - n), g * (1 - z)),
        normal(9),
        positive(9),
        normal(9, seed=2),
        names="wrong-factor mixed",
    ),
    various(
        "loser with the winner's sign",
        lambda a, b: f.softplus(b - a),
        lambda g, a, b: (-g * (b - a).sigmoid(), -g * (b - a).sigmoid()),
        normal(9),
        normal(9, seed=2),
        names="sign",
    ),
    various(
        "columns of a symmetric loss forgotten",
        _symmetric_loss,
        lambda g, x: pulled_back(lambda t: t.logsumexp(1) - 2 * t.diagonal(), g, x)[0],
        normal(5, 5),
        names="missing-term",
    ),
    various(
        "centres of classes held constant", _to_centres, _centres_held, normal(7, 3), names="missing-term wrong-term"
    ),
    various("neighbours of a total variation forgotten", _variation, _own_pixel, normal(4, 5), names="missing-term"),
    various(
        "weights of a segment not balanced",
        _pooled_by_weights,
        _weights_not_balanced,
        normal(7),
        normal(7, 2, seed=2),
        names="missing-term",
    ),
    various("one less in the correction", _batch_norm, _one_less, normal(7, 3), names="wrong-term"),
)
