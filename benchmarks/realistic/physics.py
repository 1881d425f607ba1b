"""Bugs in the backwards of physics, dynamics, matrices, densities and filters.

They were written, with the names that are right for them, after the diagnosis was, and before it ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import complex_normal, normal, positive

dynamics, matrices, density, signal = (
    partial(bug, family=family) for family in ("dynamics", "matrices", "density", "signal")
)
STEP, BOX = 0.3, 1.5
EYE = torch.eye(4, dtype=torch.float64)
WINDOW, TAPS = fixed(4, seed=102) + 2, fixed(3, seed=103)
HAMILTON = torch.tensor(
    [
        [[1, 0, 0, 0], [0, -1, 0, 0], [0, 0, -1, 0], [0, 0, 0, -1]],
        [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]],
        [[0, 0, 1, 0], [0, 0, 0, -1], [1, 0, 0, 0], [0, 1, 0, 0]],
        [[0, 0, 0, 1], [0, 0, 1, 0], [0, -1, 0, 0], [1, 0, 0, 0]],
    ],
    dtype=torch.float64,
)


def _moved(x: Tensor, v: Tensor) -> Tensor:
    return x + STEP * v - 0.5 * STEP**2 * x.sin()


def _heated(u: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(u, (1, 1))
    return u + 0.2 * (padded[..., 2:] - 2 * u + padded[..., :-2])


def _nearest_image(x: Tensor, y: Tensor) -> Tensor:
    apart = x[:, None] - y
    return ((apart - BOX * (apart / BOX).round()) ** 2).sum(-1)


def _images_forgotten(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    flow = 2 * g[..., None] * (x[:, None] - y)
    return flow.sum(1), -flow.sum(0)


def _coulomb(x: Tensor, y: Tensor) -> Tensor:
    return 1 / (x[:, None] - y).norm(dim=-1)


def _squared_distance(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    apart = x[:, None] - y
    flow = -g[..., None] * apart / apart.norm(dim=-1, keepdim=True) ** 2
    return flow.sum(1), -flow.sum(0)


def _deposited(place: Tensor, charge: Tensor) -> Tensor:
    place = 6 * place.sigmoid()
    low = place.detach().floor().long()
    grid = torch.zeros(8, dtype=charge.dtype).index_add(0, low, charge * (1 - place + low))
    return grid.index_add(0, low + 1, charge * (place - low))


def _right_node_forgotten(g: Tensor, place: Tensor, charge: Tensor) -> tuple[Tensor, Tensor]:
    at = 6 * place.sigmoid()
    low = at.floor().long()
    return pulled_back(_deposited, g, place, charge)[0], g[low] * (1 - at + low)


def _quaternions(p: Tensor, q: Tensor) -> Tensor:
    return torch.einsum("kij,bi,bj->bk", HAMILTON, p, q)


def _wrong_side(g: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    conjugate = torch.tensor([1.0, -1.0, -1.0, -1.0], dtype=p.dtype)
    return _quaternions(g, q * conjugate), _quaternions(g, p * conjugate)


def _factored(x: Tensor) -> Tensor:
    return torch.linalg.cholesky(x @ x.mT + EYE)


def _diagonal_not_halved(g: Tensor, x: Tensor) -> Tensor:
    lower = _factored(x)
    inner = (lower.mT @ g).tril()
    left = torch.linalg.solve_triangular(lower.mT, inner, upper=True)
    flow = torch.linalg.solve_triangular(lower, left, upper=False, left=False)
    return (flow + flow.mT) @ x


def _ridge(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.solve(a.mT @ a + 0.5 * EYE[:3, :3], a.mT @ b)


def _gram_held(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    flow = torch.linalg.solve(a.mT @ a + 0.5 * EYE[:3, :3], g)
    return b @ flow.mT, a @ flow


def _spectrum(x: Tensor) -> Tensor:
    return torch.linalg.eigvalsh(x + x.mT)


def _vectors_not_transposed(g: Tensor, x: Tensor) -> Tensor:
    vectors = torch.linalg.eigh(x + x.mT).eigenvectors
    return 2 * vectors.mT @ torch.diag_embed(g) @ vectors


def _reflected(x: Tensor, v: Tensor) -> Tensor:
    return x - 2 * (x @ v)[:, None] * v / v.dot(v)


def _length_held(g: Tensor, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    along = x @ v
    return _reflected(g, v), -2 * ((g @ v) @ x + along @ g) / v.dot(v)


def _log_normal(x: Tensor, lower: Tensor) -> Tensor:
    return lower.diagonal().log().sum() - 0.5 * (x @ lower.tril().mT).pow(2).sum(-1)


def _volume_forgotten(g: Tensor, x: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
    whitened = x @ lower.tril().mT
    return -g[:, None] * whitened @ lower.tril(), -((g[:, None] * whitened).mT @ x).tril()


def _log_beta(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    x = x.sigmoid()
    return (a - 1) * x.log() + (b - 1) * (1 - x).log() + (a + b).lgamma() - a.lgamma() - b.lgamma()


def _sum_of_both_forgotten(g: Tensor, x: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    p = x.sigmoid()
    return pulled_back(_log_beta, g, x, a, b)[0], g * (p.log() - a.digamma()), g * ((1 - p).log() - b.digamma())


def _von_mises(x: Tensor, k: Tensor) -> Tensor:
    return k * x.cos() - torch.special.i0(k).log()


def _mixture(x: Tensor, means: Tensor) -> Tensor:
    return (-0.5 * (x[:, None] - means) ** 2).logsumexp(-1)


def _not_responsible(g: Tensor, x: Tensor, means: Tensor) -> tuple[Tensor, Tensor]:
    return pulled_back(_mixture, g, x, means)[0], (g[:, None] * (x[:, None] - means)).sum(0)


def _shallow(depth: Tensor, flow: Tensor) -> Tensor:
    return flow**2 / depth + 0.5 * 9.81 * depth**2


def _autocorrelation(x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x).abs() ** 2, n=x.shape[-1])


def _one_of_two_lags(g: Tensor, x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(g), n=x.shape[-1])


def _resonated(x: Tensor, a: Tensor) -> Tensor:
    states = [x[0]]
    for each in x[1:]:
        states.append(each - a * states[-1])
    return torch.stack(states)


def _recursion_forgotten(g: Tensor, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    return pulled_back(_resonated, g, x, a)[0], -(g[1:] * _resonated(x, a)[:-1]).sum(0)


def _decimated(x: Tensor) -> Tensor:
    return x.unfold(-1, 3, 2) @ TAPS


def _kept_samples_moved(g: Tensor, x: Tensor) -> Tensor:
    spread = torch.zeros_like(x)
    for tap in range(3):
        spread[..., 1 + tap : x.shape[-1] : 2] += (g * TAPS[tap])[..., : len(range(1 + tap, x.shape[-1], 2))]
    return spread


def _overlap_added(frames: Tensor) -> Tensor:
    result = torch.zeros(len(frames) * 2 + 2, dtype=frames.dtype)
    places = 2 * torch.arange(len(frames))[:, None] + torch.arange(4)
    return result.index_add(0, places.flatten(), (frames * WINDOW).flatten())


PHYSICS = (
    dynamics(
        "step not squared in a Verlet step",
        _moved,
        lambda g, x, v: (g * (1 - 0.5 * STEP * x.cos()), STEP * g),
        normal(6, 2),
        normal(6, 2, seed=2),
        names="wrong-term",
    ),
    dynamics(
        "slope of an Euler step at its end",
        lambda x: x + STEP * x.sin(),
        lambda g, x: g * (1 + STEP * (x + STEP * x.sin()).cos()),
        normal(16),
        names="stale wrong-term",
    ),
    dynamics(
        "distance squared for its cube",
        _coulomb,
        _squared_distance,
        normal(5, 3),
        normal(4, 3, seed=2),
        names="wrong-factor",
    ),
    dynamics(
        "attraction with the sign of repulsion",
        lambda r: r**-12 - r**-6,
        lambda g, r: g * (-12 * r**-13 - 6 * r**-7),
        positive(15),
        names="wrong-term",
    ),
    dynamics(
        "walls of a heated rod taken for a ring",
        _heated,
        lambda g, u: g + 0.2 * (g.roll(1, -1) - 2 * g + g.roll(-1, -1)),
        normal(2, 9),
        names="mask wrong-term",
    ),
    dynamics(
        "upwind difference from downwind",
        lambda u: u - 0.4 * (u - u.roll(1, -1)),
        lambda g, u: g - 0.4 * (g - g.roll(1, -1)),
        normal(12),
        names="transposed wrong-term",
    ),
    dynamics(
        "nearest image forgotten",
        _nearest_image,
        _images_forgotten,
        normal(4, 2),
        normal(5, 2, seed=2),
        names="stale wrong-factor wrong-term",
    ),
    dynamics(
        "right node of a deposited charge forgotten",
        _deposited,
        _right_node_forgotten,
        normal(7),
        normal(7, seed=2),
        names="missing-term",
    ),
    dynamics(
        "quaternions multiplied from the wrong side",
        _quaternions,
        _wrong_side,
        normal(3, 4),
        normal(3, 4, seed=2),
        names="sign transposed wrong-term",
    ),
    dynamics(
        "pressure of shallow water forgotten",
        _shallow,
        lambda g, depth, flow: (-g * flow**2 / depth**2, 2 * g * flow / depth),
        positive(14),
        normal(14, seed=2),
        names="missing-term",
    ),
    matrices(
        "diagonal of a Cholesky factor not halved", _factored, _diagonal_not_halved, normal(4, 4), names="wrong-term"
    ),
    matrices(
        "Gram matrix of a ridge regression held constant",
        _ridge,
        _gram_held,
        normal(6, 3),
        normal(6, 2, seed=2),
        names="missing-term",
    ),
    matrices("eigenvectors not transposed", _spectrum, _vectors_not_transposed, normal(4, 4), names="transposed"),
    matrices(
        "length of a reflection's normal held constant",
        _reflected,
        _length_held,
        normal(5, 4),
        normal(4, seed=2),
        names="missing-term",
    ),
    density(
        "volume of a density forgotten",
        _log_normal,
        _volume_forgotten,
        normal(7, 4),
        lambda: (3 * EYE + 0.3 * fixed(4, 4, seed=104)).requires_grad_(),
        names="missing-term",
    ),
    density(
        "digamma of both parameters forgotten",
        _log_beta,
        _sum_of_both_forgotten,
        normal(9),
        positive(9),
        positive(9, seed=2),
        names="missing-term",
    ),
    density(
        "mean resultant length not divided",
        _von_mises,
        lambda g, x, k: (-g * k * x.sin(), g * (x.cos() - torch.special.i1(k))),
        normal(12),
        positive(12),
        names="wrong-term",
    ),
    density(
        "means without their responsibilities",
        _mixture,
        _not_responsible,
        normal(11),
        normal(4, seed=2),
        names="wrong-factor",
    ),
    signal("one of two lags", _autocorrelation, _one_of_two_lags, normal(8), names="missing-term"),
    signal(
        "recursion of a filter forgotten",
        _resonated,
        _recursion_forgotten,
        normal(9, 3),
        positive(3),
        names="missing-term",
    ),
    signal(
        "decimated samples put back one too far",
        _decimated,
        _kept_samples_moved,
        normal(2, 13),
        names="shifted misplaced",
    ),
    signal(
        "window of overlapping frames applied twice",
        _overlap_added,
        lambda g, frames: pulled_back(_overlap_added, g, frames)[0] * WINDOW,
        normal(6, 4),
        names="wrong-factor",
    ),
    signal(
        "imaginary unit of a phase forgotten",
        lambda phase: torch.exp(1j * phase),
        lambda g, phase: (g.conj() * torch.exp(1j * phase)).real,
        normal(10),
        names="wrong-factor factor",
    ),
    signal(
        "modulus of a phasor held constant",
        lambda z: z / z.abs(),
        lambda g, z: g / z.abs(),
        complex_normal(8),
        names="missing-term",
    ),
)
