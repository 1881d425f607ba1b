"""Bugs of particles, filters, densities, prices, transport plans and cameras.

They were written, with the names that are right for them, before the diagnosis ran on them. The family is the kind of
mistake. A bug of the family "no pattern" has no right name.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, unrelated
from gradproof.gallery.specimen import complex_normal, normal, positive

FIRST = torch.tensor([0, 0, 1, 2, 3, 1])
SECOND = torch.tensor([1, 2, 3, 4, 4, 4])
ECHO = torch.fft.fft(fixed(8, seed=221))
TAPS = fixed(1, 1, 4, seed=222)
BANDS = fixed(6, 3, seed=223).abs()
YEARS = torch.arange(1, 6, dtype=torch.float64)
PAYMENTS = fixed(5, seed=224).abs() + 0.5
TARGET = fixed(6, seed=225)
COLOURS = fixed(5, seed=226)
CONDUCTIVITY = fixed(8, seed=227).exp()
POSE = torch.linalg.qr(fixed(3, 3, seed=228)).Q
FOCAL_LENGTH = 1.5
SPACING = 0.25
BARRIER = 1.8
DECAY = 0.7


def _pair_energies(p: Tensor) -> Tensor:
    return (1 + ((p[FIRST] - p[SECOND]) ** 2).sum(-1)) ** -3


def _force_without_reaction(g: Tensor, p: Tensor) -> Tensor:
    apart = p[FIRST] - p[SECOND]
    pull = -6 * (1 + (apart**2).sum(-1)) ** -4
    return torch.zeros_like(p).index_add(0, FIRST, (g * pull)[:, None] * apart)


def _nearest_image(d: Tensor, box: Tensor) -> Tensor:
    return 3 * d - box * (3 * d / box).round()


def _echoed(x: Tensor) -> Tensor:
    echoed: Tensor = torch.fft.ifft(torch.fft.fft(x) * ECHO)
    return echoed.real


def _leaky(x: Tensor) -> Tensor:
    levels = [x[:, 0]]
    for t in range(1, x.shape[1]):
        levels.append(x[:, t] + DECAY * levels[-1])
    return torch.stack(levels, 1)


def _covariance(x: Tensor) -> Tensor:
    centred = x - x.mean(0)
    return centred.mT @ centred / (len(x) - 1)


def _gram_one_sided(g: Tensor, x: Tensor) -> Tensor:
    return 2 * (g * (1 - (x @ x.mT).tanh() ** 2)) @ x


def _bell(x: Tensor) -> Tensor:
    return (-(x**2) / 2 - math.log(2 * math.pi) / 2).exp()


def _moneyness(s: Tensor, v: Tensor, t: Tensor) -> Tensor:
    return s.log() / (v * t.sqrt()) + v * t.sqrt() / 2


def _call(s: Tensor, v: Tensor, t: Tensor) -> Tensor:
    d = _moneyness(s, v, t)
    price: Tensor = s * torch.special.ndtr(d) - torch.special.ndtr(d - v * t.sqrt())
    return price


def _vega_without_time(g: Tensor, s: Tensor, v: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    d = _moneyness(s, v, t)
    return g * torch.special.ndtr(d), g * s * _bell(d), g * s * _bell(d) * v / (2 * t.sqrt())


def _returns_assigned(g: Tensor, p: Tensor) -> Tensor:
    slopes = torch.zeros_like(p)
    slopes[:-1] = -g / p[:-1]
    slopes[1:] = g / p[1:]
    return slopes


def _plan(cost: Tensor) -> Tensor:
    kernel = (-cost / 0.5).exp()
    left = right = torch.ones(len(cost), dtype=cost.dtype)
    for _ in range(3):
        left = 1 / (kernel @ right)
        right = 1 / (kernel.mT @ left)
    return left[:, None] * kernel * right


def _passing(alpha: Tensor) -> Tensor:
    """Return what is left of a ray before each sample."""
    return torch.cat([torch.ones_like(alpha[:, :1]), (1 - alpha).cumprod(-1)[:, :-1]], -1)


def _composite(x: Tensor) -> Tensor:
    return (_passing(x.sigmoid()) * x.sigmoid() * COLOURS).sum(-1)


def _composite_behind_itself(g: Tensor, x: Tensor) -> Tensor:
    alpha = x.sigmoid()
    shares = _passing(alpha) * alpha * COLOURS
    behind = shares.flip(-1).cumsum(-1).flip(-1)
    return g[:, None] * (_passing(alpha) * COLOURS - behind / (1 - alpha)) * alpha * (1 - alpha)


def _conducted(u: Tensor, conductivity: Tensor) -> Tensor:
    flux = conductivity * (u.roll(-1) - u)
    return flux - flux.roll(1)


def _advected(c: Tensor, v: Tensor) -> Tensor:
    return -v * (c - c.roll(1)) / SPACING


def _advected_without_spacing(g: Tensor, c: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    h = g * v / SPACING
    return h.roll(-1) - h, -g * (c - c.roll(1))


def _rate(a: Tensor, t: Tensor) -> Tensor:
    return a * (-BARRIER / t).exp()


SCIENCE = (
    bug(
        "reaction on the second particle",
        _pair_energies,
        _force_without_reaction,
        normal(5, 3),
        names="missing-term",
        family="missing term",
    ),
    bug(
        "length of a periodic box detached",
        lambda d, box: _nearest_image(d, box).sin(),
        lambda g, d, box: (3 * g * _nearest_image(d, box).cos(), torch.zeros_like(box)),
        normal(7, 3),
        positive(3),
        names="detached missing-term",
        family="detached",
    ),
    bug(
        "spectrum of an echo not conjugated",
        _echoed,
        lambda g, x: _echoed(g),
        normal(2, 8),
        names="conjugate flipped transposed",
        family="conjugate",
    ),
    bug(
        "decibels by the natural logarithm",
        lambda z: 10 * (z.real**2 + z.imag**2).log10(),
        lambda g, z: 20 * g * z / (z.real**2 + z.imag**2),
        complex_normal(7),
        names="factor",
        family="scale",
    ),
    bug(
        "gain of an antenna not conjugated",
        lambda z, w: z * w,
        lambda g, z, w: (g * w, (g * z.conj()).sum(0)),
        complex_normal(4, 3),
        complex_normal(3, seed=2),
        names="conjugate",
        family="conjugate",
    ),
    bug(
        "leaky integrator run forwards again",
        lambda x: _leaky(x.sin()),
        lambda g, x: _leaky(g) * x.cos(),
        normal(2, 6),
        names="flipped transposed",
        family="index map",
    ),
    bug(
        "decimation late by one sample",
        lambda x: f.conv1d(x, TAPS, stride=2),
        lambda g, x: f.conv_transpose1d(g, TAPS, stride=2).roll(1, -1),
        normal(2, 1, 10),
        names="shifted misplaced",
        family="off by one",
    ),
    bug(
        "power of a bin for that of its band",
        lambda p: (p @ BANDS).log(),
        lambda g, p: (g @ BANDS.mT) / p,
        positive(2, 6),
        names="wrong-factor stale",
        family="saved tensor",
    ),
    bug(
        "sum of the shapes of a beta density",
        lambda a, b: a.lgamma() + b.lgamma() - (a + b).lgamma(),
        lambda g, a, b: (g * a.digamma(), g * (b.digamma() - (a + b).digamma())),
        positive(9),
        positive(9, seed=2),
        names="missing-term",
        family="missing term",
    ),
    bug(
        "degrees of freedom of a covariance",
        _covariance,
        lambda g, x: (x - x.mean(0)) @ (g + g.mT) / len(x),
        normal(5, 3),
        names="factor",
        family="off by one",
    ),
    bug(
        "incoming gradient of a kernel matrix taken as symmetric",
        lambda x: (x @ x.mT).tanh(),
        _gram_one_sided,
        normal(4, 3),
        names="transposed wrong-term",
        family="chain rule",
    ),
    bug(
        "vega without the root of time",
        _call,
        _vega_without_time,
        positive(8),
        positive(8, seed=2),
        positive(8, seed=3),
        names="wrong-factor",
        family="chain rule",
    ),
    bug(
        "bonds that gain by higher rates",
        lambda r: (PAYMENTS * (-r * YEARS).exp()).sum(-1),
        lambda g, r: g[:, None] * PAYMENTS * YEARS * (-r * YEARS).exp(),
        positive(3, 5),
        names="sign",
        family="sign",
    ),
    bug(
        "returns of a price assigned",
        lambda p: (p[1:] / p[:-1]).log(),
        _returns_assigned,
        positive(9),
        names="overwritten missing-term",
        family="accumulation",
    ),
    bug(
        "plan of a transport held constant",
        lambda cost: (_plan(cost) * cost).sum(-1),
        lambda g, cost: g[:, None] * _plan(cost),
        positive(4, 4),
        names="missing-term detached approximation",
        family="detached",
    ),
    bug(
        "order of the target for that of the sample",
        lambda x: (x.sort().values - TARGET.sort().values) ** 2,
        lambda g, x: torch.zeros_like(x).index_put(
            (TARGET.argsort(),), 2 * g * (x.sort().values - TARGET.sort().values)
        ),
        normal(6),
        names="misplaced",
        family="index map",
    ),
    bug(
        "sample of a ray behind itself",
        _composite,
        _composite_behind_itself,
        normal(3, 5),
        names="wrong-term",
        family="off by one",
    ),
    bug(
        "depth of a projection not squared",
        lambda p, z: FOCAL_LENGTH * p / z,
        lambda g, p, z: (FOCAL_LENGTH * g / z, -(FOCAL_LENGTH * g * p / z).sum(-1, keepdim=True)),
        normal(6, 2),
        positive(6, 1),
        names="wrong-factor",
        family="power",
    ),
    bug(
        "conductivity of the face before",
        lambda u: _conducted(u, CONDUCTIVITY),
        lambda g, u: _conducted(g, CONDUCTIVITY.roll(1)),
        normal(8),
        names="shifted wrong-factor wrong-term",
        family="off by one",
    ),
    bug(
        "spacing of a grid forgotten for the velocity",
        _advected,
        _advected_without_spacing,
        normal(8),
        positive(8),
        names="factor",
        family="scale",
    ),
    bug(
        "camera turned on instead of back",
        lambda p: (p @ POSE.mT).tanh(),
        lambda g, p: (g * (1 - (p @ POSE.mT).tanh() ** 2)) @ POSE.mT,
        normal(5, 3),
        names="transposed",
        family="index map",
    ),
    bug(
        "rate falls with temperature and its power",
        _rate,
        lambda g, a, t: (g * _rate(a, t) / a, -g * _rate(a, t) * BARRIER / t),
        positive(9),
        positive(9, seed=2),
        names="wrong-factor sign",
        family="two mistakes",
    ),
    bug(
        "sensitivities of another circuit",
        lambda x: x.sin() + 0.3 * x.roll(1) ** 2,
        lambda g, x: unrelated(g, x, seed=231),
        normal(11),
        names="",
        family="no pattern",
    ),
)
