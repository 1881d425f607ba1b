"""Values and gradients that are infinite or NaN, and the edges of domains."""

from __future__ import annotations

import pytest
import torch

from gradproof import Reason, Verdict, check
from support.findings import assert_inconclusive
from support.functions import rule
from support.marks import double_and_single
from support.points import point

pytestmark = double_and_single


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_function_that_is_nowhere_finite_is_inconclusive(value, dtype):
    assert_inconclusive(check(lambda x: x * value, point(4, dtype=dtype), seed=0), Reason.NON_FINITE)


def test_a_nan_input_is_inconclusive(dtype):
    x = torch.full((3,), float("nan"), dtype=dtype, requires_grad=True)

    assert_inconclusive(check(torch.sin, x, seed=0), Reason.NON_FINITE)


def test_a_function_that_is_nan_in_some_outputs_is_inconclusive(dtype):
    x = torch.tensor([-1.0, 1.0, 2.0], dtype=dtype, requires_grad=True)

    report = check(torch.log, x, seed=0)

    assert_inconclusive(report, Reason.NON_FINITE)
    assert "1 of 3" in report.message


def test_a_wrong_gradient_beside_a_nan_is_still_found(dtype):
    x = torch.tensor([-1.0, 1.0, 2.0], dtype=dtype, requires_grad=True)
    doubled = rule(torch.log, lambda gradient, x: 2 * gradient / x)

    assert check(doubled, x, seed=0).verdict is Verdict.FAIL


def test_a_constant_infinity_among_the_outputs_passes(dtype):
    masked = torch.tensor([True, False, False, True])

    assert check(lambda x: x.sin().masked_fill(masked, -float("inf")), point(4, dtype=dtype), seed=0).passed


def test_an_infinite_input_without_influence_passes(dtype):
    x = torch.tensor([1.0, float("inf"), 2.0], dtype=dtype, requires_grad=True)

    assert check(torch.atan, x, seed=0).passed


@pytest.mark.parametrize(
    ("function", "at"),
    [(torch.sqrt, 0.0), (torch.log, 0.0), (torch.asin, 1.0), (torch.acosh, 1.0), (torch.rsqrt, 0.0)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_the_edge_of_a_domain_is_inconclusive(function, at, dtype):
    report = check(function, torch.tensor([at], dtype=dtype, requires_grad=True), seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE, str(report)
    assert report.reason
    assert report.hint


@pytest.mark.parametrize("function", [torch.sqrt, torch.log, torch.rsqrt], ids=lambda function: function.__name__)
@pytest.mark.parametrize("at", [1e-6, 1e-12])
def test_a_point_near_the_edge_of_a_domain_never_fails(function, at, dtype):
    x = torch.tensor([at, 1.0, 2.0], dtype=dtype, requires_grad=True)

    assert check(function, x, seed=0).verdict is not Verdict.FAIL


def test_the_norm_at_zero_is_inconclusive(dtype):
    report = check(torch.linalg.vector_norm, torch.zeros(3, dtype=dtype, requires_grad=True), seed=0)

    assert_inconclusive(report, Reason.KINK)


@pytest.mark.parametrize("power", [-3.5, -2, 1.5])
def test_the_second_derivative_of_a_norm_at_zero_is_inconclusive(power, dtype):
    """Along one entry a norm of a negative power is zero, and has a slope; along all it has none."""
    zeros = torch.zeros(5, dtype=dtype, requires_grad=True)
    report = check(lambda x: torch.linalg.vector_norm(x, power), zeros, order=2, seed=0)

    assert_inconclusive(report, Reason.NON_FINITE)


def test_a_nan_gradient_beside_a_kink_of_another_entry_is_found(dtype):
    x = torch.tensor([0.0, 2.0, 3.0], dtype=dtype, requires_grad=True)
    second = torch.tensor([False, True, False])
    broken = rule(lambda x: x.abs(), lambda gradient, x: (gradient * x.sign()).masked_fill(second, float("nan")))

    assert check(broken, x, seed=0).findings[0].kind == "non-finite-gradient"


def test_a_nan_gradient_of_a_finite_function_is_found(dtype):
    def trap(x):
        return torch.where(x > 1, (x - 1).sqrt(), 3 * x)

    report = check(trap, torch.tensor([0.5, 2.0], dtype=dtype, requires_grad=True), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].kind == "non-finite-gradient"
    assert report.findings[0].entries[0].index == (0,)


def test_an_infinite_gradient_of_a_finite_function_is_found(dtype):
    infinite = rule(torch.sin, lambda gradient, x: gradient / 0)

    report = check(infinite, point(4, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].kind == "non-finite-gradient"
