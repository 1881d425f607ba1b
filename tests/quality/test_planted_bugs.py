"""Mistakes that people make in a backward, each beside its right twin: the mistake fails, the twin passes."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention

import gradproof
from gradproof import Verdict
from support.findings import entries_of
from support.functions import rule
from support.points import point, positive

SEEDS = range(2)


@dataclass(frozen=True, kw_only=True)
class Case:
    forward: Callable
    right: Callable
    wrong: Callable
    inputs: tuple
    entry: tuple | None = None  # where a single entry is wrong
    argument: str | None = None


def without(entry):
    def zeroed(g, x):
        gradient = g * x.cos()
        gradient[entry] = 0
        return gradient

    return zeroed


def swapped(g, x):
    gradient = g * x.cos()
    gradient[[2, 5]] = gradient[[5, 2]]
    return gradient


MASK = (torch.arange(12) % 3 > 0).double()
INDEX = torch.tensor([0, 2, 2, 4, 0, 2])
STALE = torch.linspace(1, 2, 6, dtype=torch.float64)


def softmax_backward(axis):
    def backward(g, x):
        y = x.softmax(1)
        return y * (g - (g * y).sum(axis, keepdim=True))

    return backward


def overwritten(g, x):
    gradient = torch.zeros_like(x)
    gradient[INDEX] = g
    return gradient


def accumulated(g, x):
    return torch.zeros_like(x).index_add(0, INDEX, g)


def last_block(factor):
    def backward(g, x):
        gradient = g * x.cos()
        gradient[-64:] *= factor
        return gradient

    return backward


def normalised_right(g, x):
    norm = x.norm()
    return g / norm - x * (g * x).sum() / norm**3


def padded(g, x):
    return g[1:-1]


def reflected(g, x):
    gradient = g[1:-1].clone()
    gradient[1] += g[0]
    gradient[-2] += g[-1]
    return gradient


def tiny_where_right(g, x):
    return g * torch.where(x > 0, 0.5 / torch.where(x > 0, x, 1.0).sqrt(), 0.0)


CASES = {
    "an entry zeroed": Case(
        forward=torch.sin, right=lambda g, x: g * x.cos(), wrong=without(7), inputs=(point(20),), entry=(7,)
    ),
    "an entry of a matrix zeroed": Case(
        forward=torch.sin,
        right=lambda g, x: g * x.cos(),
        wrong=without((3, 4)),
        inputs=(point(30, 40),),
        entry=(3, 4),
    ),
    "one entry of a hundred thousand zeroed": Case(
        forward=torch.sin,
        right=lambda g, x: g * x.cos(),
        wrong=without(77_777),
        inputs=(point(100_000),),
        entry=(77_777,),
    ),
    "the wrong sign": Case(
        forward=torch.cos, right=lambda g, x: -g * x.sin(), wrong=lambda g, x: g * x.sin(), inputs=(point(9),)
    ),
    "a factor of two": Case(
        forward=torch.square, right=lambda g, x: 2 * g * x, wrong=lambda g, x: g * x, inputs=(point(9),)
    ),
    "a factor of a millionth more than one": Case(
        forward=torch.exp,
        right=lambda g, x: g * x.exp(),
        wrong=lambda g, x: g * x.exp() * (1 + 1e-6),
        inputs=(point(50),),
    ),
    "two entries swapped": Case(forward=torch.sin, right=lambda g, x: g * x.cos(), wrong=swapped, inputs=(point(20),)),
    "the gradient of a weight transposed": Case(
        forward=lambda x, w: x @ w,
        right=lambda g, x, w: (g @ w.T, x.T @ g),
        wrong=lambda g, x, w: (g @ w.T, (x.T @ g).T),
        inputs=(point(4, 5), point(5, 5, seed=2)),
        argument="inputs[1]",
    ),
    "a mean instead of a sum over a broadcast dimension": Case(
        forward=lambda x, b: x * b,
        right=lambda g, x, b: (g * b, (g * x).sum(0)),
        wrong=lambda g, x, b: (g * b, (g * x).mean(0)),
        inputs=(point(6, 5), point(5, seed=2)),
        argument="inputs[1]",
    ),
    "one row instead of a sum over a broadcast dimension": Case(
        forward=lambda x, b: x + b,
        right=lambda g, x, b: (g, g.sum(0)),
        wrong=lambda g, x, b: (g, g[0]),
        inputs=(point(6, 5), point(5, seed=2)),
        argument="inputs[1]",
    ),
    "a missing conjugate": Case(
        forward=torch.exp,
        right=lambda g, z: g * z.exp().conj(),
        wrong=lambda g, z: g * z.exp(),
        inputs=(point(7, dtype=torch.complex128),),
    ),
    "a missing conjugate in a product": Case(
        forward=lambda a, b: a * b,
        right=lambda g, a, b: (g * b.conj(), g * a.conj()),
        wrong=lambda g, a, b: (g * b.conj(), g * a),
        inputs=(point(7, dtype=torch.complex128), point(7, seed=2, dtype=torch.complex128)),
        argument="inputs[1]",
    ),
    "the incoming gradient ignored": Case(
        forward=torch.sin, right=lambda g, x: g * x.cos(), wrong=lambda g, x: x.cos(), inputs=(point(9),)
    ),
    "the incoming gradient summed": Case(
        forward=torch.sin, right=lambda g, x: g * x.cos(), wrong=lambda g, x: g.sum() * x.cos(), inputs=(point(9),)
    ),
    "a slice that is off by one": Case(
        forward=lambda x: x[2:8].exp(),
        right=lambda g, x: F.pad(g * x[2:8].exp(), (2, 2)),
        wrong=lambda g, x: F.pad(g * x[2:8].exp(), (1, 3)),
        inputs=(point(10),),
    ),
    "a missing term of the product rule": Case(
        forward=lambda x: x * x.sin(),
        right=lambda g, x: g * (x.sin() + x * x.cos()),
        wrong=lambda g, x: g * x.sin(),
        inputs=(point(9),),
    ),
    "a softmax over the wrong axis": Case(
        forward=lambda x: x.softmax(1), right=softmax_backward(1), wrong=softmax_backward(0), inputs=(point(5, 6),)
    ),
    "a softmax without its cross terms": Case(
        forward=lambda x: x.softmax(1),
        right=softmax_backward(1),
        wrong=lambda g, x: g * x.softmax(1) * (1 - x.softmax(1)),
        inputs=(point(5, 6),),
    ),
    "a dropout that forgets its mask": Case(
        forward=lambda x: x * MASK * 1.5,
        right=lambda g, x: g * MASK * 1.5,
        wrong=lambda g, x: g * 1.5,
        inputs=(point(12),),
    ),
    "a dropout that forgets its scale": Case(
        forward=lambda x: x * MASK * 1.5,
        right=lambda g, x: g * MASK * 1.5,
        wrong=lambda g, x: g * MASK,
        inputs=(point(12),),
    ),
    "a mean that forgets its number": Case(
        forward=lambda x: x.square().mean(),
        right=lambda g, x: g * 2 * x / x.numel(),
        wrong=lambda g, x: g * 2 * x,
        inputs=(point(12),),
    ),
    "a variance with the wrong number": Case(
        forward=lambda x: x.var(),
        right=lambda g, x: g * 2 * (x - x.mean()) / (x.numel() - 1),
        wrong=lambda g, x: g * 2 * (x - x.mean()) / x.numel(),
        inputs=(point(12),),
    ),
    "a stale saved tensor": Case(
        forward=lambda x: x**3,
        right=lambda g, x: 3 * g * x**2,
        wrong=lambda g, x: 3 * g * STALE**2,
        inputs=(point(6),),
    ),
    "duplicates of a gather overwritten": Case(
        forward=lambda x: x[INDEX], right=accumulated, wrong=overwritten, inputs=(point(5),)
    ),
    "NaN from the unused branch of a where": Case(
        forward=lambda x: torch.where(x > 0, x.clamp(min=0).sqrt(), torch.zeros_like(x)),
        right=tiny_where_right,
        wrong=lambda g, x: torch.where(x > 0, g, 0.0) * 0.5 / x.clamp(min=0).sqrt(),
        inputs=(torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True),),
        entry=(1,),
    ),
    "a single-precision constant": Case(
        forward=lambda x: x * torch.pi,
        right=lambda g, x: g * torch.pi,
        wrong=lambda g, x: g * float(torch.tensor(torch.pi, dtype=torch.float32)),
        inputs=(point(9),),
    ),
    "a gradient through single precision": Case(
        forward=lambda x: x.exp().sin(),
        right=lambda g, x: g * x.exp().cos() * x.exp(),
        wrong=lambda g, x: (g * x.exp().cos() * x.exp()).float().double(),
        inputs=(point(9),),
    ),
    "the gradient of the padding dropped": Case(
        forward=lambda x: F.pad(x[None], (1, 1), mode="reflect")[0], right=reflected, wrong=padded, inputs=(point(8),)
    ),
    "wrong for negative inputs alone": Case(
        forward=lambda x: x.abs(),
        right=lambda g, x: g * x.sign(),
        wrong=lambda g, x: g,
        inputs=(point(9),),
    ),
    "a leaky slope forgotten": Case(
        forward=lambda x: F.leaky_relu(x, 0.01),
        right=lambda g, x: torch.where(x > 0, g, 0.01 * g),
        wrong=lambda g, x: torch.where(x > 0, g, 0.0),
        inputs=(point(9),),
    ),
    "wrong in the last block alone": Case(
        forward=torch.sin, right=last_block(1), wrong=last_block(1.001), inputs=(point(1000),)
    ),
    "arguments mixed up": Case(
        forward=lambda a, b: a / b,
        right=lambda g, a, b: (g / b, -g * a / b**2),
        wrong=lambda g, a, b: (-g * a / b**2, g / b),
        inputs=(positive(6), positive(6, seed=2)),
    ),
    "a detached argument": Case(
        forward=lambda a, b: a * b,
        right=lambda g, a, b: (g * b, g * a),
        wrong=lambda g, a, b: (g * b, None),
        inputs=(point(6), point(6, seed=2)),
        argument="inputs[1]",
    ),
    "a relu mask from the wrong tensor": Case(
        forward=lambda a, b: (a + b).relu(),
        right=lambda g, a, b: (g * (a + b > 0), g * (a + b > 0)),
        wrong=lambda g, a, b: (g * (a > 0), g * (a + b > 0)),
        inputs=(point(20), point(20, seed=2)),
        argument="inputs[0]",
    ),
    "a clamp that lets everything through": Case(
        forward=lambda x: x.clamp(-0.5, 0.5),
        right=lambda g, x: g * (x.abs() < 0.5),
        wrong=lambda g, x: g,
        inputs=(point(20),),
    ),
    "a norm taken for a constant": Case(
        forward=lambda x: x / x.norm(),
        right=normalised_right,
        wrong=lambda g, x: g / x.norm(),
        inputs=(point(6),),
    ),
    "an exponent that is off by one": Case(
        forward=lambda x: x**4,
        right=lambda g, x: 4 * g * x**3,
        wrong=lambda g, x: 4 * g * x**4,
        inputs=(positive(6),),
    ),
    "a cumulative sum that runs the wrong way": Case(
        forward=lambda x: x.cumsum(0),
        right=lambda g, x: g.flip(0).cumsum(0).flip(0),
        wrong=lambda g, x: g.cumsum(0),
        inputs=(point(8),),
    ),
    "a permutation instead of its inverse": Case(
        forward=lambda x: x.permute(1, 2, 0).exp(),
        right=lambda g, x: (g * x.permute(1, 2, 0).exp()).permute(2, 0, 1),
        wrong=lambda g, x: (g * x.permute(1, 2, 0).exp()).permute(1, 2, 0),
        inputs=(point(3, 3, 3),),
    ),
    "an average pooling that forgets its window": Case(
        forward=lambda x: x.view(-1, 4).mean(1),
        right=lambda g, x: (g / 4).repeat_interleave(4),
        wrong=lambda g, x: g.repeat_interleave(4),
        inputs=(point(16),),
    ),
    "an epsilon added in the backward alone": Case(
        forward=torch.log,
        right=lambda g, x: g / x,
        wrong=lambda g, x: g / (x + 1e-6),
        inputs=(positive(6),),
    ),
}


def run(case, backward, seed):
    return gradproof.check(rule(case.forward, backward), case.inputs, seed=seed)


@pytest.mark.parametrize("name", CASES)
def test_the_right_twin_passes(name):
    verdicts = [run(CASES[name], CASES[name].right, seed).verdict for seed in SEEDS]

    assert set(verdicts) == {Verdict.PASS}


@pytest.mark.parametrize("name", CASES)
def test_the_mistake_fails_and_is_named_where_it_is_one_entry_or_one_argument(name):
    case = CASES[name]
    for report in [run(case, case.wrong, seed) for seed in SEEDS]:
        assert report.verdict is Verdict.FAIL
        if case.entry:
            assert [entry.index for entry in entries_of(report)] == [case.entry]
        if case.argument:
            assert [finding.argument for finding in report.findings] == [case.argument]


class Affine(torch.nn.Module):
    """x·W + b, with the gradient of b scaled by a factor that should be one."""

    def __init__(self, factor):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(4, 3, dtype=torch.float64))
        self.bias = torch.nn.Parameter(torch.randn(3, dtype=torch.float64))
        self.product = rule(
            lambda x, w, b: x @ w + b, lambda g, x, w, b: (g @ w.T, x.T @ g, g.sum(0) * factor if factor else None)
        )

    def forward(self, x):
        return self.product(x, self.weight, self.bias)


def test_a_module_whose_bias_gradient_is_missing_fails_and_names_the_bias():
    report = gradproof.check(Affine(factor=0), point(5, 4), seed=0)

    assert report.verdict is Verdict.FAIL
    assert [finding.argument for finding in report.findings] == ["bias"]


def test_the_same_module_with_its_bias_gradient_passes():
    assert gradproof.check(Affine(factor=1), point(5, 4), seed=0).passed


@pytest.mark.parametrize(
    "cut", [torch.Tensor.detach, lambda x: torch.tensor(x.tolist(), dtype=x.dtype)], ids=["detach", "tolist"]
)
def test_a_factor_cut_from_the_graph_fails(cut):
    assert gradproof.check(lambda x: cut(x) * x, point(6), seed=0).verdict is Verdict.FAIL


def test_a_backward_that_raises_fails():
    def broken(g, x):
        raise ValueError("shapes differ")

    assert gradproof.check(rule(torch.sin, broken), point(3), seed=0).findings[0].kind == "backward-raised"
