import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof.sparse.step_slope import slope_at_start

PRECISION = {numpy.float32: 2.0**-23, numpy.float64: 2.0**-52}


def rounded(function, kind):
    return lambda t: float(kind(function(t)))


@given(
    size=st.floats(0.01, 100),
    rate=st.floats(-3, 3),
    phase=st.floats(-3, 3),
    kind=st.sampled_from([numpy.float32, numpy.float64]),
)
def test_the_bar_covers_the_slope_of_a_smooth_loss(size, rate, phase, kind):
    loss = rounded(lambda t: size * (math.exp(rate * t) + math.sin(phase + rate * t) + 2), kind)

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


def test_a_loss_without_finite_values_has_no_slope():
    assert slope_at_start(lambda t: math.nan, start=1.0, precision=2.0**-52).bar == math.inf
