"""Derivatives that are zero by identity are verified within the rounding of the numbers that cancel in them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention

import gradproof
from gradproof import Reason, Verdict
from gradproof.engine.cancellation import without_cancelled_rounding
from support.engine import either_coverage, judged
from support.functions import rule
from support.numpy_subject import elementwise, hashed
from support.points import normal, point

POINT = np.array([1.3, -0.7, 2.9])
either = pytest.mark.parametrize("coverage", ["probe", "full"])
IDENTITIES = {
    "x / x": (lambda x: x / x, (3,)),
    "sin² + cos²": (lambda x: x.sin() ** 2 + x.cos() ** 2, (3,)),
    "normalize": (lambda x: F.normalize(x, dim=1), (3, 1)),
    "corrcoef": (torch.corrcoef, (3, 2)),
}


@either
@pytest.mark.parametrize("name", IDENTITIES)
def test_a_second_derivative_that_is_zero_by_identity_passes(name, coverage):
    function, shape = IDENTITIES[name]

    for seed in range(3):
        report = gradproof.check(function, point(*shape, seed=seed), order=2, coverage=coverage, seed=seed)
        assert report.passed
        assert report.resolution.relative < 1e-6 or not report.resolution.absolute


@either
@pytest.mark.parametrize("dim", [0, 1])
def test_large_complex_numbers_do_not_make_logcumsumexp_wrong(dim, coverage):
    z = 3 * normal(3, 3, 2, dtype=torch.complex128)
    z[0] = 1e4

    for seed in range(3):
        report = gradproof.check(
            lambda z: torch.logcumsumexp(z, dim), z.requires_grad_(), order=2, coverage=coverage, seed=seed
        )
        assert report.passed


def quotient(lost):
    """x / x, whose gradient loses a share of one of its two terms."""
    return rule(lambda x: x / x, lambda g, x: g / x - (1 - lost) * g * x / x**2)


@either
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("lost", [1.0, 1e-6])
def test_a_lost_term_of_two_that_cancel_fails(lost, order, coverage):
    for seed in range(3):
        report = gradproof.check(quotient(lost), point(3), order=order, coverage=coverage, contracts=(), seed=seed)
        assert report.verdict is (Verdict.FAIL if order == 1 else Verdict.PASS)


@either
def test_a_wrong_second_derivative_of_what_cancels_fails(coverage):
    slope = rule(lambda g, x: g / x - g * x / x**2, lambda h, g, x: (0 * g, 1e-6 * h * g / x**2))
    function = rule(lambda x: x / x, lambda g, x: slope(g, x))

    for seed in range(3):
        report = gradproof.check(function, point(3), order=2, coverage=coverage, contracts=(), seed=seed)
        assert report.verdict is Verdict.FAIL


@either_coverage
@pytest.mark.parametrize("size", [1.0, 1e-9, 1e-14])
def test_a_jump_at_the_point_is_no_rounding(size, coverage):
    subject = elementwise(lambda x: size * (x >= POINT), lambda x: 0 * x, POINT)

    judgement = without_cancelled_rounding(coverage)

    assert judged(subject, coverage=judgement).obstacle.reason is Reason.JUMP


@either_coverage
@pytest.mark.parametrize("size", [1.0, 1e-3, 1e-8])
def test_noise_of_the_size_of_the_point_is_no_rounding(size, coverage):
    subject = elementwise(lambda x: size * hashed(x), lambda x: 0 * x, POINT)

    assert judged(subject, coverage=without_cancelled_rounding(coverage)).verdict is not Verdict.PASS


@either
@pytest.mark.parametrize("unit", [1e-20, 1.0, 1e20])
def test_a_wrong_gradient_beside_an_output_that_cancels_fails_in_any_unit(unit, coverage):
    wrong = rule(torch.sin, lambda g, x: 1.01 * g * x.cos())

    for seed in range(3):
        report = gradproof.check(
            lambda x, y: (x * 3.7 + x * 1.1 - x * 4.8, unit * wrong(y)),
            (point(3), point(3)),
            coverage=coverage,
            seed=seed,
        )
        assert report.verdict is Verdict.FAIL
