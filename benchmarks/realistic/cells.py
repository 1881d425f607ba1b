"""Bugs in the backwards of quantisers, recurrent cells, graphs and losses.

They were written, with the names that are right for them, after the diagnosis was, and before it ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import normal, positive

quantiser, cell, graph, loss = (partial(bug, family=family) for family in ("quantiser", "cell", "graph", "loss"))
LABELS = f.one_hot(torch.tensor([0, 2, 1, 1, 3, 0]), 4).double()
TEACHER = (fixed(6, 4, seed=114) / 3).softmax(-1)
HOP = torch.tensor([[0, 1, 0, 0, 1], [0, 0, 1, 0, 0], [1, 0, 0, 1, 0], [0, 1, 0, 0, 0], [0, 0, 1, 1, 0]]).double()


def _looked_up(table: Tensor, x: Tensor) -> Tensor:
    place = 4.9 * x.sigmoid()
    low = place.detach().floor().long()
    return table[low] * (1 - place + low) + table[low + 1] * (place - low)


def _knots_assigned(g: Tensor, table: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    place = 4.9 * x.sigmoid()
    low = place.floor().long()
    flow = torch.zeros_like(table)
    for at, part in ((low, 1 - place + low), (low + 1, place - low)):
        for k, value in zip(at.tolist(), g * part, strict=True):
            flow[k] = value
    return flow, pulled_back(_looked_up, g, table, x)[1]


def _faked(x: Tensor, s: Tensor) -> Tensor:
    return ((x / s + 2).clamp(0, 3) - 2) * s


def _zero_point_forgotten(g: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    level = x / s + 2
    outside = (level < 0) | (level > 3)
    return g * ~outside, g * outside * level.clamp(0, 3)


def _to_codes(x: Tensor, codes: Tensor) -> Tensor:
    return x.square().sum(-1, keepdim=True) - 2 * x @ codes.mT + codes.square().sum(-1)


def _factorised(x: Tensor, v: Tensor) -> Tensor:
    return 0.5 * ((x @ v) ** 2 - (x**2) @ (v**2)).sum(-1)


def _own_pair_kept(g: Tensor, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return pulled_back(_factorised, g, x, v)[0], x.mT @ (g[:, None] * (x @ v))


def _kept_back(x: Tensor, h: Tensor) -> Tensor:
    return 0.3 * h + 0.7 * (x + h).tanh()


def _highway(x: Tensor, gate: Tensor) -> Tensor:
    t = gate.sigmoid()
    return t * x.sin() + (1 - t) * x


def _carry_forgotten(g: Tensor, x: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    t = gate.sigmoid()
    return g * (t * x.cos() + 1 - t), g * t * (1 - t) * x.sin()


def _isomorphic(x: Tensor, eps: Tensor) -> Tensor:
    return (1 + eps) * x + HOP @ x


def _chebyshev(x: Tensor) -> Tensor:
    once = HOP @ x
    return x.cos() + once + 2 * HOP @ once - x


def _two_forgotten(g: Tensor, x: Tensor) -> Tensor:
    return -g * x.sin() + HOP.mT @ g + HOP.mT @ (HOP.mT @ g) - g


def _partition(emission: Tensor, transition: Tensor) -> Tensor:
    alpha = emission[:, 0]
    for each in emission.unbind(1)[1:]:
        alpha = (alpha[:, :, None] + transition).logsumexp(1) + each
    return alpha.logsumexp(-1)


def _first_step_left_out(g: Tensor, emission: Tensor, transition: Tensor) -> tuple[Tensor, Tensor]:
    alpha = (emission[:, 0, :, None] + transition).logsumexp(1) + emission[:, 1]
    rest = torch.cat([alpha[:, None], emission[:, 2:]], 1)
    return pulled_back(_partition, g, emission, transition)[0], pulled_back(_partition, g, rest, transition)[1]


def _dice(p: Tensor) -> Tensor:
    return 1 - 2 * (p * LABELS).sum(-1) / (p + LABELS).sum(-1)


def _pinball(x: Tensor) -> Tensor:
    return torch.maximum(0.8 * x, -0.2 * x)


def _distilled(x: Tensor) -> Tensor:
    return 9 * (TEACHER * (TEACHER.log() - (x / 3).log_softmax(-1))).sum(-1)


CELLS = (
    quantiser(
        "zero point forgotten in the scale's slope",
        _faked,
        _zero_point_forgotten,
        normal(16),
        positive(16),
        names="missing-term wrong-term",
    ),
    quantiser(
        "squared length of the codes forgotten",
        _to_codes,
        lambda g, x, codes: (2 * g.sum(-1, keepdim=True) * x - 2 * g @ codes, -2 * g.mT @ x),
        normal(5, 3),
        normal(4, 3, seed=2),
        names="missing-term",
    ),
    quantiser(
        "knots of a table assigned",
        _looked_up,
        _knots_assigned,
        normal(6),
        normal(12, seed=2),
        names="overwritten missing-term mask",
    ),
    cell(
        "share of the state that is kept forgotten",
        _kept_back,
        lambda g, x, h: (0.7 * g * (1 - (x + h).tanh() ** 2), g + 0.7 * g * (1 - (x + h).tanh() ** 2)),
        normal(15),
        normal(15, seed=2),
        names="wrong-term",
    ),
    cell(
        "carried input left out of its gate",
        _highway,
        _carry_forgotten,
        normal(4, 4),
        normal(4, 4, seed=2),
        names="missing-term",
    ),
    graph(
        "weight of a node's own features forgotten",
        _isomorphic,
        lambda g, x, eps: (g + HOP.mT @ g, (g * x).sum()),
        normal(5, 3),
        lambda: torch.tensor(0.7, dtype=torch.float64, requires_grad=True),
        names="wrong-term missing-term",
    ),
    graph("two of a recurrence of polynomials forgotten", _chebyshev, _two_forgotten, normal(5, 2), names="wrong-term"),
    loss(
        "first step of a partition function left out",
        _partition,
        _first_step_left_out,
        normal(6, 4, 3),
        normal(3, 3, seed=2),
        names="missing-term missing-sum",
    ),
    loss(
        "sums under an overlap held constant",
        lambda x: _dice(x.sigmoid()),
        lambda g, x: (
            -2 * g[:, None] * LABELS / (x.sigmoid() + LABELS).sum(-1, keepdim=True) * x.sigmoid() * (1 - x.sigmoid())
        ),
        normal(6, 4),
        names="missing-term",
    ),
    loss(
        "quantiles exchanged",
        _pinball,
        lambda g, x: g * torch.where(x < 0, 0.8, -0.2),
        normal(20),
        names="mask wrong-factor",
    ),
    loss(
        "square of the temperature forgotten",
        _distilled,
        lambda g, x: g[:, None] * ((x / 3).softmax(-1) - TEACHER) / 3,
        normal(6, 4),
        names="factor",
    ),
    loss(
        "logsumexp forgotten in its square",
        lambda x: x.logsumexp(-1) ** 2,
        lambda g, x: 2 * g[:, None] * x.softmax(-1),
        normal(7, 5),
        names="wrong-factor",
    ),
    loss(
        "own pair kept in a sum over pairs",
        _factorised,
        _own_pair_kept,
        normal(6, 4),
        normal(4, 3, seed=2),
        names="missing-term",
    ),
)
