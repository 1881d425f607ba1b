"""Bugs of losses, layers, mechanics, graphs and images, written last of all.

They were written, with the names that are right for them, before the diagnosis ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import normal, positive

sundry = partial(bug, family="sundry")
RATES, MASSES = 2.0 ** torch.arange(5, dtype=torch.float64) / 3, fixed(5, seed=141).abs() + 0.5
ENDS = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 2, 3, 4, 4, 0]])
KEPT = torch.tensor([0.9, 0.6, 0.35, 0.1], dtype=torch.float64)[:, None]
PAIRED = torch.tensor([1, 0, 0, 1, 1, 0, 1, 0]).double()
CHOSEN = torch.tensor([4, 1, 5])
COLOURS = torch.tensor([[0.30, 0.59, 0.11], [-0.15, -0.29, 0.44], [0.61, -0.52, -0.10]], dtype=torch.float64)
LAGS = torch.arange(4)[:, None] - torch.arange(4) + 3
EXPONENTS = torch.arange(5)


def _overlap(a: Tensor, b: Tensor) -> Tensor:
    both = torch.minimum(a[:, 1], b[:, 1]) - torch.maximum(a[:, 0], b[:, 0])
    return both / (a[:, 1] - a[:, 0] + b[:, 1] - b[:, 0] - both)


def _boxes(x: Tensor) -> Tensor:
    return torch.stack([-x[:, 0].exp(), x[:, 1].exp()], -1)


def _union_held(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    a, b = _boxes(x), _boxes(y)
    both = torch.minimum(a[:, 1], b[:, 1]) - torch.maximum(a[:, 0], b[:, 0])
    union = (a[:, 1] - a[:, 0] + b[:, 1] - b[:, 0] - both).detach()

    def held(x: Tensor, y: Tensor) -> Tensor:
        a, b = _boxes(x), _boxes(y)
        return (torch.minimum(a[:, 1], b[:, 1]) - torch.maximum(a[:, 0], b[:, 0])) / union

    return pulled_back(held, g, x, y)


def _linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.exp() @ (k.exp().mT @ v) / (q.exp() @ k.exp().sum(0))[:, None]


def _denominator_held(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    _, dk, dv = pulled_back(_linear_attention, g, q, k, v)
    whole = (q.exp() @ k.exp().sum(0))[:, None]
    return (g / whole) @ (k.exp().mT @ v).mT * q.exp(), dk, dv


def _signs_forgotten(g: Tensor, x: Tensor) -> Tensor:
    whole = x.abs().sum(-1, keepdim=True)
    return g / whole - (g * x).sum(-1, keepdim=True) / whole**2


def _integrated(x: Tensor) -> Tensor:
    states = [0.1 * x[0]]
    for each in x[1:]:
        states.append(states[-1] + 0.1 * (each - states[-1] / 0.5))
    return torch.stack(states)


def _stretched(x: Tensor) -> Tensor:
    return (x[ENDS[0]] - x[ENDS[1]]).norm(dim=-1) - 1


def _not_of_unit_length(g: Tensor, x: Tensor) -> Tensor:
    flow = g[:, None] * (x[ENDS[0]] - x[ENDS[1]])
    return torch.zeros_like(x).index_add(0, ENDS[0], flow).index_add(0, ENDS[1], -flow)


def _centred(x: Tensor) -> Tensor:
    return (x - (MASSES @ x) / MASSES.sum()).tanh()


def _plain_mean(g: Tensor, x: Tensor) -> Tensor:
    flow = g * (1 - _centred(x) ** 2)
    return flow - flow.mean(0)


def _planar(x: Tensor, u: Tensor) -> Tensor:
    return x + u * (x @ COLOURS[0]).tanh()[:, None]


def _paired(d: Tensor) -> Tensor:
    return PAIRED * d**2 + (1 - PAIRED) * (2 - d).clamp(min=0) ** 2


def _sent(x: Tensor, w: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, ENDS[1], w[:, None] * x[ENDS[0]])


def _at_the_wrong_end(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return pulled_back(_sent, g, x, w)[0], (g[ENDS[1]] * x[ENDS[1]]).sum(-1)


def _gated(x: Tensor, s: Tensor) -> Tensor:
    return x[CHOSEN] * s[CHOSEN].sigmoid()[:, None]


def _gates_in_front(g: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    slope = s[CHOSEN].sigmoid() * (1 - s[CHOSEN].sigmoid())
    return pulled_back(_gated, g, x, s)[0], f.pad((g * x[CHOSEN]).sum(-1) * slope, (0, 3))


def _ends_exchanged(g: Tensor, w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return (g[ENDS[0]] * x[ENDS[1]]).sum(-1), pulled_back(lambda x, w: _sent(x, w), g, x, w)[0]


def _toeplitz(c: Tensor, x: Tensor) -> Tensor:
    return c[LAGS] @ x


def _other_diagonals(g: Tensor, c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    flow = g @ x.mT
    return torch.zeros_like(c).index_add(0, LAGS.mT.flatten(), flow.flatten()), c[LAGS].mT @ g


def _polynomial(c: Tensor, x: Tensor) -> Tensor:
    return (x[:, None] ** EXPONENTS) @ c


def _hermite(t: Tensor, a: Tensor, b: Tensor) -> Tensor:
    s = t.sigmoid()
    return a * (2 * s**3 - 3 * s**2 + 1) + b * (3 * s**2 - 2 * s**3)


def _second_basis_turned(g: Tensor, t: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    s = t.sigmoid()
    slope = 6 * (s**2 - s) * s * (1 - s)
    return g * (a + b) * slope, *pulled_back(_hermite, g, t, a, b)[1:]


def _transported(x: Tensor) -> Tensor:
    return (x.sort(-1).values - torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype)) ** 2


def _not_unsorted(g: Tensor, x: Tensor) -> Tensor:
    return 2 * g * (x.sort(-1).values - torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype))


def _ranked(p: Tensor, n: Tensor) -> Tensor:
    return f.softplus(n[None] - p[:, None]).mean(0)


def _responses(x: Tensor) -> Tensor:
    return x * (1 + f.avg_pool1d(x[None] ** 2, 3, 1, 1)[0]) ** -0.75


SUNDRY = (
    sundry(
        "union held constant",
        lambda x, y: _overlap(_boxes(x), _boxes(y)),
        _union_held,
        normal(6, 2),
        normal(6, 2, seed=2),
        names="missing-term",
    ),
    sundry(
        "width of the quadratic part forgotten",
        lambda x: f.smooth_l1_loss(x, 0 * x, reduction="none", beta=0.6),
        lambda g, x: g * torch.where(x.abs() < 0.6, x, x.sign()),
        normal(20),
        names="factor mask wrong-factor",
    ),
    sundry(
        "hyperbolic cosine not divided by",
        lambda x: x.cosh().log(),
        lambda g, x: g * x.sinh(),
        normal(15),
        names="wrong-factor",
    ),
    sundry(
        "denominator of a linear attention held constant",
        _linear_attention,
        _denominator_held,
        normal(4, 3),
        normal(5, 3, seed=2),
        normal(5, 2, seed=3),
        names="missing-term",
    ),
    sundry(
        "signs of a sum of sizes forgotten",
        lambda x: x / x.abs().sum(-1, keepdim=True),
        _signs_forgotten,
        normal(4, 5),
        names="wrong-term",
    ),
    sundry(
        "softsign not squared",
        lambda x: x / (1 + x.abs()),
        lambda g, x: g / (1 + x.abs()),
        normal(16),
        names="wrong-factor",
    ),
    sundry(
        "two of a hard swish forgotten",
        lambda x: x * (x + 3).clamp(0, 6) / 6,
        lambda g, x: g * (x / 6 + 0.5),
        normal(14),
        names="wrong-term",
    ),
    sundry(
        "both pieces of a maxout",
        lambda a, b: torch.maximum(a.sin(), b.cos()),
        lambda g, a, b: (g * a.cos(), -g * b.sin()),
        normal(13),
        normal(13, seed=2),
        names="mask",
    ),
    sundry(
        "slope of a gate for the gate",
        lambda a, b: a.tanh() * b.sigmoid(),
        lambda g, a, b: (
            g * (1 - a.tanh() ** 2) * b.sigmoid() * (1 - b.sigmoid()),
            g * a.tanh() * b.sigmoid() * (1 - b.sigmoid()),
        ),
        normal(4, 4),
        normal(4, 4, seed=2),
        names="wrong-factor",
    ),
    sundry(
        "time step of an integrator forgotten",
        _integrated,
        lambda g, x: pulled_back(_integrated, g, x)[0] * 10,
        normal(7, 2),
        names="factor",
    ),
    sundry(
        "rates of a time embedding forgotten",
        lambda t: (t[:, None] * RATES).sin(),
        lambda g, t: (g * (t[:, None] * RATES).cos()).sum(-1),
        normal(6),
        names="wrong-factor",
    ),
    sundry(
        "sign of a pendulum's weight",
        lambda w, a: 0.5 * w**2 - a.cos(),
        lambda g, w, a: (g * w, -g * a.sin()),
        normal(9),
        normal(9, seed=2),
        names="sign",
    ),
    sundry("springs not of unit length", _stretched, _not_of_unit_length, normal(5, 3), names="wrong-factor"),
    sundry("centre without the masses", _centred, _plain_mean, normal(5, 2), names="wrong-term wrong-factor"),
    sundry(
        "masses of a moment forgotten",
        lambda r: (MASSES * r.square().sum(-1)).sqrt(),
        lambda g, r: g[:, None] * r / (MASSES * r.square().sum(-1)).sqrt()[:, None],
        normal(5, 3),
        names="wrong-factor",
    ),
    sundry(
        "power of a Lorentz factor",
        lambda v: (1 - v.tanh() ** 2).rsqrt(),
        lambda g, v: g * (1 - v.tanh() ** 2) ** -0.5 * v.tanh() * (1 - v.tanh() ** 2),
        normal(12),
        names="wrong-factor",
    ),
    sundry(
        "sign of a pressure",
        lambda t, p: (t / p).log(),
        lambda g, t, p: (g / t, g / p),
        positive(8),
        positive(8, seed=2),
        names="sign",
    ),
    sundry(
        "share of the signal for that of the noise",
        lambda x, e: KEPT.sqrt() * x + (1 - KEPT).sqrt() * e,
        lambda g, _x, _e: (KEPT.sqrt() * g, KEPT.sqrt() * g),
        normal(4, 5),
        normal(4, 5, seed=2),
        names="wrong-factor",
    ),
    sundry(
        "slope of a planar flow for its value",
        _planar,
        lambda g, x, u: (pulled_back(_planar, g, x, u)[0], (1 - (x @ COLOURS[0]).tanh() ** 2) @ g),
        normal(6, 3),
        normal(3, seed=2),
        names="wrong-factor",
    ),
    sundry(
        "temperature divided by once too often",
        lambda x: 2.5 * (x / 2.5).logsumexp(-1),
        lambda g, x: g[:, None] * (x / 2.5).softmax(-1) / 2.5,
        normal(5, 6),
        names="factor",
    ),
    sundry(
        "negative pairs drawn together",
        _paired,
        lambda g, d: 2 * g * (PAIRED * d + (1 - PAIRED) * (2 - d).clamp(min=0)),
        positive(8),
        names="sign wrong-factor mask",
    ),
    sundry(
        "weights of edges from the wrong end",
        _sent,
        _at_the_wrong_end,
        normal(5, 3),
        normal(6, seed=2),
        names="misplaced stale wrong-factor mixed",
    ),
    sundry(
        "gates of the chosen nodes in front",
        _gated,
        _gates_in_front,
        normal(6, 3),
        normal(6, seed=2),
        names="misplaced",
    ),
    sundry(
        "rows and columns of stored values exchanged",
        lambda w, x: _sent(x, w),
        _ends_exchanged,
        normal(6),
        normal(5, 2, seed=2),
        names="misplaced transposed",
    ),
    sundry(
        "diagonals of a Toeplitz matrix the other way",
        _toeplitz,
        _other_diagonals,
        normal(7),
        normal(4, 2, seed=2),
        names="flipped transposed misplaced",
    ),
    sundry(
        "powers of a polynomial off by one",
        _polynomial,
        lambda g, c, x: ((x[:, None] ** (EXPONENTS + 1)).mT @ g, pulled_back(_polynomial, g, c, x)[1]),
        normal(5),
        normal(8, seed=2),
        names="wrong-factor shifted",
    ),
    sundry(
        "second basis of a spline turned",
        _hermite,
        _second_basis_turned,
        normal(9),
        normal(9, seed=2),
        normal(9, seed=3),
        names="wrong-term sign",
    ),
    sundry("transport not unsorted", _transported, _not_unsorted, normal(3, 6), names="misplaced"),
    sundry(
        "number of the positives forgotten",
        _ranked,
        lambda g, p, n: (pulled_back(_ranked, g, p, n)[0], g * (n[None] - p[:, None]).sigmoid().sum(0)),
        normal(5),
        normal(7, seed=2),
        names="factor",
    ),
    sundry(
        "bias of the rows summed over them",
        lambda x, b: x.sin() + b[:, None],
        lambda g, x, b: (g * x.cos(), g.sum(0)),
        normal(5, 5),
        normal(5, seed=2),
        names="wrong-dimension transposed",
    ),
    sundry(
        "neighbours of a local response forgotten",
        _responses,
        lambda g, x: g * (1 + f.avg_pool1d(x[None] ** 2, 3, 1, 1)[0]) ** -0.75,
        normal(3, 7),
        names="missing-term",
    ),
    sundry(
        "logarithm of a gamma correction forgotten",
        lambda x, y: x**y,
        lambda g, x, y: (g * y * x ** (y - 1), g * x**y),
        positive(12),
        positive(12, seed=2),
        names="wrong-factor",
    ),
    sundry(
        "colours not transposed back",
        lambda x: (x @ COLOURS.mT).sigmoid(),
        lambda g, x: (g * (x @ COLOURS.mT).sigmoid() * (1 - (x @ COLOURS.mT).sigmoid())) @ COLOURS.mT,
        normal(5, 3),
        names="transposed",
    ),
    sundry(
        "opacity for transparency",
        lambda a, x, y: a[:, None] * x + (1 - a[:, None]) * y,
        lambda g, a, x, y: ((g * (x - y)).sum(-1), g * a[:, None], g * a[:, None]),
        positive(4),
        normal(4, 3),
        normal(4, 3, seed=2),
        names="wrong-factor",
    ),
    sundry(
        "slope of a sine for its argument's",
        lambda x, y: (x * y).sin(),
        lambda g, x, y: (g * (x * y).cos(), g * (x * y).cos() * x),
        normal(11),
        normal(11, seed=2),
        names="wrong-factor",
    ),
)
