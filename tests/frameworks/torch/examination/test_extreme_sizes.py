"""Inputs and outputs of extreme size: the verdict and the relative resolution are those of the ordinary function."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradproof import Reason, Verdict, check
from gradproof.report.words import resolution

coverages = pytest.mark.parametrize("coverage", ["probe", "full"])
DOUBLE = torch.float64


def ramp(count, size, dtype=DOUBLE):
    return (size * torch.linspace(0.5, 1, count, dtype=DOUBLE)).to(dtype).requires_grad_()


def sine(inputs, outputs, factor=1.0):
    """A sine of inputs in units of 2**inputs, in units of 2**outputs, whose gradient is off by a factor."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.ldexp(torch.sin(x * 2.0**-inputs), torch.tensor(outputs))

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            half = (outputs - inputs) // 2
            slopes = gradient * 2.0**half * torch.cos(x * 2.0**-inputs)
            return slopes * 2.0 ** (outputs - inputs - half) * factor

    return Sine.apply


@coverages
@pytest.mark.parametrize("factor", [1.0, 3.0, 1.001])
@settings(max_examples=12, deadline=None, derandomize=True)
@given(inputs=st.integers(-1000, 1000), outputs=st.integers(-980, 1000), seed=st.integers(0, 99))
@example(inputs=0, outputs=520, seed=1)
@example(inputs=-700, outputs=0, seed=1)
@example(inputs=0, outputs=-980, seed=1)
def test_a_function_in_other_units_gets_the_same_verdict(coverage, factor, inputs, outputs, seed):
    options = {"coverage": coverage, "seed": seed, "contracts": (), "explain": False}
    if abs(outputs - inputs) > 990:  # a gradient that no number holds
        inputs = outputs - int(math.copysign(990, outputs - inputs))
    inputs = max(-1000, min(1000, inputs))
    found = check(sine(inputs, outputs, factor), ramp(4, 2.0**inputs), **options)
    usual = check(sine(0, 0, factor), ramp(4, 1.0), **options)

    assert found.verdict is usual.verdict
    assert 0.2 < found.resolution.relative / usual.resolution.relative < 5
    unit = math.ldexp(usual.resolution.absolute, outputs - inputs)
    assert found.resolution.absolute <= max(5 * unit, 4e-323)


@coverages
def test_wrong_entries_are_reported_in_the_units_of_the_user(coverage):
    report = check(lambda x: (x + x.detach()) * 1e200, ramp(3, 1e-100), coverage=coverage, seed=1)
    entry = report.findings[0].entries[0]

    assert math.isclose(entry.claimed, 1e200)
    assert math.isclose(entry.numerical, 2e200, rel_tol=1e-6)
    assert entry.bar < 1e195
    assert [diagnosis.name for diagnosis in report.findings[0].diagnoses] == ["factor"]
    assert any("scaled by powers of two" in note for note in report.notes)
    assert all(math.isfinite(error) and error > 1e190 for row in report.maps[0].errors for error in row if error)


@coverages
def test_inputs_of_opposite_sizes_are_checked_together(coverage):
    inputs = ramp(3, 1e-200), ramp(3, 1e200)

    assert check(lambda x, y: x * 1e200 + y * 1e-200, inputs, coverage=coverage, seed=1).passed
    wrong = check(lambda x, y: x * 1e200 + (y + y.detach()) * 1e-200, inputs, coverage=coverage, seed=1)
    assert wrong.findings[0].argument == "y"
    assert math.isclose(wrong.findings[0].entries[0].claimed, 1e-200)


@coverages
def test_entries_of_one_tensor_may_be_of_any_size(coverage):
    x = torch.tensor([1e-300, 1.0, 1e300], dtype=DOUBLE, requires_grad=True)

    assert check(torch.log, x, coverage=coverage, seed=1).passed


RIGHT = {
    "a square near the smallest numbers": (lambda x: x * x, 1e-155),
    "a reciprocal of large numbers": (lambda x: 1 / x, 1e300),
    "an exponential near zero": (torch.exp, -720.0),
    "an exponential near infinity": (torch.exp, 709.0),
    "denormals": (lambda x: 3 * x, 1e-310),
    "the largest numbers": (lambda x: x * 1, 1.79e308),
}


@coverages
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_gradient_at_the_ends_of_double_precision_passes(coverage, name):
    function, size = RIGHT[name]
    report = check(function, ramp(4, size), coverage=coverage, seed=1, contracts=())

    assert report.passed, report
    assert math.isfinite(report.resolution.absolute)
    assert report.resolution.absolute > 0


@coverages
def test_a_function_that_is_zero_at_the_point_is_measured_beside_it(coverage):
    report = check(
        lambda x: 1e-200 * torch.sin(x - 1), torch.ones(3, dtype=DOUBLE).requires_grad_(), coverage=coverage, seed=1
    )

    assert report.passed
    assert report.resolution.relative < 1e-7


@coverages
def test_a_gradient_that_no_number_holds_is_inconclusive(coverage):
    report = check(lambda x: 1 / x, ramp(3, 1e-160), coverage=coverage, seed=1)

    assert report.reason is Reason.NON_FINITE
    assert "exceeds the range" in report.message


@coverages
def test_a_gradient_of_zero_where_the_slope_is_less_than_any_number_is_right(coverage):
    report = check(lambda x: 1 / x, ramp(3, 1e300), coverage=coverage, seed=1)

    assert report.passed
    assert "any error" not in resolution(report.resolution)


@coverages
def test_inputs_that_cannot_be_moved_are_no_pass(coverage):
    x = torch.full((3,), math.inf, dtype=DOUBLE, requires_grad=True)

    assert check(lambda x: 1 / x, x, coverage=coverage, seed=1).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    "name", ["times a large number", "a square of large numbers", "of denormals", "to denormals", "of the largest"]
)
def test_a_right_gradient_at_the_ends_of_low_precision_passes(dtype, name):
    info = torch.finfo(dtype)
    function, size = {
        "times a large number": (lambda x: x * (info.max / 4), 1.0),
        "a square of large numbers": (lambda x: x * x, 0.9 * info.max**0.5),
        "of denormals": (lambda x: x * 3, info.tiny / 8),
        "to denormals": (lambda x: x * (info.tiny / 8), 1.0),
        "of the largest": (lambda x: x * 1, 0.999 * info.max),
    }[name]

    assert check(function, ramp(4, size, dtype), contracts=(), seed=1).passed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gradient_below_the_smallest_number_is_not_called_wrong(dtype):
    report = check(lambda x: 1 / x, ramp(4, torch.finfo(dtype).max / 4, dtype), contracts=(), seed=1)

    assert report.verdict is not Verdict.FAIL


@pytest.mark.parametrize("modes", [("reverse",), ("forward",)])
@pytest.mark.parametrize("order", [1, 2])
def test_both_modes_and_orders_are_checked_at_extreme_sizes(modes, order):
    right = check(lambda x: 1e200 * x**3, ramp(3, 1.0), modes=modes, order=order, seed=1)

    assert right.passed
    assert right.resolution.relative < 1e-7


def scaled_by(function, factor):
    """A function whose gradient is off by a factor."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return factor * torch.autograd.functional.vjp(function, x, gradient)[1]

    return Scaled.apply


BESIDE_ROUNDING = {"exp": torch.exp, "sigmoid": torch.sigmoid, "plus 1e10": lambda x: x + 1e10, "atan": torch.atan}


@coverages
@pytest.mark.parametrize(("name", "size"), [("exp", 1e-8), ("sigmoid", 1e-8), ("plus 1e10", 1e3), ("atan", 1e9)])
def test_longer_steps_show_a_gradient_that_rounding_hides_on_short_ones(name, size, coverage):
    options = {"coverage": coverage, "seed": 0, "contracts": (), "explain": False}
    right, wrong = (check(scaled_by(BESIDE_ROUNDING[name], factor), ramp(4, size), **options) for factor in (1, 1.5))

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert right.resolution.relative < 1


@coverages
@pytest.mark.parametrize("factor", [1.0, 1.5])
@pytest.mark.parametrize(("name", "size"), [("exp", 1e-100), ("sigmoid", 1e-20), ("plus 1e10", 1e-30), ("atan", 1e20)])
def test_a_gradient_that_rounding_hides_on_every_step_is_inconclusive(name, size, factor, coverage):
    report = check(scaled_by(BESIDE_ROUNDING[name], factor), ramp(4, size), coverage=coverage, seed=0, contracts=())

    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, Reason.RESOLUTION)
    assert "rounding" in report.hint


@coverages
def test_a_tolerance_may_be_larger_than_the_gradient(coverage):
    assert check(torch.exp, ramp(4, 1e-100), coverage=coverage, seed=0, atol=2.0).passed


@coverages
@pytest.mark.parametrize("size", [1e150, 1e155, 1e300])
def test_claims_whose_squares_overflow_leave_the_segment_test_undecided(size, coverage):
    assert check(torch.sin, ramp(4, size), coverage=coverage, seed=0).verdict is Verdict.INCONCLUSIVE
