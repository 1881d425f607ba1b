"""Bugs in the backwards of layers: attention, norms, convolutions, pooling, losses, recurrent cells, graphs.

They were written, with the names that are right for them, before the diagnosis ran on them.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import normal, positive

attention, norm, convolution, pooling, loss, recurrent, graph = (
    partial(bug, family=family)
    for family in ("attention", "norm", "convolution", "pooling", "loss", "recurrent", "graph")
)
DISTANCE = (torch.arange(5)[:, None] - torch.arange(5)).abs().to(torch.float64)
DEPTHWISE, POINTWISE, CAUSAL = fixed(3, 1, 3, seed=61), fixed(4, 4, 1, seed=62), fixed(2, 2, 3, seed=63)
LABELS = f.one_hot(torch.tensor([0, 2, 1, 1, 3, 0]), 4).to(torch.float64)
WEIGHTS = torch.tensor([0.5, 2.0, 3.5, 7.0], dtype=torch.float64)
TARGET = fixed(7, 3, seed=64)
RECURRENT = fixed(4, 12, seed=65) / 3
SOURCES = torch.tensor([0, 1, 1, 2, 3, 3, 4, 0, 5, 2, 3])
TARGETS = torch.tensor([1, 0, 2, 2, 1, 4, 5, 3, 3, 0, 1])
OUT, IN = torch.bincount(SOURCES, minlength=6).double(), torch.bincount(TARGETS, minlength=6).double()
GRAPH_OF_NODE = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3])


def _grouped(q: Tensor, k: Tensor) -> Tensor:
    """Four query heads that share two heads of keys."""
    return q @ k.repeat_interleave(2, 0).mT


def _first_of_group(g: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    return g @ k.repeat_interleave(2, 0), (g.mT @ q)[::2]


def _linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT).tril() @ v


def _not_causal(g: Tensor, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    scores = (g @ v.mT).tril()
    return scores @ k, scores.mT @ q, (q @ k.mT).mT @ g


def _instance_norm(x: Tensor) -> Tensor:
    return f.instance_norm(x)


def _as_batch_norm(g: Tensor, x: Tensor) -> Tensor:
    rstd = (x.var((2, 3), unbiased=False, keepdim=True) + 1e-5).rsqrt()
    y, over = (x - x.mean((2, 3), keepdim=True)) * rstd, (0, 2, 3)
    return rstd * (g - g.mean(over, keepdim=True) - y * (g * y).mean(over, keepdim=True))


def _weight_norm(v: Tensor, gain: Tensor) -> Tensor:
    return gain * v / v.norm(dim=-1, keepdim=True)


def _unprojected(g: Tensor, v: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    norms = v.norm(dim=-1, keepdim=True)
    return g * gain / norms, (g * v / norms).sum(-1, keepdim=True)


def _layer_norm(x: Tensor, gain: Tensor) -> Tensor:
    return f.layer_norm(x, x.shape[-1:], gain)


def _of_raw_inputs(g: Tensor, x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    return pulled_back(_layer_norm, g, x, gain)[0], (g * x).sum(0)


def _rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    return x * x.pow(2).mean(-1, keepdim=True).rsqrt() * gain


def _gainless_correction(g: Tensor, x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    rstd = x.pow(2).mean(-1, keepdim=True).rsqrt()
    return rstd * g * gain - x * rstd**3 * (g * x).mean(-1, keepdim=True), (g * x * rstd).sum(0)


def _depthwise(x: Tensor, w: Tensor) -> Tensor:
    return f.conv1d(x, w, groups=3)


def _channels_summed(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    right = pulled_back(_depthwise, g, x, w)
    windows = x.unfold(-1, 3, 1)  # batch, channel, place, offset
    return right[0], torch.einsum("bot,bctk->ck", g, windows)[:, None]


def _causal(x: Tensor) -> Tensor:
    return f.conv1d(f.pad(x, (2, 0)), CAUSAL)


def _cropped_at_the_end(g: Tensor, x: Tensor) -> Tensor:
    return f.conv_transpose1d(g, CAUSAL)[..., : x.shape[-1]]


def _biased(x: Tensor, b: Tensor) -> Tensor:
    return f.conv1d(x, POINTWISE, b)


def _averaged(x: Tensor) -> Tensor:
    return x.unfold(-1, 3, 2).mean(-1)


def _windows_assigned(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    for place in range(g.shape[-1]):
        result[..., 2 * place : 2 * place + 3] = g[..., place, None] / 3
    return result


def _local_argmax(g: Tensor, x: Tensor) -> Tensor:
    within = x.unfold(-1, 4, 4).argmax(-1)  # the place within its window, not within the row
    return torch.zeros_like(x).scatter_add(-1, within, g)


def _smoothed(x: Tensor) -> Tensor:
    return -((0.8 * LABELS + 0.05) * x.log_softmax(-1)).sum(-1)


def _hard_labels(g: Tensor, x: Tensor) -> Tensor:
    return g[:, None] * (x.softmax(-1) - LABELS)


def _binary(x: Tensor) -> Tensor:
    return f.binary_cross_entropy_with_logits(x, LABELS, pos_weight=WEIGHTS, reduction="none")


def _gaussian(x: Tensor, log_variance: Tensor) -> Tensor:
    return 0.5 * (log_variance + (x - TARGET) ** 2 / log_variance.exp())


def _half_forgotten(g: Tensor, x: Tensor, log_variance: Tensor) -> tuple[Tensor, Tensor]:
    residual = (x - TARGET) / log_variance.exp()
    return g * residual, g * (0.5 - residual * (x - TARGET))


def _contrastive(scores: Tensor) -> Tensor:
    return scores.logsumexp(-1) - scores.diagonal()


def _divergence(p: Tensor, q: Tensor) -> Tensor:
    return (p * (p.log() - q.log())).sum(-1)


def _gru(x: Tensor, h: Tensor, *, reset: bool = True) -> Tensor:
    r, z, n = (h @ RECURRENT).split(4, -1)
    r, z = (x + r).sigmoid(), (x + z).sigmoid()
    n = (x + (r if reset else r.detach()) * n).tanh()
    return (1 - z) * n + z * h


def _lstm(a: Tensor, c: Tensor) -> Tensor:
    i, j, n, o = a.split(4, -1)
    return o.sigmoid() * (j.sigmoid() * c + i.sigmoid() * n.tanh()).tanh()


def _gates_exchanged(g: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    da, dc = pulled_back(_lstm, g, a, c)
    i, j, n, o = da.split(4, -1)
    return torch.cat([j, i, n, o], -1), dc


def _unrolled(x: Tensor, w: Tensor) -> Tensor:
    h = torch.zeros_like(x[0])
    for step in x:
        h = (step + h @ w).tanh()
    return h


def _last_step_alone(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    before = _unrolled(x[:-1], w)
    return pulled_back(_unrolled, g, x, w)[0], before.T @ (g * (1 - _unrolled(x, w) ** 2))


def _scanned(a: Tensor, b: Tensor) -> Tensor:
    states = [b[0]]
    for k in range(1, len(a)):
        states.append(a[k] * states[-1] + b[k])
    return torch.stack(states)


def _state_after(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    flow = pulled_back(_scanned, g, a, b)[1]
    return flow * _scanned(a, b), flow


def _symmetric(x: Tensor) -> Tensor:
    messages = x[SOURCES] * (OUT[SOURCES] * IN[TARGETS]).rsqrt()[:, None]
    return torch.zeros_like(x).index_add(0, TARGETS, messages)


def _one_side(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, SOURCES, g[TARGETS] * IN[TARGETS].rsqrt()[:, None])


def _edge_softmax(x: Tensor) -> Tensor:
    e = x.exp()
    return e / torch.zeros(6, dtype=x.dtype).index_add(0, TARGETS, e)[TARGETS]


def _over_sources(g: Tensor, x: Tensor) -> Tensor:
    y = _edge_softmax(x)
    return y * (g - torch.zeros(6, dtype=x.dtype).index_add(0, SOURCES, g * y)[SOURCES])


def _laplacian(x: Tensor) -> Tensor:
    return OUT[:, None] * x - torch.zeros_like(x).index_add(0, TARGETS, x[SOURCES])


def _pooled(x: Tensor) -> Tensor:
    return torch.zeros(4, x.shape[1], dtype=x.dtype).index_add(0, GRAPH_OF_NODE, x**3)


NETWORKS = (
    attention(
        "scale forgotten for the keys",
        lambda q, k: q @ k.mT / 8**0.5,
        lambda g, q, k: (g @ k / 8**0.5, g.mT @ q),
        normal(2, 5, 8),
        normal(2, 6, 8, seed=2),
        names="factor",
    ),
    attention(
        "keys of a group from its first head",
        _grouped,
        _first_of_group,
        normal(4, 3, 4),
        normal(2, 5, 4, seed=2),
        names="missing-sum missing-term",
    ),
    attention(
        "distance forgotten in the slopes",
        lambda scores, slope: scores - slope[:, None, None] * DISTANCE,
        lambda g, scores, slope: (g, -g.sum((1, 2))),
        normal(3, 5, 5),
        positive(3),
        names="wrong-factor",
    ),
    attention(
        "causal mask forgotten for the values",
        _linear_attention,
        _not_causal,
        normal(6, 3),
        normal(6, 3, seed=2),
        normal(6, 4, seed=3),
        names="mask",
    ),
    norm(
        "instance norm corrected as a batch norm",
        _instance_norm,
        _as_batch_norm,
        normal(2, 3, 4, 3),
        names="wrong-term wrong-dimension doubled-sum",
    ),
    norm(
        "weight norm without its projection",
        _weight_norm,
        _unprojected,
        normal(5, 4),
        positive(5, 1),
        names="missing-term",
    ),
    norm(
        "gain from the raw inputs", _layer_norm, _of_raw_inputs, normal(7, 6), positive(6), names="wrong-factor stale"
    ),
    norm(
        "gain forgotten in the correction",
        _rms_norm,
        _gainless_correction,
        normal(5, 6),
        positive(6),
        names="wrong-term",
    ),
    convolution(
        "depthwise kernel summed over all channels",
        _depthwise,
        _channels_summed,
        normal(2, 3, 9),
        normal(3, 1, 3, seed=2),
        names="doubled-sum",
    ),
    convolution(
        "pointwise kernel not transposed",
        lambda x: f.conv1d(x, POINTWISE),
        lambda g, _x: f.conv1d(g, POINTWISE),
        normal(2, 4, 6),
        names="transposed",
    ),
    convolution(
        "causal padding cropped at the wrong end",
        _causal,
        _cropped_at_the_end,
        normal(1, 2, 12),
        names="shifted misplaced",
    ),
    convolution(
        "bias averaged over the places",
        _biased,
        lambda g, x, b: (*pulled_back(_biased, g, x, b)[:1], g.mean(-1).sum(0)),
        normal(3, 4, 10),
        normal(4, seed=2),
        names="factor",
    ),
    pooling(
        "overlapping windows assigned", _averaged, _windows_assigned, normal(2, 11), names="overwritten missing-term"
    ),
    pooling(
        "place within the window for the place",
        lambda x: x.unfold(-1, 4, 4).amax(-1),
        _local_argmax,
        normal(3, 16),
        names="misplaced",
    ),
    pooling(
        "power mean without the outer slope",
        lambda x: (x**3).mean(-1) ** (1 / 3),
        lambda g, x: g[:, None] * x**2 / x.shape[-1],
        positive(6, 5),
        names="wrong-factor",
    ),
    loss("hard labels for smoothed ones", _smoothed, _hard_labels, normal(6, 4), names="wrong-term missing-term"),
    loss(
        "weight of the positives forgotten",
        _binary,
        lambda g, x: g * (x.sigmoid() - LABELS),
        normal(6, 4),
        names="wrong-factor factor",
    ),
    loss(
        "half forgotten in one term", _gaussian, _half_forgotten, normal(7, 3), normal(7, 3, seed=2), names="wrong-term"
    ),
    loss(
        "positive pair left out",
        _contrastive,
        lambda g, x: g[:, None] * x.softmax(-1),
        normal(6, 6),
        names="missing-term",
    ),
    loss(
        "slope of the logarithm forgotten",
        _divergence,
        lambda g, p, q: (g[:, None] * (p.log() - q.log()), -g[:, None] * p / q),
        positive(5, 4),
        positive(5, 4, seed=2),
        names="missing-term",
    ),
    recurrent(
        "path through the reset gate forgotten",
        _gru,
        lambda g, x, h: pulled_back(partial(_gru, reset=False), g, x, h),
        normal(3, 4),
        normal(3, 4, seed=2),
        names="missing-term",
    ),
    recurrent(
        "input and forget gates exchanged",
        _lstm,
        _gates_exchanged,
        normal(2, 16),
        normal(2, 4, seed=2),
        names="misplaced mixed",
    ),
    recurrent(
        "recurrent weight from the last step alone",
        _unrolled,
        _last_step_alone,
        normal(5, 3, 4),
        normal(4, 4, seed=2),
        names="missing-sum missing-term",
    ),
    recurrent(
        "state after the step for the one before",
        _scanned,
        _state_after,
        positive(8, 3),
        normal(8, 3, seed=2),
        names="wrong-factor shifted stale",
    ),
    graph("normalised on one side alone", _symmetric, _one_side, normal(6, 3), names="wrong-factor"),
    graph(
        "edge softmax corrected over the sources",
        _edge_softmax,
        _over_sources,
        normal(11),
        names="wrong-term wrong-dimension",
    ),
    graph(
        "degree left out of the Laplacian",
        _laplacian,
        lambda g, x: -torch.zeros_like(x).index_add(0, SOURCES, g[TARGETS]),
        normal(6, 2),
        names="missing-term",
    ),
    graph(
        "pooled into the next graph",
        _pooled,
        lambda g, x: 3 * x**2 * g.roll(-1, 0)[GRAPH_OF_NODE],
        normal(10, 3),
        names="shifted misplaced",
    ),
)
