"""Kinks, jumps, edges and noise in single entries are inconclusive, and no wrong entry hides behind them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof.engine.results import Verdict
from support.engine import both_modes, claiming, judged_fully, places, seeds
from support.jacobians import PATTERNS, mixing, sized, thoroughly, with_a_zero
from support.numpy_subject import elementwise, hashed

sizes = pytest.mark.parametrize("size", [1, 3, 10, 40])

KINKS = {
    "the absolute value": (np.abs, np.sign),
    "a ramp": (lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0)),
    "a ramp with half a slope": (lambda x: np.maximum(x, 0), lambda x: np.heaviside(x, 0.5)),
    "a small bend": (lambda x: x + 0.1 * np.abs(x), lambda x: 1 + 0.1 * np.sign(x)),
}


@pytest.mark.parametrize("kind", KINKS)
@both_modes
@sizes
def test_a_kink_is_inconclusive(kind, mode, size):
    assert judged_fully(elementwise(*KINKS[kind], with_a_zero(size)), mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@pytest.mark.parametrize("size", [1, 3, 10, pytest.param(40)])
def test_a_jump_is_inconclusive(mode, size):
    subject = elementwise(lambda x: x + (x >= 0), lambda x: np.ones_like(x), with_a_zero(size))

    assert judged_fully(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@pytest.mark.parametrize("size", [1, 3, pytest.param(10), pytest.param(40)])
def test_an_edge_of_the_domain_is_inconclusive(mode, size):
    subject = elementwise(lambda x: x * np.sqrt(x), lambda x: 1.5 * np.sqrt(x), with_a_zero(size))

    assert judged_fully(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@pytest.mark.parametrize("name", ["dense", "diagonal"])
def test_noise_is_inconclusive(mode, name):
    matrix = sized(PATTERNS[name], 0)
    subject = claiming(lambda x: matrix @ x * (1 + hashed(matrix @ x)), lambda x: matrix, np.full(matrix.shape[1], 0.7))

    assert judged_fully(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@thoroughly
@given(name=st.sampled_from(["dense", "diagonal", "banded"]), seed=seeds, level=st.floats(-15, 0))
def test_noise_is_never_called_an_error(name, mode, seed, level):
    right = mixing(name, seed)
    subject = claiming(
        lambda x: right.function(x) * (1 + 10**level * hashed(right.function(x))),
        lambda x: sized(PATTERNS[name], seed) * np.cos(x),
        right.point,
    )

    assert judged_fully(subject, mode, seed).verdict is not Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds, distance=st.floats(-12, -1), size=st.sampled_from([1, 4, 30]))
def test_a_kink_beside_the_point_is_never_called_an_error(mode, seed, distance, size):
    point = np.random.default_rng(seed).uniform(0.3, 1.0, size)
    point[0] = 10**distance

    assert judged_fully(elementwise(*KINKS["a ramp"], point), mode, seed).verdict is not Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds)
def test_a_choice_of_the_largest_is_never_called_an_error(mode, seed):
    point = np.random.default_rng(seed).uniform(0.3, 1.0, 8)
    point[3] = point[5] = 2.0

    def claim(x):
        return 1.0 * (np.arange(8) == 3)[None]

    assert (
        judged_fully(claiming(lambda x: x.max(keepdims=True), claim, point), mode, seed).verdict is Verdict.INCONCLUSIVE
    )


@both_modes
@pytest.mark.parametrize("size", [12, 40])
def test_a_wrong_entry_is_found_beside_a_kink(mode, size):
    def slope(x):
        found = np.sign(x)
        found[1] = 1.5
        return found

    judgement = judged_fully(elementwise(np.abs, slope, with_a_zero(size)), mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(1, 1)}


@both_modes
def test_a_nondeterministic_function_is_inconclusive(mode):
    draw = np.random.default_rng(0)
    subject = claiming(lambda x: x + 1e-3 * draw.normal(size=8), lambda x: np.eye(8), np.linspace(0.3, 1.2, 8))

    assert judged_fully(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@pytest.mark.parametrize("wrong", range(7))
def test_a_wrong_entry_is_found_among_columns_that_noise_hides(mode, wrong):
    margins = np.array([0.5, 30.0, 1.0, 31.0, 2.0, 32.0, 33.0])

    def claim(x):
        slopes = -1 / (1 + np.exp(x))
        slopes[wrong] += 1e-3
        return slopes[None]

    judgement = judged_fully(claiming(lambda x: np.array([np.logaddexp(0, -x).sum()]), claim, margins), mode)

    assert judgement.verdict is Verdict.FAIL
    assert (wrong, 0) in places(judgement)
