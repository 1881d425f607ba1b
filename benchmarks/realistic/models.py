"""Bugs in the backwards of models: geometry, probability, signals, physics, rendering, ranking, low rank, flows.

They were written, with the names that are right for them, after the diagnosis was, and before it ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import normal, positive

geometry, probability, signal, physics, rendering, ranking, matrices, flow = (
    partial(bug, family=family)
    for family in ("geometry", "probability", "signal", "physics", "rendering", "ranking", "matrices", "flow")
)
POINTS, WINDOW = fixed(6, 2, seed=81), torch.hann_window(6, periodic=False, dtype=torch.float64) + 0.1
IMAGE, FREQUENCIES = fixed(9, 9, seed=82), fixed(3, 5, seed=83)
ROWS, COLUMNS = torch.tril_indices(4, 4)


def _rotated(angle: Tensor) -> Tensor:
    x, y = POINTS.T
    return torch.stack([x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()], -1)


def _rotated_back(g: Tensor, angle: Tensor) -> Tensor:
    x, y = POINTS.T
    return g[:, 0] * (-x * angle.sin() - y * angle.cos()) + g[:, 1] * (x * angle.cos() + y * angle.sin())


def _projected(p: Tensor) -> Tensor:
    return p[:, :2] / p[:, 2:]


def _depth_forgotten(g: Tensor, p: Tensor) -> Tensor:
    return torch.cat([g / p[:, 2:], torch.zeros_like(p[:, 2:])], -1)


def _divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    return 0.5 * (mean**2 + log_variance.exp() - log_variance - 1)


def _pairs(scores: Tensor) -> Tensor:
    return f.softplus(scores[None] - scores[:, None])


def _first_of_a_pair(g: Tensor, scores: Tensor) -> Tensor:
    return -(g * (scores[None] - scores[:, None]).sigmoid()).sum(1)


def _fed_back(x: Tensor) -> Tensor:
    states = [x[0]]
    for each in x[1:]:
        states.append(each + 0.7 * states[-1])
    return torch.stack(states)


def _framed(x: Tensor) -> Tensor:
    return x.unfold(-1, 6, 3) * WINDOW


def _window_forgotten(g: Tensor, x: Tensor) -> Tensor:
    return pulled_back(lambda t: t.unfold(-1, 6, 3), g, x)[0]


def _springs(x: Tensor) -> Tensor:
    return ((x[1:] - x[:-1]).norm(dim=-1) - 1) ** 2


def _one_end(g: Tensor, x: Tensor) -> Tensor:
    along = x[1:] - x[:-1]
    length = along.norm(dim=-1, keepdim=True)
    return torch.cat([torch.zeros_like(x[:1]), 2 * g[:, None] * (length - 1) * along / length])


def _composited(alpha: Tensor) -> Tensor:
    passed = torch.cat([torch.ones_like(alpha[:, :1]), (1 - alpha[:, :-1]).cumprod(-1)], -1)
    return passed * alpha


def _transmittance_held(g: Tensor, alpha: Tensor) -> Tensor:
    return g * _composited(alpha) / alpha


def _warped(place: Tensor) -> Tensor:
    low = place.floor().long()
    (y, x), (dy, dx) = low.T, (place - low).T
    top = IMAGE[y, x] * (1 - dx) + IMAGE[y, x + 1] * dx
    return top * (1 - dy) + (IMAGE[y + 1, x] * (1 - dx) + IMAGE[y + 1, x + 1] * dx) * dy


def _unpacked(packed: Tensor) -> Tensor:
    lower = torch.zeros(4, 4, dtype=packed.dtype).index_put((ROWS, COLUMNS), packed)
    return lower + lower.tril(-1).T


def _adapted(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return 4.0 * (x @ a) @ b


def _coupled(x: Tensor, y: Tensor) -> Tensor:
    return y * (x * 1.3).tanh().exp() + x.sin()


def _excited(x: Tensor) -> Tensor:
    return x * x.mean((-1, -2), keepdim=True).sigmoid()


def _mean_not_divided(g: Tensor, x: Tensor) -> Tensor:
    gate = x.mean((-1, -2), keepdim=True).sigmoid()
    return g * gate + (g * x).sum((-1, -2), keepdim=True) * gate * (1 - gate)


def _features(x: Tensor) -> Tensor:
    return torch.cat([(x @ FREQUENCIES).sin(), (x @ FREQUENCIES).cos()], -1)


def _features_back(g: Tensor, x: Tensor) -> Tensor:
    angle = x @ FREQUENCIES
    first, second = g.chunk(2, -1)
    return (first * angle.cos() + second * angle.sin()) @ FREQUENCIES.T


MODELS = (
    geometry("sign of a rotation's sine", _rotated, _rotated_back, normal(6), names="sign wrong-term wrong-factor"),
    geometry(
        "depth of a projection forgotten", _projected, _depth_forgotten, positive(7, 3), names="block missing-term"
    ),
    geometry(
        "distances' other end with the first one's sign",
        lambda x, y: (x[:, None] - y).norm(dim=-1),
        lambda g, x, y: (
            (g[..., None] * (x[:, None] - y) / (x[:, None] - y).norm(dim=-1, keepdim=True)).sum(1),
            (g[..., None] * (x[:, None] - y) / (x[:, None] - y).norm(dim=-1, keepdim=True)).sum(0),
        ),
        normal(20, 3),
        normal(30, 3, seed=2),
        names="sign",
    ),
    probability(
        "half of a divergence forgotten",
        _divergence,
        lambda g, mean, log_variance: (2 * g * mean, 0.5 * g * (log_variance.exp() - 1)),
        normal(8, 4, dtype=torch.float32),
        normal(8, 4, seed=2, dtype=torch.float32),
        names="factor",
    ),
    probability(
        "tail of Student's t forgotten",
        lambda x: 2 * (1 + x * x / 3).log(),
        lambda g, x: 4 * g * x / 3,
        normal(18),
        names="wrong-factor",
    ),
    probability(
        "temperature of a relaxed sample forgotten",
        lambda x: (x / 0.4).softmax(-1),
        lambda g, x: pulled_back(lambda t: t.softmax(-1), g, x / 0.4)[0],
        normal(9, 6),
        names="factor",
    ),
    ranking("second of a pair left out", _pairs, _first_of_a_pair, normal(7), names="missing-term"),
    ranking(
        "gate of an expert forgotten",
        lambda x, gate: x.tanh() * gate[:, None],
        lambda g, x, gate: (g * (1 - x.tanh() ** 2), (g * x.tanh()).sum(-1)),
        normal(6, 5),
        positive(6),
        names="wrong-factor",
    ),
    signal("feedback forgotten", _fed_back, lambda g, x: g.clone(), normal(10), names="missing-term pass-through mask"),
    signal("window of the frames forgotten", _framed, _window_forgotten, normal(2, 18), names="wrong-factor"),
    signal(
        "soft minimum without its minus",
        lambda x: -(-3 * x).logsumexp(-1) / 3,
        lambda g, x: -g[:, None] * (-3 * x).softmax(-1),
        normal(6, 8),
        names="sign",
    ),
    physics("one end of a spring", _springs, _one_end, normal(6, 2), names="missing-term"),
    rendering(
        "transmittance held constant",
        lambda x: _composited(x.sigmoid()),
        lambda g, x: _transmittance_held(g, x.sigmoid()) * x.sigmoid() * (1 - x.sigmoid()),
        normal(3, 7),
        names="missing-term",
    ),
    rendering(
        "rows and columns of a flow exchanged",
        lambda place: _warped(7 * place.sigmoid()),
        lambda g, place: pulled_back(lambda t: _warped(7 * t.sigmoid()), g, place)[0].flip(-1),
        normal(8, 2),
        names="flipped misplaced mixed shifted transposed",
    ),
    matrices(
        "entries beside the diagonal counted once",
        _unpacked,
        lambda g, _x: g[ROWS, COLUMNS],
        normal(10),
        names="missing-term missing-sum overwritten",
    ),
    matrices(
        "scale of an adapter forgotten",
        _adapted,
        lambda g, x, a, b: (4 * g @ b.T @ a.T, 4 * x.T @ (g @ b.T), (x @ a).T @ g),
        normal(9, 12),
        normal(12, 3, seed=2),
        normal(3, 15, seed=3),
        names="factor",
    ),
    matrices(
        "rows normalised, corrected over the columns",
        lambda x: x / x.sum(-1, keepdim=True),
        lambda g, x: (g - (g * x / x.sum(-1, keepdim=True)).sum(0)) / x.sum(-1, keepdim=True),
        positive(5, 5),
        names="wrong-term wrong-dimension",
    ),
    flow(
        "exponential of a coupling forgotten",
        _coupled,
        lambda g, x, y: (pulled_back(_coupled, g, x, y)[0], g.clone()),
        normal(5, 4),
        normal(5, 4, seed=2),
        names="wrong-factor pass-through",
    ),
    flow("mean of a gate not divided", _excited, _mean_not_divided, normal(2, 3, 3, 4), names="wrong-term"),
    flow("sign of the cosines' slope", _features, _features_back, normal(4, 3), names="sign wrong-term wrong-factor"),
)
