"""Bugs in the backwards of array operations: scatter, quantisation, einsum, sums, interpolation, FFT, linear algebra.

They were written, with the names that are right for them, before the diagnosis ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import complex_normal, normal, positive

scatter, quantisation, einsum, cumulative, interpolation, fourier, algebra = (
    partial(bug, family=family)
    for family in ("scatter", "quantisation", "einsum", "cumulative", "interpolation", "FFT", "linear algebra")
)
SEGMENTS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 1])
PICKED = torch.randint(0, 6, (6, 6), generator=torch.Generator().manual_seed(8))
TOKENS = torch.tensor([3, 0, 5, 1, 0, 3, 2, 0])
TRIPLE, KERNEL, MATRIX = fixed(5, 5, 3, seed=71), fixed(8, seed=72), fixed(6, 6, seed=73)


def _segment_means(x: Tensor) -> Tensor:
    counts = torch.bincount(SEGMENTS)[:, None]
    return torch.zeros(4, x.shape[1], dtype=x.dtype).index_add(0, SEGMENTS, x) / counts


def _gathered_wrongly(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_add(0, PICKED, g * x.gather(1, PICKED).cos())


def _embedded(table: Tensor) -> Tensor:
    return table[TOKENS] * (TOKENS != 0)[:, None]


def _segment_maxima(x: Tensor) -> Tensor:
    return torch.zeros(4, dtype=x.dtype).scatter_reduce(0, SEGMENTS, x, "amax", include_self=False)


def _stepped(x: Tensor, s: Tensor) -> Tensor:
    return (x / s).clamp(-1, 1) * s


def _step_never_masked(g: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return g * ((x / s).abs() < 1), g * (x / s).clamp(-1, 1)


def _slots(x: Tensor) -> Tensor:
    return torch.einsum("i,j,ijk->k", x, x, TRIPLE)


def _exclusive(x: Tensor) -> Tensor:
    return x.cumsum(-1) - x


def _log_sums_forward(g: Tensor, x: Tensor) -> Tensor:
    return x.exp() * (g * (-x.logcumsumexp(0)).exp()).cumsum(0)


def _between(x: Tensor, p: Tensor) -> Tensor:
    place = p * (len(x) - 1)
    low = place.floor().long()
    return x[low] * (1 - place + low) + x[low + 1] * (place - low)


def _size_forgotten(g: Tensor, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    low = (p * (len(x) - 1)).floor().long()
    return pulled_back(_between, g, x, p)[0], g * (x[low + 1] - x[low])


def _convolved(x: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(KERNEL), n=8)


def _in_the_triangle(lower: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.solve_triangular(lower.tril(), b, upper=False)


def _triangle_forgotten(g: Tensor, lower: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    flow = torch.linalg.solve_triangular(lower.tril().mT, g, upper=True)
    return -flow @ _in_the_triangle(lower, b).mT, flow


def _solved(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.solve(a, b)


def _sign_forgotten(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    flow = torch.linalg.solve(a.mT, g)
    return flow @ _solved(a, b).mT, flow


TRANSFORMS = (
    scatter(
        "means of segments not divided by their lengths",
        _segment_means,
        lambda g, _x: g[SEGMENTS],
        normal(12, 3),
        names="wrong-factor",
    ),
    scatter(
        "gathered along one dimension, put back along the other",
        lambda x: x.gather(1, PICKED).sin(),
        _gathered_wrongly,
        normal(6, 6),
        names="wrong-dimension misplaced",
    ),
    scatter(
        "padding's row trained",
        _embedded,
        lambda g, table: torch.zeros_like(table).index_add(0, TOKENS, g),
        normal(6, 4),
        names="mask",
    ),
    scatter(
        "maximum of a segment spread over the segment",
        _segment_maxima,
        lambda g, _x: g[SEGMENTS],
        normal(12),
        names="mask",
    ),
    quantisation("step's slope not masked", _stepped, _step_never_masked, normal(14), positive(14), names="mask"),
    quantisation(
        "scales of the rows taken for those of the columns",
        lambda q, s: q * s[:, None],
        lambda g, q, s: (g * s, (g * q).sum(1)),
        normal(5, 5),
        positive(5),
        names="wrong-factor wrong-dimension",
    ),
    quantisation(
        "logarithm of two forgotten",
        lambda x: torch.exp2(x),
        lambda g, x: g * torch.exp2(x),
        normal(30, 40),
        names="factor",
    ),
    einsum(
        "indices of a bilinear weight exchanged",
        lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y),
        lambda g, x, w, y: (
            torch.einsum("bo,oij,bj->bi", g, w, y),
            torch.einsum("bo,bi,bj->oji", g, x, y),
            torch.einsum("bo,oij,bi->bj", g, w, x),
        ),
        normal(3, 4),
        normal(2, 4, 4, seed=2),
        normal(3, 4, seed=3),
        names="transposed",
    ),
    einsum(
        "diagonal spread over the rows",
        lambda x: torch.einsum("bii->bi", x),
        lambda g, x: g[:, :, None].expand(x.shape).clone(),
        normal(2, 5, 5),
        names="mask",
    ),
    einsum(
        "first of two slots alone",
        _slots,
        lambda g, x: torch.einsum("k,j,ijk->i", g, x, TRIPLE),
        normal(5),
        names="missing-term",
    ),
    cumulative(
        "exclusive sum's gradient inclusive",
        _exclusive,
        lambda g, _x: g.flip(-1).cumsum(-1).flip(-1),
        normal(3, 9),
        names="shifted mask",
    ),
    cumulative(
        "running logsumexp in the forward's direction",
        lambda x: x.logcumsumexp(0),
        _log_sums_forward,
        normal(9),
        names="flipped mask",
    ),
    cumulative(
        "running maximum passed to its own place",
        lambda x: x.cummax(0).values,
        lambda g, _x: g.clone(),
        normal(20),
        names="pass-through misplaced",
    ),
    interpolation(
        "nearest neighbours: one of the copies",
        lambda x: x.repeat_interleave(2, -1).sin(),
        lambda g, x: (g * x.repeat_interleave(2, -1).cos())[..., ::2],
        normal(3, 7),
        names="missing-sum missing-term",
    ),
    interpolation(
        "size of the grid forgotten",
        lambda x, p: _between(x, p.sigmoid()),
        lambda g, x, p: (
            pulled_back(_between, g, x, p.sigmoid())[0],
            _size_forgotten(g, x, p.sigmoid())[1] * p.sigmoid() * (1 - p.sigmoid()),
        ),
        normal(9),
        normal(5, seed=2),
        names="factor",
    ),
    fourier(
        "half spectrum inverted as a whole one",
        lambda x: torch.fft.rfft(x),
        lambda g, x: torch.fft.irfft(g, n=8) * 8,
        normal(8),
        names="wrong-factor factor",
    ),
    fourier(
        "transformed forwards again",
        lambda z: torch.fft.fft(z),
        lambda g, z: torch.fft.fft(g),
        complex_normal(6),
        names="conjugate flipped transposed",
    ),
    fourier(
        "kernel's spectrum not conjugated",
        _convolved,
        lambda g, _x: _convolved(g),
        normal(8),
        names="transposed flipped conjugate",
    ),
    algebra(
        "minus of a solution forgotten", _solved, _sign_forgotten, normal(4, 4), normal(4, 2, seed=2), names="sign"
    ),
    algebra(
        "gradient of a triangle not masked",
        _in_the_triangle,
        _triangle_forgotten,
        lambda: (torch.eye(4) * 3 + fixed(4, 4, seed=74)).requires_grad_(),
        normal(4, 2, seed=2),
        names="mask",
    ),
    algebra(
        "quadratic form taken for a symmetric one",
        lambda x: torch.einsum("bi,ij,bj->b", x, MATRIX, x),
        lambda g, x: 2 * g[:, None] * (x @ MATRIX.T),
        normal(4, 6),
        names="missing-term transposed wrong-term",
    ),
    algebra(
        "determinant's own factor forgotten",
        lambda x: torch.linalg.det(x),
        lambda g, x: g[:, None, None] * torch.linalg.inv(x).mT,
        normal(3, 4, 4),
        names="wrong-factor",
    ),
)
