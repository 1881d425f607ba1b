"""Full coverage passes right functions of every kind, in both modes and orders."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

from gradproof import GradientError, Verdict, assert_gradients, check
from support.checks import full
from support.functions import rule
from support.marks import both_modes
from support.points import point, positive


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(positive(3).detach())

    def forward(self, x):
        return (x * self.weight).tanh()


def expanded():
    return torch.tensor([[0.3], [0.7]], dtype=torch.float64).expand(2, 5).requires_grad_()


def with_gaps():
    return torch.linspace(0.2, 1.4, 24, dtype=torch.float64)[::2].requires_grad_()


def window(x):
    return torch.as_strided(x, (10, 3), (1, 1)).sin().sum(1)


RIGHT = {
    "a sine": (torch.sin, point(20)),
    "a sum": (lambda x: x.exp().sum(), point(14)),
    "a softmax": (lambda x: x.softmax(-1), point(4, 5)),
    "a product of matrices": (torch.matmul, (point(3, 4), point(4, 5, seed=2))),
    "a convolution": (F.conv1d, (point(2, 2, 9), point(3, 2, 3, seed=2))),
    "a padded convolution": (lambda x, w: F.conv2d(x, w, padding=1), (point(1, 1, 4, 4), point(2, 1, 3, 3))),
    "a layer norm": (lambda x: F.layer_norm(x, (6,)), point(3, 6)),
    "a cumulative product": (lambda x: x.cumprod(0), positive(12)),
    "an inverse": (torch.linalg.inv, point(4, 4)),
    "a determinant": (torch.linalg.det, point(4, 4)),
    "a sort": (lambda x: x.sort().values, point(15)),
    "a choice": (lambda x: x[[0, 3, 3, 7]], point(12)),
    "three inputs": (lambda a, b, c: a * b + c.sin(), (point(12), point(12, seed=2), point(12, seed=3))),
    "inputs of other shapes": (lambda a, b: a[:, None] * b, (point(3), point(5, seed=2))),
    "several outputs": (lambda x: (x.sin(), {"square": x**2, "sum": x.sum()}), point(13)),
    "numbers without dimensions": (lambda a, b: a * b.exp(), (point(), point(seed=2))),
    "an empty input": (lambda a, b: (a.sum() + b.sin(), a.exp()), (point(0, 3), point(12, seed=2))),
    "nothing at all": (torch.exp, point(0)),
    "an empty output": (lambda x: x[:0], point(4)),
    "an input with gaps": (torch.sin, with_gaps()),
    "an expanded input": (lambda x: x.sin() * 2, expanded()),
    "a transposed input": (torch.sinh, point(3, 5).detach().T.requires_grad_()),
    "overlapping windows": (window, point(12)),
    "an expanded output": (lambda x: x.sin().expand(3, 12), point(12)),
    "an input without influence": (lambda x, y: x.sin() + 0 * y.detach(), (point(12), point(12, seed=2))),
    "a constant": (lambda x: torch.ones(12, dtype=x.dtype) + 0 * x, point(12)),
    "the identity": (lambda x: x, point(12)),
    "a view": (lambda x: x.view(4, 3), point(12)),
    "real of real": (lambda x: x.cos(), point(12)),
    "complex of real": (lambda x: torch.exp(1j * x), point(12)),
    "real of complex": (lambda z: z.abs(), point(12, dtype=torch.complex128)),
    "complex of complex": (lambda z: z.exp() * z.conj(), point(12, dtype=torch.complex128)),
    "real and complex of both": (lambda x, z: (x * z, (x * z).real), (point(6), point(6, dtype=torch.complex128))),
    "a transform": (torch.fft.fft, point(9)),
    "a module": (Scaled(), point(4, 3)),
    "a linear layer": (nn.Linear(3, 4).double(), point(5, 3)),
    "large numbers": (lambda x: x * 1e200, point(12)),
    "small numbers": (lambda x: x * 1e-200, point(12)),
}  # fmt: skip


@both_modes
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(name, mode):
    report = full(*RIGHT[name], mode)

    assert report.verdict is Verdict.PASS, str(report)
    assert report.findings == ()


@both_modes
@pytest.mark.parametrize("name", ["a sine", "a softmax", "a product of matrices", "complex of complex", "a module"])
def test_a_right_function_passes_whatever_the_seed(name, mode):
    assert {full(*RIGHT[name], mode, seed=seed).verdict for seed in range(4)} == {Verdict.PASS}


SECOND = [
    "a sine",
    "a product of matrices",
    "three inputs",
    "several outputs",
    "numbers without dimensions",
    "an input with gaps",
    "real of complex",
    "complex of complex",
    "complex of real",
    "a linear layer",
    "a cumulative product",
    "the identity",
]


@pytest.mark.parametrize("modes", ["reverse", "forward", ["reverse", "forward"]], ids=str)
@pytest.mark.parametrize("name", SECOND)
def test_a_right_second_derivative_passes(name, modes):
    function, inputs = RIGHT[name]
    report = full(function, inputs, modes, order=2)

    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.parametrize(
    "modes",
    [
        "reverse",
        "forward",
        pytest.param(
            ["reverse", "forward"],
        ),
    ],
    ids=str,
)
def test_the_second_derivative_of_a_softmax_passes(modes):
    assert full(*RIGHT["a softmax"], modes, order=2).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64])
@both_modes
def test_low_precision_passes(dtype, mode):
    x = positive(12).detach().to(dtype).requires_grad_()

    assert full(lambda x: x * x + x, x, mode).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_error_in_low_precision_is_found(dtype):
    wrong = rule(torch.square, lambda g, x: g * x)

    assert full(wrong, positive(12, dtype=torch.float32).detach().to(dtype).requires_grad_()).verdict is Verdict.FAIL


def test_all_contracts_may_be_requested_as_well():
    assert check(torch.sin, point(12), coverage="full").passed
    assert check(nn.Linear(3, 4).double(), point(5, 3), coverage="full").passed


def test_a_right_gradient_is_asserted_silently():
    assert_gradients(torch.sin, point(12), coverage="full")
    with pytest.raises(GradientError):
        assert_gradients(rule(torch.square, lambda g, x: g * x), point(12), coverage="full")


def test_a_step_that_happens_to_be_a_multiple_of_the_inputs_rounding_is_no_evidence():
    def product(x):
        rounded = x.float().double()
        return rounded * rounded.exp()

    x = point(4, 6, seed=563)
    function = rule(product, lambda g, x: g * (1 + x) * x.exp())

    assert check(function, x, coverage="full", contracts=(), seed=63).verdict is Verdict.PASS
