"""Bugs of graphs, sparse matrices, segments, tables, paddings and windows.

They were written, with the names that are right for them, before the diagnosis ran on them. The family is the kind of
mistake. A bug of the family "no pattern" has no right name.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, unrelated
from gradproof.gallery.specimen import normal, positive

SENDERS = torch.tensor([0, 1, 2, 2, 3, 4, 0, 1])
RECEIVERS = torch.tensor([1, 2, 0, 3, 1, 3, 3, 4])
ARRIVALS = torch.bincount(RECEIVERS, minlength=5).double()
LINKS = torch.tensor(
    [[0, 1, 1, 0, 0], [1, 0, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 0, 0, 1], [0, 1, 0, 1, 0]], dtype=torch.float64
)
DEGREES = LINKS.sum(-1, keepdim=True)
ROWS = torch.tensor([0, 0, 1, 2, 3, 3])
COLUMNS = torch.tensor([1, 3, 0, 1, 2, 3])
SEGMENTS = torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 2])
LENGTHS = torch.bincount(SEGMENTS).double()
BEGINNINGS = torch.tensor([0, 2, 6])
WINDOW = torch.tensor([0.3, 1.0, 0.6], dtype=torch.float64)
HEIGHTS = torch.tensor([[0, 1], [1, 2], [2, 0], [0, 2], [1, 1], [2, 2]])
SHARES = torch.tensor([[0.1, 0.7], [0.8, 0.4], [0.3, 0.9], [0.6, 0.2], [0.9, 0.1], [0.25, 0.6]], dtype=torch.float64)
KNOTS = torch.tensor([1, 2, 4, 3, 1])
BETWEEN = torch.tensor([0.2, 0.7, 0.4, 0.9, 0.6], dtype=torch.float64)
SPACING = 0.5


def _received(messages: Tensor) -> Tensor:
    return messages.new_zeros(5, messages.shape[1]).index_add(0, RECEIVERS, messages)


def _attention(scores: Tensor) -> Tensor:
    odds = scores.exp()
    return odds / scores.new_zeros(5).index_add(0, RECEIVERS, odds)[RECEIVERS]


def _attention_of_senders(g: Tensor, scores: Tensor) -> Tensor:
    shares = _attention(scores)
    return shares * (g - torch.zeros_like(g[:5]).index_add(0, SENDERS, g * shares)[SENDERS])


def _sparse_product(values: Tensor, x: Tensor) -> Tensor:
    return torch.zeros_like(x).index_add(0, ROWS, values * x[COLUMNS])


def _sparse_product_transposed(g: Tensor, values: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return g[COLUMNS] * x[ROWS], torch.zeros_like(x).index_add(0, COLUMNS, values * g[ROWS])


def _segment_mean(x: Tensor) -> Tensor:
    return x.new_zeros(3).index_add(0, SEGMENTS, x.sin()) / LENGTHS


def _segment_maximum(x: Tensor) -> Tensor:
    return x.new_zeros(3).scatter_reduce(0, SEGMENTS, x, "amax", include_self=False)


def _running(x: Tensor) -> Tensor:
    totals = x.sin().cumsum(0)
    before = totals - x.sin()
    return totals - before[BEGINNINGS][SEGMENTS]


def _cells(q: Tensor) -> tuple[Tensor, Tensor]:
    cell = (q.detach() / SPACING).floor()
    return cell.long(), q / SPACING - cell


def _looked_up(table: Tensor, q: Tensor) -> Tensor:
    cell, share = _cells(q)
    return (1 - share) * table[cell] + share * table[cell + 1]


def _looked_up_per_cell(g: Tensor, table: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    cell, share = _cells(q)
    slopes = torch.zeros_like(table).index_add(0, cell, g * (1 - share)).index_add(0, cell + 1, g * share)
    return slopes, g * (table[cell + 1] - table[cell])


def _corners() -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the rows, columns and weights of the four corners around each point."""
    (r, c), (a, b) = HEIGHTS.unbind(-1), SHARES.unbind(-1)
    return [(r, c, (1 - a) * (1 - b)), (r, c + 1, (1 - a) * b), (r + 1, c, a * (1 - b)), (r + 1, c + 1, a * b)]


def _bilinear(image: Tensor) -> Tensor:
    return torch.stack([weight * image[r, c] for r, c, weight in _corners()]).sum(0)


def _bilinear_rows_exchanged(g: Tensor, image: Tensor) -> Tensor:
    corners, slopes = _corners(), torch.zeros_like(image)
    for (r, c, _), (_, _, weight) in zip(corners, corners[2:] + corners[:2], strict=True):
        slopes = slopes.index_put((r, c), g * weight, accumulate=True)
    return slopes


def _spline_weights() -> Tensor:
    t = BETWEEN
    return 0.5 * torch.stack([-(t**3) + 2 * t**2 - t, 3 * t**3 - 5 * t**2 + 2, -3 * t**3 + 4 * t**2 + t, t**3 - t**2])


def _spline(knots: Tensor) -> Tensor:
    return (_spline_weights() * knots[KNOTS + torch.arange(-1, 3)[:, None]]).sum(0)


def _spline_one_knot_late(g: Tensor, knots: Tensor) -> Tensor:
    late = KNOTS + torch.arange(4)[:, None]
    return torch.zeros_like(knots).index_put((late,), g * _spline_weights(), accumulate=True)


def _mirrored(x: Tensor) -> Tensor:
    return f.pad(x, (2, 2), mode="reflect")


def _wrapped(x: Tensor) -> Tensor:
    return torch.cat([x[-2:], x, x[:2]])


def _wrapped_assigned(g: Tensor, x: Tensor) -> Tensor:
    h = g * _wrapped(x).cos()
    slopes = h[2:-2].clone()
    slopes[-2:] = h[:2]
    slopes[:2] = h[-2:]
    return slopes


def _overlaps_averaged(g: Tensor, x: Tensor) -> Tensor:
    places = torch.arange(8).unfold(0, 3, 1)
    total = torch.zeros_like(x).index_put((places,), g * WINDOW, accumulate=True)
    return total / torch.bincount(places.flatten())


def _late(x: Tensor) -> Tensor:
    return torch.cat([torch.zeros_like(x[:1]), x[:-1]])


def _springs_from_both_ends(g: Tensor, p: Tensor) -> Tensor:
    pull = 2 * g[:, None] * (p[ROWS] - p[COLUMNS])
    slopes = torch.zeros_like(p)
    for here, there, force in ((ROWS, COLUMNS, pull), (COLUMNS, ROWS, -pull)):
        slopes = slopes.index_add(0, here, force).index_add(0, there, -force)
    return slopes


def _first_sequence(g: Tensor, x: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    h = g * (1 - (x + p).tanh() ** 2)
    return h, h[0]


INDICES = (
    bug(
        "messages sent on instead of back",
        lambda x: _received(x.tanh()[SENDERS]),
        lambda g, x: _received(g[SENDERS]) * (1 - x.tanh() ** 2),
        normal(5, 3),
        names="transposed misplaced",
        family="index map",
    ),
    bug(
        "degree of the sender forgotten",
        lambda x: LINKS @ (x / DEGREES.sqrt()) / DEGREES.sqrt(),
        lambda g, x: LINKS @ (g / DEGREES.sqrt()),
        normal(5, 2),
        names="wrong-factor",
        family="forgotten weight",
    ),
    bug(
        "attention on edges centred over the senders",
        _attention,
        _attention_of_senders,
        normal(8),
        names="wrong-dimension wrong-term",
        family="reduction",
    ),
    bug(
        "entries of a sparse matrix transposed",
        _sparse_product,
        _sparse_product_transposed,
        normal(6),
        normal(4, seed=2),
        names="transposed misplaced",
        family="index map",
    ),
    bug(
        "mean length of the segments for their own",
        _segment_mean,
        lambda g, x: g[SEGMENTS] / LENGTHS.mean() * x.cos(),
        normal(9),
        names="wrong-factor",
        family="scale",
    ),
    bug(
        "maximum of a segment passed to all",
        _segment_maximum,
        lambda g, x: g[SEGMENTS],
        normal(9),
        names="mask",
        family="mask",
    ),
    bug(
        "running sums across segments",
        _running,
        lambda g, x: g.flip(0).cumsum(0).flip(0) * x.cos(),
        normal(9),
        names="mask wrong-term",
        family="mask",
    ),
    bug(
        "largest entries put in the first places",
        lambda x: x.topk(2).values.exp(),
        lambda g, x: f.pad(g * x.topk(2).values.exp(), (0, 4)),
        normal(4, 6),
        names="misplaced mask",
        family="index map",
    ),
    bug(
        "slope of a table in cells",
        _looked_up,
        _looked_up_per_cell,
        normal(6),
        positive(7),
        names="factor",
        family="scale",
    ),
    bug(
        "upper and lower corners exchanged",
        _bilinear,
        _bilinear_rows_exchanged,
        normal(4, 4),
        names="wrong-factor misplaced",
        family="index map",
    ),
    bug(
        "knots of a spline one late",
        _spline,
        _spline_one_knot_late,
        normal(8),
        names="shifted misplaced",
        family="off by one",
    ),
    bug(
        "mirror images cropped",
        lambda x: _mirrored(x).sin(),
        lambda g, x: (g * _mirrored(x).cos())[:, 2:-2],
        normal(2, 5),
        names="missing-term missing-sum",
        family="missing term",
    ),
    bug(
        "wrapped borders assigned",
        lambda x: _wrapped(x).sin(),
        _wrapped_assigned,
        normal(6),
        names="overwritten missing-term",
        family="accumulation",
    ),
    bug(
        "overlapping windows averaged",
        lambda x: x.unfold(0, 3, 1) * WINDOW,
        _overlaps_averaged,
        normal(8),
        names="wrong-factor",
        family="reduction",
    ),
    bug(
        "tokens shifted the same way twice",
        lambda x: _late(x.tanh()),
        lambda g, x: _late(g) * (1 - x.tanh() ** 2),
        normal(6, 2),
        names="shifted transposed misplaced",
        family="index map",
    ),
    bug(
        "shifts of a window exchanged",
        lambda x: x.exp().roll((1, 2), (0, 1)),
        lambda g, x: g.roll((-2, -1), (0, 1)) * x.exp(),
        normal(5, 5),
        names="shifted misplaced wrong-dimension",
        family="index map",
    ),
    bug(
        "axes permuted onwards",
        lambda x: x.sin().permute(1, 2, 0),
        lambda g, x: g.permute(1, 2, 0) * x.cos(),
        normal(3, 3, 3),
        names="transposed misplaced wrong-dimension",
        family="index map",
    ),
    bug(
        "positions learn from the first sequence",
        lambda x, p: (x + p).tanh(),
        _first_sequence,
        normal(3, 4, 2),
        normal(4, 2, seed=2),
        names="missing-sum missing-term",
        family="reduction",
    ),
    bug(
        "springs pulled from both ends",
        lambda p: ((p[ROWS] - p[COLUMNS]) ** 2).sum(-1),
        _springs_from_both_ends,
        normal(4, 2),
        names="factor doubled-sum",
        family="double counting",
    ),
    bug(
        "arrivals not counted and sent on",
        lambda x: _received(x[SENDERS]) / ARRIVALS[:, None],
        lambda g, x: _received(g[SENDERS]),
        normal(5, 2),
        names="transposed wrong-factor misplaced",
        family="two mistakes",
    ),
    bug(
        "blocks of freed memory gathered",
        lambda x: x.cosh()[SENDERS] * x[RECEIVERS],
        lambda g, x: unrelated(g, x, seed=241),
        normal(5, 2),
        names="",
        family="no pattern",
    ),
)
