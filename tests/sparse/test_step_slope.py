import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof.sparse.step_slope import slope_at_start

PRECISION = {numpy.float32: 2.0**-23, numpy.float64: 2.0**-52}


def rounded(function, kind):
    """With values that are not finite where they are too large for the type, as a loss has them."""

    def value(t):
        with numpy.errstate(over="ignore"):
            return float(kind(function(t)))

    return value


@given(
    size=st.floats(0.01, 100),
    rate=st.floats(-3, 3),
    phase=st.floats(-3, 3),
    kind=st.sampled_from([numpy.float32, numpy.float64]),
)
def test_the_bar_covers_the_slope_of_a_smooth_loss(size, rate, phase, kind):
    loss = rounded(lambda t: size * (numpy.exp(rate * t) + math.sin(phase + rate * t) + 2), kind)

    found = slope_at_start(loss, start=loss(0.0), precision=PRECISION[kind])

    assert found.contains(size * rate * (1 + math.cos(phase)))


@pytest.mark.parametrize("kind", PRECISION)
def test_the_bar_covers_the_slope_of_a_loss_full_of_kinks(kind):
    generator = numpy.random.default_rng(0)
    for _ in range(300):
        places, jumps = generator.uniform(-1, 1, 400), generator.normal(size=400) * 1e-4

        def exact(t, places=places, jumps=jumps):
            return 1 - 0.03 * t + 0.002 * t * t + float(numpy.sum(jumps * abs(t - places)))

        loss = rounded(exact, kind)
        found = slope_at_start(loss, start=loss(0.0), precision=PRECISION[kind])
        truth = -0.03 - float(numpy.sum(jumps * numpy.sign(places)))
        assert found.contains(truth) or found.between(truth)


def test_a_slope_that_is_off_by_little_lies_outside():
    found = slope_at_start(lambda t: (1 + t) ** 2, start=1.0, precision=2.0**-52)

    assert found.contains(2.0)
    assert not found.contains(2.0 * (1 + 1e-6))


def test_a_kink_at_the_start_is_told_with_its_two_slopes():
    found = slope_at_start(lambda t: 1 + abs(t) + t, start=1.0, precision=2.0**-52)

    assert found.sides == (0.0, 2.0)
    assert found.between(0.3)
    assert not found.between(3.0)


@pytest.mark.parametrize("place", [0.0, 1e-9, 1e-6, 3e-5])
@pytest.mark.parametrize("jump", [1e-3, -1e-2])
def test_a_kink_close_to_the_start_that_curvature_hides_is_within_the_bar(place, jump):
    def loss(t):
        return 5 - 12 * t + 7 * t * t + jump * max(0.0, t - place)

    found = slope_at_start(loss, start=loss(0.0), precision=2.0**-52)

    assert found.contains(-12.0) or found.between(-12.0)
    assert found.bar < 0.8 * abs(jump)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_multiples_of_a_step_that_drowns_in_rounding_show_its_slope(factor):
    loss = rounded(lambda t: 1 + 1e-8 * t + 1e-16 * t * t, numpy.float32)

    found = slope_at_start(loss, start=1.0, precision=PRECISION[numpy.float32])

    assert found.contains(1e-8)
    assert not found.contains(factor * 1e-8)


def test_a_loss_without_finite_values_has_no_slope():
    assert slope_at_start(lambda t: math.nan, start=1.0, precision=2.0**-52).bar == math.inf
