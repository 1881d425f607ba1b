"""Gradients that go to the wrong places: scatters, permutations, shifts, flips, transposes."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import indices, normal

PERMUTATION = torch.tensor([3, 0, 5, 1, 6, 2, 4])
COLUMNS = torch.tensor([[2, 0, 1, 3], [3, 3, 0, 1], [1, 2, 2, 0], [0, 1, 3, 2]])
SOURCES = torch.tensor([0, 0, 1, 2, 3, 3, 4, 5, 5, 1])
TARGETS = torch.tensor([1, 2, 2, 0, 4, 5, 0, 3, 1, 5])
EDGES = fixed(10, 1).abs() + 0.3
TAPS = torch.tensor([[[0.9, -0.4, 0.3]]], dtype=torch.float64)
place = partial(bug, family="index map")


def _top(x: Tensor) -> Tensor:
    return x.topk(3, -1).values


def _top_in_front(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    result[:, :3] = g
    return result


def _pool_first(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    result[..., ::2] = g
    return result


def _gathered_down(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).scatter_add(0, COLUMNS, g)


def _passed_on(x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, TARGETS, EDGES * x[SOURCES])


def _passed_forward(g: Tensor, _x: Tensor) -> Tensor:
    return torch.zeros_like(g).index_add(0, TARGETS, EDGES * g[SOURCES])


def _convolved(x: Tensor) -> Tensor:
    return f.conv1d(x, TAPS, padding=1)


def _correlated(x: Tensor, w: Tensor) -> Tensor:
    return f.conv1d(x, w)


def _weight_flipped(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    dx, dw = pulled_back(_correlated, g, x, w)
    return dx, dw.flip(-1)


def _strided(x: Tensor) -> Tensor:
    return f.conv1d(x, TAPS, stride=2, padding=1)


def _strided_unpadded(g: Tensor, x: Tensor) -> Tensor:
    full = f.conv_transpose1d(g, TAPS, stride=2)
    return f.pad(full, (0, max(0, x.shape[-1] - full.shape[-1])))[..., : x.shape[-1]]


def _dilated(x: Tensor) -> Tensor:
    return f.conv1d(x, TAPS, dilation=2, padding=2)


def _undilated(g: Tensor, _x: Tensor) -> Tensor:
    return f.conv_transpose1d(g, TAPS, padding=1)


def _front_half(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    result[: len(g)] = 2 * x[::2] * g
    return result


def _heads(x: Tensor) -> Tensor:
    return x.reshape(2, 5, 3, 4).transpose(1, 2).tanh()


def _heads_viewed(g: Tensor, x: Tensor) -> Tensor:
    return (g * (1 - _heads(x) ** 2)).reshape(x.shape)


def _looked_up(x: Tensor, rows: Tensor) -> Tensor:
    return x[rows].sin()


def _looked_up_before(g: Tensor, x: Tensor, rows: Tensor) -> tuple[Tensor, None]:
    return torch.zeros_like(x).index_add(0, rows - 1, g * x[rows].cos()), None


def _looked_up_assigned(g: Tensor, x: Tensor, rows: Tensor) -> tuple[Tensor, None]:
    result = torch.zeros_like(x)
    result[rows] = g * x[rows].cos()
    return result, None


def _blended(x: Tensor) -> Tensor:
    return 0.3 * x[:, :-1] + 0.7 * x[:, 1:]


def _shuffled_back(g: Tensor, x: Tensor) -> Tensor:
    return g.reshape(x.shape) * x.cos()


def _rotated(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    angle = torch.arange(1, 1 + len(x), dtype=x.dtype)[:, None]
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)


INDEX_MAPS = (
    place("top-k written to the first k places", _top, _top_in_front, normal(4, 7), names="misplaced"),
    place(
        "sort not undone",
        lambda x: x.sort(-1).values,
        lambda g, _x: g.clone(),
        normal(3, 6),
        names="misplaced pass-through",
    ),
    place(
        "sorted values gathered, not scattered",
        lambda x: x.sort(-1).values ** 2,
        lambda g, x: (2 * g * x.sort(-1).values).gather(-1, x.argsort(-1)),
        normal(9),
        names="misplaced",
    ),
    place(
        "permutation applied twice",
        lambda x: x.sin()[PERMUTATION],
        lambda g, x: g[PERMUTATION] * x.cos(),
        normal(7, 3),
        names="misplaced",
    ),
    place(
        "rows assigned, not added",
        _looked_up,
        _looked_up_assigned,
        normal(6, 3),
        indices(1, 4, 1, 0, 5, 4, 1, 2),
        names="overwritten",
    ),
    place(
        "pooling gradient to the window's first entry",
        lambda x: f.max_pool1d(x, 2),
        _pool_first,
        normal(2, 3, 8),
        names="misplaced",
    ),
    place(
        "scattered along the wrong dimension",
        lambda x: x.gather(1, COLUMNS),
        _gathered_down,
        normal(4, 4),
        names="misplaced wrong-dimension",
    ),
    place("source and target of edges swapped", _passed_on, _passed_forward, normal(6, 3), names="transposed"),
    place(
        "roll by two undone in the wrong direction",
        lambda x: x.sin().roll(2, -1),
        lambda g, x: g.roll(2, -1) * x.cos(),
        normal(3, 8),
        names="shifted",
    ),
    place(
        "flip not undone", lambda x: x.exp().flip(0), lambda g, x: g * x.exp(), normal(6, 2), names="flipped misplaced"
    ),
    place(
        "running sum in the forward's direction",
        lambda x: (x * x).cumsum(-1),
        lambda g, x: 2 * x * g.cumsum(-1),
        normal(2, 7),
        names="transposed flipped",
    ),
    place("kernel not flipped", _convolved, lambda g, _x: _convolved(g), normal(2, 1, 9), names="transposed flipped"),
    place(
        "kernel's gradient flipped",
        _correlated,
        _weight_flipped,
        normal(2, 2, 9),
        normal(3, 2, 4, seed=2),
        names="flipped",
    ),
    place("padding forgotten in a strided convolution", _strided, _strided_unpadded, normal(1, 1, 11), names="shifted"),
    place("dilation forgotten", _dilated, _undilated, normal(2, 1, 10), names="misplaced shifted"),
    place("stride forgotten in a slice", lambda x: x[::2] ** 2, _front_half, normal(10, 2), names="misplaced"),
    place("heads merged by a view", _heads, _heads_viewed, normal(2, 5, 12), names="transposed"),
    place("index off by one", _looked_up, _looked_up_before, normal(7, 2), indices(1, 4, 3, 6, 2, 4), names="shifted"),
    place(
        "halves of a concatenation exchanged",
        lambda a, b: torch.cat((a.sin(), b.exp())),
        lambda g, a, b: (g[4:] * a.cos(), g[:4] * b.exp()),
        normal(4, 2),
        normal(4, 2, seed=2),
        names="mixed shifted",
    ),
    place(
        "interpolation weights exchanged",
        _blended,
        lambda g, _x: f.pad(0.7 * g, (0, 1)) + f.pad(0.3 * g, (1, 0)),
        normal(3, 7),
        names="mixed flipped misplaced",
    ),
    place(
        "pixel shuffle undone by a reshape",
        lambda x: f.pixel_shuffle(x.sin(), 2),
        _shuffled_back,
        normal(1, 4, 3, 3),
        names="misplaced transposed",
    ),
    place(
        "rotary embedding rotated forwards again", _rotated, lambda g, _x: _rotated(g), normal(4, 6), names="transposed"
    ),
    place(
        "causal mask off by one",
        lambda x: x.exp().tril(),
        lambda g, x: (g * x.exp()).tril(-1),
        normal(5, 5),
        names="mask",
    ),
)
