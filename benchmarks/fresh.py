"""Planted bugs by hand that nothing was changed for: written after the diagnosis, and run against it as it was."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as f

from gradproof.gallery.specimen import Specimen, complex_normal, indices, normal, positive, specimen

D = torch.float64
KERNEL = torch.randn(2, 3, 3, dtype=D, generator=torch.Generator().manual_seed(8))
MIX = torch.randn(6, 6, dtype=D, generator=torch.Generator().manual_seed(9))
SEGMENTS = torch.tensor([0, 0, 1, 2, 2, 2, 3, 3])


def _autograd(function: object, g: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        value = function(*leaves)  # type: ignore[operator]  # a function or a Function
    return torch.autograd.grad(value, leaves, g)


def _attention(q: Tensor, k: Tensor) -> Tensor:
    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1)


def _attention_no_scale(g: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    dq, dk = _autograd(_attention, g, q, k)
    return dq * math.sqrt(q.shape[-1]), dk


def _conv(x: Tensor) -> Tensor:
    return f.conv1d(x, KERNEL)


def _conv_first_channel(g: Tensor, x: Tensor) -> Tensor:
    (full,) = _autograd(_conv, g, x)
    result = torch.zeros_like(full)
    result[:, 0] = full[:, 0]
    return result


def _segment_sum(x: Tensor) -> Tensor:
    return torch.zeros(4, x.shape[1], dtype=x.dtype).index_add(0, SEGMENTS, x * x)


def _taken(x: Tensor, rows: Tensor) -> Tensor:
    return x[rows].exp()


def _taken_assigned(g: Tensor, x: Tensor, rows: Tensor) -> tuple[Tensor, None]:
    result = torch.zeros_like(x)
    for place, row in enumerate(rows.tolist()):
        result[row] = g[place] * x[row].exp()
    return result, None


def _pairwise(a: Tensor, b: Tensor) -> Tensor:
    return ((a[:, None] - b[None]) ** 2).sum(-1)


def _determinant(a: Tensor) -> Tensor:
    return torch.linalg.det(a)


def _l1_smooth(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 1, 0.5 * x * x, x.abs() - 0.5)


def _cross_entropy(x: Tensor) -> Tensor:
    return -torch.log_softmax(x, -1)[:, 0].mean()


def _matrix() -> Tensor:
    return (torch.eye(4, dtype=D) * 2 + normal(4, 4, seed=3)().detach() / 2).requires_grad_()


def _upsampled_last(g: Tensor, x: Tensor) -> Tensor:
    return g.reshape(*x.shape, 3)[..., -1] * x.cos()


FRESH: tuple[Specimen, ...] = (
    specimen(
        "attention-scale",
        "1/√d is missing for the queries",
        _attention,
        _attention_no_scale,
        normal(3, 5),
        normal(4, 5, seed=2),
        diagnosis="factor",
    ),
    specimen(
        "conv-one-channel",
        "The gradient of the first channel alone",
        _conv,
        _conv_first_channel,
        normal(2, 3, 7),
        diagnosis="block",
    ),
    specimen(
        "segment-sum-two",
        "The 2 of a square in a segment sum",
        _segment_sum,
        lambda g, x: g[SEGMENTS] * x,
        normal(8, 3),
        diagnosis="factor",
    ),
    specimen(
        "messages-assigned",
        "Rows without duplicates are right: the scatter assigns",
        _taken,
        _taken_assigned,
        normal(6, 2),
        indices(1, 1, 0, 5, 4, 4, 4),
        diagnosis="overwritten",
    ),
    specimen(
        "pairwise-sign",
        "The second of two points has the first's sign",
        _pairwise,
        lambda g, a, b: (_autograd(_pairwise, g, a, b)[0], -_autograd(_pairwise, g, a, b)[1]),
        normal(3, 2),
        normal(4, 2, seed=2),
        diagnosis="sign",
    ),
    specimen(
        "determinant-not-transposed",
        "A determinant with the inverse in place of its transpose",
        _determinant,
        lambda g, a: g * torch.linalg.det(a) * torch.linalg.inv(a),
        _matrix,
        diagnosis="transposed",
    ),
    specimen(
        "smooth-l1-outside",
        "A smooth L1 whose linear part is differentiated as a square",
        _l1_smooth,
        lambda g, x: g * x,
        normal(4, 5, seed=6),
        diagnosis="mask",
    ),
    specimen(
        "cross-entropy-sum",
        "A mean over the batch forgotten in the backward",
        _cross_entropy,
        lambda g, x: 5 * _autograd(_cross_entropy, g, x)[0],
        normal(5, 4),
        diagnosis="factor",
    ),
    specimen(
        "upsampling-last",
        "Of three copies the last one's gradient",
        lambda x: x.sin().repeat_interleave(3, -1),
        _upsampled_last,
        normal(2, 5),
        diagnosis="overwritten",
    ),
    specimen(
        "exp-twice",
        "A factor of exp that depends on x is held constant",
        lambda x: x.exp() * x.cos(),
        lambda g, x: -g * x.exp() * x.sin(),
        normal(9),
        diagnosis="missing-term",
    ),
    specimen(
        "swish-beta",
        "x·sigmoid(2x) with the other factor's term only",
        lambda x: x * (2 * x).sigmoid(),
        lambda g, x: g * x * 2 * (2 * x).sigmoid() * (1 - (2 * x).sigmoid()),
        normal(3, 3),
        diagnosis="missing-term",
    ),
    specimen(
        "whitened",
        "A standardisation with its deviation held constant",
        lambda x: (x - x.mean()) / x.std(),
        lambda g, x: (g - g.mean()) / x.std(),
        normal(8),
        diagnosis="missing-term",
    ),
    specimen(
        "skip-lost",
        "A block's connection around it is lost",
        lambda x: x + (x @ MIX).tanh(),
        lambda g, x: (g * (1 - (x @ MIX).tanh() ** 2)) @ MIX.T,
        normal(2, 6),
        diagnosis="missing-term",
    ),
    specimen(
        "covariance-one-side",
        "XᵀX with one of its two terms",
        lambda x: x.T @ x / len(x),
        lambda g, x: x @ g / len(x),
        normal(5, 3),
        diagnosis="missing-term",
    ),
    specimen(
        "mixing-not-transposed",
        "A mixing matrix that is not transposed",
        lambda x: (x @ MIX).sin(),
        lambda g, x: (g * (x @ MIX).cos()) @ MIX,
        normal(3, 6),
        diagnosis="transposed",
    ),
    specimen(
        "rotate-quarter",
        "A rotation by a quarter undone by the same rotation",
        lambda x: torch.rot90(x, 1).exp(),
        lambda g, x: torch.rot90(g * torch.rot90(x, 1).exp(), 1),
        normal(4, 4),
        diagnosis="flipped",
    ),
    specimen(
        "permuted-batch",
        "Batch and time exchanged on the way back",
        lambda x: x.transpose(0, 1).tanh(),
        lambda g, x: (g * (1 - x.transpose(0, 1).tanh() ** 2)).reshape(x.shape),
        normal(3, 5, 2),
        diagnosis="transposed",
    ),
    specimen(
        "complex-power",
        "A complex square without a conjugate",
        lambda z: z * z,
        lambda g, z: 2 * g * z,
        complex_normal(3, 3),
        diagnosis="conjugate",
    ),
    specimen(
        "complex-log",
        "A complex logarithm without a conjugate",
        lambda z: z.log(),
        lambda g, z: g / z,
        complex_normal(7),
        diagnosis="conjugate",
    ),
    specimen(
        "phase",
        "A modulus whose gradient is conjugated",
        lambda z: z.abs(),
        lambda g, z: g * z.conj() / z.abs(),
        complex_normal(5),
        diagnosis="conjugate",
    ),
    specimen(
        "complex-gram",
        "A complex product with both conjugates left out",
        lambda z: z @ (MIX[:3, :3] + 1j * MIX[3:, 3:]),
        lambda g, z: g @ (MIX[:3, :3] + 1j * MIX[3:, 3:]).T,
        complex_normal(2, 3),
        diagnosis="conjugate",
    ),
    specimen(
        "real-part-only",
        "A complex gradient that is cast to real",
        lambda z: (z * z).real + z.imag,
        lambda g, z: (2 * g * z.real).to(z.dtype),
        complex_normal(6),
        diagnosis="block",
    ),
    specimen(
        "gain-first-row",
        "A gain that sees the first row of the batch",
        lambda x, w: (x * w).sin(),
        lambda g, x, w: (g * (x * w).cos() * w, (g * (x * w).cos() * x)[0]),
        normal(6, 4),
        normal(4, seed=2),
        diagnosis="missing-sum",
    ),
    specimen(
        "channel-bias-last",
        "A bias of each channel that sees the last pixel",
        lambda x, b: (x + b[:, None]).exp(),
        lambda g, x, b: (g * (x + b[:, None]).exp(), (g * (x + b[:, None]).exp())[0, :, -1]),
        normal(1, 3, 5),
        normal(3, seed=2),
        diagnosis="missing-sum",
    ),
    specimen(
        "bias-over-all",
        "A bias summed over everything",
        lambda x, b: x.tanh() + b * 2,
        lambda g, x, b: (g * (1 - x.tanh() ** 2), (2 * g).sum().expand(5)),
        normal(3, 5),
        normal(5, seed=2),
        diagnosis="doubled-sum",
    ),
    specimen(
        "unit-incoming",
        "A root whose backward assumes ones",
        lambda x: x.sqrt(),
        lambda g, x: 0.5 / x.sqrt(),
        positive(2, 5),
        diagnosis="incoming-ignored",
    ),
    specimen(
        "loss-as-root",
        "A norm that is taken for the end of the graph",
        lambda x: x.norm(),
        lambda g, x: x / x.norm(),
        normal(7),
        diagnosis="incoming-ignored",
    ),
    specimen(
        "identity-for-round",
        "Quantisation of a smooth kind, passed through",
        lambda x: x - 0.1 * (6 * x).sin(),
        lambda g, x: g.clone(),
        normal(5, 2),
        diagnosis="pass-through",
    ),
    specimen(
        "average-pool-offset",
        "A pooling whose windows are off by one",
        lambda x: (x[:-1] + x[1:]) / 2,
        lambda g, x: torch.cat([torch.zeros(1, dtype=D), _pool_back(g)])[:-1],
        normal(8),
        diagnosis="shifted",
    ),
    specimen(
        "cumulative-rows",
        "A running sum over rows that leaves out its own row",
        lambda x: x.exp().cumsum(0),
        lambda g, x: (g.flip(0).cumsum(0).flip(0) - g) * x.exp(),
        normal(6, 3),
        diagnosis="shifted",
    ),
    specimen(
        "delay",
        "A delay line that is one too long",
        lambda x: x.tanh(),
        lambda g, x: g.roll(1, -1) * (1 - x.tanh() ** 2),
        normal(2, 9),
        diagnosis="shifted",
    ),
    specimen(
        "chunks-first",
        "The first half of a batch",
        lambda x: x.sigmoid(),
        lambda g, x: torch.cat([(g * x.sigmoid() * (1 - x.sigmoid()))[:4], torch.zeros(4, 2, dtype=D)]),
        normal(8, 2),
        diagnosis="block",
    ),
    specimen(
        "last-token",
        "The last token alone is trained",
        lambda x: x.softmax(-1).log(),
        lambda g, x: _last_token(g, x),
        normal(2, 5, 4),
        diagnosis="block",
    ),
    specimen(
        "temperature-detached",
        "A temperature that is not learnt",
        lambda x, t: (x * t.exp()).tanh(),
        lambda g, x, t: (g * (1 - (x * t.exp()).tanh() ** 2) * t.exp(), torch.zeros_like(t)),
        normal(4, 3),
        normal(3, seed=2),
        diagnosis="detached",
    ),
    specimen(
        "selu-mask",
        "A softplus masked as a relu",
        lambda x: f.softplus(x),
        lambda g, x: g * x.sigmoid() * (x > 0),
        normal(5, 5),
        diagnosis="mask",
    ),
    specimen(
        "hard-sigmoid",
        "A hard sigmoid without its bounds",
        lambda x: (2 * x + 0.5).clamp(0, 1),
        lambda g, x: 2 * g,
        normal(18),
        diagnosis="mask",
    ),
    specimen(
        "gain-and-bias",
        "Two gradients in the wrong order",
        lambda x, w, b: x * w + b.sin(),
        lambda g, x, w, b: (g * w, (g * b.cos()).sum(0), (g * x).sum(0)),
        normal(4, 3),
        normal(3, seed=2),
        normal(3, seed=4),
        diagnosis="mixed",
    ),
    specimen(
        "min-max",
        "Two results whose incoming gradients are exchanged",
        lambda x: (x.exp(), (x * x).cumsum(0)),
        lambda g, x: _autograd(lambda t: t.exp(), g[1], x)[0] + _autograd(lambda t: (t * t).cumsum(0), g[0], x)[0],
        normal(6),
        diagnosis="mixed",
    ),
    specimen(
        "stale-normalised",
        "Saved after it was negated in place",
        lambda x: x.exp() + x * x,
        lambda g, x: g * ((-x).exp() - 2 * x),
        normal(3, 4),
        diagnosis="stale",
    ),
    specimen(
        "stale-output",
        "Differentiated at the value",
        lambda x: x.atan(),
        lambda g, x: g / (1 + x.atan() ** 2),
        normal(6),
        diagnosis="stale",
    ),
    specimen(
        "eps-under-root",
        "An eps that the backward leaves out",
        lambda x: (x * x + 0.02).sqrt(),
        lambda g, x: g * x / (x * x + 0.019).sqrt(),
        positive(3, 4),
        diagnosis="approximation",
    ),
    specimen(
        "few-digits",
        "A normal density with a cubed term cut off",
        lambda x: torch.erf(x),
        lambda g, x: g * 1.1283791 * (-x * x).exp() * (1 + 1e-4 * x),
        normal(10),
        diagnosis="approximation",
    ),
    specimen(
        "half-precision",
        "A backward in half precision",
        lambda x: x.tanh(),
        lambda g, x: (g.half() * (1 - x.half().tanh() ** 2)).to(x.dtype),
        normal(4, 6),
        diagnosis="approximation",
    ),
    specimen(
        "wide-factor",
        "A factor 2 at a larger size",
        lambda x: (x @ x.T).exp().log1p(),
        lambda g, x: 2 * _autograd(lambda t: (t @ t.T).exp().log1p(), g, x)[0],
        normal(30, 20),
        diagnosis="factor",
    ),
    specimen(
        "wide-softmax",
        "A softmax at a larger size without its sum",
        lambda x: x.softmax(-1),
        lambda g, x: g * x.softmax(-1),
        normal(20, 40),
        diagnosis="missing-term",
    ),
    specimen(
        "wide-embedding",
        "A larger embedding that assigns",
        _taken,
        _taken_assigned,
        normal(200, 6),
        lambda: torch.randint(0, 200, (150,), generator=torch.Generator().manual_seed(2)),
        diagnosis="overwritten",
    ),
    specimen(
        "hash",
        "Another function's gradient altogether",
        lambda x: x.sinh(),
        lambda g, x: g * (x + 0.3) ** 2,
        normal(4, 4),
        diagnosis="",
    ),
    specimen(
        "sparse-noise",
        "A few wrong entries",
        lambda x: x.cosh(),
        lambda g, x: g * x.sinh() * _noise(x),
        normal(40),
        diagnosis="",
    ),
)


def _pool_back(g: Tensor) -> Tensor:
    zero = torch.zeros(1, dtype=g.dtype)
    return (torch.cat([g, zero]) + torch.cat([zero, g])) / 2


def _last_token(g: Tensor, x: Tensor) -> Tensor:
    (full,) = _autograd(lambda t: t.softmax(-1).log(), g, x)
    result = torch.zeros_like(full)
    result[:, -1] = full[:, -1]
    return result


def _noise(x: Tensor) -> Tensor:
    factor = torch.ones_like(x)
    factor[[3, 17, 18, 31]] = torch.tensor([1.3, 0.2, -2.0, 5.0], dtype=x.dtype)
    return factor
