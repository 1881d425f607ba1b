"""Is every family of mistakes named where it is planted, and not where something else only looks like it?"""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as f

from gradproof import Verdict, check
from gradproof.gallery.specimen import normal, planted, positive

FROM, TO = torch.tensor([0, 0, 1, 2, 3, 3, 4, 5, 5, 1, 2]), torch.tensor([1, 2, 2, 0, 4, 5, 0, 3, 1, 5, 0])
DEGREES = torch.bincount(TO, minlength=6)[:, None].double()
SEGMENTS = torch.tensor([0, 0, 1, 2, 2, 2, 3])
NOISE = 1 + 0.4 * torch.randn(12, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(7))

TAPS = torch.tensor([[[0.9, -0.4, 0.3]]], dtype=torch.float64)
KERNEL = torch.randn(3, 2, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(8))


def noisy(gradient):
    """The gradient with a random factor in every entry."""
    return gradient * NOISE.reshape(-1)[: gradient.numel()].reshape(gradient.shape)


def messages(x, w):
    return torch.zeros_like(x).index_add(0, TO, w[:, None] * x[FROM])


def message_gradient(g, x, w, wrong):
    return torch.zeros_like(x).index_add(0, FROM, wrong[:, None] * g[TO]), (g[TO] * x[FROM]).sum(-1)


def neighbours(x):
    return torch.zeros_like(x).index_add(0, TO, x[FROM]) / DEGREES


def to_neighbours(g, weights):
    return torch.zeros_like(g).index_add(0, FROM, weights * g[TO])


def largest_first(g, x):
    result = torch.zeros_like(x)
    result[:, :3] = g
    return result


def softmax_gradient(g, x, correction):
    y = x.softmax(-1)
    return y * g + correction(y, g)


def layer_norm_gradient(g, x, times):
    rstd = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    y = (x - x.mean(-1, keepdim=True)) * rstd
    return rstd * (g - g.mean(-1, keepdim=True) - times * y * (g * y).mean(-1, keepdim=True))


def prelu(x, a):
    return torch.where(x > 0, x, a * x)


def prelu_gradient(g, x, a, slope):
    return g * torch.where(x > 0, 1.0, a), slope


# name, function, inputs, wrong gradient, and a gradient that only looks like it
FAMILIES = {
    "a factor that is a tensor": (
        "wrong-factor",
        lambda x, w: x.sin() * w,
        (normal(4, 5), positive(4, 5, seed=2)),
        lambda g, x, w: (g * x.cos(), g * x.sin()),
        lambda g, x, w: (g * x.cos() * (1 + 0.2 * x.sin()), g * x.sin()),
    ),
    "a factor for every output": (
        "wrong-factor",
        neighbours,
        (normal(6, 2),),
        lambda g, _x: to_neighbours(g, 1.0),
        lambda g, _x: to_neighbours(g, NOISE.reshape(-1)[:22].reshape(11, 2)),
    ),
    "a factor in the place of another": (
        "wrong-factor",
        lambda a, b: a * b.sigmoid(),
        (normal(4, 5), normal(4, 5, seed=2)),
        lambda g, a, b: (g * b, g * a * b.sigmoid() * (1 - b.sigmoid())),
        lambda g, a, b: (noisy(g * b), g * a * b.sigmoid() * (1 - b.sigmoid())),
    ),
    "a factor within a sum": (
        "wrong-factor",
        messages,
        (normal(6, 3), positive(11, seed=2)),
        lambda g, x, w: message_gradient(g, x, w, torch.ones_like(w)),
        lambda g, x, w: message_gradient(g, x, w, w + NOISE[0, :11]),
    ),
    "a factor that normalises": (
        "wrong-factor",
        lambda x: x / x.norm(dim=-1, keepdim=True),
        (normal(40, 6),),
        lambda g, x: g - x * (g * x).sum(-1, keepdim=True) / x.pow(2).sum(-1, keepdim=True),
        lambda g, x: g - x * (g * x).sum(-1, keepdim=True) / (0.3 + x.pow(2).sum(-1, keepdim=True)),
    ),
    "a shift by two": (
        "shifted",
        lambda x: x.sin().roll(2, -1),
        (normal(3, 8),),
        lambda g, x: g.roll(2, -1) * x.cos(),
        lambda g, x: noisy(g.roll(2, -1) * x.cos()),
    ),
    "a flip": (
        "flipped",
        lambda x: x.exp().flip(0),
        (normal(20, 6),),
        lambda g, x: g * x.exp(),
        lambda g, x: g * x.exp() * (1 + 0.1 * x),
    ),
    "a kernel that is not flipped": (
        "flipped",
        lambda x: f.conv2d(x, KERNEL, padding=1),
        (normal(1, 2, 4, 4),),
        lambda g, _x: f.conv_transpose2d(g, KERNEL.flip(-1, -2), padding=1),
        lambda g, _x: f.conv_transpose2d(g, noisy(KERNEL.flip(-1, -2)), padding=1),
    ),
    "a scatter to other places": (
        "misplaced",
        lambda x: x.topk(3, -1).values,
        (normal(4, 7),),
        largest_first,
        lambda g, x: noisy(largest_first(g, x)),
    ),
    "a permutation of many entries": (
        "misplaced",
        lambda x: x.sort(-1).values ** 2,
        (normal(10, 30),),
        lambda g, x: (2 * g * x.sort(-1).values).gather(-1, x.argsort(-1)),
        lambda g, x: (2.2 * g * x.sort(-1).values).gather(-1, x.argsort(-1)),
    ),
    "equal values in the wrong places": (
        "misplaced",
        lambda x: f.conv1d(x, TAPS, dilation=2, padding=2),
        (normal(2, 1, 10),),
        lambda g, _x: f.conv_transpose1d(g, TAPS, padding=1),
        lambda g, _x: f.conv_transpose1d(g, TAPS + 0.1, padding=1),
    ),
    "another dimension": (
        "wrong-dimension",
        lambda x, w: x * w,
        (normal(5, 5), normal(5, seed=2)),
        lambda g, x, w: (g * w, (g * x).sum(1)),
        lambda g, x, w: (g * w, ((g * x).sum(1) + (g * x).sum(0)) / 2),
    ),
    "a transpose between factors": (
        "flipped",
        lambda x: (x * x).cumsum(-1),
        (normal(2, 7),),
        lambda g, x: 2 * x * g.cumsum(-1),
        lambda g, x: 2 * x * (g @ NOISE[:7, :7].triu()),
    ),
    "a term with the wrong sign": (
        "wrong-term",
        lambda x: x.softmax(-1),
        (normal(3, 5),),
        lambda g, x: softmax_gradient(g, x, lambda y, g: y * (g * y).sum(-1, keepdim=True)),
        lambda g, x: softmax_gradient(g, x, lambda y, g: y * (g @ NOISE[:5, :5])),
    ),
    "a sum for a mean in a term": (
        "wrong-term",
        lambda x: f.layer_norm(x, x.shape[-1:]),
        (normal(12, 16),),
        lambda g, x: layer_norm_gradient(g, x, 16.0),
        lambda g, x: layer_norm_gradient(g, x, 1.0) * (1 + 0.3 * (9 * x).sin()),
    ),
    "an inner factor of a term": (
        "wrong-term",
        lambda x: x * (1.5 * x).sigmoid(),
        (normal(13),),
        lambda g, x: g * (s := (1.5 * x).sigmoid()) + g * x * s * (1 - s),
        lambda g, x: g * (s := (1.5 * x).sigmoid()) + g * x * s * (1 - s) ** 2,
    ),
    "the incoming gradient, repeated": (
        "pass-through",
        lambda x: x.logsumexp(-1),
        (normal(4, 5),),
        lambda g, x: g[:, None].expand(x.shape),
        lambda g, x: g[:, None] * (1 + 0.1 * x),
    ),
    "a sum over segments": (
        "doubled-sum",
        lambda x: torch.zeros(4, x.shape[1], dtype=x.dtype).index_add(0, SEGMENTS, x * x),
        (normal(7, 3),),
        lambda g, x: 2 * x * g.sum(0),
        lambda g, x: 2 * x * noisy(g).sum(0),
    ),
    "entries that should be zero": (
        "mask",
        prelu,
        (normal(8, 3), normal(3, seed=2)),
        lambda g, x, a: prelu_gradient(g, x, a, (g * x).sum(0)),
        lambda g, x, a: prelu_gradient(g, x, a, noisy(g * x).sum(0)),
    ),
}


def names(function, gradient, inputs):
    report = check(planted("Bug", function, gradient), tuple(make() for make in inputs), seed=2, contracts=())
    assert report.verdict is Verdict.FAIL
    return [diagnosis.name for finding in report.findings for diagnosis in finding.diagnoses]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mistake_of_the_family_is_named(family):
    name, function, inputs, wrong, _ = FAMILIES[family]

    assert names(function, wrong, inputs)[:1] == [name]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_mistake_that_only_looks_like_the_family_is_not_named_so(family):
    name, function, inputs, _, near = FAMILIES[family]

    assert name not in names(function, near, inputs)


def few(g, x):
    """A softmax's gradient of which four entries are wrong."""
    right = softmax_gradient(g, x, lambda y, g: -y * (g * y).sum(-1, keepdim=True)).reshape(-1)
    return torch.cat((right[:4] * NOISE[0, :4], right[4:])).reshape(x.shape)


# wrong without a pattern, where random numbers or another function come near one
ACCIDENTS = {
    "a few entries of many": (lambda x: x.softmax(-1), (normal(5, 6),), few),
    "a scalar with random factors": (lambda x: (x**3).sum(), (normal(3, 5),), lambda g, x: noisy(3 * g * x * x)),
    "a random matrix": (
        lambda x: x.sum(-1),
        (normal(3, 5),),
        lambda g, x: g[:, None] + x * (g @ NOISE[:3, :3])[:, None],
    ),
    "another smooth function": (
        lambda x: x.sin(),
        (normal(4, 5),),
        lambda g, x: g * (1.3 * (1.3 * x).cos() + (1.3 * x).sin()) * x.exp(),
    ),
}


@pytest.mark.parametrize("accident", ACCIDENTS)
def test_no_name_is_given_where_there_is_no_pattern(accident):
    function, inputs, wrong = ACCIDENTS[accident]

    assert names(function, wrong, inputs) == []
