"""Bugs of layers, losses, gates, heads and learned quantisers.

They were written, with the names that are right for them, before the diagnosis ran on them. The family is the kind of
mistake. A bug of the family "no pattern" has no right name.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.realistic.bug import bug, fixed, pulled_back, unrelated
from gradproof.gallery.specimen import normal, positive

SMOOTHED = fixed(5, 4, seed=201).softmax(-1)
OCCUPIED = (fixed(3, 6, seed=202) > 0).double()
CLASSES = torch.tensor([2, 0, 1, 2, 1])
RARITY = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64)
DISTANCES = torch.arange(4)[:, None] - torch.arange(4) + 3
START = fixed(3, seed=203)
DEPTHWISE = fixed(3, 1, 3, seed=204)
GATE = fixed(4, 3, seed=205)
EXPERTS = fixed(3, 4, 2, seed=206)
LAYER = fixed(4, 3, seed=207)
AIM = fixed(12, seed=208)
TEMPERATURE = 0.4


def _snake_without_quotient(g: Tensor, x: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
    slope = (2 * a * x).sin()
    return g * (1 + slope), (g * x * slope / a).sum(0)


def _cosine(x: Tensor, w: Tensor) -> Tensor:
    lengths: Tensor = torch.linalg.vector_norm(x, dim=-1) * torch.linalg.vector_norm(w, dim=-1)
    return (x * w).sum(-1) / lengths


def _cosine_norm_held(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x.norm(dim=-1, keepdim=True), w.norm(dim=-1, keepdim=True)
    cosine, g = _cosine(x, w)[:, None], g[:, None]
    return g * w / (a * b), g * (x / (a * b) - cosine * w / b**2)


def _dice(p: Tensor) -> Tensor:
    return 1 - 2 * (p * OCCUPIED).sum(-1) / (p + OCCUPIED).sum(-1)


def _dice_quotient_added(g: Tensor, p: Tensor) -> Tensor:
    overlap, total = 2 * (p * OCCUPIED).sum(-1, keepdim=True), (p + OCCUPIED).sum(-1, keepdim=True)
    return g[:, None] * (-2 * OCCUPIED / total - overlap / total**2)


def _distances(a: Tensor, p: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    return ((a - p) ** 2).sum(-1), ((a - n) ** 2).sum(-1)


def _triplet(a: Tensor, p: Tensor, n: Tensor) -> Tensor:
    near, far = _distances(a, p, n)
    return (near - far + 1).relu()


def _triplet_without_margin(g: Tensor, a: Tensor, p: Tensor, n: Tensor) -> tuple[Tensor, ...]:
    near, far = _distances(a, p, n)
    h = 2 * (g * (near > far))[:, None]
    return h * (n - p), h * (p - a), h * (a - n)


def _root_mean_square(x: Tensor) -> Tensor:
    return (x**2).mean(-1, keepdim=True).sqrt()


def _relative(q: Tensor, k: Tensor, bias: Tensor) -> Tensor:
    return (q @ k.mT + bias[DISTANCES]).tanh()


def _relative_assigned(g: Tensor, q: Tensor, k: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    h = g * (1 - _relative(q, k, bias) ** 2)
    return h @ k, h.mT @ q, torch.zeros_like(bias).index_put((DISTANCES,), h)


def _recurrent(x: Tensor, w: Tensor) -> Tensor:
    states = [START]
    for entry in x:
        states.append((w * states[-1] + entry).tanh())
    return torch.stack(states[1:])


def _recurrent_with_new_state(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    states, back = _recurrent(x, w), torch.zeros_like(w)
    slopes, weight = torch.zeros_like(x), torch.zeros_like(w)
    for t in reversed(range(len(x))):
        slopes[t] = (g[t] + back) * (1 - states[t] ** 2)
        weight = weight + slopes[t] * states[t]
        back = slopes[t] * w
    return slopes, weight


def _soft_round(x: Tensor, s: Tensor) -> Tensor:
    return s * (x / s + 0.1 * (2 * torch.pi * x / s).sin())


def _soft_round_step_outside(g: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    slope = 1 + 0.2 * torch.pi * (2 * torch.pi * x / s).cos()
    return g * slope, (g * _soft_round(x, s) / s).sum(0)


def _per_channel(x: Tensor, s: Tensor) -> Tensor:
    return (x * s).tanh()


def _per_row(g: Tensor, x: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    h = g * (1 - _per_channel(x, s) ** 2)
    return h * s, (h * x).sum(1)


def _depthwise(x: Tensor) -> Tensor:
    return f.conv1d(x, DEPTHWISE, padding=1, groups=3)


def _blocks_turned(g: Tensor, x: Tensor) -> Tensor:
    blocks = f.pixel_unshuffle(g, 2).reshape(1, 2, 2, 2, 2, 2)
    return blocks.transpose(2, 3).reshape(x.shape) * x.exp()


def _contrastive(q: Tensor, k: Tensor) -> Tensor:
    return f.cross_entropy(q @ k.mT / TEMPERATURE, torch.arange(len(q)))


def _contrastive_wrong_twice(g: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    p = (q @ k.mT / TEMPERATURE).softmax(-1)
    right = (p - torch.eye(len(q), dtype=q.dtype)) / len(q)
    return g * right @ k / TEMPERATURE**2, g * p.mT @ q / (len(q) * TEMPERATURE)


def _heated(x: Tensor, t: Tensor) -> Tensor:
    return (x / t).log_softmax(-1)


def _heated_without_sign(g: Tensor, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    h = g - _heated(x, t).exp() * g.sum(-1, keepdim=True)
    return h / t, (h * x).sum().reshape(1) / t**2


def _mixture(x: Tensor, gates: Tensor) -> Tensor:
    return (gates[..., None] * torch.einsum("bi,eio->beo", x, EXPERTS).tanh()).sum(1)


def _gates(x: Tensor) -> Tensor:
    return (x @ GATE).softmax(-1)


def _weighted_entropy(x: Tensor) -> Tensor:
    return f.cross_entropy(x, CLASSES, reduction="none") * RARITY[CLASSES]


LEARNING = (
    bug(
        "gate of a linear unit with the slope of tanh",
        lambda a, b: a * b.sigmoid(),
        lambda g, a, b: (g * b.sigmoid(), g * a * (1 - b.sigmoid() ** 2)),
        normal(4, 3),
        normal(4, 3, seed=2),
        names="wrong-factor",
        family="activation",
    ),
    bug(
        "saved output of an exponential unit for its slope",
        lambda x: f.elu(x, 1.5),
        lambda g, x: g * torch.where(x > 0, 1.0, f.elu(x, 1.5)),
        normal(15),
        names="wrong-factor missing-term",
        family="saved tensor",
    ),
    bug(
        "quotient of a snake's frequency",
        lambda x, a: x + (a * x).sin() ** 2 / a,
        _snake_without_quotient,
        normal(5, 4),
        positive(4),
        names="missing-term",
        family="product rule",
    ),
    bug(
        "norm of a query detached",
        _cosine,
        _cosine_norm_held,
        normal(6, 4),
        normal(6, 4, seed=2),
        names="missing-term detached",
        family="detached",
    ),
    bug(
        "smoothed labels summed, not averaged",
        lambda x: -(SMOOTHED * x.log_softmax(-1)).sum(-1).mean(),
        lambda g, x: g * (x.softmax(-1) - SMOOTHED),
        normal(5, 4),
        names="factor",
        family="reduction",
    ),
    bug(
        "focus of a loss held constant",
        lambda x: -((1 - x.sigmoid()) ** 2) * f.logsigmoid(x),
        lambda g, x: -g * (1 - x.sigmoid()) ** 3,
        normal(14),
        names="missing-term",
        family="product rule",
    ),
    bug(
        "total of an overlap added",
        _dice,
        _dice_quotient_added,
        positive(3, 6),
        names="wrong-term",
        family="sign",
    ),
    bug(
        "margin of a triplet forgotten where it is active",
        _triplet,
        _triplet_without_margin,
        normal(9, 3),
        normal(9, 3, seed=2),
        normal(9, 3, seed=3),
        names="mask",
        family="mask",
    ),
    bug(
        "root mean square not cubed",
        lambda x: x / _root_mean_square(x),
        lambda g, x: (g - x * (g * x).mean(-1, keepdim=True)) / _root_mean_square(x),
        normal(4, 5),
        names="wrong-term",
        family="power",
    ),
    bug(
        "centred over the batch on the way back",
        lambda x: x - x.tanh().mean(-1, keepdim=True),
        lambda g, x: g - g.mean(0) * (1 - x.tanh() ** 2),
        normal(4, 6),
        names="wrong-dimension wrong-term",
        family="reduction",
    ),
    bug(
        "relative bias assigned",
        _relative,
        _relative_assigned,
        normal(4, 3),
        normal(4, 3, seed=2),
        normal(7, seed=3),
        names="overwritten",
        family="accumulation",
    ),
    bug(
        "new state for the old one",
        _recurrent,
        _recurrent_with_new_state,
        normal(5, 3),
        normal(3, seed=2),
        names="stale shifted wrong-factor",
        family="saved tensor",
    ),
    bug(
        "carry of a highway not gated",
        lambda x, t, a: t.sigmoid() * a.tanh() + (1 - t.sigmoid()) * x,
        lambda g, x, t, a: (
            g,
            g * (a.tanh() - x) * t.sigmoid() * (1 - t.sigmoid()),
            g * t.sigmoid() * (1 - a.tanh() ** 2),
        ),
        normal(8),
        normal(8, seed=2),
        normal(8, seed=3),
        names="pass-through wrong-factor",
        family="forgotten weight",
    ),
    bug(
        "step of a soft quantiser within its levels",
        _soft_round,
        _soft_round_step_outside,
        normal(5, 3),
        positive(3),
        names="missing-term",
        family="missing term",
    ),
    bug(
        "learned step of rows for columns",
        _per_channel,
        _per_row,
        normal(4, 4),
        positive(4),
        names="wrong-dimension transposed",
        family="reduction",
    ),
    bug(
        "clipping level from zero upwards",
        lambda x, a: torch.minimum(x.relu(), a),
        lambda g, x, a: (g * ((x > 0) & (x < a)), (g * (x > 0)).sum(0)),
        normal(9, 4),
        positive(4),
        names="mask",
        family="clamp border",
    ),
    bug(
        "depthwise taps not reversed",
        lambda x: _depthwise(x).sin(),
        lambda g, x: _depthwise(g * _depthwise(x).cos()),
        normal(2, 3, 6),
        names="flipped transposed",
        family="index map",
    ),
    bug(
        "subpixels turned",
        lambda x: f.pixel_shuffle(x.exp(), 2),
        _blocks_turned,
        normal(1, 8, 2, 2),
        names="misplaced transposed",
        family="index map",
    ),
    bug(
        "temperature twice and positives forgotten",
        _contrastive,
        _contrastive_wrong_twice,
        normal(4, 3),
        normal(4, 3, seed=2),
        names="factor missing-term",
        family="two mistakes",
    ),
    bug(
        "temperature raises the odds",
        _heated,
        _heated_without_sign,
        normal(4, 5),
        positive(1),
        names="sign",
        family="sign",
    ),
    bug(
        "variance's logarithm for the deviation's",
        lambda m, v: 0.5 * (m**2 + v.exp() - v - 1),
        lambda g, m, v: (g * m, g * (v.exp() - 1)),
        normal(10),
        normal(10, seed=2),
        names="factor",
        family="scale",
    ),
    bug(
        "own slope of a loss for each sample",
        lambda x: (x - AIM).cosh().log(),
        lambda g, x: (x - AIM).tanh(),
        normal(12),
        names="incoming-ignored",
        family="chain rule",
    ),
    bug(
        "gates of experts detached",
        lambda x: _mixture(x, _gates(x)),
        lambda g, x: pulled_back(_mixture, g, x, _gates(x))[0],
        normal(5, 4),
        names="missing-term detached",
        family="detached",
    ),
    bug(
        "rarity of a class forgotten",
        _weighted_entropy,
        lambda g, x: g[:, None] * (x.softmax(-1) - f.one_hot(CLASSES, 3)),
        normal(5, 3),
        names="wrong-factor",
        family="forgotten weight",
    ),
    bug(
        "buffer of another layer returned",
        lambda x: (x @ LAYER).tanh(),
        lambda g, x: unrelated(g, x, seed=211),
        normal(4, 4),
        names="",
        family="no pattern",
    ),
    bug(
        "uninitialised workspace multiplied in",
        lambda x: f.gelu(x).softmax(-1),
        lambda g, x: unrelated(g, x, seed=212) * unrelated(x, x, seed=213).cos(),
        normal(4, 5),
        names="",
        family="no pattern",
    ),
)
