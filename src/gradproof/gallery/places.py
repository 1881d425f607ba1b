"""Wrong in places: sums, duplicates, blocks, masks, what is detached, and what is done with the incoming gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.gallery.specimen import complex_normal, indices, normal, specimen

ROWS = (0, 2, 2, 4, 1, 2)


def _windows(x: Tensor) -> Tensor:
    return x.unfold(0, 4, 2).sin()


def _assigned(g: Tensor, x: Tensor, rows: Tensor) -> tuple[Tensor, None]:
    result = torch.zeros_like(x)
    for place, row in enumerate(rows.tolist()):
        result[row] = g[place]
    return result, None


def _windows_assigned(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    for place, window in enumerate(g):
        result[2 * place : 2 * place + 4] = window
    return result * x.cos()


def _last_chunk(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    result[-2:] = (g * x.cos())[-2:]
    return result


def _all_but_last_row(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    for row in range(len(x) - 1):
        result[row] = g[row] * 2 * x[row]
    return result


def _first_of_batch(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    result[0] = g[0] * x[0].exp()
    return result


PLACES = (
    specimen(
        "bias-first-row",
        "A broadcast bias that takes the first row of the incoming gradient",
        lambda x, b: x + b,
        lambda g, _x, _b: (g, g[0]),
        normal(4, 3),
        normal(3, seed=2),
        diagnosis="missing-sum",
    ),
    specimen(
        "scale-last-column",
        "A broadcast column scale that takes the last column instead of a sum",
        lambda x, s: x * s,
        lambda g, x, s: (g * s, (g * x)[:, -1:]),
        normal(4, 5),
        normal(4, 1, seed=2),
        diagnosis="missing-sum",
    ),
    specimen(
        "scale-summed-over-all",
        "A scale for each channel whose gradient is summed over the channels too",
        lambda x, s: x * s,
        lambda g, x, s: (g * s, (g * x).sum().expand(3)),
        normal(4, 3),
        normal(3, seed=2),
        diagnosis="doubled-sum",
    ),
    specimen(
        "rows-averaged",
        "A gradient that is averaged over the rows of its input",
        lambda x: x.sin(),
        lambda g, x: (g * x.cos()).mean(0).expand(x.shape),
        normal(4, 3),
        diagnosis="doubled-sum",
    ),
    specimen(
        "loss-ignores-incoming",
        "A loss whose backward returns its gradient without the incoming one",
        lambda x: (x**3).sum(),
        lambda _g, x: 3 * x * x,
        normal(6),
        diagnosis="incoming-ignored",
    ),
    specimen(
        "ones-assumed",
        "An incoming gradient of ones assumed",
        lambda x: x.sin(),
        lambda _g, x: x.cos(),
        normal(3, 4),
        diagnosis="incoming-ignored",
    ),
    specimen(
        "incoming-summed",
        "An incoming gradient that is summed to a number first",
        lambda x: x.tanh(),
        lambda g, x: g.sum() / g.numel() * (1 - x.tanh() ** 2),
        normal(8),
        diagnosis="incoming-ignored",
    ),
    specimen(
        "straight-through",
        "A sigmoid that passes the incoming gradient through",
        lambda x: x.sigmoid(),
        lambda g, _x: g.clone(),
        normal(3, 3),
        diagnosis="pass-through",
    ),
    specimen(
        "embedding-assigned",
        "An embedding whose rows are assigned and not accumulated",
        lambda x, rows: x[rows],
        _assigned,
        normal(5, 3),
        indices(*ROWS),
        diagnosis="overwritten",
    ),
    specimen(
        "gather-assigned",
        "A gather whose gradient is written with an index and not added",
        lambda x, rows: x[rows],
        _assigned,
        normal(7),
        indices(3, 0, 3, 5, 5, 1),
        diagnosis="overwritten",
    ),
    specimen(
        "windows-assigned",
        "Overlapping windows whose gradients overwrite each other",
        _windows,
        _windows_assigned,
        normal(10),
        diagnosis="overwritten",
    ),
    specimen(
        "last-chunk",
        "Work in chunks of which the last one's gradient is returned",
        lambda x: x.sin(),
        _last_chunk,
        normal(6, 2),
        diagnosis="block",
    ),
    specimen(
        "loop-ends-early",
        "A loop over rows that ends one early",
        lambda x: x * x,
        _all_but_last_row,
        normal(5, 3),
        diagnosis="block",
    ),
    specimen(
        "first-of-batch",
        "A batch of which the first element alone is differentiated",
        lambda x: x.exp(),
        _first_of_batch,
        normal(4, 2, 2),
        diagnosis="block",
    ),
    specimen(
        "imaginary-lost",
        "A complex input whose gradient is made real",
        lambda z: (z * z.conj()).real.sum(),
        lambda g, z: (2 * g * z.real).to(z.dtype),
        complex_normal(5),
        diagnosis="block",
    ),
    specimen(
        "scale-forgotten",
        "A learnt scale that the backward returns None for",
        lambda x, s: x * s,
        lambda g, _x, s: (g * s, None),
        normal(4, 3),
        normal(3, seed=2),
        diagnosis="detached",
    ),
    specimen(
        "through-a-number",
        "A norm that is turned into zeros on its way back",
        lambda x: x.sin(),
        lambda _g, x: torch.zeros_like(x),
        normal(6),
        diagnosis="detached",
    ),
    specimen(
        "leaky-as-relu",
        "A leaky relu with the mask of a plain one",
        lambda x: torch.nn.functional.leaky_relu(x, 0.1),
        lambda g, x: g * (x > 0),
        normal(4, 4),
        diagnosis="mask",
    ),
    specimen(
        "relu-without-mask",
        "A squared relu whose backward forgets the mask",
        lambda x: torch.relu(x) ** 2,
        lambda g, x: 2 * g * x,
        normal(12),
        diagnosis="mask",
    ),
    specimen(
        "clamp-one-sided",
        "A clamp whose backward knows the lower bound alone",
        lambda x: (3 * x).clamp(-1, 1),
        lambda g, x: 3 * g * (3 * x > -1),
        normal(16),
        diagnosis="mask",
    ),
    specimen(
        "huber-outside",
        "A Huber loss that is differentiated as a square everywhere",
        lambda x: torch.nn.functional.huber_loss(x, torch.zeros_like(x), reduction="none", delta=0.7),
        lambda g, x: g * x,
        normal(20),
        diagnosis="mask",
    ),
    specimen(
        "elu-below-zero",
        "An elu whose negative side has the derivative of another function",
        lambda x: torch.nn.functional.elu(x),
        lambda g, x: torch.where(x > 0, g, g * x.sigmoid()),
        normal(14),
        diagnosis="mask",
    ),
)
