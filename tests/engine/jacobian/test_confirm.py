"""Confirmation: large errors and kinks are confirmed in few evaluations, and nothing else is mistaken for one."""

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gradproof.engine.results import Verdict
from support.difficulties import rounded
from support.engine import both_modes, claiming, judged_fully, seeds
from support.numpy_subject import hashed

thoroughly = settings(max_examples=15, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
CARE = 100  # evaluations that a single column takes where it is judged with all care, and more


def bending(size, seed, rounding=lambda x: x):
    """A dense function that bends everywhere, with its Jacobian at the point."""
    draw = np.random.default_rng(seed)
    matrix, point = draw.normal(size=(size, size)), rounding(draw.uniform(0.3, 1.0, size))
    return (lambda x: np.sin(matrix @ x)), np.cos(matrix @ point)[:, None] * matrix, point


# Gross errors.


@both_modes
@settings(thoroughly, max_examples=40)
@given(seed=seeds, column=st.integers(0, 7), factor=st.sampled_from([-1.0, 0.0, 0.5, 1.2, 2.0]))
def test_a_gross_error_is_found_in_few_evaluations(mode, seed, column, factor):
    function, right, point = bending(8, seed)
    wrong = 1.0 * right
    wrong[:, column] *= factor
    subject = claiming(function, wrong, point)

    judgement = judged_fully(subject, mode)

    assert judgement.verdict is Verdict.FAIL
    assert {entry.index[0] for entry in judgement.entries} == {column}
    assert subject.evaluations < 2 * 8 + 1 + CARE / 3


def test_every_wrong_entry_that_is_shown_takes_ten_evaluations_beyond_the_first_look():
    function, right, point = bending(12, 0)
    subject = claiming(function, 0 * right, point)

    assert judged_fully(subject).verdict is Verdict.FAIL
    assert subject.evaluations <= 2 * 12 + 10 * 12 + 10


@both_modes
@thoroughly
@given(seed=seeds)
def test_a_slope_is_estimated_with_an_honest_bar(mode, seed):
    function, right, point = bending(6, seed)

    judgement = judged_fully(claiming(function, -right, point), mode, seed)

    for entry in judgement.entries:
        assert abs(entry.numerical - right[entry.output.index[0], entry.index[0]]) <= entry.bar
        assert entry.claimed == -right[entry.output.index[0], entry.index[0]]


@both_modes
def test_every_argument_that_is_plainly_wrong_is_named(mode):
    function, right, point = bending(6, 1)
    wrong = right * np.array([1, 1, -1, 1, 2, 1.0])
    subject = claiming(function, wrong, point, parts={"a": 2, "b": 2, "c": 2})

    assert [finding.argument for finding in judged_fully(subject, mode).findings] in (["b", "c"], ["c", "b"])


@both_modes
def test_a_slight_error_in_another_argument_is_not_forgotten(mode):
    function, right, point = bending(6, 1)
    wrong = right * np.array([1, 1, -1, 1, 1.001, 1.0])
    subject = claiming(function, wrong, point, parts={"a": 2, "b": 2, "c": 2})

    assert {finding.argument for finding in judged_fully(subject, mode).findings} == {"b", "c"}


@both_modes
@pytest.mark.parametrize("size", [3, 30, 200])
def test_a_constant_that_is_claimed_to_move_is_wrong(mode, size):
    point = np.linspace(0.3, 1.1, size)
    moves = np.arange(size) != 1

    judgement = judged_fully(claiming(lambda x: np.where(moves, x, 0.7), np.eye(size), point), mode)

    assert judgement.verdict is Verdict.FAIL
    assert [(entry.index[0], entry.numerical) for entry in judgement.entries] == [(1, 0.0)]


def test_the_readings_of_a_gross_error_are_a_taylor_test_that_falls_with_the_step():
    function, right, point = bending(4, 0)

    (reading, *_) = judged_fully(claiming(function, -right, point)).readings

    assert not reading.agrees
    steps, left = ([getattr(point, name) for point in reading.steps] for name in ("step", "remainder"))
    assert steps == sorted(steps)
    assert math.log(left[2] / left[0]) / math.log(steps[2] / steps[0]) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("tolerated", [{"rtol": 2.5}, {"atol": 100.0}])
def test_a_gross_error_that_is_tolerated_passes(tolerated):
    function, right, point = bending(4, 0)

    assert judged_fully(claiming(function, -right, point), **tolerated).verdict is Verdict.PASS


def test_the_whole_jacobian_is_known_then():
    function, right, point = bending(12, 0)
    wrong = 1.0 * right
    wrong[2, 3] += 1.0

    measured = judged_fully(claiming(function, wrong, point)).measured

    assert (abs(measured.slopes - right) <= measured.bars + 1e-9 * abs(right)).all()
    assert measured.bars.max() < 1e-6 * abs(right).max()


BESIDE = {  # functions of three equal inputs, each with its slope
    "a cast": (lambda x: 1.37 * rounded(x, 8), 1.37),
    "large numbers": (lambda x: (x + 1e12) - 1e12, 1.0),
    "an oscillation": (lambda x: x + np.sin(1e6 * x) / 1e6, 1 + math.cos(5e5)),
    "a tie": (np.sort, 1.0),
    "a slight kink": (lambda x: np.maximum(x, 0.85 * x + 0.075), 0.85),
}


@both_modes
@pytest.mark.parametrize(("beside", "slope"), BESIDE.values(), ids=BESIDE)
def test_no_right_entry_is_listed_beside_a_wrong_one(mode, beside, slope):
    def function(x):
        return np.concatenate([1e3 * x[:1], beside(x[1:])])

    subject = claiming(function, np.diag([500.0, slope, slope, slope]), np.array([0.7, 0.5, 0.5, 0.5]))
    judgement = judged_fully(subject, mode)

    assert judgement.verdict is Verdict.FAIL
    assert [entry.index[0] for entry in judgement.entries] == [0]


@both_modes
@pytest.mark.parametrize("distance", [1e-6, 1e-7, 1e-8])
def test_a_slope_beside_a_kink_is_estimated_with_an_honest_bar(mode, distance):
    point = np.array([0.7, 0.9])

    def function(x):
        return x + 0.2 * np.maximum(x - point - distance, 0.0)

    for seed in range(5):
        judgement = judged_fully(claiming(function, 2 * np.eye(2), point), mode, seed)
        assert judgement.verdict is Verdict.FAIL
        assert all(abs(entry.numerical - 1) <= entry.bar < 0.1 for entry in judgement.entries)


# Columns that are left to probes.


@both_modes
@pytest.mark.parametrize("frequency", [1e3, 1e6, 1e9, 1e12, 1e15])
def test_a_function_that_changes_below_all_steps_is_not_plainly_anything_else(mode, frequency):
    def verdict(seed):
        point = np.random.default_rng(seed).uniform(0.3, 1.0, 3)
        slopes = np.diag(frequency * np.cos(frequency * point))
        return judged_fully(claiming(lambda x: np.sin(frequency * x), slopes, point), mode, seed).verdict

    assert not [seed for seed in range(8) if verdict(seed) is Verdict.FAIL]


@both_modes
@settings(thoroughly, max_examples=40)
@given(seed=seeds, digits=st.sampled_from([8, 11, 24]), scale=st.sampled_from([1.0, 0.37]))
def test_a_slope_that_a_cast_hides_is_not_plainly_wrong(mode, seed, digits, scale):
    function, right, point = bending(8, seed, lambda x: rounded(x, digits))

    inside = claiming(lambda x: function(rounded(x, digits)), right, point)
    outside = claiming(lambda x: scale * rounded(1 + 0.1 * function(x), digits), scale * 0.1 * right, point)

    assert judged_fully(inside, mode, seed).verdict is not Verdict.FAIL
    assert judged_fully(outside, mode, seed).verdict is not Verdict.FAIL


@both_modes
@pytest.mark.parametrize("size", [9, 100])
@pytest.mark.parametrize("seed", range(4))
def test_inputs_that_tie_are_not_plainly_wrong(mode, size, seed):
    point = np.random.default_rng(seed).integers(0, 4, size) + 1.0
    order = np.argsort(point, kind="stable")

    assert judged_fully(claiming(np.sort, np.eye(size)[order], point), mode, seed).verdict is not Verdict.FAIL


@both_modes
@thoroughly
@given(
    seed=seeds,
    values=st.sampled_from([[0.2, 1, 1, 1, 1.7], [0.2, 0.2, 1, 1, 1, 1, 1.7], [0.2, 1, 1, 1, 1, 1, 1.7]]),
)
def test_a_median_of_inputs_that_tie_is_not_called_wrong(mode, seed, values):
    point = np.random.default_rng(seed).permutation(values)
    first = np.arange(len(point)) == np.argmax(point == 1)

    subject = claiming(lambda x: np.median(x, keepdims=True), 1.0 * first, point)

    assert judged_fully(subject, mode, seed).verdict is not Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds, distance=st.floats(-14, 0))
def test_a_kink_beside_the_point_is_not_plainly_wrong(mode, seed, distance):
    function, right, point = bending(5, seed)

    def folded(x):
        return function(x) + abs(x[0] - point[0] - 10**distance * point[0])

    right = 1.0 * right
    right[:, 0] -= 1

    assert judged_fully(claiming(folded, right, point), mode, seed).verdict is not Verdict.FAIL


@both_modes
@pytest.mark.parametrize("error", [1.0, 1e-3])
def test_a_slope_claimed_of_a_constant_is_found_beside_an_input_that_jumps(mode, error):
    """The input may be a label that chooses between cases: moved with the others, it changes what they do."""

    def function(x):
        return np.array([x[0] if x[1] == 1 else 50 + x[2], np.sin(x[0])])

    claimed = np.array([[1.0, 0.0, error], [math.cos(0.7), 0.0, 0.0]])

    judgement = judged_fully(claiming(function, claimed, np.array([0.7, 1.0, 0.4])), mode)

    assert judgement.verdict is Verdict.FAIL
    assert [(entry.index[0], entry.output.index[0]) for entry in judgement.entries] == [(2, 0)]


@both_modes
@pytest.mark.parametrize("seed", range(10))
def test_chance_is_not_plainly_wrong(mode, seed):
    calls = iter(range(10**6))
    subject = claiming(lambda x: x * (1 + 0.3 * hashed(x * 0 + next(calls))), np.eye(4), np.linspace(0.3, 1.1, 4))

    assert judged_fully(subject, mode, seed).verdict is not Verdict.FAIL


# Kinks.


@both_modes
@pytest.mark.parametrize("size", [1, 4, 30])
@pytest.mark.parametrize("claim", [-1.0, 0.0, 0.3, 1.0])
def test_a_kink_is_confirmed_in_few_evaluations_with_the_slopes_of_its_sides(mode, size, claim):
    point = np.linspace(0.3, 1.1, size)
    point[0] = 0.0
    slopes = np.sign(point)
    slopes[0] = claim
    subject = claiming(np.abs, np.diag(slopes), point)

    judgement = judged_fully(subject, mode)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.message == (
        f"The slope of output[0] is -1 before x[0] and 1 after it; the claimed {claim:g} lies between them."
    )
    assert subject.evaluations < 2 * size + CARE / 5


@both_modes
def test_a_claim_outside_of_a_kink_is_not_excused_by_confirmation(mode):
    subject = claiming(np.abs, np.diag([5.0, 1.0]), np.array([0.0, 0.7]))

    judgement = judged_fully(subject, mode)

    assert judgement.verdict is not Verdict.PASS
    assert "between" not in judgement.message


@both_modes
def test_a_wrong_slope_beside_a_kink_in_the_same_column_is_found(mode):
    def function(x):
        return np.array([abs(x[0]), np.sin(x[0]), x[1]])

    claimed = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 1.0]])

    judgement = judged_fully(claiming(function, claimed, np.array([0.0, 0.7])), mode)

    assert judgement.verdict is Verdict.FAIL
    assert [(entry.index[0], entry.output.index[0]) for entry in judgement.entries] == [(0, 1)]
