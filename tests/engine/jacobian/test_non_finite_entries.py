"""Claims and values that are NaN or infinite: found where the slope is finite, inconclusive where it is not."""

import math

import numpy as np
import pytest

from gradproof.engine.results import Reason, Verdict
from support.engine import both_modes, claiming, judged_fully, places
from support.jacobians import PATTERNS, chosen, mixing, with_a_zero
from support.numpy_subject import elementwise


@pytest.mark.parametrize("value", [math.nan, pytest.param(math.inf), pytest.param(-math.inf)])
@both_modes
@pytest.mark.parametrize("name", ["one entry", "dense", "diagonal", "banded"])
def test_a_claim_that_is_not_finite_fails(name, mode, value):
    row, column = chosen(name, 0.4)

    def error(claimed):
        claimed[row, column] = value
        return claimed

    assert judged_fully(mixing(name, 3, error), mode).verdict is Verdict.FAIL


SINGULAR = {
    "acos": (np.arccos, lambda x: -1 / np.sqrt(1 - x * x), 1.0),
    "log": (np.log, lambda x: 1 / x, 0.0),
    "reciprocal": (np.reciprocal, lambda x: -1 / (x * x), 0.0),
    "sqrt": (np.sqrt, lambda x: 0.5 / np.sqrt(x), 0.0),
}


def singular(name, mode, wrong=()):
    """A function of each of many inputs, one of which is where it has no slope; some slopes are claimed as NaN.

    Nothing times infinity is NaN: so is what a backward says of that input and all other outputs, and what a
    pushforward says of all other inputs and that output.
    """
    function, slope, place = SINGULAR[name]
    point = np.where(np.arange(30) == 20, place, 0.4)
    claimed = np.diag(slope(point))
    claimed[(slice(None), 20) if mode == "reverse" else 20] = math.nan
    claimed[20, 20] = slope(np.float64(place))
    for entry in wrong:
        claimed[entry] = math.nan
    return claiming(function, lambda x: claimed, point)


@both_modes
@pytest.mark.parametrize("name", SINGULAR)
def test_nan_beside_an_infinite_slope_is_not_called_wrong(mode, name):
    judgement = judged_fully(singular(name, mode), mode)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NON_FINITE


@both_modes
@pytest.mark.parametrize("name", SINGULAR)
def test_nan_of_another_input_is_found_beside_an_infinite_slope(mode, name):
    judgement = judged_fully(singular(name, mode, wrong=[(4, 4)]), mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(4, 4)}


@both_modes
@pytest.mark.parametrize("name", ["one entry", "dense", "diagonal", "banded"])
def test_a_claimed_nan_is_located(name, mode):
    row, column = chosen(name, 0.4)

    def error(claimed):
        claimed[row, column] = math.nan
        return claimed

    (finding,) = judged_fully(mixing(name, 3, error), mode).findings
    truth = mixing(name, 3).gradient(mixing(name, 3).point, np.eye(PATTERNS[name].shape[0])[row])[column]

    assert finding.argument == "x"
    assert places(judged_fully(mixing(name, 3, error), mode)) == {(column, row)}
    assert finding.entries[0].numerical == pytest.approx(truth, rel=1e-4)


@both_modes
@pytest.mark.parametrize("size", [1, 10])
def test_a_value_that_is_nan_is_inconclusive(mode, size):
    subject = elementwise(lambda x: x / x * x, lambda x: np.ones_like(x), with_a_zero(size))

    assert judged_fully(subject, mode).verdict is Verdict.INCONCLUSIVE


def undefined_at_first(matrix, size, wrong=0.0):
    """A·x whose first output is NaN, and with it whatever a rule that multiplies by zero makes of the first input."""
    matrix = np.pad(matrix, ((1, 0), (0, 0)), constant_values=1.0)

    def function(x):
        return np.where(np.arange(size + 1) == 0, math.nan, matrix @ x)

    def claim(x):
        claimed = matrix.copy()
        claimed[:, 0] = math.nan
        claimed[2, 3] += wrong
        return claimed

    return claiming(function, claim, np.full(size, 0.7))


@both_modes
@pytest.mark.parametrize("size", [5, 40])
def test_what_is_claimed_beside_an_output_that_is_nan_is_inconclusive_at_the_cost_of_a_first_look(mode, size):
    subject = undefined_at_first(np.ones((size, size)), size)

    judgement = judged_fully(subject, mode)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NON_FINITE
    assert subject.evaluations <= 2 * size + 1


@both_modes
@pytest.mark.parametrize("matrix", [np.ones((5, 5)), np.eye(40), np.ones((40, 40))], ids=["few", "diagonal", "dense"])
def test_a_wrong_entry_is_found_beside_an_output_that_is_nan(mode, matrix):
    judgement = judged_fully(undefined_at_first(matrix, len(matrix), wrong=0.1), mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(3, 2)}


@both_modes
@pytest.mark.parametrize("error", [0.0, 0.1])
def test_an_output_that_stays_infinite_is_as_good_as_constant(mode, error):
    def claim(x):
        claimed = np.diag(1.0 * (np.arange(12) > 0))
        claimed[5, 5] += error
        return claimed

    subject = claiming(lambda x: np.where(np.arange(12) == 0, -math.inf, x), claim, np.full(12, 0.7))

    judgement = judged_fully(subject, mode)

    assert judgement.verdict is (Verdict.FAIL if error else Verdict.PASS)
    assert places(judgement) == ({(5, 5)} if error else set())
    assert error or subject.evaluations <= 3


@both_modes
@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_a_slope_claimed_of_an_output_that_stays_infinite_is_said_to_be_unchecked(mode, slope):
    """It may be a mask that the backward forgot, or an infinity that was added to the output."""

    def claim(x):
        return np.diag(np.where(np.arange(12) == 0, slope, 1.0))

    judgement = judged_fully(
        claiming(lambda x: np.where(np.arange(12) == 0, -math.inf, x), claim, np.full(12, 0.7)), mode
    )

    assert judgement.verdict is Verdict.PASS
    assert any("were not checked" in note for note in judgement.notes) == bool(slope)


@both_modes
def test_a_function_that_is_nan_everywhere_is_inconclusive(mode):
    subject = claiming(lambda x: x * math.nan, lambda x: np.eye(4), np.ones(4))

    assert judged_fully(subject, mode).verdict is Verdict.INCONCLUSIVE
