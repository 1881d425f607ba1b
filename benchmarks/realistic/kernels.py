"""Bugs in the backwards of kernels: tails, chunks, masks, windows, packed sequences, routing.

They were written, with the names that are right for them, after the diagnosis was, and before it ran on them.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back
from gradproof.gallery.specimen import normal, positive

kernel, packing, routing = (partial(bug, family=family) for family in ("kernel", "packing", "routing"))
BLOCKS = torch.tensor([[1, 0, 1], [0, 1, 1]]).repeat_interleave(3, 0).repeat_interleave(2, 1).double()
KEPT = (torch.rand(6, 5, generator=torch.Generator().manual_seed(111)) < 0.7).double()
LENGTHS = torch.tensor([4, 2, 5, 3])
VALID = torch.arange(5) < LENGTHS[:, None]
OFFSETS = torch.tensor([0, 2, 7, 8, 12])
WORDS, BAGS = torch.tensor([4, 0, 5, 2, 2, 1, 3, 0]), torch.tensor([0, 0, 0, 1, 1, 2, 2, 2])
SEGMENTS = torch.tensor([0, 2, 1, 0, 2, 2, 1, 0, 0])
ANGLES = torch.tensor([0.9, 0.2], dtype=torch.float64) * torch.arange(5, dtype=torch.float64)[:, None]
FIRST, SECOND = fixed(5, seed=112), fixed(4, seed=113)


def _softmax_tail(g: Tensor, x: Tensor) -> Tensor:
    y = x.softmax(-1)
    return y * (g - (g * y)[..., :8].sum(-1, keepdim=True))


def _read(scores: Tensor, v: Tensor) -> Tensor:
    return scores.softmax(-1) @ v


def _delta_not_normalised(g: Tensor, scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    p, weights = scores.softmax(-1), scores.exp()
    delta = (g * (weights @ v)).sum(-1, keepdim=True)
    return p * (g @ v.mT - delta), p.mT @ g


def _chunked(g: Tensor, x: Tensor) -> Tensor:
    own = torch.cat([chunk.softmax(-1) for chunk in x.split(4, -1)], -1)
    return g[:, None] * own


def _capped(x: Tensor) -> Tensor:
    return 3 * (x / 3).tanh()


def _interleaved(x: Tensor) -> Tensor:
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * ANGLES.cos() - b * ANGLES.sin(), a * ANGLES.sin() + b * ANGLES.cos()], -1).flatten(-2)


def _in_halves(g: Tensor, _x: Tensor) -> Tensor:
    a, b = g.chunk(2, -1)
    return torch.cat([a * ANGLES.cos() + b * ANGLES.sin(), b * ANGLES.cos() - a * ANGLES.sin()], -1)


def _in_windows(x: Tensor) -> Tensor:
    return x.tanh().roll((-1, -1), (0, 1)).reshape(3, 2, 3, 2).permute(0, 2, 1, 3).flatten(0, 1)


def _shifted_again(g: Tensor, x: Tensor) -> Tensor:
    whole = g.reshape(3, 3, 2, 2).permute(0, 2, 1, 3).reshape(6, 6)
    return whole.roll((-1, -1), (0, 1)) * (1 - x.tanh() ** 2)


def _uneven(x: Tensor) -> Tensor:
    return torch.stack([x[..., 0:3].mean(-1), x[..., 2:6].mean(-1), x[..., 5:8].mean(-1)], -1)


def _even(g: Tensor, x: Tensor) -> Tensor:
    flow = torch.zeros_like(x)
    for place, (low, high) in enumerate(((0, 3), (2, 6), (5, 8))):
        flow[..., low:high] += 3 / 8 * g[..., place, None]
    return flow


def _gained(x: Tensor, gain: Tensor) -> Tensor:
    return (x.reshape(-1, 3, 2) * gain[:, None]).flatten(1)


def _groups_interleaved(g: Tensor, x: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    return (g.reshape(-1, 3, 2) * gain[:, None]).flatten(1), (g * x).reshape(-1, 2, 3).sum((0, 1))


def _spectral(w: Tensor) -> Tensor:
    return w / (FIRST @ w @ SECOND)


def _sigma_not_squared(g: Tensor, w: Tensor) -> Tensor:
    sigma = FIRST @ w @ SECOND
    return g / sigma - (g * w).sum() / sigma * torch.outer(FIRST, SECOND)


def _packed_by_time(x: Tensor) -> Tensor:
    return x.mT[VALID.mT].sin()


def _unpacked_by_sequence(g: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).masked_scatter(VALID, g) * x.cos()


def _reversed(x: Tensor) -> Tensor:
    places = (LENGTHS[:, None] - 1 - torch.arange(5)) % 5
    return x.gather(1, torch.where(VALID, places, torch.arange(5))).exp()


def _truncated(x: Tensor) -> Tensor:
    rows = [x[low : min(high, low + 3)] for low, high in pairwise(OFFSETS.tolist())]
    return torch.stack([f.pad(row, (0, 3 - len(row))) for row in rows]).square()


def _starts_of_truncated(g: Tensor, x: Tensor) -> Tensor:
    flow, start = torch.zeros_like(x), 0
    for row, (low, high) in zip(g, pairwise(OFFSETS.tolist()), strict=True):
        length = min(high - low, 3)
        flow[start : start + length] = 2 * row[:length] * x[low : low + length]
        start += length
    return flow


def _bagged(table: Tensor, weights: Tensor) -> Tensor:
    return torch.zeros(3, 4, dtype=table.dtype).index_add(0, BAGS, table[WORDS] * weights[:, None])


def _rows_in_order(g: Tensor, table: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    rows = table[torch.arange(8) % 6]
    return pulled_back(_bagged, g, table, weights)[0], (g[BAGS] * rows).sum(-1)


def _products(x: Tensor) -> Tensor:
    return torch.ones(3, dtype=x.dtype).scatter_reduce(0, SEGMENTS, x, "prod")


def _overwrite(x: Tensor, rows: Tensor) -> Tensor:
    return x.index_copy(0, torch.tensor([3, 1]), rows).sinh()


def _old_rows_kept(g: Tensor, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    flow = g * _overwrite(x, rows).square().add(1).sqrt()
    return flow, flow[[3, 1]]


def _routed(x: Tensor) -> Tensor:
    top = x.softmax(-1).topk(3).values
    return top / top.sum(-1, keepdim=True)


def _renormaliser_held(g: Tensor, x: Tensor) -> Tensor:
    whole = x.softmax(-1).topk(3).values.sum(-1, keepdim=True)
    return pulled_back(lambda t: t.softmax(-1).topk(3).values / whole, g, x)[0]


def _sparsemax(x: Tensor) -> Tensor:
    order = x.sort(-1, descending=True).values
    count = (1 + order * torch.arange(1, 6) > order.cumsum(-1)).sum(-1, keepdim=True)
    threshold = (order.cumsum(-1).gather(-1, count - 1) - 1) / count
    return (x - threshold).clamp(min=0)


def _divided_by_all(g: Tensor, x: Tensor) -> Tensor:
    support = _sparsemax(x) > 0
    return support * (g - (g * support).mean(-1, keepdim=True))


KERNELS = (
    kernel(
        "softmax whose correction leaves out the tail",
        lambda x: x.softmax(-1),
        _softmax_tail,
        normal(3, 11),
        names="wrong-term missing-term",
    ),
    kernel(
        "row sum of attention not normalised",
        _read,
        _delta_not_normalised,
        normal(4, 5),
        normal(5, 3, seed=2),
        names="wrong-term",
    ),
    kernel(
        "chunks of a logsumexp by their own",
        lambda x: x.logsumexp(-1),
        _chunked,
        normal(6, 12),
        names="wrong-factor factor",
    ),
    kernel(
        "cap of the scores forgotten in the slope",
        _capped,
        lambda g, x: g * (1 - _capped(x) ** 2),
        normal(18),
        names="wrong-factor wrong-term",
    ),
    kernel(
        "interleaved pairs rotated back as halves", _interleaved, _in_halves, normal(5, 4), names="misplaced wrong-term"
    ),
    kernel("windows shifted once more", _in_windows, _shifted_again, normal(6, 6), names="shifted misplaced"),
    kernel("uneven windows divided evenly", _uneven, _even, normal(3, 8), names="wrong-factor factor"),
    kernel(
        "groups of channels interleaved",
        _gained,
        _groups_interleaved,
        normal(5, 6),
        positive(3),
        names="misplaced transposed wrong-dimension",
    ),
    kernel(
        "spectral norm not squared in the correction", _spectral, _sigma_not_squared, normal(5, 4), names="wrong-term"
    ),
    kernel(
        "weight's absent blocks trained",
        lambda x, w: x @ (w * BLOCKS),
        lambda g, x, w: (g @ (w * BLOCKS).mT, x.mT @ g),
        normal(7, 6),
        normal(6, 6, seed=2),
        names="mask",
    ),
    kernel(
        "residual dropped with its branch",
        lambda x, r: r + KEPT * x / 0.7,
        lambda g, _x, _r: (g * KEPT / 0.7, g * KEPT / 0.7),
        normal(6, 5),
        normal(6, 5, seed=2),
        names="mask wrong-factor",
    ),
    packing(
        "packed by time, unpacked by sequence",
        _packed_by_time,
        _unpacked_by_sequence,
        normal(4, 5),
        names="misplaced transposed",
    ),
    packing(
        "padding reversed with its sequence",
        _reversed,
        lambda g, x: g.flip(1) * x.exp(),
        normal(4, 5),
        names="misplaced flipped shifted",
    ),
    packing(
        "rows start where the truncated ones would",
        _truncated,
        _starts_of_truncated,
        normal(12),
        names="misplaced shifted",
    ),
    packing(
        "rows of an embedding bag in their own order",
        _bagged,
        _rows_in_order,
        normal(6, 4),
        positive(8),
        names="stale wrong-factor misplaced",
    ),
    packing(
        "product of a segment not divided",
        _products,
        lambda g, x: (g * _products(x))[SEGMENTS],
        positive(9),
        names="wrong-factor",
    ),
    packing(
        "rows that were replaced keep their gradient",
        _overwrite,
        _old_rows_kept,
        normal(5, 4),
        normal(2, 4, seed=2),
        names="mask",
    ),
    routing(
        "renormaliser of the chosen experts held constant",
        _routed,
        _renormaliser_held,
        normal(4, 6),
        names="missing-term",
    ),
    routing("correction of a sparsemax divided by all", _sparsemax, _divided_by_all, normal(5, 5), names="wrong-term"),
)
