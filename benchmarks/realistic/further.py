"""Bugs of policies, densities, filters, graphs and flows, written after the diagnosis had been widened once more.

They were written, with the names that are right for them, before the diagnosis ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import complex_normal, normal, positive

further = partial(bug, family="further")
MEAN, SPREAD = fixed(4, seed=131), fixed(4, seed=132).abs() + 0.5
LABELS = torch.tensor([0, 2, 1, 1, 3, 0])
BANK, LENGTHS = fixed(4, 6, seed=133).abs(), torch.tensor([0.1, 0.3, 0.2, 0.5, 0.4], dtype=torch.float64)
COUNTS = torch.tensor([3.0, 0.0, 1.0, 5.0, 2.0, 1.0, 4.0, 0.0, 2.0], dtype=torch.float64)
SOURCES, TARGETS = torch.tensor([0, 1, 1, 2, 3, 3, 4, 0, 2]), torch.tensor([1, 0, 2, 3, 1, 4, 3, 4, 4])
LEAVING, ARRIVING = torch.bincount(SOURCES, minlength=5).double(), torch.bincount(TARGETS, minlength=5).double()
PLACES = torch.tensor([0.3, 1.6, 1.9, 3.2, 4.7, 0.8], dtype=torch.float64)
LOW = PLACES.long()


def _evaluated(x: Tensor, gain: Tensor) -> Tensor:
    return (x - MEAN) / SPREAD * gain


def _as_in_training(g: Tensor, x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    y = (x - MEAN) / SPREAD
    flow = g * gain
    return (flow - flow.mean(0) - y * (flow * y).mean(0)) / SPREAD, (g * y).sum(0)


def _heads_joined(x: Tensor, w: Tensor) -> Tensor:
    return x.flatten(1) @ w


def _heads_exchanged(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    return (g @ w.mT).reshape(x.shape), x.mT.flatten(1).mT @ g


def _squashed(x: Tensor) -> Tensor:
    return -0.5 * x * x - (1 - x.tanh() ** 2).log()


def _discounted(x: Tensor) -> Tensor:
    states = [x[-1]]
    for each in x.flip(0)[1:]:
        states.append(each + 0.9 * states[-1])
    return torch.stack(states[::-1])


def _backwards_again(g: Tensor, _x: Tensor) -> Tensor:
    return _discounted(g)


def _rescaled(x: Tensor) -> Tensor:
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + 0.1 * x


def _balanced(x: Tensor) -> Tensor:
    rows = x / x.sum(1, keepdim=True)
    return rows / rows.sum(0)


def _columns_held(g: Tensor, x: Tensor) -> Tensor:
    whole = (x / x.sum(1, keepdim=True)).sum(0)
    return pulled_back(lambda t: t / t.sum(1, keepdim=True) / whole, g, x)[0]


def _haar(x: Tensor) -> Tensor:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a + b, a - b], -2) / 2**0.5


def _advected(u: Tensor) -> Tensor:
    return u * (u.roll(-1, -1) - u.roll(1, -1)) / 2


def _student(x: Tensor, s: Tensor) -> Tensor:
    return -s.log() - 2.5 * (1 + (x / s) ** 2 / 4).log()


def _negative_binomial(r: Tensor, p: Tensor) -> Tensor:
    q = p.sigmoid()
    return (COUNTS + r).lgamma() - r.lgamma() + r * (1 - q).log() + COUNTS * q.log()


def _entropy(x: Tensor) -> Tensor:
    return -x * x.log() - (1 - x) * (1 - x).log()


def _averaged(x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, TARGETS, x[SOURCES].tanh()) / ARRIVING[:, None]


def _by_the_other_degree(g: Tensor, x: Tensor) -> Tensor:
    messages = g[TARGETS] / (1 + LEAVING)[TARGETS, None]
    return torch.zeros_like(x).index_add(0, SOURCES, messages * (1 - x[SOURCES].tanh() ** 2))


def _joined(x: Tensor) -> Tensor:
    return torch.cat([x.sin(), torch.zeros_like(x).index_add(0, TARGETS, x[SOURCES])], -1)


def _parts_exchanged(g: Tensor, x: Tensor) -> Tensor:
    neighbours, own = g.chunk(2, -1)
    return own * x.cos() + torch.zeros_like(x).index_add(0, SOURCES, neighbours[TARGETS])


def _both_ways(x: Tensor) -> Tensor:
    y = x**2
    return torch.zeros_like(x).index_add(0, TARGETS, y[SOURCES]).index_add(0, SOURCES, y[TARGETS])


def _resampled(x: Tensor) -> Tensor:
    part = PLACES - LOW
    return x.cos()[..., LOW] * (1 - part) + x.cos()[..., LOW + 1] * part


def _left_alone(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(-1, LOW, g * (1 - PLACES + LOW)) * -x.sin()


def _with_a_sink(x: Tensor) -> Tensor:
    return x.exp() / (1 + x.exp().sum(-1, keepdim=True))


def _as_without(g: Tensor, x: Tensor) -> Tensor:
    y = _with_a_sink(x)
    return y * (g - (g * y).sum(-1, keepdim=True) / y.sum(-1, keepdim=True))


FURTHER = (
    further(
        "batch norm of evaluation corrected as in training",
        _evaluated,
        _as_in_training,
        normal(6, 4),
        positive(4),
        names="wrong-term",
    ),
    further(
        "heads and their entries exchanged",
        _heads_joined,
        _heads_exchanged,
        normal(4, 2, 3),
        normal(6, 3, seed=2),
        names="misplaced transposed",
    ),
    further(
        "labels off by one",
        lambda x: f.cross_entropy(x, LABELS, reduction="none"),
        lambda g, x: g[:, None] * (x.softmax(-1) - f.one_hot((LABELS + 1) % 4, 4)),
        normal(6, 4),
        names="wrong-term misplaced shifted",
    ),
    further("squashing of an action forgotten", _squashed, lambda g, x: -g * x, normal(14), names="missing-term"),
    further(
        "clipped ratios not masked",
        lambda x: x.exp().clamp(0.6, 1.6),
        lambda g, x: g * x.exp(),
        normal(17),
        names="mask",
    ),
    further(
        "returns discounted backwards again", _discounted, _backwards_again, normal(8), names="flipped transposed mask"
    ),
    further(
        "linear part of a rescaling forgotten",
        _rescaled,
        lambda g, x: g * 0.5 / (x.abs() + 1).sqrt(),
        normal(15),
        names="missing-term",
    ),
    further(
        "sums of the columns held constant", _balanced, _columns_held, positive(4, 3), names="missing-term wrong-term"
    ),
    further(
        "sign of a wavelet's detail",
        _haar,
        lambda g, x: torch.stack([g[..., 0, :] + g[..., 1, :], g[..., 0, :] + g[..., 1, :]], -1).flatten(-2) / 2**0.5,
        normal(3, 8),
        names="sign wrong-term",
    ),
    further(
        "energies of a filter bank under a logarithm",
        lambda x: (x @ BANK.mT).log(),
        lambda g, x: g @ BANK,
        positive(3, 6),
        names="wrong-factor",
    ),
    further(
        "lengths along a ray forgotten",
        lambda s: (-s.exp() * LENGTHS).exp(),
        lambda g, s: -g * s.exp() * (-s.exp() * LENGTHS).exp(),
        normal(4, 5),
        names="wrong-factor",
    ),
    further(
        "advected quantity held constant",
        _advected,
        lambda g, u: (u.roll(1, -1) * g.roll(1, -1) - u.roll(-1, -1) * g.roll(-1, -1)) / 2,
        normal(11),
        names="missing-term",
    ),
    further(
        "scale's logarithm forgotten",
        _student,
        lambda g, x, s: (pulled_back(_student, g, x, s)[0], g * 5 * x**2 / (4 * s**3 + s * x**2)),
        normal(12),
        positive(12),
        names="missing-term",
    ),
    further(
        "counts under a gamma function forgotten",
        _negative_binomial,
        lambda g, r, p: (g * ((1 - p.sigmoid()).log() - r.digamma()), pulled_back(_negative_binomial, g, r, p)[1]),
        positive(9),
        normal(9),
        names="missing-term",
    ),
    further(
        "complement's half of an entropy forgotten",
        lambda x: _entropy(x.sigmoid()),
        lambda g, x: -g * (x.sigmoid().log() + 1) * x.sigmoid() * (1 - x.sigmoid()),
        normal(13),
        names="missing-term",
    ),
    further(
        "inner slope of a soft rounding forgotten",
        lambda x: x - (6 * x).sin() / 6,
        lambda g, x: g * (1 - (6 * x).cos() / 6),
        normal(15),
        names="wrong-term",
    ),
    further("mean by the degree of the other end", _averaged, _by_the_other_degree, normal(5, 3), names="wrong-factor"),
    further(
        "own and neighbours' halves exchanged", _joined, _parts_exchanged, normal(5, 3), names="mixed misplaced shifted"
    ),
    further(
        "another slope below zero",
        lambda x: f.leaky_relu(x, 0.2),
        lambda g, x: g * torch.where(x > 0, 1.0, 0.01),
        normal(18),
        names="factor mask wrong-factor",
    ),
    further(
        "edges in one direction alone",
        _both_ways,
        lambda g, x: 2 * x * torch.zeros_like(x).index_add(0, SOURCES, g[TARGETS]),
        normal(5, 3),
        names="missing-term",
    ),
    further(
        "imaginary part of a magnitude forgotten",
        lambda x: torch.fft.fft(x).abs(),
        lambda g, x: torch.fft.ifft(g * torch.fft.fft(x).real / torch.fft.fft(x).abs()).real * x.shape[-1],
        normal(7),
        names="missing-term",
    ),
    further(
        "weights of residuals not squared",
        lambda x, w: 0.5 * (w * x.sinh()) ** 2,
        lambda g, x, w: (g * w * x.sinh() * x.cosh(), g * w * x.sinh() ** 2),
        normal(14),
        positive(14),
        names="wrong-factor",
    ),
    further("right neighbour of a resampling forgotten", _resampled, _left_alone, normal(2, 6), names="missing-term"),
    further("sink of a softmax forgotten", _with_a_sink, _as_without, normal(4, 5), names="wrong-term"),
    further(
        "modulation of a carrier not conjugated",
        lambda z, w: (z * w).sum(-1),
        lambda g, z, w: (g[:, None] * w.conj(), g[:, None] * z),
        complex_normal(5, 3),
        complex_normal(5, 3, seed=2),
        names="conjugate",
    ),
)
