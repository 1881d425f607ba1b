"""Bugs of geometry, filters, tables, chains and games: the newest ones.

They were written, with the names that are right for them, before the diagnosis ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed
from gradproof.gallery.specimen import complex_normal, normal, positive

newest = partial(bug, family="newest")
HALVES = torch.tensor([0.5, -1.0, 0.5], dtype=torch.float64)
MOVES = fixed(4, 4, seed=151).softmax(-1)
VISITS = torch.tensor([3, 0, 2, 2, 1, 0, 3])
MIX = fixed(3, 3, seed=152)
STEP = 0.2


def _circumference(a: Tensor, b: Tensor) -> Tensor:
    return (a**2 + b**2).sqrt() + a * b


def _chain(x: Tensor) -> Tensor:
    return (x @ MOVES).exp() @ MOVES


def _smoothed(x: Tensor) -> Tensor:
    return f.conv1d(x[:, None], HALVES[None, None].expand(1, 1, 3), padding=1)[:, 0].tanh()


def _lotka(x: Tensor, y: Tensor) -> Tensor:
    return x + STEP * (1.1 * x - 0.4 * x * y)


def _normalised(x: Tensor) -> Tensor:
    return (x - x.amin(-1, keepdim=True)) / (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True))


def _range_held(g: Tensor, x: Tensor) -> Tensor:
    return g / (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True))


def _values(table: Tensor, rewards: Tensor) -> Tensor:
    return table[VISITS] * rewards.tanh()


def _area(p: Tensor) -> Tensor:
    q = p.roll(-1, 0)
    return 0.5 * (p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0])


def _next_alone(g: Tensor, p: Tensor) -> Tensor:
    q = p.roll(-1, 0)
    return 0.5 * g[:, None] * torch.stack([q[:, 1], -q[:, 0]], -1)


def _whitened(x: Tensor, s: Tensor) -> Tensor:
    return (x - x.mean(0)) / s


NEWEST = (
    newest(
        "product of the sides forgotten",
        _circumference,
        lambda g, a, b: (g * a / (a**2 + b**2).sqrt(), g * (b / (a**2 + b**2).sqrt() + a)),
        positive(9),
        positive(9, seed=2),
        names="missing-term",
    ),
    newest(
        "moves of a chain not reversed",
        _chain,
        lambda g, x: ((g @ MOVES) * (x @ MOVES).exp()) @ MOVES.mT,
        normal(3, 4),
        names="transposed wrong-factor wrong-term",
    ),
    newest(
        "slope of a smoothed signal forgotten",
        _smoothed,
        lambda g, x: f.conv1d(g[:, None], HALVES[None, None].expand(1, 1, 3), padding=1)[:, 0],
        normal(2, 8),
        names="wrong-factor",
    ),
    newest(
        "prey's own growth forgotten",
        _lotka,
        lambda g, x, y: (g * (1 - STEP * 0.4 * y), -g * STEP * 0.4 * x),
        normal(10),
        normal(10, seed=2),
        names="missing-term wrong-term",
    ),
    newest(
        "step of the predators not applied",
        _lotka,
        lambda g, x, y: (g * (1 + STEP * (1.1 - 0.4 * y)), -g * 0.4 * x),
        normal(10),
        normal(10, seed=2),
        names="factor",
    ),
    newest("range of a normalisation held constant", _normalised, _range_held, normal(4, 5), names="missing-term"),
    newest(
        "visits of a state assigned",
        _values,
        lambda g, t, r: (torch.zeros_like(t).index_put((VISITS,), g * r.tanh()), g * t[VISITS] * (1 - r.tanh() ** 2)),
        normal(4),
        normal(7, seed=2),
        names="overwritten",
    ),
    newest("next corner of a polygon alone", _area, _next_alone, normal(6, 2), names="missing-term"),
    newest(
        "mean of a whitening forgotten",
        _whitened,
        lambda g, x, s: (g / s, -(g * (x - x.mean(0))).sum(0) / s**2),
        normal(5, 3),
        positive(3),
        names="missing-term",
    ),
    newest(
        "scale of a whitening not squared",
        _whitened,
        lambda g, x, s: ((g - g.mean(0)) / s, -(g * (x - x.mean(0))).sum(0) / s),
        normal(5, 3),
        positive(3),
        names="wrong-factor",
    ),
    newest(
        "channels mixed the wrong way",
        lambda x: torch.einsum("oc,bct->bot", MIX, x.sin()),
        lambda g, x: torch.einsum("oc,bct->bot", MIX, g) * x.cos(),
        normal(2, 3, 4),
        names="transposed",
    ),
    newest(
        "argument of an error function not halved",
        lambda x: 0.5 * (1 + (x / 2**0.5).erf()),
        lambda g, x: g * (-(x**2)).exp() / (2 * torch.pi) ** 0.5,
        normal(12),
        names="wrong-factor stale",
    ),
    newest(
        "inner index of a nested gather",
        lambda x: x.cosh()[VISITS.clamp(max=3)][[6, 0, 4]],
        lambda g, x: torch.zeros_like(x).index_add(0, torch.tensor([0, 3, 2]), g) * x.sinh(),
        normal(4, 3),
        names="misplaced shifted flipped",
    ),
    newest(
        "modulus for its square",
        lambda z: (z.abs() ** 2 + 1).log(),
        lambda g, z: 2 * g * z / (z.abs() + 1),
        complex_normal(8),
        names="wrong-factor",
    ),
    newest(
        "log-odds of a mixture without its weight",
        lambda a, b: torch.logaddexp(a + 0.3, b - 0.9),
        lambda g, a, b: (g * (a - b).sigmoid(), g * (b - 0.9 - a - 0.3).sigmoid()),
        normal(11),
        normal(11, seed=2),
        names="wrong-factor stale",
    ),
    newest(
        "upper half of a symmetric matrix",
        lambda x: (x.triu() + x.triu(1).mT).exp(),
        lambda g, x: (g * (x.triu() + x.triu(1).mT).exp()).triu(),
        normal(4, 4),
        names="missing-term missing-sum",
    ),
    newest(
        "friction with the wrong sign",
        lambda v: v - 0.3 * v * v.abs(),
        lambda g, v: g * (1 + 0.6 * v.abs()),
        normal(14),
        names="wrong-term",
    ),
    newest(
        "output's scale applied to the shift",
        lambda x, s, b: s * (x + b).sin(),
        lambda g, x, s, b: (g * s * (x + b).cos(), (g * (x + b).sin()).sum(0), (g * (x + b).cos()).sum(0)),
        normal(6, 4),
        positive(4),
        normal(4, seed=2),
        names="wrong-factor",
    ),
    newest(
        "two rows of a rotation exchanged",
        lambda x: torch.stack([0.8 * x[0] - 0.6 * x[1], 0.6 * x[0] + 0.8 * x[1]]),
        lambda g, x: torch.stack([-0.6 * g[0] + 0.8 * g[1], 0.8 * g[0] + 0.6 * g[1]]),
        normal(2, 7),
        names="flipped misplaced mixed shifted transposed",
    ),
    newest(
        "slope of the smaller one",
        lambda x: x.sort(-1).values[..., -2].exp(),
        lambda g, x: torch.zeros_like(x).scatter(
            -1, x.argsort(-1)[..., :1], (g * x.sort(-1).values[..., -2].exp())[..., None]
        ),
        normal(6, 5),
        names="misplaced mask",
    ),
)
