"""Functions that use the caller's own tensors, whatever they are given: `gradcheck(lambda *_: net(x), parameters)`."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import InputError, Verdict, check, gradcheck, gradgradcheck
from support.marks import coverages


class SineProduct(torch.autograd.Function):
    """x · sin(w), of which the gradient with respect to w is off by a factor."""

    @staticmethod
    def forward(x, w, factor):
        return x @ w.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, w, ctx.factor = inputs
        ctx.save_for_backward(x, w)
        ctx.save_for_forward(x, w)

    @staticmethod
    def backward(ctx, gradient):
        x, w = ctx.saved_tensors
        return gradient @ w.sin().T, ctx.factor * (x.T @ gradient) * w.cos(), None

    @staticmethod
    def jvp(ctx, dx, dw, _):
        x, w = ctx.saved_tensors
        return (0 if dx is None else dx @ w.sin()) + (0 if dw is None else x @ (w.cos() * dw))


class Layer(nn.Module):
    def __init__(self, factor=1.0, dtype=torch.float64):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.randn(3, 2, dtype=dtype, generator=generator))
        self.bias = nn.Parameter(torch.randn(2, dtype=dtype, generator=generator))
        self.factor = factor

    def forward(self, x):
        return SineProduct.apply(x, self.weight, self.factor) + self.bias**2


def closed_over(factor=1.0, dtype=torch.float64):
    """A function that takes no notice of its arguments, and what they are."""
    layer, x = Layer(factor, dtype), torch.linspace(-1, 1, 12, dtype=dtype).reshape(4, 3)
    return (lambda *_: layer(x)), tuple(layer.parameters())


orders = pytest.mark.parametrize("order", [1, 2])
dtypes = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128], ids=str)


@coverages
@orders
@dtypes
def test_a_right_gradient_passes_and_is_said_to_be_of_the_tensors_themselves(coverage, order, dtype):
    if dtype.is_complex:
        parameters = (nn.Parameter(torch.randn(3, 2, dtype=dtype)),)
        function = lambda *_: parameters[0].sin() * 2  # noqa: E731  # as users write it
    else:
        function, parameters = closed_over(dtype=dtype)

    report = check(function, parameters, coverage=coverage, order=order)

    assert report.verdict is Verdict.PASS
    assert any("directly and not as an argument" in note for note in report.notes)


@coverages
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_a_wrong_gradient_fails_and_the_part_that_is_wrong_is_named(coverage, dtype):
    function, parameters = closed_over(1.1, dtype)

    report = check(function, parameters, coverage=coverage)

    assert report.verdict is Verdict.FAIL
    assert {finding.argument for finding in report.findings} == {"inputs[0]"}
    assert "SineProduct" in report.findings[0].culprits[0].name


@pytest.mark.parametrize("fast_mode", [False, True])
@pytest.mark.parametrize(("factor", "expected"), [(1.0, True), (1.1, False)])
def test_the_drop_in_says_what_torchs_check_says(factor, expected, fast_mode):
    function, parameters = closed_over(factor)
    terms = {"raise_exception": False, "fast_mode": fast_mode}

    assert gradcheck(function, parameters, **terms) is expected
    assert torch.autograd.gradcheck(function, parameters, **terms) is expected


def test_the_second_derivative_is_checked_too():
    function, parameters = closed_over()

    assert gradgradcheck(function, parameters)


@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_a_tensor_that_is_used_as_an_argument_and_by_itself_moves_in_both(factor):
    layer = Layer(factor)

    def function(weight):
        return layer(torch.ones(4, 3, dtype=torch.float64)) + weight.sum()

    expected = Verdict.PASS if factor == 1 else Verdict.FAIL
    assert check(function, (layer.weight,)).verdict is expected


@coverages
@orders
def test_nothing_of_the_tensors_is_changed(coverage, order):
    function, parameters = closed_over(1.1)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)

    def state():
        return [
            (each.data_ptr(), each._version, each.grad_fn, each.grad.data_ptr(), each.tolist(), each.grad.tolist())
            for each in parameters
        ]

    before = state()
    check(function, parameters, coverage=coverage, order=order)

    assert state() == before


def test_nothing_of_the_tensors_is_changed_where_the_function_raises_beside_the_point():
    weight = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def function(_):
        if float(weight.detach().sum()) != 3:
            raise ValueError("only here")
        return weight.sin()

    report = check(function, (weight,))

    assert report.verdict is Verdict.INCONCLUSIVE
    assert weight.tolist() == [1.0, 1.0, 1.0]


def test_forward_mode_is_left_out_and_where_it_is_requested_the_reason_is_said():
    function, parameters = closed_over()

    assert check(function, parameters).verdict is Verdict.PASS  # though there is a jvp
    report = check(function, parameters, modes=("forward",))
    assert report.verdict is Verdict.FAIL
    assert "uses inputs directly" in report.message


def test_many_columns_are_not_evaluated_in_one_batch_which_the_function_would_not_see():
    weight = nn.Parameter(torch.linspace(0.1, 1, 60, dtype=torch.float64))
    mixing = torch.randn(60, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    report = check(lambda _: mixing @ weight.sin(), (weight,), coverage="full")

    assert report.verdict is Verdict.PASS
    assert report.resolution.relative < 1e-6


def test_what_was_computed_from_a_tensor_before_the_call_cannot_be_moved():
    weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
    before = weight.sin()

    assert check(lambda _: before * 2, (weight,)).verdict is not Verdict.PASS


def test_a_sparse_tensor_may_be_used_by_itself():
    matrix = torch.eye(4, dtype=torch.float64).to_sparse().requires_grad_()
    x = torch.ones(4, 2, dtype=torch.float64)

    report = check(lambda _: torch.sin(matrix @ x), (matrix,), masked=True)

    assert report.verdict is Verdict.PASS
    assert report.resolution.relative < 1e-5


def test_a_compressed_tensor_that_is_used_by_itself_is_refused_in_words():
    matrix = torch.eye(4, dtype=torch.float64).to_sparse_csr().requires_grad_()

    with pytest.raises(InputError, match="torch cannot replace in place"):
        check(lambda _: matrix @ torch.ones(4, 2, dtype=torch.float64), (matrix,), masked=True)


def test_a_tensor_that_is_passed_twice_and_used_by_itself_is_refused_in_words_and_no_draw_is_lost():
    weight = nn.Parameter(torch.ones(3, dtype=torch.float64))
    before = torch.get_rng_state()

    with pytest.raises(InputError, match="twice"):
        check(lambda first, second: first * second * weight * torch.rand(3), (weight, weight))

    assert torch.equal(torch.get_rng_state(), before)


def test_a_tensor_that_is_passed_twice_is_moved_where_it_is_used():
    weight = nn.Parameter(torch.ones(3, dtype=torch.float64))

    report = check(lambda first, second: first * second.sin(), (weight, weight))

    assert report.verdict is Verdict.PASS
    assert not any("by itself" in note for note in report.notes)
