"""Any wrong entry of a Jacobian is found at its place: off by little, of the wrong sign, missing, or one too many."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof.engine.results import Verdict
from gradproof.engine.subject import DerivativeError
from support.engine import both_modes, claiming, judged_fully, places, seeds
from support.jacobians import PATTERNS, SPARSE, chosen, mixing, names, sized, thoroughly
from support.numpy_subject import NumpySubject


@both_modes
@thoroughly
@given(name=names, seed=seeds, where=st.floats(0, 1), sign=st.sampled_from([-1, 1]))
def test_an_entry_that_is_off_by_a_millionth_is_found(name, mode, seed, where, sign):
    row, column = chosen(name, where)

    def error(claimed):
        claimed[row, column] *= 1 + 2e-6 * sign
        return claimed

    judgement = judged_fully(mixing(name, seed, error), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(column, row)}


@both_modes
@thoroughly
@given(name=names, seed=seeds, where=st.floats(0, 1))
def test_an_entry_with_the_wrong_sign_is_found(name, mode, seed, where):
    row, column = chosen(name, where)

    def error(claimed):
        claimed[row, column] *= -1
        return claimed

    judgement = judged_fully(mixing(name, seed, error), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(column, row)}
    assert {finding.argument for finding in judgement.findings} == {"x"}


@both_modes
@thoroughly
@given(
    name=st.sampled_from([name for name in PATTERNS if name not in ("banded", "blocks")]),
    seed=seeds,
    where=st.floats(0, 1),
)
def test_a_claimed_zero_that_is_none_is_found(name, mode, seed, where):
    row, column = chosen(name, where)

    def error(claimed):
        claimed[row, column] = 0.0
        return claimed

    judgement = judged_fully(mixing(name, seed, error), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(column, row)}


@both_modes
def test_every_claimed_zero_that_is_none_is_found_in_a_band(mode):
    missed = []
    for row, column in np.argwhere(PATTERNS["banded"]).tolist():

        def error(claimed, row=row, column=column):
            claimed[row, column] = 0.0
            return claimed

        if (column, row) not in places(judged_fully(mixing("banded", 3, error), mode)):
            missed.append((column, row))

    assert missed == []


def beside_an_entry(name, seed, where, size=0.7):
    """A function whose Jacobian has an entry that is not claimed, in a row with a claimed one."""
    right = mixing(name, seed)
    row, column = chosen(name, where, entry=False)

    def value(x):
        found = right.function(x)
        found[row] += size * x[column]
        return found

    return claiming(value, lambda x: sized(PATTERNS[name], seed) * np.cos(x), right.point), (column, row)


@both_modes
@thoroughly
@given(name=st.sampled_from(SPARSE), seed=seeds, where=st.floats(0, 1), size=st.sampled_from([0.7, 1e-5]))
def test_a_claimed_zero_that_is_none_is_found_in_a_row_that_has_an_entry(name, mode, seed, where, size):
    subject, place = beside_an_entry(name, seed, where, size)
    judgement = judged_fully(subject, mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {place}


@both_modes
@thoroughly
@given(
    name=st.sampled_from([*SPARSE, "dense with an empty column"]),
    seed=seeds,
    where=st.floats(0, 1),
    size=st.sampled_from([0.3, -1e-5]),
)
def test_a_claimed_entry_that_is_none_is_found(name, mode, seed, where, size):
    row, column = chosen(name, where, entry=False)
    if not PATTERNS[name][row].any():
        row += 1  # of a constant output, see below

    def error(claimed):
        claimed[row, column] = size + (claimed[row, column] != 0)
        return claimed

    judgement = judged_fully(mixing(name, seed, error), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(column, row)}


@both_modes
@pytest.mark.parametrize("size", [1, 4, 12])
def test_a_slope_claimed_of_an_output_that_is_zero_throughout_is_found(size, mode):
    def value(x):
        found = x.copy()
        found[0] = 0.0
        return found

    judgement = judged_fully(claiming(value, lambda x: np.eye(size), np.linspace(0.3, 1.2, size)), mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(0, 0)}


@both_modes
@pytest.mark.parametrize("size", [1, 4, 12])
def test_a_slope_claimed_of_an_output_that_is_constant_is_found(size, mode):
    def value(x):
        found = x.copy()
        found[0] = 0.5
        return found

    judgement = judged_fully(claiming(value, lambda x: np.eye(size), np.linspace(0.3, 1.2, size)), mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(0, 0)}


CLAIMS = {
    "nothing": lambda matrix: 0 * matrix,
    "twice as much": lambda matrix: 2 * matrix,
    "the other sign": lambda matrix: -matrix,
    "the column beside": lambda matrix: np.roll(matrix, 1, 1),
}


@both_modes
@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("name", [name for name in PATTERNS if PATTERNS[name].shape[1] > 1])
def test_a_jacobian_that_is_wrong_throughout_fails(name, claim, mode):
    matrix = sized(PATTERNS[name], 1)
    subject = claiming(
        lambda x: matrix @ np.sin(x), lambda x: CLAIMS[claim](matrix) * np.cos(x), np.full(matrix.shape[1], 0.5)
    )

    assert judged_fully(subject, mode).verdict is Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds, first=st.integers(0, 11), second=st.integers(0, 11), row=st.integers(0, 11))
def test_two_missing_entries_that_cancel_for_equal_steps_are_found(mode, seed, first, second, row):
    if len({first, second, row}) < 3:
        return
    point = np.random.default_rng(seed).uniform(0.3, 1.1, 12)

    def value(x):
        found = np.sin(x)
        found[row] += x[first] - x[second]
        return found

    assert judged_fully(claiming(value, lambda x: np.diag(np.cos(x)), point), mode, seed).verdict is Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds)
def test_two_missing_entries_that_cancel_for_equal_steps_are_found_in_a_row_without_entries(mode, seed):
    def value(x):
        return np.append(np.sin(x), x[2] - x[5])

    point = np.random.default_rng(seed).uniform(0.3, 1.1, 12)
    claim = claiming(value, lambda x: np.vstack([np.diag(np.cos(x)), np.zeros(12)]), point)
    judgement = judged_fully(claim, mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(2, 12), (5, 12)}


@both_modes
@thoroughly
@given(seed=seeds)
def test_a_wrong_entry_and_a_missing_one_that_cancel_for_equal_steps_are_found(mode, seed):
    def value(x):
        found = x.copy()
        found[3] += 0.5 * x[7]
        return found

    point = np.random.default_rng(seed).uniform(0.3, 1.1, 12)
    wrong = np.eye(12)
    wrong[3, 3] = 1.5
    judgement = judged_fully(claiming(value, lambda x: wrong, point), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert (3, 3) in places(judgement)


@both_modes
@thoroughly
@given(seed=seeds, count=st.integers(2, 6))
def test_all_of_a_few_wrong_entries_are_found(mode, seed, count):
    wrong = np.random.default_rng(seed).choice(12, count, replace=False).tolist()

    def error(claimed):
        claimed[wrong, wrong] *= 1.01
        return claimed

    judgement = judged_fully(mixing("diagonal", seed, error), mode, seed)

    assert places(judgement) == {(k, k) for k in wrong}


@both_modes
def test_the_entry_says_what_is_claimed_and_what_is_true(mode):
    wrong = np.eye(8)
    wrong[2, 2] = 1.25
    (finding,) = judged_fully(claiming(lambda x: x, lambda x: wrong, np.linspace(0.3, 1.2, 8)), mode).findings
    (entry,) = finding.entries

    assert entry.claimed == pytest.approx(1.25)
    assert abs(entry.numerical - 1.0) <= entry.bar
    assert entry.bar < 1e-6


@both_modes
def test_an_argument_is_named(mode):
    wrong = np.eye(8)
    wrong[6, 6] = 1.25
    subject = claiming(lambda x: x, lambda x: wrong, np.linspace(0.3, 1.2, 8), parts={"first": 5, "second": 3})
    (finding,) = judged_fully(subject, mode).findings

    assert (finding.argument, finding.entries[0].index) == ("second", (1,))


@both_modes
@pytest.mark.parametrize("small", [1e-5, 1e-7])
def test_a_factor_of_two_is_found_in_the_small_one_of_two_inputs(small, mode):
    point = np.concatenate([np.full(6, small), np.full(6, 1 / small)])
    wrong = np.eye(12)
    wrong[2, 2] = 2.0
    subject = claiming(lambda x: x, lambda x: wrong, point, parts={"small": 6, "large": 6})

    assert judged_fully(subject, mode).verdict is Verdict.FAIL


@both_modes
def test_a_factor_of_two_is_found_beside_a_large_output(mode):
    scale = np.array([1.0, 1e5])
    wrong = np.array([[2.0], [1e5]])
    subject = claiming(lambda x: scale * x, lambda x: wrong, np.array([0.7]))

    assert places(judged_fully(subject, mode)) == {(0, 0)}


@both_modes
def test_a_derivative_that_raises_fails(mode):
    def raising(*_):
        raise DerivativeError("RuntimeError: no")

    judgement = judged_fully(NumpySubject(np.sin, raising, np.ones(3), tangent=raising), mode)

    assert judgement.verdict is Verdict.FAIL
    assert "RuntimeError: no" in judgement.message


@both_modes
def test_one_of_them_that_does_it_alone_is_found(mode):
    function = claiming(lambda x: np.array([x.prod() + x[3]]), lambda x: np.zeros((1, 5)), np.zeros(5))

    judgement = judged_fully(function, mode)

    assert judgement.verdict is Verdict.FAIL
    assert [entry.index for entry in judgement.findings[0].entries] == [(3,)]


@both_modes
@pytest.mark.parametrize("error", [1e-3, 1.0, -30.0])
@pytest.mark.parametrize("rise", [lambda x: np.maximum(x, 0), abs], ids=["squared hinge", "x|x|"])
def test_a_slope_claimed_where_a_square_starts_to_rise_is_wrong_and_not_quantised(mode, error, rise):
    point = np.array([0.0, 0.7, -1.2, 0.4, 0.9, 1.1])
    rest = np.array([error, 0.0, 0.0, 0.0, 0.0, 0.0])
    function = claiming(lambda x: np.array([(x * rise(x)).sum()]), lambda x: 2 * rise(x)[None] + rest, point)

    judgement = judged_fully(function, mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(0, 0)}
