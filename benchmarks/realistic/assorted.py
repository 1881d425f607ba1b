"""Bugs of all kinds once more, written after the diagnosis had been improved on all the others."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import complex_normal, normal, positive

assorted = partial(bug, family="assorted")
CLASSES = torch.tensor([2, 0, 1, 3, 3, 1])
VALID = (torch.arange(7) < torch.tensor([3, 7, 5, 2])[:, None]).double()
TAPS = fixed(1, 1, 3, seed=91)
METRIC = fixed(5, 5, seed=92)
METRIC = METRIC + METRIC.T
ANGLES = torch.arange(4, dtype=torch.float64)[:, None] * torch.tensor([1.0, 0.1], dtype=torch.float64)


def _averaged(x: Tensor) -> Tensor:
    states = [0.2 * x[0]]
    for each in x[1:]:
        states.append(0.8 * states[-1] + 0.2 * each)
    return torch.stack(states)


def _margins(scores: Tensor) -> Tensor:
    own = scores.gather(1, CLASSES[:, None])
    return (scores - own + 1).clamp(min=0).sum(1)


def _margins_of_others(g: Tensor, scores: Tensor) -> Tensor:
    own = scores.gather(1, CLASSES[:, None])
    return g[:, None] * (scores - own + 1 > 0) * (1 - f.one_hot(CLASSES, 4))


def _depth(x: Tensor) -> Tensor:
    return x.reshape(3, 2, 4, 2).permute(1, 3, 0, 2).reshape(4, 3, 4)


def _polar(radius: Tensor, angle: Tensor) -> Tensor:
    return torch.stack([radius * angle.cos(), radius * angle.sin()])


def _tied(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).tanh() @ w.T


def _standardised(w: Tensor) -> Tensor:
    return (w - w.mean(1, keepdim=True)) / w.std(1, keepdim=True)


def _mean_held(g: Tensor, w: Tensor) -> Tensor:
    return pulled_back(lambda t: (t - w.mean(1, keepdim=True)) / t.std(1, keepdim=True), g, w)[0]


def _wrapped(x: Tensor) -> Tensor:
    return f.conv1d(f.pad(x.tanh(), (1, 1), mode="circular"), TAPS)


def _rolled_too_far(g: Tensor, x: Tensor) -> Tensor:
    flow = pulled_back(lambda t: f.conv1d(f.pad(t, (1, 1), mode="circular"), TAPS), g, x)[0]
    return flow.roll(1, -1) * (1 - x.tanh() ** 2)


def _kronecker(a: Tensor, b: Tensor) -> Tensor:
    return torch.kron(a, b)


def _glu(x: Tensor) -> Tensor:
    return f.glu(x)


def _glu_back(g: Tensor, x: Tensor) -> Tensor:
    first, second = pulled_back(_glu, g, x)[0].chunk(2, -1)
    return torch.cat([second, first], -1)


def _rotary(x: Tensor) -> Tensor:
    a, b, rest = x[:, :2], x[:, 2:4], x[:, 4:]
    return torch.cat([a * ANGLES.cos() - b * ANGLES.sin(), a * ANGLES.sin() + b * ANGLES.cos(), rest], -1)


def _rest_forgotten(g: Tensor, x: Tensor) -> Tensor:
    return torch.cat([pulled_back(_rotary, g, x)[0][:, :4], torch.zeros_like(x[:, 4:])], -1)


def _argmax_of_the_batch(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).reshape(-1).scatter_add(0, x.argmax(-1), g).reshape(x.shape)


ASSORTED = (
    assorted(
        "root of a smooth absolute value forgotten",
        lambda x: (1 + x * x).sqrt() - 1,
        lambda g, x: g * x,
        normal(15),
        names="wrong-factor",
    ),
    assorted(
        "cross product's second operand",
        lambda a, b: torch.linalg.cross(a, b),
        lambda g, a, b: (torch.linalg.cross(b, g), torch.linalg.cross(a, g)),
        normal(5, 3),
        normal(5, 3, seed=2),
        names="sign",
    ),
    assorted(
        "sums of pairs over the wrong dimension",
        lambda a, b: (a[:, None] + b).exp(),
        lambda g, a, b: ((g * (a[:, None] + b).exp()).sum(1), (g * (a[:, None] + b).exp()).sum(1)),
        normal(6),
        normal(6, seed=2),
        names="wrong-dimension transposed mixed",
    ),
    assorted(
        "weight of a moving average forgotten",
        _averaged,
        lambda g, x: pulled_back(_averaged, g, x)[0] / 0.2,
        normal(9, 2),
        names="factor",
    ),
    assorted(
        "own class of a margin loss forgotten",
        _margins,
        _margins_of_others,
        normal(6, 4),
        names="missing-term block mask",
    ),
    assorted(
        "mean over valid steps divided by all",
        lambda x: ((x * VALID).sum(1) / VALID.sum(1)).sinh(),
        lambda g, x: (g * ((x * VALID).sum(1) / VALID.sum(1)).cosh())[:, None] * VALID / 7,
        normal(4, 7),
        names="wrong-factor factor",
    ),
    assorted(
        "blocks put back with their axes exchanged",
        _depth,
        lambda g, x: g.reshape(2, 2, 3, 4).permute(2, 1, 3, 0).reshape(x.shape),
        normal(6, 8),
        names="misplaced transposed",
    ),
    assorted(
        "radius forgotten in the angle's gradient",
        _polar,
        lambda g, r, a: (g[0] * a.cos() + g[1] * a.sin(), -g[0] * a.sin() + g[1] * a.cos()),
        positive(6),
        normal(6, seed=2),
        names="wrong-factor",
    ),
    assorted(
        "two of a symmetric form forgotten",
        lambda x: torch.einsum("bi,ij,bj->b", x, METRIC, x),
        lambda g, x: g[:, None] * (x @ METRIC),
        normal(30, 5),
        names="factor",
    ),
    assorted(
        "weight applied twice in a weighted logsumexp",
        lambda x, w: (w * x.exp()).sum(-1).log(),
        lambda g, x, w: (
            g[:, None] * w * x.exp() / (w * x.exp()).sum(-1, keepdim=True),
            (g[:, None] * w * x.exp() / (w * x.exp()).sum(-1, keepdim=True)).sum(0),
        ),
        normal(5, 6),
        positive(6),
        names="wrong-factor",
    ),
    assorted(
        "second use of a tied weight forgotten",
        _tied,
        lambda g, x, w: (
            pulled_back(_tied, g, x, w)[0],
            x.T @ ((g @ w) * (1 - (x @ w).tanh() ** 2)),
        ),
        normal(4, 5),
        normal(5, 3, seed=2),
        names="missing-term",
    ),
    assorted(
        "mean of a standardised weight held constant",
        _standardised,
        _mean_held,
        normal(4, 8),
        names="missing-term wrong-term",
    ),
    assorted(
        "skip connection forgotten",
        lambda x: x + 0.5 * (x @ METRIC).sin(),
        lambda g, x: 0.5 * (g * (x @ METRIC).cos()) @ METRIC,
        normal(4, 5),
        names="missing-term",
    ),
    assorted(
        "circular padding rolled too far",
        _wrapped,
        _rolled_too_far,
        normal(2, 1, 9),
        names="shifted misplaced",
    ),
    assorted(
        "place of the maximum in the whole batch",
        lambda x: x.amax(-1),
        _argmax_of_the_batch,
        normal(6, 5),
        names="misplaced mask",
    ),
    assorted(
        "angle's gradient without a conjugate",
        lambda z: z.angle(),
        lambda g, z: (g * 1j * z / (z * z.conj())).conj().resolve_conj(),
        complex_normal(7),
        names="conjugate",
    ),
    assorted(
        "trace of a square",
        lambda x: (x @ x).diagonal(dim1=-2, dim2=-1).sum(-1),
        lambda g, x: 2 * g[:, None, None] * x,
        normal(3, 4, 4),
        names="transposed",
    ),
    assorted(
        "factors of a Kronecker product exchanged",
        _kronecker,
        lambda g, a, b: pulled_back(_kronecker, g, a, b)[::-1],
        normal(3, 3),
        normal(3, 3, seed=2),
        names="mixed misplaced",
    ),
    assorted("halves of a gated unit exchanged", _glu, _glu_back, normal(4, 10), names="mixed shifted misplaced"),
    assorted("dimensions that are not rotated", _rotary, _rest_forgotten, normal(4, 6), names="block mask"),
)
