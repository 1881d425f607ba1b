"""Are terms told by what they consist of, and factors by where, and at which points, they are the same?"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as f

from gradproof import Verdict, check
from gradproof.gallery.specimen import complex_normal, normal, planted, positive

MATRIX = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
OTHER = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
HIDDEN = 0.5 + torch.rand(12, dtype=torch.float64, generator=torch.Generator().manual_seed(7))
COUNTS = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0, 2.0, 2.0, 1.0, 3.0, 3.0, 1.0, 2.0], dtype=torch.float64)
KINDS = torch.tensor([0.5, 2.0, 3.0, 0.5, 1.0, 2.0, 3.0, 3.0, 0.5, 1.0, 2.0, 2.0], dtype=torch.float64)
LABELS = f.one_hot(torch.tensor([1, 0, 2, 2, 1]), 4).double()
KEPT = torch.tensor([1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1]).double()
FROM, TO = torch.tensor([0, 1, 1, 2, 3, 4]), torch.tensor([1, 2, 3, 4, 4, 0])
WORDS, AT = torch.tensor([3, 1, 4, 4, 0, 2]), torch.tensor([2, 1, 0, 3, 4, 0])
STEP = 0.25


def autograd(function, g, *inputs):
    """The right gradients."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        return torch.autograd.grad(function(*leaves), leaves, g)


def distances(x, y):
    return x.square().sum(-1, keepdim=True) - 2 * x @ y.mT + y.square().sum(-1)


def moved(x, v):
    return x + STEP * v - 0.5 * STEP**2 * x.sin()


def projected(x, v):
    return x - (x @ v)[:, None] * v / v.dot(v)


def length_held(g, x, v):
    return projected(g, v), -((g @ v) @ x + (x @ v) @ g) / v.dot(v)


def mixture(x, means):
    return (-0.5 * (x[:, None] - means) ** 2).logsumexp(-1)


def shares_forgotten(g, x, means):
    return autograd(mixture, g, x, means)[0], (g[:, None] * (x[:, None] - means)).sum(0)


def chunked(g, x, size):
    return g[:, None] * torch.cat([chunk.softmax(-1) for chunk in x.split(size, -1)], -1)


def chained(scores, moves):
    state = scores[:, 0]
    for each in scores.unbind(1)[1:]:
        state = (state[:, :, None] + moves).logsumexp(1) + each
    return state.logsumexp(-1)


def last_move_forgotten(g, scores, moves):
    return autograd(chained, g, scores, moves)[0], autograd(chained, g, scores[:, :-1], moves)[1]


def shared_out(x, v):
    return x.softmax(0) @ v


def overlap(x):
    p = x.sigmoid()
    return (p * LABELS).sum(-1) / (p + LABELS).sum(-1)


def overlap_gradient(g, x, denominator):
    p = x.sigmoid()
    whole = (p + LABELS).sum(-1, keepdim=True)
    return g[:, None] * p * (1 - p) * (LABELS / whole - denominator * (p * LABELS).sum(-1, keepdim=True) / whole**2)


def wrapped(x, y):
    apart = x[:, None] - y
    return (apart - 2 * (apart / 2).round()) ** 2


def halved(x):
    return torch.tril(MATRIX) @ x + torch.tril(MATRIX, -1).mT @ x.sin()


# what the mistake is called, the function, its inputs, the wrong gradient, and one that may not be called so
CASES = {
    "a square that is not there": (
        "missing-term",
        distances,
        (normal(5, 3), normal(4, 3, seed=2)),
        lambda g, x, y: (2 * g.sum(-1, keepdim=True) * x - 2 * g @ y, -2 * g.mT @ x),
        lambda g, x, y: (2 * g.sum(-1, keepdim=True) * x - 2 * g @ y, -2 * g.mT @ x + 5 * g.sum(0)[:, None] * y),
    ),
    "a step that is not squared": (
        "wrong-term",
        moved,
        (normal(12), normal(12, seed=2)),
        lambda g, x, v: (g * (1 - 0.5 * STEP * x.cos()), STEP * g),
        lambda g, x, v: (g * (1 - STEP**2 * (1.1 * x).cos()), STEP * g),
    ),
    "the product rule of a gate": (
        "missing-term",
        lambda x, gate: gate.sigmoid() * x.sin() + (1 - gate.sigmoid()) * x,
        (normal(13), normal(13, seed=2)),
        lambda g, x, gate: (
            g * (gate.sigmoid() * x.cos() + 1 - gate.sigmoid()),
            g * gate.sigmoid() * (1 - gate.sigmoid()) * x.sin(),
        ),
        lambda g, x, gate: (
            g * (gate.sigmoid() * x.cos() + 1 - gate.sigmoid()),
            g * gate.sigmoid() * (1 - gate.sigmoid()) * (2 * x).sin(),
        ),
    ),
    "a denominator that is forgotten": (
        "wrong-factor",
        lambda x: (5 + x * x).log(),
        (normal(14),),
        lambda g, x: 2 * g * x / 5,
        lambda g, x: 2 * g * x / (5 + x * x) + 0.3 * g,
    ),
    "weights that add up to one": (
        "wrong-factor",
        mixture,
        (normal(8), normal(4, seed=2)),
        shares_forgotten,
        lambda g, x, means: (autograd(mixture, g, x, means)[0], (g[:, None] * (x[:, None] - 2 * means)).sum(0)),
    ),
    "a softmax of each chunk": (
        "wrong-factor",
        lambda x: x.logsumexp(-1),
        (normal(5, 9),),
        lambda g, x: chunked(g, x, 3),
        lambda g, x: chunked(g, x, 3) + 0.1 * g[:, None] * x,
    ),
    "a length that is held constant": (
        "missing-term",
        projected,
        (normal(5, 4), normal(4, seed=2)),
        length_held,
        lambda g, x, v: (projected(g, v), 0.37 * length_held(g, x, v)[1] + autograd(projected, g, x, v)[1]),
    ),
    "one of several steps": (
        "missing-term",
        chained,
        (normal(5, 4, 3), normal(3, 3, seed=2)),
        last_move_forgotten,
        lambda g, scores, moves: (
            autograd(chained, g, scores, moves)[0],
            1.5 * last_move_forgotten(g, scores, moves)[1] + 0.1 * moves * g.sum(),
        ),
    ),
    "a denominator that is held constant": (
        "missing-term",
        overlap,
        (normal(5, 4),),
        lambda g, x: overlap_gradient(g, x, 0),
        lambda g, x: overlap_gradient(g, x, 0.5),
    ),
    "a dropout of what is not dropped": (
        "mask",
        lambda x, r: r.sin() + KEPT * x / 0.6,
        (normal(12), normal(12, seed=2)),
        lambda g, _x, r: (g * KEPT / 0.6, g * r.cos() * KEPT / 0.6),
        lambda g, _x, r: (g * KEPT / 0.6, g * r.cos() * KEPT * HIDDEN),
    ),
    "another period": (
        "stale",
        wrapped,
        (normal(4, 2), normal(5, 2, seed=2)),
        lambda g, x, y: ((2 * g * (x[:, None] - y)).sum(1), autograd(wrapped, g, x, y)[1]),
        lambda g, x, y: ((2 * g * (x[:, None] - 1.3 * y)).sum(1), autograd(wrapped, g, x, y)[1]),
    ),
    "rows of a table in their own order": (
        "misplaced",
        lambda table, w: table[WORDS] * w[:, None],
        (normal(5, 4), positive(6)),
        lambda g, table, w: (torch.zeros_like(table).index_add(0, WORDS, g * w[:, None]), (g * table[AT]).sum(-1)),
        lambda g, table, w: (
            torch.zeros_like(table).index_add(0, WORDS, g * w[:, None]),
            (g * (table[WORDS] + HIDDEN[:6, None])).sum(-1),
        ),
    ),
    "the imaginary unit": (
        "factor",
        lambda z: (1j * z).exp(),
        (complex_normal(6),),
        lambda g, z: g * (1j * z).exp().conj(),
        lambda g, z: g * (1j * z).exp().conj() * (1 + 0.3 * z),
    ),
    "branches that are exchanged": (
        "mask",
        lambda x: torch.maximum(0.9 * x, -0.4 * x),
        (normal(16),),
        lambda g, x: g * torch.where(x < 0, 0.9, -0.4),
        lambda g, x: g * (0.9 * x).cos(),
    ),
    "a weight that is no input": (
        "wrong-factor",
        lambda x: KINDS * x.sin(),
        (normal(12),),
        lambda g, x: g * x.cos(),
        lambda g, x: KINDS * g * x.cos() * HIDDEN,
    ),
    "another input that is not read": (
        "missing-term",
        lambda x, y: x.sin() + (x * y).erf(),
        (normal(9), normal(9, seed=2)),
        lambda g, x, y: (g * x.cos(), autograd(lambda x, y: (x * y).erf(), g, x, y)[1]),
        lambda g, x, y: (g * (x * y).cos(), autograd(lambda x, y: (x * y).erf(), g, x, y)[1]),
    ),
    "the sign of one of three terms": (
        "wrong-term",
        lambda x: x * x.tanh() + x.square(),
        (normal(40, 3),),
        lambda g, x: g * (x.tanh() + x * (1 + x.tanh() ** 2) + 2 * x),
        lambda g, x: g * (x.tanh() + 3 * x + x * (1.3 * x).tanh() ** 2),
    ),
    "the logarithm of a power": (
        "wrong-factor",
        lambda x, y: x**y,
        (positive(10), positive(10, seed=2)),
        lambda g, x, y: (g * y * x ** (y - 1), g * x**y),
        lambda g, x, y: (g * y * x ** (y - 1), g * x**y * (x.log() + 0.3)),
    ),
    "the two of a square within a sum": (
        "missing-term",
        lambda x: 0.7 * x + 0.4 * x * x,
        (normal(12),),
        lambda g, x: g * (0.7 + 0.4 * x),
        lambda g, x: g * (0.4 + 0.8 * x),
    ),
    "a term with another input's sign": (
        "wrong-term",
        lambda x, y: x.sin() * x.exp() + y * x.cos(),
        (normal(10), normal(10, seed=2)),
        lambda g, x, y: (g * ((x.sin() + x.cos()) * x.exp() + y * x.sin()), g * x.cos()),
        lambda g, x, y: (g * ((x.sin() + x.cos()) * x.exp() - (y + 0.5).erf() * x.sin()), g * x.cos()),
    ),
    "edges whose ends are exchanged": (
        "misplaced",
        lambda x, w: torch.zeros_like(x).index_add(0, TO, w[:, None] * x[FROM]),
        (normal(5, 3), normal(6, seed=2)),
        lambda g, x, w: (torch.zeros_like(x).index_add(0, FROM, w[:, None] * g[TO]), (g[FROM] * x[TO]).sum(-1)),
        lambda g, x, w: (torch.zeros_like(x).index_add(0, FROM, w[:, None] * g[TO]), (g[FROM] * x[TO].exp()).sum(-1)),
    ),
    "a bilinear form": (
        "transposed",
        lambda x, y: torch.einsum("bi,ij,bj->b", x, MATRIX, y),
        (normal(3, 4), normal(3, 4, seed=2)),
        lambda g, x, y: (g[:, None] * y @ MATRIX, g[:, None] * x @ MATRIX),
        lambda g, x, y: (g[:, None] * y @ OTHER, g[:, None] * x @ MATRIX),
    ),
    "a quadratic form": (
        "transposed",
        lambda x: torch.einsum("bi,ij,bj->b", x, MATRIX, x),
        (normal(3, 4),),
        lambda g, x: 2 * g[:, None] * (x @ MATRIX),
        lambda g, x: 2 * g[:, None] * (x @ OTHER),
    ),
    "a share of the value": (
        "missing-term",
        shared_out,
        (normal(6), normal(6, 2, seed=2)),
        lambda g, x, v: (x.softmax(0) * (v @ g), torch.outer(x.softmax(0), g)),
        lambda g, x, v: (x.softmax(0) * ((v - 3 * shared_out(x, v)) @ g), torch.outer(x.softmax(0), g)),
    ),
    "counts that are no input": (
        "missing-term",
        lambda x: x.exp() - COUNTS * x,
        (normal(12),),
        lambda g, x: g * x.exp(),
        lambda g, x: g * (x.exp() - HIDDEN),
    ),
    "a border that is reflected": (
        "missing-term",
        lambda x: f.pad(x[None], (2, 2), mode="reflect")[0].sinh(),
        (normal(2, 7),),
        lambda g, x: g[:, 2:-2] * x.cosh(),
        lambda g, x: 1.7 * g[:, 2:-2] * x.cosh(),
    ),
    "a term alone in some entries": (
        "wrong-term",
        halved,
        (normal(4, 2),),
        lambda g, x: 2 * MATRIX.tril().mT @ g + x.cos() * (MATRIX.tril(-1) @ g),
        lambda g, x: MATRIX.tril().mT @ g + x.cos() * (OTHER.tril(-1) @ g),
    ),
}


def first_name(function, gradient, inputs):
    report = check(planted("Bug", function, gradient), tuple(make() for make in inputs), seed=2, contracts=())
    assert report.verdict is Verdict.FAIL
    return next((diagnosis.name for finding in report.findings for diagnosis in finding.diagnoses), "")


@pytest.mark.parametrize("case", CASES)
def test_the_first_name_is_that_of_the_mistake(case):
    name, function, inputs, wrong, _ = CASES[case]

    assert first_name(function, wrong, inputs) == name


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_beside_it_has_another_name_or_none(case):
    name, function, inputs, _, near = CASES[case]

    assert first_name(function, near, inputs) != name
