"""Low precision is judged by double precision, and rounding alone is never called wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.options import Probing
from gradproof.engine.precision import judge_rounded
from gradproof.engine.results import Reason, Verdict
from gradproof.engine.subject import DerivativeError
from support.numpy_subject import NumpySubject, elementwise

LOW = (np.float32, np.float16)
in_low_precision = pytest.mark.parametrize("dtype", LOW, ids=lambda dtype: dtype.__name__)
thoroughly = settings(max_examples=100, deadline=None, derandomize=True)


def judged(low, wide, seed=0, **options):
    return judge_rounded(low, wide, probes=1, seed=seed, options=Probing(**options))


def both(value, slope, points, dtype, low_slope=None):
    """The same function twice, at the same point: in low precision and in double."""
    low = elementwise(value, low_slope or slope, points, dtype=dtype)
    return low, elementwise(value, slope, low.point)


FUNCTIONS = {
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "steep": (lambda x: np.sin(30 * x), lambda x: 30 * np.cos(30 * x)),
    "cancelling": (lambda x: (x + 100) - 100, lambda x: 0 * x + 1),
    "square": (lambda x: x * x, lambda x: 2 * x),
}


@in_low_precision
@thoroughly
@given(
    name=st.sampled_from(sorted(FUNCTIONS)),
    points=st.lists(st.floats(0.3, 1.3), min_size=1, max_size=20),
    seed=st.integers(0, 9999),
)
def test_a_right_gradient_is_never_called_wrong_for_its_rounding(dtype, name, points, seed):
    value, slope = FUNCTIONS[name]

    assert judged(*both(value, slope, points, dtype), seed).verdict is not Verdict.FAIL


@in_low_precision
@pytest.mark.parametrize("name", ["sin", "exp", "square"])
def test_a_right_gradient_of_a_mild_function_passes(dtype, name):
    value, slope = FUNCTIONS[name]
    judgement = judged(*both(value, slope, np.linspace(0.3, 1.3, 20), dtype))

    assert judgement.verdict is Verdict.PASS
    assert judgement.resolution.relative < 100 * np.finfo(dtype).eps


@in_low_precision
@pytest.mark.parametrize("factor", [2.0, 0.0, -1.0, 1.2])
def test_a_gradient_that_is_wrong_in_both_precisions_fails(dtype, factor):
    judgement = judged(*both(np.sin, lambda x: factor * np.cos(x), np.linspace(0.3, 1.3, 20), dtype))

    assert judgement.verdict is Verdict.FAIL


def test_one_wrong_entry_in_both_precisions_is_named():
    wrong = np.zeros(50)
    wrong[31] = 0.01
    judgement = judged(*both(np.sin, lambda x: np.cos(x) + wrong, np.linspace(0.3, 1.3, 50), np.float32))

    assert [entry.index for entry in judgement.findings[0].entries] == [(31,)]


@in_low_precision
def test_a_gradient_that_is_wrong_in_low_precision_alone_fails_and_says_so(dtype):
    wrong = np.zeros(20)
    wrong[11] = 1.0
    low, wide = both(np.sin, np.cos, np.linspace(0.3, 1.3, 20), dtype, low_slope=lambda x: np.cos(x) + wrong)
    judgement = judged(low, wide)

    assert judgement.verdict is Verdict.FAIL
    assert "right in double precision and wrong in this precision" in judgement.message
    assert judgement.findings[0].entries[0].index == (11,)


def test_values_that_are_not_finite_in_low_precision_alone_are_named_as_the_cause():
    def one(x):  # but for a number that overflows in half precision
        return np.exp(20 * x) / np.exp(20 * x)

    points = np.array([0.3, 1.0])
    with np.errstate(over="ignore", invalid="ignore"):
        low, wide = both(lambda x: x * one(x), one, points, np.float16, lambda x: np.where(x > 0.5, np.nan, 1.0))
        finding = judged(low, wide).findings[0]

    assert finding.message.startswith("output[1] is NaN or infinite in this precision and finite in double precision")
    assert "the function computes" in finding.hint


def test_a_gradient_that_is_wrong_beside_a_value_that_is_too_large_is_named_itself():
    low, wide = both(
        lambda x: x**6, lambda x: 6 * x**5, np.array([0.3, 1.0, 7.0]), np.float16, low_slope=lambda x: 4 * x**5
    )

    assert "right in double precision and wrong in this precision" in judged(low, wide).message


def test_an_entry_that_rounding_alone_explains_is_allowed():
    unit = float(np.finfo(np.float32).eps)
    low, wide = both(
        np.sin, np.cos, np.linspace(0.3, 1.3, 20), np.float32, low_slope=lambda x: np.cos(x) * (1 + 3 * unit)
    )

    assert judged(low, wide).verdict is Verdict.PASS


def test_a_difference_that_the_values_do_not_bear_out_is_a_note_and_not_a_failure():
    low, wide = both(np.sin, np.cos, np.linspace(0.3, 1.3, 20), np.float32, low_slope=lambda x: np.cos(x) * (1 + 1e-4))
    judgement = judged(low, wide)

    assert judgement.verdict is Verdict.PASS
    assert "differs from the one in double precision" in judgement.notes[-1]
    assert judgement.resolution.absolute >= 5e-5


def test_a_derivative_that_raises_in_low_precision_alone_fails():
    def broken(x, u):
        raise DerivativeError("RuntimeError: not implemented for Half")

    low = NumpySubject(np.sin, broken, [1.0], dtype=np.float16)
    judgement = judged(low, elementwise(np.sin, np.cos, low.point))

    assert judgement.verdict is Verdict.FAIL
    assert "in this precision alone" in judgement.message


def test_a_derivative_that_is_absent_in_low_precision_alone_is_said_to_be():
    def absent(x, u):
        raise DerivativeError("NotImplementedError: no rule", absent=True)

    low = NumpySubject(np.sin, absent, [1.0], dtype=np.float16)
    judgement = judged(low, elementwise(np.sin, np.cos, low.point))

    assert [finding.kind for finding in judgement.findings] == ["no-backward-rule"]


def test_an_overflow_that_double_precision_predicts_is_allowed():
    low, wide = both(lambda x: np.exp(x), np.exp, [11.5, 1.0], np.float16)

    assert judged(low, wide).verdict is not Verdict.FAIL


def _with_nan_first(x, u):
    gradient = np.exp(x) * u
    gradient[0] = np.nan
    return gradient


def test_nan_is_allowed_where_the_gradient_overflows_on_the_way():
    points = [11.5, 1.0]
    low = NumpySubject(np.exp, _with_nan_first, points, dtype=np.float16)
    wide = elementwise(np.exp, np.exp, np.array(points))

    assert judged(low, wide).verdict is not Verdict.FAIL


def test_nan_is_wrong_where_the_gradient_fits():
    points = [1.5, 1.0]
    low = NumpySubject(np.exp, _with_nan_first, points, dtype=np.float16)
    wide = elementwise(np.exp, np.exp, np.array(points))

    assert judged(low, wide).verdict is Verdict.FAIL


def test_a_gradient_that_rounding_could_hide_is_inconclusive():
    # The value loses all its digits: in low precision its gradient could be anything of order one.
    low, wide = both(
        lambda x: 1e4 * np.sin(1e4 * x), lambda x: 1e8 * np.cos(1e4 * x), np.linspace(0.3, 1.3, 5), np.float32
    )
    judgement = judged(low, wide)

    assert judgement.verdict is not Verdict.FAIL
    assert judgement.verdict is Verdict.PASS or judgement.obstacle.reason is Reason.CONDITIONING


def test_what_the_user_tolerates_is_tolerated_in_low_precision_too():
    low, wide = both(np.sin, lambda x: np.cos(x) * 1.05, np.linspace(0.3, 1.3, 20), np.float32)

    assert judged(low, wide).verdict is Verdict.FAIL
    assert judged(low, wide, rtol=0.1).verdict is Verdict.PASS


@in_low_precision
@thoroughly
@given(size=st.integers(1, 50), place=st.floats(0, 1), seed=st.integers(0, 9999))
def test_an_error_of_four_times_the_resolution_and_clear_in_the_values_is_found(dtype, size, place, seed):
    points = np.random.default_rng(seed).uniform(0.3, 1.2, size)
    passed = judged(*both(np.sin, np.cos, points, dtype), seed)
    error = np.zeros(size)
    error[round(place * (size - 1))] = 4 * passed.resolution.absolute
    low = NumpySubject(np.sin, lambda x, u: np.cos(x) * u + error, points, dtype=dtype)
    wide = NumpySubject(np.sin, lambda x, u: np.cos(x) * u + error, low.point)

    assert passed.verdict is Verdict.PASS
    assert judged(low, wide, seed).verdict is Verdict.FAIL


@in_low_precision
def test_entries_of_a_long_sum_are_held_to_their_own_rounding(dtype):
    points = np.random.default_rng(0).uniform(0.05, 0.2, 20_000)
    low = NumpySubject(lambda x: (x * x).sum(keepdims=True), lambda x, u: 2 * x * u, points, dtype=dtype)
    wide = NumpySubject(low.function, low.gradient, low.point)
    judgement = judged(low, wide)

    assert judgement.verdict is Verdict.PASS
    assert judgement.resolution.relative < 100 * np.finfo(dtype).eps
