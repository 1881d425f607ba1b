"""Sums that are missing, over the wrong dimension or over too much; masks; operands that are not transposed."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import normal

SEGMENTS = torch.tensor([0, 0, 1, 2, 2, 2, 3])
CLASSES = torch.tensor([0, -1, 1, 1, -1, 2, 0])
DROPPED = (fixed(5, 6) > 0).to(torch.float64)
MIXED = fixed(2, 5, 5).softmax(-1)
OTHER = fixed(4, 4)
reduction = partial(bug, family="reduction, mask")


def _segments(x: Tensor) -> Tensor:
    return torch.zeros(4, x.shape[1], dtype=x.dtype).index_add(0, SEGMENTS, x * x)


def _gain_back(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return g * w, (g * x).sum(1)


def _affine(x: Tensor, w: Tensor) -> Tensor:
    return f.layer_norm(x, (4,)) * w


def _affine_back(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return pulled_back(_affine, g, x, w)[0], (g * f.layer_norm(x, (4,)))[:, -1].sum(0)


def _channels(x: Tensor, b: Tensor) -> Tensor:
    return (x + b[:, None, None]).tanh()


def _channels_back(g: Tensor, x: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    dx = g * (1 - _channels(x, b) ** 2)
    return dx, dx[0].sum((-1, -2))


def _valid_loss(x: Tensor) -> Tensor:
    return f.cross_entropy(x, CLASSES, ignore_index=-1)


def _losses(x: Tensor) -> Tensor:
    return f.cross_entropy(x, CLASSES, ignore_index=-1, reduction="none")


def _losses_unmasked(g: Tensor, x: Tensor) -> Tensor:
    return g[:, None] * (x.softmax(-1) - f.one_hot(CLASSES.clamp(min=0), 3))


def _clamped(x: Tensor) -> Tensor:
    return (x * x).clamp(0.2, 1.0)


def _clamped_back(g: Tensor, x: Tensor) -> Tensor:
    return 2 * g * x * ((x * x < 0.2) | (x * x > 1.0))


def _prelu(x: Tensor, a: Tensor) -> Tensor:
    return torch.where(x > 0, x, a * x)


def _prelu_back(g: Tensor, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    return pulled_back(_prelu, g, x, a)[0], (g * x).sum(0)


def _averages(x: Tensor) -> Tensor:
    return f.avg_pool1d(x, 3, stride=1, padding=1, count_include_pad=False)


def _averages_back(g: Tensor, x: Tensor) -> Tensor:
    return pulled_back(lambda t: f.avg_pool1d(t, 3, stride=1, padding=1), g, x)[0]


def _inverse_back(g: Tensor, a: Tensor) -> Tensor:
    y = torch.linalg.inv(a)
    return -y @ g @ y


def _bilinear_back(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return g @ y @ OTHER, g.T @ x @ OTHER


def _margin(x: Tensor) -> Tensor:
    return (1 - x).clamp(min=0) ** 2


REDUCTIONS = (
    reduction(
        "segment sum over all edges", _segments, lambda g, x: 2 * x * g.sum(0), normal(7, 3), names="doubled-sum"
    ),
    reduction(
        "bias averaged over the batch",
        lambda x, b: x.tanh() + b,
        lambda g, x, _b: (g * (1 - x.tanh() ** 2), g.mean(0)),
        normal(6, 4),
        normal(4, seed=2),
        names="factor",
    ),
    reduction(
        "gain summed over the wrong dimension",
        lambda x, w: x * w,
        _gain_back,
        normal(5, 5),
        normal(5, seed=2),
        names="transposed wrong-dimension",
    ),
    reduction(
        "gain of the last token alone", _affine, _affine_back, normal(2, 5, 4), normal(4, seed=2), names="missing-sum"
    ),
    reduction(
        "bias of the first image alone",
        _channels,
        _channels_back,
        normal(3, 2, 3, 3),
        normal(2, seed=2),
        names="missing-sum",
    ),
    reduction(
        "mean over one dimension, spread over the other",
        lambda x: x.exp().mean(0),
        lambda g, x: g[:, None] * x.exp() / 4,
        normal(4, 4),
        names="transposed wrong-dimension",
    ),
    reduction(
        "mean over the valid targets divided by all",
        _valid_loss,
        lambda g, x: pulled_back(_valid_loss, g, x)[0] * 5 / 7,
        normal(7, 3),
        names="factor",
    ),
    reduction("ignored targets not masked", _losses, _losses_unmasked, normal(7, 3), names="mask"),
    reduction(
        "variance with one less",
        lambda x: x.var(0),
        lambda g, x: 2 * g * (x - x.mean(0)) / len(x),
        normal(9, 2),
        names="factor",
    ),
    reduction(
        "dropout mask not applied", lambda x: x.sin() * DROPPED, lambda g, x: g * x.cos(), normal(5, 6), names="mask"
    ),
    reduction("clamp mask inverted", _clamped, _clamped_back, normal(4, 5), names="mask"),
    reduction("slope of a PReLU not masked", _prelu, _prelu_back, normal(8, 3), normal(3, seed=2), names="mask"),
    reduction(
        "maximum whose gradient goes to all",
        lambda x: x.amax(-1),
        lambda g, x: g[:, None].expand(x.shape),
        normal(4, 5),
        names="mask",
    ),
    reduction(
        "hinge without its margin",
        _margin,
        lambda g, x: -2 * g * (1 - x),
        lambda: (2 * fixed(20)).requires_grad_(),
        names="mask",
    ),
    reduction(
        "average that counts the padding", _averages, _averages_back, normal(2, 1, 9), names="factor wrong-factor"
    ),
    reduction(
        "values of attention with weights not transposed",
        lambda v: MIXED @ v,
        lambda g, _v: MIXED @ g,
        normal(2, 5, 3),
        names="transposed",
    ),
    reduction(
        "trace of a product, not transposed",
        lambda a: (a @ OTHER).trace(),
        lambda g, _a: g * OTHER,
        normal(4, 4),
        names="transposed",
    ),
    reduction(
        "inverse not transposed",
        lambda a: torch.linalg.inv(a),
        _inverse_back,
        lambda: (torch.eye(4, dtype=torch.float64) * 2 + fixed(4, 4) / 3).requires_grad_(),
        names="transposed",
    ),
    reduction(
        "bilinear form with its matrix not transposed",
        lambda x, y: x @ OTHER @ y.T,
        _bilinear_back,
        normal(3, 4),
        normal(5, 4, seed=2),
        names="transposed",
    ),
)
