"""Inputs of zero that are rounded inside a function: no ladder shows the rounding, and no right rule fails for it."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gradproof.engine.results import Verdict
from support.difficulties import rounded, rounding_inside
from support.engine import either_coverage, is_verified_on_segments, judged, seeds
from support.numpy_subject import NumpySubject

thoroughly = settings(max_examples=40, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])


@either_coverage
@thoroughly
@given(seed=seeds, digits=st.sampled_from([8, 11, 24]), zeros=st.sampled_from([1, 3, 8]))
def test_zeros_that_are_rounded_inside_are_never_called_wrong(coverage, seed, digits, zeros):
    point = np.random.default_rng(seed).uniform(0.5, 1.5, 8)
    point[:zeros] = 0.0

    verdict = judged(rounding_inside(point, digits), seed, coverage=coverage).verdict

    assert verdict is not Verdict.FAIL


@either_coverage
@pytest.mark.parametrize(("digits", "factor"), [(24, 1.001), (24, 0.5), (11, 1.1), (8, 1.2), (8, -1.0), (8, 0.0)])
@pytest.mark.parametrize("seed", range(5))
def test_a_wrong_entry_is_found_among_zeros_that_are_rounded_and_is_the_only_one(coverage, digits, factor, seed):
    subject = rounding_inside(np.zeros(8), digits, factor)

    judgement = judged(subject, seed, coverage=coverage)

    assert judgement.verdict is Verdict.FAIL
    assert {entry.index[0] for entry in judgement.entries} == {1}


@either_coverage
def test_zeros_that_are_rounded_inside_are_called_quantised_and_verified_on_segments(coverage, explained):
    judgement = judged(rounding_inside(np.zeros(8), 24), coverage=coverage)

    assert explained == {"QuantisedInputs"}
    assert is_verified_on_segments(judgement)


@either_coverage
@pytest.mark.parametrize("seed", range(10))
def test_zeros_that_are_rounded_at_the_last_are_never_called_wrong(coverage, seed):
    subject = NumpySubject(lambda x: rounded(x, 24), lambda x, incoming: incoming * 1.0, np.zeros(6))

    assert judged(subject, seed, coverage=coverage).verdict is not Verdict.FAIL


@either_coverage
@pytest.mark.parametrize("error", [1e-2, 1e-5, 1e-7])
def test_a_slight_error_of_a_smooth_function_at_zero_is_no_quantisation(coverage, error):
    subject = NumpySubject(
        lambda x: np.sin(x + 0.3), lambda x, incoming: (1 + error) * np.cos(x + 0.3) * incoming, np.zeros(6)
    )

    assert judged(subject, coverage=coverage).verdict is Verdict.FAIL
