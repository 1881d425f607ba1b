"""A gradient of zero is right for a quantiser, and wrong for a cast: enough values distinguish the two."""

import numpy as np
import pytest

from gradproof.engine.explanations.quantisation import ZERO_GRADIENT, cast_of, rises_on_long_steps
from gradproof.engine.results import Verdict
from gradproof.engine.subject import Step
from support.engine import either_coverage, judged
from support.numpy_subject import elementwise


def points(seed, size=4):
    return np.random.default_rng(seed).uniform(0.5, 3, size)


def claimed_to_be(slope, function, seed):
    return elementwise(function, lambda x: slope + 0 * x, points(seed))


CASTS = {"half": lambda x: x.astype(np.float16).astype(float), "single": lambda x: x.astype(np.float32).astype(float)}


@either_coverage
@pytest.mark.parametrize("seed", range(8))
def test_a_gradient_of_zero_of_values_that_are_cast_is_not_called_wrong_and_a_pass_has_a_note(coverage, seed):
    judgement = judged(claimed_to_be(0.0, CASTS["half"], seed), seed, coverage=coverage)

    assert judgement.verdict is not Verdict.FAIL
    assert judgement.verdict is Verdict.INCONCLUSIVE or ZERO_GRADIENT in judgement.notes


@pytest.mark.parametrize("name", CASTS)
@either_coverage
def test_a_gradient_of_zero_fails_where_many_values_show_a_cast(coverage, name):
    subject = elementwise(lambda x: CASTS[name](np.sin(x)), lambda x: 0 * x, np.random.default_rng(0).normal(size=200))

    assert judged(subject, coverage=coverage).verdict is Verdict.FAIL


@either_coverage
@pytest.mark.parametrize("steps", [2**7, 2**10, 2**12, 2**14])
def test_a_gradient_of_zero_of_a_quantiser_is_never_called_wrong(coverage, steps):
    def quantised(x):
        return np.round(x * steps) / steps

    verdicts = [judged(claimed_to_be(0.0, quantised, seed), seed, coverage=coverage).verdict for seed in range(10)]

    assert Verdict.FAIL not in verdicts


@either_coverage
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_a_gradient_of_zero_of_smooth_values_fails_whatever_they_are_added_to(coverage, offset):
    judgement = judged(claimed_to_be(0.0, lambda x: offset + np.sin(x), 0), coverage=coverage)

    assert judgement.verdict is Verdict.FAIL


@either_coverage
@pytest.mark.parametrize(
    "constant",
    [lambda x: 0 * x + 0.3, np.sign, np.round, lambda x: np.maximum(x - 100, 0), lambda x: 0 * x + np.pi],
    ids=["a constant", "a sign", "whole numbers", "a dead region", "an irrational constant"],
)
def test_a_gradient_of_zero_of_constant_values_passes_without_a_note(coverage, constant):
    judgement = judged(claimed_to_be(0.0, constant, 0), coverage=coverage)

    assert judgement.verdict is Verdict.PASS
    assert ZERO_GRADIENT not in judgement.notes


@pytest.mark.parametrize("name", CASTS)
def test_a_cast_shows_in_the_values(name):
    assert cast_of(claimed_to_be(0.0, CASTS[name], 0))
    assert not cast_of(claimed_to_be(0.0, np.sin, 0))


def test_cast_values_rise_evenly_to_both_sides_and_a_ramp_to_one():
    cast, ramp = claimed_to_be(0.0, CASTS["half"], 0), claimed_to_be(0.0, lambda x: np.maximum(x, x[:1] * 0 + 3), 0)

    assert rises_on_long_steps(cast, cast.direction(0, Step(3e-6)))
    assert not rises_on_long_steps(ramp, ramp.direction(0, Step(3e-6)))
