"""Pushforwards judged by values: right ones pass, wrong ones are found output by output, doubt accuses nobody."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.adjoint import adjoint_disagreement
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.precision import judge_rounded
from gradproof.engine.results import Reason, Verdict
from gradproof.engine.subject import DerivativeError, Step
from gradproof.engine.views import OutputSubset, in_mode
from support.numpy_subject import NumpySubject, hashed

thoroughly = settings(max_examples=100, deadline=None, derandomize=True)
seeds = st.integers(0, 99_999)


def judged(subject, seed=0, probes=1, **options):
    return judge(in_mode(subject, "forward"), probes=probes, seed=seed, options=Probing(**options))


def never(*_):
    raise AssertionError("a pullback was asked for")


def pushed(function, tangent, point, **options):
    """A subject that has a pushforward and no pullback."""
    return NumpySubject(function, never, point, tangent=tangent, **options)


def elementwise(value, slope, point, **options):
    return pushed(value, lambda x, v: slope(x) * v, point, **options)


def mixing(matrix, point, error=0.0):
    """tanh(Ax), with an error in its Jacobian."""

    def tangent(x, v):
        return ((1 - np.tanh(matrix @ x) ** 2)[:, None] * matrix + error) @ v

    return pushed(lambda x: np.tanh(matrix @ x), tangent, point)


def entries(judgement):
    return {
        (finding.argument, entry.index, entry.output and entry.output.index)
        for finding in judgement.findings
        for entry in finding.entries
    }


FUNCTIONS = {
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "product": (lambda x: x * np.sin(x), lambda x: np.sin(x) + x * np.cos(x)),
    "line": (lambda x: 3 * x, lambda x: 3 + 0 * x),
    "constant": (lambda x: 0 * x + 3, lambda x: 0 * x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@thoroughly
@given(size=st.integers(1, 40), seed=seeds, scale=st.floats(-6, 6))
def test_a_right_pushforward_passes_at_any_point_and_scale(name, size, seed, scale):
    value, slope = FUNCTIONS[name]
    scale = 10.0**scale
    points = scale * np.random.default_rng(seed).uniform(0.3, 1.3, size)
    subject = elementwise(lambda x: value(x / scale), lambda x: slope(x / scale) / scale, points)

    assert judged(subject, seed).verdict is Verdict.PASS


@thoroughly
@given(inputs=st.integers(1, 20), outputs=st.integers(1, 60), seed=seeds)
def test_a_right_pushforward_of_a_mixing_function_passes(inputs, outputs, seed):
    draw = np.random.default_rng(seed)

    assert judged(mixing(draw.normal(size=(outputs, inputs)), draw.normal(size=inputs)), seed).verdict is Verdict.PASS


@thoroughly
@given(outputs=st.integers(2, 40), seed=seeds, place=st.floats(0, 1), size=st.floats(-5, 1))
def test_one_wrong_output_is_found_and_named(outputs, seed, place, size):
    draw = np.random.default_rng(seed)
    matrix, point = draw.normal(size=(outputs, 1)), draw.uniform(0.1, 0.4, 1)
    error = np.zeros((outputs, 1))
    output = round(place * (outputs - 1))
    error[output] = 10.0**size
    judgement = judged(mixing(matrix, point, error), seed)

    assert judgement.verdict is Verdict.FAIL
    assert entries(judgement) == {("x", (0,), (output,))}


@thoroughly
@given(
    inputs=st.integers(1, 12), outputs=st.integers(1, 12), seed=seeds, place=st.tuples(st.floats(0, 1), st.floats(0, 1))
)
def test_one_wrong_entry_of_the_jacobian_is_found_and_located(inputs, outputs, seed, place):
    draw = np.random.default_rng(seed)
    matrix, point = draw.normal(size=(outputs, inputs)) / inputs, draw.uniform(0.3, 1.3, inputs)
    output, coordinate = round(place[0] * (outputs - 1)), round(place[1] * (inputs - 1))
    error = np.zeros((outputs, inputs))
    error[output, coordinate] = 0.01
    judgement = judged(mixing(matrix, point, error), seed)
    (entry,) = judgement.findings[0].entries

    assert judgement.verdict is Verdict.FAIL
    assert entries(judgement) == {("x", (coordinate,), (output,))}
    assert abs(entry.claimed - entry.numerical - 0.01) <= entry.bar + 1e-8


def test_two_wrong_entries_in_two_arguments_are_told_apart():
    matrix = np.random.default_rng(1).normal(size=(5, 6)) / 6
    error = np.zeros((5, 6))
    error[1, 0], error[4, 5] = 0.1, -0.2
    subject = mixing(matrix, np.linspace(0.3, 1.2, 6), error)
    subject.inputs = type(subject.inputs)({"a": 2, "b": 4}, np.float64)
    judgement = judged(subject)

    assert judgement.verdict is Verdict.FAIL
    assert entries(judgement) == {("a", (0,), (1,)), ("b", (3,), (4,))}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("large", "error"), [(1e3, 1e-4), (1e6, 1e-4), (1e9, 0.1)])
def test_an_error_in_a_small_output_is_found_beside_outputs_that_are_large(large, error, seed):
    sizes = np.where(np.arange(30) == 17, 1.0, large)
    wrong = np.where(np.arange(30) == 17, error, 0.0)
    subject = elementwise(lambda x: sizes * np.sin(x), lambda x: sizes * np.cos(x) + wrong, np.linspace(0.3, 1.2, 30))
    judgement = judged(subject, seed)

    assert judgement.verdict is Verdict.FAIL
    assert entries(judgement) == {("x", (17,), (17,))}


@pytest.mark.parametrize("seed", range(10))
def test_outputs_of_very_different_sizes_that_are_all_right_pass(seed):
    sizes = 10.0 ** np.linspace(-9, 9, 300)
    subject = elementwise(lambda x: sizes * np.sin(x), lambda x: sizes * np.cos(x), np.linspace(0.3, 1.2, 300))

    assert judged(subject, seed).verdict is Verdict.PASS


def test_errors_that_cancel_under_every_incoming_gradient_of_ones_are_found():
    error = np.zeros((2, 1))
    error[0], error[1] = 0.1, -0.1

    assert judged(mixing(np.ones((2, 1)), np.array([0.3]), error)).verdict is Verdict.FAIL


@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0, 1 + 1e-6])
def test_a_wrong_factor_fails(factor):
    subject = elementwise(np.sin, lambda x: factor * np.cos(x), np.linspace(0.3, 1.2, 5))

    assert judged(subject).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0])
def test_a_wrong_factor_does_not_pass_in_low_precision_and_its_twin_does(dtype, factor):
    points = np.linspace(0.3, 1.2, 30)

    wrong = judged(elementwise(np.sin, lambda x: factor * np.cos(x), points, dtype=dtype)).verdict

    assert judged(elementwise(np.sin, np.cos, points, dtype=dtype)).verdict is Verdict.PASS
    if dtype is np.float16:  # from such coarse values alone, doubt may be all that is left
        assert wrong is not Verdict.PASS
    else:
        assert wrong is Verdict.FAIL


@thoroughly
@given(
    size=st.sampled_from([1, 3, 30, 300]),
    name=st.sampled_from(["sin", "exp", "square"]),
    place=st.floats(0, 1),
    seed=seeds,
)
def test_an_error_of_four_times_the_resolution_in_one_entry_is_found(size, name, place, seed):
    value, slope = FUNCTIONS[name]
    points = np.random.default_rng(seed).uniform(0.3, 1.3, size)
    passed = judged(elementwise(value, slope, points), seed)
    error = np.zeros(size)
    error[round(place * (size - 1))] = 4 * passed.resolution.absolute
    wrong = judged(elementwise(value, lambda x: slope(x) + error, points), seed)

    assert passed.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


def test_small_outputs_that_are_rougher_than_rounding_are_never_called_wrong():
    # exp(x − largest) rounds its argument first: of thousands of outputs some few lie beyond their bars every time.
    def softmax(x):
        rows = x.reshape(60, 100)
        shifted = np.exp(rows - rows.max(1, keepdims=True))
        return shifted / shifted.sum(1, keepdims=True)

    def tangent(x, v):
        v = v.reshape(60, 100)
        return softmax(x) * (v - (softmax(x) * v).sum(1, keepdims=True))

    def verdict(seed):
        points = 10 * np.random.default_rng(seed).normal(size=6000)
        return judged(pushed(softmax, tangent, points), seed).verdict

    assert [seed for seed in range(20) if verdict(seed) is Verdict.FAIL] == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("claim", [0.0, 0.5, 1.0])
def test_a_kink_is_inconclusive_whatever_is_claimed_between_its_slopes(claim, seed):
    subject = elementwise(
        lambda x: np.maximum(x, 0), lambda x: np.where(x == 0, claim, 1.0 * (x > 0)), [0.0, 1.0, -1.0]
    )
    judgement = judged(subject, seed)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.KINK
    assert "between" in judgement.message


@thoroughly
@given(steps=st.floats(-100, 100), size=st.integers(1, 30), seed=st.integers(0, 9999))
def test_the_right_pushforward_beside_a_kink_is_never_called_wrong(steps, size, seed):
    points = np.random.default_rng(seed).uniform(0.3, 2.8, size)
    corners = points + steps * 1e-4
    subject = elementwise(lambda x: np.maximum(x - corners, 0), lambda x: 1.0 * (x > corners), points)

    assert judged(subject, seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("size", [1, 30])
def test_the_right_pushforward_of_a_noisy_function_is_never_called_wrong(noise, size):
    def verdict(seed):
        points = np.random.default_rng(seed).uniform(0.3, 2.8, size)
        return judged(elementwise(lambda x: np.sin(x) * (1 + noise * hashed(x)), np.cos, points), seed).verdict

    assert [seed for seed in range(40) if verdict(seed) is Verdict.FAIL] == []


def test_a_function_of_pure_noise_is_inconclusive():
    judgement = judged(elementwise(hashed, lambda x: 0 * x, np.linspace(0.3, 1.2, 5)))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NOISE


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_function_without_a_finite_value_is_inconclusive(value):
    judgement = judged(elementwise(lambda x: value + 0 * x, np.cos, [1.0, 2.0]))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NON_FINITE


def test_one_output_without_a_finite_value_is_inconclusive_and_does_not_hide_an_error_in_another():
    def value(x):
        return np.where(np.arange(4) == 0, math.nan, np.sin(x))

    points = np.linspace(0.3, 1.2, 4)

    assert judged(elementwise(value, np.cos, points)).verdict is Verdict.INCONCLUSIVE
    assert judged(elementwise(value, lambda x: np.cos(x) + (x > 1), points)).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(5))
def test_the_right_slope_where_a_function_ends_is_never_called_wrong(seed):
    subject = elementwise(
        lambda x: np.where(x <= 1, np.sqrt(abs(1.5 - x)), math.nan), lambda x: -0.5 / np.sqrt(1.5 - x), [1.0]
    )

    assert judged(subject, seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_tangent_that_is_not_finite_where_the_slope_is_fails_and_names_the_output(bad):
    error = np.zeros(7)
    error[4] = bad
    judgement = judged(elementwise(np.sin, lambda x: np.cos(x) + error, np.linspace(0.3, 1.2, 7)))

    assert judgement.verdict is Verdict.FAIL
    assert judgement.findings[0].kind == "non-finite-gradient"
    assert str(judgement.findings[0].entries[0].output) == "output[4]"


def test_a_tangent_that_is_not_finite_where_the_slope_is_not_either_is_inconclusive():
    judgement = judged(elementwise(np.sqrt, lambda x: 0.5 / np.sqrt(x), [0.0, 1.0]))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NON_FINITE


def test_a_pushforward_that_raises_is_a_failure_that_quotes_it():
    def broken(x, v):
        raise DerivativeError("ValueError: shapes differ")

    judgement = judged(pushed(np.sin, broken, [1.0]))

    assert judgement.verdict is Verdict.FAIL
    assert [finding.kind for finding in judgement.findings] == ["forward-raised"]
    assert "shapes differ" in judgement.message


def test_a_pushforward_without_a_rule_is_a_failure_that_says_so():
    def absent(x, v):
        raise DerivativeError("NotImplementedError: no jvp", absent=True)

    judgement = judged(pushed(np.sin, absent, [1.0]))

    assert judgement.verdict is Verdict.FAIL
    assert [finding.kind for finding in judgement.findings] == ["no-forward-rule"]
    assert "no jvp" in judgement.message


def test_a_pushforward_that_raises_only_when_asked_again_is_a_failure_too():
    calls = []

    def tangent(x, v):
        calls.append(0)
        if len(calls) > 1:
            raise DerivativeError("RuntimeError: called twice")
        return 2 * np.cos(x) * v

    judgement = judged(pushed(np.sin, tangent, [1.0]))

    assert judgement.verdict is Verdict.FAIL
    assert judgement.findings[0].kind == "forward-raised"


def test_a_right_pushforward_is_asked_for_once_a_probe():
    subject = elementwise(np.sin, np.cos, np.linspace(0.3, 1.2, 5))
    judged(subject, probes=3)

    assert subject.pushforwards == 3


@pytest.mark.parametrize("tolerated", [{"rtol": 0.1}, {"atol": 0.1}])
def test_a_forgiven_error_passes(tolerated):
    subject = elementwise(np.sin, lambda x: np.cos(x) * 1.01, np.linspace(0.3, 1.0, 5))

    assert judged(subject).verdict is Verdict.FAIL
    assert judged(subject, **tolerated).verdict is Verdict.PASS


def test_a_subject_without_entries_passes_with_a_note():
    judgement = judged(elementwise(np.sin, np.cos, []))

    assert judgement.verdict is Verdict.PASS
    assert "no entries" in judgement.notes[0]


def test_a_watched_output_has_the_slope_that_it_has_among_all():
    subject = OutputSubset(in_mode(mixing(np.eye(3), np.array([0.1, 0.2, 0.3])), "forward"), np.array([2]))
    direction = subject.direction(0, Step(1.0))

    assert subject.pushforward(direction).tolist() == subject.whole.pushforward(direction)[[2]].tolist()
    assert subject.pushforward(direction, direction).shape == (1,)


def test_a_subject_in_its_own_mode_is_itself():
    subject = mixing(np.eye(2), np.array([0.1, 0.2]))

    assert in_mode(subject, "reverse") is subject
    assert in_mode(subject, "forward").mode == "forward"


# Low precision.


def in_two_precisions(tangent, gradient=never):
    points = np.linspace(0.3, 1.2, 20).astype(np.float32)
    return [
        in_mode(NumpySubject(np.sin, gradient, points, dtype=dtype, tangent=tangent(dtype)), "forward")
        for dtype in (np.float32, np.float64)
    ]


def rounded(tangent, gradient=never):
    return judge_rounded(*in_two_precisions(tangent, gradient), probes=1, seed=0, options=Probing())


def test_a_right_pushforward_in_low_precision_passes_without_any_pullback():
    assert rounded(lambda dtype: lambda x, v: np.cos(x) * v).verdict is Verdict.PASS


def test_a_pushforward_that_is_wrong_in_low_precision_alone_fails():
    judgement = rounded(
        lambda dtype: lambda x, v: np.cos(x) * v * (2 if dtype is np.float32 else 1),
        lambda x, u: np.cos(x) * u,
    )

    assert judgement.verdict is Verdict.FAIL


def test_a_pullback_that_is_wrong_in_low_precision_is_no_fault_of_the_pushforward():
    wrong = iter([2, 1, 1, 1, 1, 1, 1, 1, 1])
    judgement = rounded(lambda dtype: lambda x, v: np.cos(x) * v, lambda x, u: np.cos(x) * u * next(wrong))

    assert judgement.verdict is Verdict.PASS


@pytest.mark.parametrize("factor", [0.0, 2.0, 1.01])
def test_a_pushforward_that_is_wrong_in_both_precisions_fails(factor):
    assert rounded(lambda dtype: lambda x, v: factor * np.cos(x) * v).verdict is Verdict.FAIL


# Pullback and pushforward against each other.


def linear(matrix, transpose, point=None, dtype=np.float64, noise=0.0):
    """Ax, with noise, whose pullback is any matrix."""
    point = np.linspace(0.3, 1.2, matrix.shape[1]) if point is None else point
    return NumpySubject(
        lambda x: matrix @ x * (1 + noise * hashed(matrix @ x)),
        lambda x, u: transpose @ u,
        point,
        dtype=dtype,
        tangent=lambda x, v: matrix @ v,
    )


@thoroughly
@given(inputs=st.integers(1, 50), outputs=st.integers(1, 50), seed=seeds, spread=st.floats(0, 12))
def test_transposes_of_each_other_do_not_disagree(inputs, outputs, seed, spread):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(outputs, inputs)) * 10.0 ** (spread * draw.uniform(-1, 1, (outputs, inputs)))

    assert adjoint_disagreement(linear(matrix, matrix.T), seed, Probing()) is None


@thoroughly
@given(size=st.integers(1, 50), seed=seeds)
def test_transposes_in_single_precision_do_not_disagree(size, seed):
    matrix = np.random.default_rng(seed).normal(size=(size, size)).astype(np.float32)

    assert adjoint_disagreement(linear(matrix, matrix.T, dtype=np.float32), seed, Probing()) is None


@thoroughly
@given(size=st.integers(1, 12), seed=seeds, place=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_one_entry_that_differs_is_a_disagreement(size, seed, place):
    matrix = np.random.default_rng(seed).normal(size=(size, size))
    other = matrix.T.copy()
    other[round(place[0] * (size - 1)), round(place[1] * (size - 1))] += 1e-4
    finding = adjoint_disagreement(linear(matrix, other), seed, Probing())

    assert finding is not None
    assert (finding.kind, finding.mode) == ("adjoint-mismatch", "forward")


@pytest.mark.parametrize(
    "wrong", [lambda m: m, lambda m: -m.T, lambda m: 2 * m.T, lambda m: m.T[::-1], lambda m: 0 * m.T]
)
def test_what_is_no_transpose_is_a_disagreement(wrong):
    matrix = np.random.default_rng(0).normal(size=(6, 6))

    assert adjoint_disagreement(linear(matrix, wrong(matrix)), 0, Probing()) is not None


def test_zero_against_zero_is_no_disagreement():
    assert adjoint_disagreement(linear(np.zeros((3, 3)), np.zeros((3, 3))), 0, Probing()) is None


@pytest.mark.parametrize("seed", range(5))
def test_an_error_that_noisy_slopes_cannot_see_the_adjoint_can(seed):
    matrix = np.random.default_rng(seed).normal(size=(8, 8))
    subject = linear(matrix, matrix.T * (1 + 1e-7), noise=1e-5)

    assert judge(subject, probes=1, seed=seed, options=Probing()).verdict is not Verdict.FAIL
    assert judged(subject, seed).verdict is not Verdict.FAIL
    assert adjoint_disagreement(subject, seed, Probing()) is not None
    assert adjoint_disagreement(linear(matrix, matrix.T, noise=1e-5), seed, Probing()) is None


@thoroughly
@given(inputs=st.integers(1, 30), outputs=st.integers(1, 30), seed=seeds, signs=st.booleans())
def test_what_is_forgiven_against_the_values_is_forgiven_against_each_other(inputs, outputs, seed, signs):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(outputs, inputs))
    shares = draw.choice([-1.0, 1.0], matrix.shape) if signs else np.ones(matrix.shape)
    off, shifted = matrix * (1 + 1e-3 * shares), matrix + 1e-3 * shares

    assert adjoint_disagreement(linear(matrix, off.T), seed, Probing(rtol=1e-3)) is None
    assert adjoint_disagreement(linear(matrix, shifted.T), seed, Probing(atol=1e-3)) is None


@pytest.mark.parametrize("seed", range(5))
def test_far_more_than_what_is_forgiven_is_a_disagreement(seed):
    matrix = np.random.default_rng(seed).normal(size=(8, 8))

    assert adjoint_disagreement(linear(matrix, -matrix.T), seed, Probing(rtol=1e-3)) is not None
    assert adjoint_disagreement(linear(matrix, -matrix.T), seed, Probing(atol=1e-3)) is not None


def test_a_tangent_that_is_nan_where_the_value_is_nan_is_no_disagreement():
    subject = NumpySubject(
        lambda x: np.where(np.arange(3) == 1, math.nan, x),
        lambda x, u: u,
        [1.0, 2.0, 3.0],
        tangent=lambda x, v: np.where(np.arange(3) == 1, math.nan, v),
    )

    assert adjoint_disagreement(subject, 0, Probing()) is None
