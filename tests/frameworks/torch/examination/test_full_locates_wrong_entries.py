"""Full coverage names every wrong entry by its argument, its index and its output."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import Verdict
from support.checks import full
from support.findings import wrong_places
from support.functions import rule
from support.points import point, positive


@pytest.mark.parametrize("size", [6, 12, 300])
def test_one_wrong_entry_is_located(size):
    wrong = rule(torch.sin, lambda g, x: g * x.cos() * (1 + 1e-5 * (torch.arange(size) == 4)))
    report = full(wrong, point(size))

    assert report.verdict is Verdict.FAIL
    assert wrong_places(report) == {("inputs[0]", (4,), "output", (4,))}


def test_one_wrong_entry_of_a_matrix_is_located():
    def backward(g, a, b):
        spoilt = b.clone()
        spoilt[2, 1] += 1e-4
        return g @ spoilt.T, a.T @ g

    report = full(rule(torch.matmul, backward), (point(2, 3), point(3, 2, seed=2)))

    assert wrong_places(report) == {("inputs[0]", (k, 2), "output", (k, 1)) for k in range(2)}


def test_the_output_that_is_wrong_is_named():
    class TwoOutputs(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y, x + y

        @staticmethod
        def backward(ctx, product, total):
            x, y = ctx.saved_tensors
            return product * y + total, product * x + 1.01 * total

    report = full(TwoOutputs.apply, (point(3), point(3, seed=2)))

    assert wrong_places(report) == {("y", (k,), "output[1]", (k,)) for k in range(3)}


def test_a_wrong_part_of_a_complex_number_is_named():
    wrong = rule(lambda z: 2 * z, lambda g, z: torch.complex(2 * g.real, 2.5 * g.imag))
    report = full(wrong, point(1, dtype=torch.complex128))
    (entry,) = report.findings[0].entries

    assert (entry.part, entry.output.part) == ("imag", "imag")
    assert (entry.claimed, entry.numerical) == pytest.approx((2.5, 2.0))


def test_a_wrong_parameter_is_named():
    class Wrong(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(positive(3).detach())

        def forward(self, x):
            return rule(torch.mul, lambda g, x, w: (g * w, g * x * (1 + (torch.arange(3) == 1))))(x, self.gain)

    report = full(Wrong(), point(3))

    assert wrong_places(report) == {("gain", (1,), "output", (1,))}


def test_a_wrong_jvp_is_located():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sin()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, incoming):
            return incoming * ctx.saved_tensors[0].cos()

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * ctx.saved_tensors[0].cos() * (1 + 1e-3 * (torch.arange(12) == 3))

    report = full(Wrong.apply, point(12), modes=["reverse", "forward"])

    assert {finding.mode for finding in report.findings} == {"forward"}
    assert wrong_places(report) == {("x", (3,), "output", (3,))}


@pytest.mark.parametrize("size", [3, pytest.param(12), pytest.param(50)])
def test_an_influence_that_the_backward_forgets_is_found(size):
    def shifted(x):
        return x.sin() + 0.5 * x[0] * (torch.arange(size) == 2)

    report = full(rule(shifted, lambda g, x: g * x.cos()), point(size))

    assert report.verdict is Verdict.FAIL
    assert wrong_places(report) == {("inputs[0]", (0,), "output", (2,))}


def test_an_influence_that_the_backward_forgets_everywhere_is_found():
    report = full(rule(lambda x: x.sin() + 0.5 * x.roll(1), lambda g, x: g * x.cos()), point(12))

    assert report.verdict is Verdict.FAIL


def test_a_detached_mean_is_found():
    assert full(lambda x: x - x.mean().detach(), point(20)).verdict is Verdict.FAIL


@pytest.mark.parametrize("size", [1, 12])
def test_an_infinite_gradient_of_a_finite_slope_is_found(size):
    wrong = rule(torch.sin, lambda g, x: torch.where((torch.arange(size) == 0) & (g != 0), torch.inf, g * x.cos()))

    assert full(wrong, point(size)).verdict is Verdict.FAIL


def test_a_nan_gradient_of_a_finite_slope_is_found():
    x = torch.linspace(-1, 1, 12, dtype=torch.float64, requires_grad=True)

    assert full(lambda x: torch.where(x > 0, x.sqrt(), 0.0 * x), x).verdict is Verdict.FAIL


def test_an_error_in_the_small_one_of_two_inputs_is_found():
    def backward(g, h, a, b):
        return 2 * g, h

    wrong = rule(lambda a, b: (a.clone(), b.clone()), backward)
    inputs = (positive(6).detach().mul(1e-7).requires_grad_(), positive(6).detach().mul(1e7).requires_grad_())

    assert full(wrong, inputs).verdict is Verdict.FAIL


def test_a_ramp_that_lets_gradients_through_below_zero_is_found():
    straight_through = rule(torch.relu, lambda g, x: g)

    assert (
        full(straight_through, torch.linspace(-2, 2, 12, dtype=torch.float64).requires_grad_()).verdict is Verdict.FAIL
    )


@pytest.mark.parametrize(("accepted", "verdict"), [(0.02, Verdict.PASS), (0.002, Verdict.FAIL)])
@pytest.mark.parametrize("option", ["rtol", "atol"])
@pytest.mark.parametrize("size", [1, 6, 12])
def test_an_error_passes_if_it_is_accepted(option, accepted, verdict, size):
    wrong = rule(lambda x: x.clone(), lambda g, x: 1.01 * g)

    assert full(wrong, point(size), **{option: accepted}).verdict is verdict


@pytest.mark.parametrize("option", ["rtol", "atol"])
def test_an_error_in_every_entry_is_not_accepted_because_there_are_many(option):
    weight = point(20, 20, seed=2).detach()
    wrong = rule(lambda x: weight @ x, lambda g, x: 1.02 * weight.T @ g)
    found = [full(wrong, point(20), seed=seed, **{option: 0.002}).verdict for seed in range(4)]

    assert found == [Verdict.FAIL] * 4


@pytest.mark.parametrize("modes", [pytest.param("reverse"), "forward"])
def test_a_wrong_second_derivative_is_found(modes):
    class Wrong(torch.autograd.Function):
        """A cube, whose derivatives forget that they depend on x."""

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, incoming):
            return incoming * 3 * ctx.saved_tensors[0].detach() ** 2

        @staticmethod
        def jvp(ctx, tangent):
            return tangent * 3 * ctx.saved_tensors[0].detach() ** 2

    x = positive(3)

    assert full(Wrong.apply, x, modes).verdict is Verdict.PASS
    assert full(Wrong.apply, x, modes, order=2).verdict is Verdict.FAIL


def test_a_backward_that_raises_fails():
    def backward(g, x):
        raise KeyError("from the backward")

    report = full(rule(torch.sin, backward), point(12))

    assert report.verdict is Verdict.FAIL
    assert "from the backward" in report.message
