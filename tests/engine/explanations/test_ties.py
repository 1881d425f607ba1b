"""The slopes of inputs that tie do not add up: their entries are inconclusive, and the others are judged."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gradproof.engine.contraction import Claim, Contraction
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.explanations.nondifferentiable import Ties
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry, Verdict
from gradproof.engine.subject import Step
from support.difficulties import median_beside_a_sine
from support.engine import both_modes, either_coverage, judged, seeds
from support.numpy_subject import NumpySubject

thoroughly = settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])


def tied(subject, coordinate, error, seed=0):
    probe = Probe(
        seed=seed,
        ladder=Ladder(subject, subject.direction(seed, Step(6e-6))),
        cotangent=np.ones(1),
        claimed=None,
        contraction=Contraction(0.0, 0.0, 1e-15, 0.0),
        claim=Claim(0.0, 0.0, 0.0, 0.0, 0.0),
    )
    entry = Entry(index=(coordinate,), claimed=error, numerical=0.0, bar=0.0)
    comparison = Comparison(
        kind=Kind.ENTRY, probe=probe, options=Probing(), coordinate=coordinate, entry=entry, adds_up=False
    )
    return Ties().explains(comparison) is not None


@pytest.mark.parametrize("count", [3, 5, 21, 99])
@thoroughly
@given(seed=seeds)
def test_an_input_that_ties_is_known_by_what_it_does_together_with_others(count, seed):
    subject = median_beside_a_sine([*np.ones(count), 0.3, 1.7])

    assert tied(subject, 1, 2.0, seed)
    assert not tied(subject, count, 2.0, seed)


@thoroughly
@given(seed=seeds, bend=st.floats(-3, 3), error=st.floats(-4, 1))
def test_inputs_that_depend_on_each_other_by_curvature_do_not_tie(seed, bend, error):
    def function(x):
        return np.atleast_1d(np.prod(np.sin(x)) * 10**bend)

    subject = NumpySubject(function, lambda x, u: 0 * x, np.random.default_rng(seed).uniform(0.3, 1.2, 5))

    assert not tied(subject, 1, 10**error * float(function(subject.point)[0]), seed)


@either_coverage
@both_modes
@pytest.mark.parametrize("count", [3, 5, 21])
@thoroughly
@given(seed=seeds)
def test_a_median_of_ties_beside_a_smooth_term_is_not_called_wrong(coverage, mode, count, seed):
    subject = median_beside_a_sine([*np.ones(count), 0.3, 1.7])

    assert judged(subject, seed, coverage=coverage, mode=mode).verdict is not Verdict.FAIL


@either_coverage
@both_modes
@thoroughly
@given(seed=seeds)
def test_a_wrong_entry_is_found_beside_inputs_that_tie(coverage, mode, seed):
    subject = median_beside_a_sine([1.0, 1.0, 1.0, 0.3, 1.7], last_error=0.3)

    judgement = judged(subject, seed, coverage=coverage, mode=mode)

    assert judgement.verdict is Verdict.FAIL
    assert [entry.index for entry in judgement.entries] == [(4,)]


@either_coverage
@both_modes
@pytest.mark.parametrize("error", [1.0, 0.3, 0.01])
def test_an_error_in_all_entries_is_found_where_only_two_inputs_are_equal(coverage, mode, error):
    subject = median_beside_a_sine([0.3, 0.3, 0.8, 1.7, 1.9], error=error)

    assert judged(subject, coverage=coverage, mode=mode).verdict is Verdict.FAIL
