"""Mistakes are found beside low precision, cancellation, very different units, quantised values and kinks."""

import pytest
import torch

import gradproof
from gradproof import Reason, Verdict
from support.functions import rule, wrong_sine
from support.points import point


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.05])
def test_a_wrong_factor_fails_in_low_precision_and_its_twin_passes(dtype, factor):
    x = (torch.linspace(0.3, 1.2, 30).to(dtype)).requires_grad_()

    assert gradproof.check(rule(torch.sin, lambda g, x: g * x.cos()), x, seed=0).verdict is Verdict.PASS
    assert gradproof.check(rule(torch.sin, lambda g, x: factor * g * x.cos()), x, seed=0).verdict is Verdict.FAIL


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("entries", [1, 3, 10, 100])
@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16])
def test_a_gradient_of_zero_does_not_pass_for_what_is_cast_to_half_precision(low, entries, coverage):
    detached = rule(lambda x: x.to(low), lambda g, x: torch.zeros_like(x))

    def verdict(seed):
        x = point(entries, seed=seed)
        return gradproof.check(detached, x, coverage=coverage, contracts=(), seed=seed).verdict

    assert Verdict.PASS not in [verdict(seed) for seed in range(3)]


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("size", [1.0, 1e-13])
def test_a_slope_claimed_of_what_cancels_fails(size, coverage):
    wrong = rule(lambda x: x * 3.7 - x * 3.7, lambda g, x: size * g * x.cos())

    assert gradproof.check(wrong, point(5), coverage=coverage, seed=0).verdict is Verdict.FAIL


class Product(torch.autograd.Function):
    """a · b, whose derivatives are multiplied by factors of the test's choice."""

    @staticmethod
    def forward(ctx, a, b, factors):
        ctx.save_for_backward(a, b)
        ctx.factors = factors
        return a * b

    @staticmethod
    def backward(ctx, incoming):
        a, b = ctx.saved_tensors
        return ctx.factors[0] * incoming * b, ctx.factors[1] * incoming * a, None


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9])
def test_a_mistake_beside_a_constant_of_a_larger_size_fails(size, coverage):
    torch.manual_seed(0)
    a, b = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))

    def function(a, b):
        return 0 * a + 1.0, size * Product.apply(a, b, (1.01, 1))

    assert gradproof.check(function, (a, b), coverage=coverage, probes=3, seed=0).verdict is Verdict.FAIL


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("unit", [1.0, 1e6, 1e50])
@pytest.mark.parametrize("factors", [(1, 1), (1.01, 1), (1, 1.01)])
def test_arguments_of_very_different_units_are_distinguished(factors, unit, coverage):
    torch.manual_seed(0)
    a = (torch.randn(3, dtype=torch.float64) / unit).requires_grad_()
    b = (torch.randn(3, dtype=torch.float64) * unit).requires_grad_()
    report = gradproof.check(lambda a, b: Product.apply(a, b, factors), (a, b), coverage=coverage, seed=0)
    wrong = [name for name, factor in zip("ab", factors, strict=True) if factor != 1]

    assert report.passed is (not wrong)
    assert [finding.argument for finding in report.findings] == wrong
    assert report.resolution.relative < 1e-6


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("height", [0.1, 0.25, 1.0])
def test_a_straight_through_estimator_of_a_coarse_quantiser_is_wrong(height, coverage):
    rounded = rule(lambda x: (x / height).round() * height, lambda g, x: g)

    assert gradproof.check(rounded, point(20, seed=0), coverage=coverage, seed=0).verdict is Verdict.FAIL


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_a_straight_through_estimator_of_a_quantiser_as_fine_as_a_cast_is_inconclusive(coverage):
    rounded = rule(lambda x: x.round(), lambda g, x: g)
    report = gradproof.check(rounded, (100 * point(20).detach()).requires_grad_(), coverage=coverage, seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason is Reason.QUANTISED
    assert "straight-through" in report.hint


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_a_wrong_factor_behind_a_cast_to_single_precision_is_found(coverage):
    function = rule(lambda x: x.float().sin().double(), lambda g, x: 1.01 * g * x.cos())

    assert gradproof.check(function, point(20), coverage=coverage, seed=0).verdict is Verdict.FAIL


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_an_error_that_only_rounding_hides_is_noted(coverage):
    def backward(g, x):
        gradient = g * x.cos()
        gradient[2] *= 1.03
        return gradient

    x = torch.linspace(0.3, 1.2, 6).bfloat16().requires_grad_()
    report = gradproof.check(rule(torch.sin, backward), x, coverage=coverage, contracts=(), seed=0)

    assert report.verdict is not Verdict.FAIL
    assert any("off by 0.03 of an entry" in note for note in report.notes)
    assert report.resolution.relative > 0.03


@pytest.mark.parametrize("jump", [1e-3, 1e-2, 3e-2])
@pytest.mark.parametrize("seed", range(3))
def test_a_slight_kink_in_one_input_hides_no_error_in_another(jump, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, dtype=torch.float64, generator=generator).requires_grad_()
    t = torch.full((3,), 0.3, dtype=torch.float64).requires_grad_()

    def function(x, t):
        beyond = t - 0.3
        return torch.outer(wrong_sine(1.01)(x), torch.where(beyond > 0, (1 + jump) * beyond, beyond) + 1)

    assert not gradproof.check(function, (x, t), seed=seed, contracts=()).passed
