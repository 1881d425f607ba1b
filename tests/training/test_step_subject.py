"""Losses of every kind along a step: right gradients never fail, and wrong ones are found."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradproof import Reason, Verdict, check_step

DTYPES = [torch.float32, torch.float64]


class Scaled(torch.autograd.Function):
    """The identity, whose gradient is off by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.factor * gradient, None


def checked(loss, dtype=torch.float64, *, factor=1.0, seed=0):
    """The report on a step from 0 to 1 along a loss of one number."""
    t = torch.zeros(1, dtype=dtype, requires_grad=True)

    def step():
        with torch.no_grad():
            t.add_(1.0)

    return check_step(step, lambda: loss(Scaled.apply(t, factor)).sum(), [t], expect="any", seed=seed)


@given(
    size=st.floats(0.01, 100),
    rate=st.floats(-3, 3),
    phase=st.floats(-3, 3),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_the_right_gradient_of_a_smooth_loss_never_fails(size, rate, phase, dtype, seed):
    report = checked(lambda t: size * ((rate * t).exp() + (phase + rate * t).sin() + 2), dtype, seed=seed)

    assert report.verdict is not Verdict.FAIL, report


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_right_gradient_of_a_loss_full_of_kinks_never_fails(dtype):
    generator = torch.Generator().manual_seed(0)
    verdicts = []
    for seed in range(60):
        places = 2 * torch.rand(400, generator=generator, dtype=dtype) - 1
        jumps = 1e-4 * torch.randn(400, generator=generator, dtype=dtype)

        def loss(t, places=places, jumps=jumps):
            return 1 - 0.03 * t + 0.002 * t * t + (jumps * (t - places).abs()).sum()

        verdicts.append(checked(loss, dtype, seed=seed).verdict)

    assert Verdict.FAIL not in verdicts
    assert verdicts.count(Verdict.PASS) > 30


@pytest.mark.parametrize(("dtype", "factor"), [(torch.float64, 1 + 1e-6), (torch.float32, 1.01), (torch.float64, -1.0)])
def test_a_gradient_that_is_off_by_little_is_found(dtype, factor):
    report = checked(lambda t: (1 + t).square(), dtype, factor=factor)

    assert [finding.kind for finding in report.findings] == ["prediction"]
    (entry,) = report.findings[0].entries
    assert entry.claimed == pytest.approx(2 * factor)
    assert abs(entry.numerical - 2) <= entry.bar


def test_a_kink_at_the_start_is_the_reason():
    report = checked(lambda t: 1 + t.abs() + t)

    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, Reason.KINK)


@pytest.mark.parametrize("place", [1e-9, 1e-6, 3e-5])
@pytest.mark.parametrize("jump", [1e-3, -1e-2])
def test_a_kink_close_to_the_start_that_curvature_hides_does_not_fail(place, jump):
    report = checked(lambda t: 5 - 12 * t + 7 * t * t + jump * torch.relu(t - place))

    assert report.verdict is not Verdict.FAIL


@pytest.mark.parametrize("factor", [0.9, 1.0, 1.1])
def test_multiples_of_a_step_that_drowns_in_rounding_show_its_slope(factor):
    t = torch.ones(1, requires_grad=True)

    def step():
        with torch.no_grad():
            t.sub_(1e-6)

    report = check_step(step, lambda: Scaled.apply(t, factor).square().sum(), [t], seed=0)

    assert report.passed is (factor == 1.0), report


def test_a_loss_that_is_not_finite_beside_the_start_shows_no_slope():
    report = checked(lambda t: torch.where(t == 0, t, torch.where(t == 1, t, torch.nan)))

    assert report.verdict is Verdict.INCONCLUSIVE


def test_a_seed_repeats_a_check():
    first, again = (checked(lambda t: (1 + t).exp(), seed=3) for _ in range(2))

    assert first.seed == 3
    assert first.readings == again.readings
