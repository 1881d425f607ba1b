"""Pushforwards beside kinks, noise, edges and undefined values, and pushforwards that raise."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.results import Reason, Verdict
from gradproof.engine.subject import DerivativeError
from support.forward import elementwise, judged_forward, pushed
from support.numpy_subject import hashed

thoroughly = settings(max_examples=50, deadline=None, derandomize=True)


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
        return judged_forward(pushed(softmax, tangent, points), seed).verdict

    assert [seed for seed in range(20) if verdict(seed) is Verdict.FAIL] == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("claim", [0.0, 0.5, 1.0])
def test_a_kink_is_inconclusive_whatever_is_claimed_between_its_slopes(claim, seed):
    subject = elementwise(
        lambda x: np.maximum(x, 0), lambda x: np.where(x == 0, claim, 1.0 * (x > 0)), [0.0, 1.0, -1.0]
    )
    judgement = judged_forward(subject, seed)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.KINK
    assert "between" in judgement.message


@thoroughly
@given(steps=st.floats(-100, 100), size=st.integers(1, 30), seed=st.integers(0, 9999))
def test_the_right_pushforward_beside_a_kink_is_never_called_wrong(steps, size, seed):
    points = np.random.default_rng(seed).uniform(0.3, 2.8, size)
    corners = points + steps * 1e-4
    subject = elementwise(lambda x: np.maximum(x - corners, 0), lambda x: 1.0 * (x > corners), points)

    assert judged_forward(subject, seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("size", [1, 30])
def test_the_right_pushforward_of_a_noisy_function_is_never_called_wrong(noise, size):
    def verdict(seed):
        points = np.random.default_rng(seed).uniform(0.3, 2.8, size)
        return judged_forward(elementwise(lambda x: np.sin(x) * (1 + noise * hashed(x)), np.cos, points), seed).verdict

    assert [seed for seed in range(15) if verdict(seed) is Verdict.FAIL] == []


def test_a_function_of_pure_noise_is_inconclusive():
    judgement = judged_forward(elementwise(hashed, lambda x: 0 * x, np.linspace(0.3, 1.2, 5)))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NOISE


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_function_without_a_finite_value_is_inconclusive(value):
    judgement = judged_forward(elementwise(lambda x: value + 0 * x, np.cos, [1.0, 2.0]))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NON_FINITE


def test_one_output_without_a_finite_value_is_inconclusive_and_does_not_hide_an_error_in_another():
    def value(x):
        return np.where(np.arange(4) == 0, math.nan, np.sin(x))

    points = np.linspace(0.3, 1.2, 4)

    assert judged_forward(elementwise(value, np.cos, points)).verdict is Verdict.INCONCLUSIVE
    assert judged_forward(elementwise(value, lambda x: np.cos(x) + (x > 1), points)).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(5))
def test_the_right_slope_where_a_function_ends_is_never_called_wrong(seed):
    subject = elementwise(
        lambda x: np.where(x <= 1, np.sqrt(abs(1.5 - x)), math.nan), lambda x: -0.5 / np.sqrt(1.5 - x), [1.0]
    )

    assert judged_forward(subject, seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_tangent_that_is_not_finite_where_the_slope_is_fails_and_names_the_output(bad):
    error = np.zeros(7)
    error[4] = bad
    judgement = judged_forward(elementwise(np.sin, lambda x: np.cos(x) + error, np.linspace(0.3, 1.2, 7)))

    assert judgement.verdict is Verdict.FAIL
    assert judgement.findings[0].kind == "non-finite-gradient"
    assert str(judgement.findings[0].entries[0].output) == "output[4]"


def test_a_tangent_that_is_not_finite_where_the_slope_is_not_either_is_inconclusive():
    judgement = judged_forward(elementwise(np.sqrt, lambda x: 0.5 / np.sqrt(x), [0.0, 1.0]))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NON_FINITE


def test_a_pushforward_that_raises_is_a_failure_that_quotes_it():
    def broken(x, v):
        raise DerivativeError("ValueError: shapes differ")

    judgement = judged_forward(pushed(np.sin, broken, [1.0]))

    assert judgement.verdict is Verdict.FAIL
    assert [finding.kind for finding in judgement.findings] == ["forward-raised"]
    assert "shapes differ" in judgement.message


def test_a_pushforward_without_a_rule_is_a_failure_that_says_so():
    def absent(x, v):
        raise DerivativeError("NotImplementedError: no jvp", absent=True)

    judgement = judged_forward(pushed(np.sin, absent, [1.0]))

    assert judgement.verdict is Verdict.FAIL
    assert [finding.kind for finding in judgement.findings] == ["no-forward-rule"]
    assert "no jvp" in judgement.message


def test_a_pushforward_that_raises_only_when_called_again_is_a_failure_too():
    calls = []

    def tangent(x, v):
        calls.append(0)
        if len(calls) > 1:
            raise DerivativeError("RuntimeError: called twice")
        return 2 * np.cos(x) * v

    judgement = judged_forward(pushed(np.sin, tangent, [1.0]))

    assert judgement.verdict is Verdict.FAIL
    assert judgement.findings[0].kind == "forward-raised"
