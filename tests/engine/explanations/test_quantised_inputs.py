"""Zeros that are rounded inside a function: no ladder shows it, and nobody is accused of it."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gradproof.engine.jacobian.cover import judge_fully
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Reason, Verdict
from support.numpy_subject import NumpySubject

thoroughly = settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
ways = pytest.mark.parametrize("judged", [judge, judge_fully], ids=["along directions", "every entry"])


def rounded(x, digits):
    """To so many binary digits, as a cast does whose exponents reach far enough."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2.0**digits), exponent - digits)


def rounding_inside(point, digits, factor=1.0):
    """A·sin(x + 0.3) of rounded inputs, of which one derivative is off by a factor."""
    matrix = np.random.default_rng(5).uniform(0.4, 1.2, (6, point.size))

    def function(x):
        return matrix @ np.sin(rounded(x, digits) + 0.3)

    def gradient(x, incoming):
        found = np.cos(x + 0.3) * (matrix.T @ incoming)
        found[1] *= factor
        return found

    return NumpySubject(function, gradient, point)


@ways
@thoroughly
@given(seed=st.integers(0, 99_999), digits=st.sampled_from([8, 11, 24]), zeros=st.sampled_from([1, 3, 8]))
def test_zeros_that_are_rounded_inside_are_never_called_wrong(judged, seed, digits, zeros):
    point = np.random.default_rng(seed).uniform(0.5, 1.5, 8)
    point[:zeros] = 0.0

    verdict = judged(rounding_inside(point, digits), probes=1, seed=seed, options=Probing()).verdict

    assert verdict is not Verdict.FAIL


@ways
@pytest.mark.parametrize(("digits", "factor"), [(24, 1.001), (24, 0.5), (11, 1.1), (8, 1.2), (8, -1.0), (8, 0.0)])
@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_entry_is_found_among_zeros_that_are_rounded_and_is_the_only_one(judged, digits, factor, seed):
    subject = rounding_inside(np.zeros(8), digits, factor)

    judgement = judged(subject, probes=1, seed=seed, options=Probing())

    assert judgement.verdict is Verdict.FAIL
    assert {entry.index[0] for entry in judgement.entries} == {1}


@ways
def test_rounded_zeros_are_told_as_grain(judged):
    judgement = judged(rounding_inside(np.zeros(8), 24), probes=1, seed=0, options=Probing())

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.QUANTISED


@ways
@pytest.mark.parametrize("seed", range(10))
def test_zeros_that_are_rounded_at_the_last_are_never_called_wrong(judged, seed):
    subject = NumpySubject(lambda x: rounded(x, 24), lambda x, incoming: incoming * 1.0, np.zeros(6))

    assert judged(subject, probes=1, seed=seed, options=Probing()).verdict is not Verdict.FAIL


@ways
@pytest.mark.parametrize("error", [1e-2, 1e-5, 1e-7])
def test_a_slight_error_of_a_smooth_function_at_zero_is_no_grain(judged, error):
    subject = NumpySubject(
        lambda x: np.sin(x + 0.3), lambda x, incoming: (1 + error) * np.cos(x + 0.3) * incoming, np.zeros(6)
    )

    assert judged(subject, probes=1, seed=0, options=Probing()).verdict is Verdict.FAIL
