"""The resolution of full coverage is kept, and what is tolerated is tolerated entry by entry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.jacobian.cover import judge_fully
from gradproof.engine.options import Probing
from gradproof.engine.results import Verdict
from support.engine import both_modes, claiming, judged_fully, places, seeds
from support.jacobians import chosen, joined, mixing, names, thoroughly
from support.numpy_subject import elementwise, hashed


@both_modes
@thoroughly
@given(name=names, seed=seeds, where=st.floats(0, 1))
def test_an_error_of_four_times_the_resolution_is_found(name, mode, seed, where):
    row, column = chosen(name, where)
    resolution = judged_fully(mixing(name, seed), mode, seed).resolution.absolute

    def error(claimed):
        claimed[row, column] += 4 * resolution
        return claimed

    judgement = judged_fully(mixing(name, seed, error), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert (column, row) in places(judgement)


@both_modes
@thoroughly
@given(seed=seeds, spread=st.floats(0, 6), wrong=st.integers(0, 11))
def test_the_resolution_is_honest_whatever_the_sizes_of_the_inputs(mode, seed, spread, wrong):
    point = 10.0 ** (spread * np.random.default_rng(seed).uniform(-1, 1, 12))

    def claim(x, error=0.0):
        return np.diag(1 + error * (np.arange(12) == wrong))

    resolution = judged_fully(claiming(lambda x: x, claim, point), mode, seed).resolution.absolute
    off = claiming(lambda x: x, lambda x: claim(x, 4 * resolution), point)

    assert judged_fully(off, mode, seed).verdict is Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds, spread=st.floats(0, 4), row=st.integers(0, 6), column=st.integers(0, 8))
def test_the_resolution_is_honest_whatever_the_sizes_of_the_entries(mode, seed, spread, row, column):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(7, 9)) * 10.0 ** (spread * draw.uniform(-1, 1, (7, 9)))
    point = draw.uniform(0.3, 1.1, 9)

    def subject(error):
        wrong = matrix.copy()
        wrong[row, column] += error
        return claiming(lambda x: matrix @ x, lambda x: wrong, point)

    resolution = judged_fully(subject(0.0), mode, seed).resolution.absolute

    assert judged_fully(subject(4 * resolution), mode, seed).verdict is Verdict.FAIL


@both_modes
@settings(thoroughly, max_examples=12)
@given(seed=seeds, level=st.floats(1e-14, 1e-3))
def test_the_resolution_is_honest_on_noisy_values(mode, seed, level):
    point = np.random.default_rng(seed).uniform(0.3, 1.1, 8)

    def subject(error):
        return claiming(lambda x: np.sin(x) + level * hashed(x), lambda x: np.diag(np.cos(x) + error), point)

    judgement = judged_fully(subject(0.0), mode, seed)

    assert judgement.verdict is not Verdict.FAIL
    if judgement.verdict is Verdict.PASS:
        off = np.zeros(8)
        off[3] = 4 * judgement.resolution.absolute
        assert judged_fully(subject(off), mode, seed).verdict is not Verdict.PASS


@pytest.mark.parametrize("tolerated", [{"rtol": 0.02}, {"atol": 0.02}])
@both_modes
@pytest.mark.parametrize("name", ["dense", "diagonal", "banded", "one entry"])
def test_an_error_within_what_is_accepted_passes(name, mode, tolerated):
    subject = mixing(name, 4, lambda claimed: claimed * 1.01)

    assert judged_fully(subject, mode).verdict is Verdict.FAIL
    assert judged_fully(subject, mode, **tolerated).verdict is Verdict.PASS


@pytest.mark.parametrize("tolerated", [{"rtol": 0.005}, {"atol": 0.002}])
@both_modes
@pytest.mark.parametrize("name", ["dense", "diagonal", pytest.param("banded"), "one entry"])
def test_an_error_beyond_what_is_accepted_is_found(name, mode, tolerated):
    subject = mixing(name, 4, lambda claimed: claimed * 1.02)

    assert judged_fully(subject, mode, **tolerated).verdict is Verdict.FAIL


@pytest.mark.parametrize(("rtol", "verdict"), [(0.45, Verdict.FAIL), (0.55, Verdict.PASS)])
def test_an_error_in_every_entry_is_held_against_the_measured_slope(rtol, verdict):
    subject = elementwise(np.sin, lambda x: np.cos(x) * 0.5, np.linspace(0.3, 1.1, 100))

    assert judge_fully(subject, probes=1, seed=0, options=Probing(rtol=rtol)).verdict is verdict


@both_modes
@thoroughly
@given(seed=seeds, scale=st.floats(0.1, 30), times=st.floats(1.1, 1e3))
def test_an_error_beyond_the_resolution_is_found_at_a_kink_of_the_curvature(mode, seed, scale, times):
    right = judged_fully(joined([0, scale, 2 * scale]), mode, seed)
    off = times * right.resolution.absolute  # above: a difference errs to below, and a claim may err just as it does

    wrong = judged_fully(joined([0, scale, 2 * scale], off), mode, seed)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert (0, 0) in places(wrong)
