"""Every entry of a Jacobian: right ones pass, any wrong one is found at its place, doubt accuses nobody."""

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gradproof.engine.jacobian import cover as jacobian
from gradproof.engine.jacobian.cover import judge_fully
from gradproof.engine.options import Probing
from gradproof.engine.results import Reason, Verdict
from gradproof.engine.subject import DerivativeError
from gradproof.engine.views import in_mode
from support.numpy_subject import NumpySubject, hashed

thoroughly = settings(max_examples=25, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])
seeds = st.integers(0, 99_999)
both_modes = pytest.mark.parametrize("mode", ["reverse", "forward"])


def times(matrix, vector):
    """A product in which a zero of the vector takes out even what is NaN or infinite."""
    return np.where(vector != 0, matrix * vector, 0.0).sum(-1)


def claiming(function, claim, point, **options):
    """A function whose Jacobian is said to be `claim(x)`, in both modes."""
    return NumpySubject(
        function,
        lambda x, u: times(np.asarray(claim(x)).T, u),
        point,
        tangent=lambda x, v: times(np.asarray(claim(x)), v),
        **options,
    )


def judged(subject, mode="reverse", seed=0, probes=1, **options):
    return judge_fully(in_mode(subject, mode), probes=probes, seed=seed, options=Probing(**options))


def places(judgement):
    """The wrong entries, each as (column, row); a row that is only mentioned counts too."""
    found = set()
    for finding in judgement.findings:
        for entry in finding.entries:
            for output in (entry.output, *entry.also):
                found.add((entry.index[0], output and output.index[0]))
    return found


# What is known to be missed.


# Patterns: matrices whose entries are of one size, so that no entry hides behind another.


def sized(pattern, seed):
    draw = np.random.default_rng(seed)
    return np.where(pattern, draw.choice([-1.0, 1.0], pattern.shape) * draw.uniform(0.5, 1.0, pattern.shape), 0.0)


def without_columns(pattern, *columns):
    pattern = pattern.copy()
    pattern[:, list(columns)] = False
    return pattern


PATTERNS = {
    "one entry": np.ones((1, 1), bool),
    "one row": np.ones((1, 7), bool),
    "one column": np.ones((7, 1), bool),
    "dense": np.ones((9, 6), bool),
    "diagonal": np.eye(12, dtype=bool),
    "a permutation": np.eye(12, dtype=bool)[::-1],
    "banded": sum(np.eye(24, k=k) for k in (-1, 0, 1)) > 0,
    "blocks": np.kron(np.eye(6), np.ones((3, 2))) > 0,
    "a diagonal with empty columns": without_columns(np.eye(16, dtype=bool), 0, 7, 8),
    "dense with an empty column": without_columns(np.ones((5, 4), bool), 2),
    "tall and sparse": np.kron(np.eye(8), np.ones((4, 1))) > 0,
    "a single entry in a row": np.arange(20)[None] == 11,
}
SPARSE = ["diagonal", "a permutation", "banded", "blocks", "a diagonal with empty columns", "tall and sparse"]
names = st.sampled_from(list(PATTERNS))


def mixing(name, seed, error=None):
    """A·sin(x) with entries of A where the pattern has them; `error` changes what is claimed of its Jacobian."""
    matrix = sized(PATTERNS[name], seed)
    point = np.random.default_rng(seed + 1).uniform(0.3, 1.1, matrix.shape[1])

    def claim(x):
        claimed = matrix * np.cos(x)
        return claimed if error is None else error(claimed.copy())

    return claiming(lambda x: matrix @ np.sin(x), claim, point)


def chosen(name, where, entry=True):
    """A (row, column) of the pattern that has an entry, or has none."""
    candidates = np.argwhere(PATTERNS[name] == entry)
    row, column = candidates[round(where * (len(candidates) - 1))]
    return int(row), int(column)


# Right Jacobians.


@both_modes
@thoroughly
@given(name=names, seed=seeds)
def test_a_right_jacobian_passes(name, mode, seed):
    judgement = judged(mixing(name, seed), mode, seed)

    assert judgement.verdict is Verdict.PASS
    assert judgement.findings == ()
    assert judgement.resolution.relative < 1e-5


@both_modes
def test_a_jacobian_of_nothing_but_zeros_passes(mode):
    subject = claiming(lambda x: np.ones(5), lambda x: np.zeros((5, 8)), np.linspace(0.1, 1.0, 8))

    assert judged(subject, mode).verdict is Verdict.PASS


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 3), (3, 0), (0, 0)])
@both_modes
def test_no_entries_pass_with_a_note(inputs, outputs, mode):
    subject = claiming(lambda x: np.ones(outputs), lambda x: np.zeros((outputs, inputs)), np.ones(inputs))
    judgement = judged(subject, mode)

    assert judgement.verdict is Verdict.PASS
    assert "no entries" in judgement.notes[0]


@both_modes
@thoroughly
@given(seed=seeds, spread=st.floats(0, 8))
def test_a_right_diagonal_passes_whatever_the_sizes_of_its_inputs(mode, seed, spread):
    point = 10.0 ** (spread * np.random.default_rng(seed).uniform(-1, 1, 12))
    subject = claiming(np.sqrt, lambda x: np.diag(0.5 / np.sqrt(x)), point)

    assert judged(subject, mode, seed).verdict is Verdict.PASS


@both_modes
@thoroughly
@given(seed=seeds, spread=st.floats(0, 6))
def test_a_right_dense_jacobian_is_never_called_wrong_whatever_the_sizes_of_its_entries(mode, seed, spread):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(7, 9)) * 10.0 ** (spread * draw.uniform(-1, 1, (7, 9)))
    subject = claiming(lambda x: matrix @ np.sin(x), lambda x: matrix * np.cos(x), draw.uniform(0.3, 1.1, 9))

    assert judged(subject, mode, seed).verdict is Verdict.PASS


@pytest.mark.parametrize("curvature", [1.0, 30.0, 300.0])
@both_modes
def test_a_right_jacobian_of_a_bent_function_passes(curvature, mode):
    point = np.linspace(0.3, 1.1, 8)
    subject = claiming(lambda x: np.sin(curvature * x), lambda x: np.diag(curvature * np.cos(curvature * x)), point)

    assert judged(subject, mode).verdict is Verdict.PASS


@both_modes
def test_rounding_in_single_precision_is_no_error(mode):
    point = np.linspace(0.3, 1.1, 8)
    subject = claiming(np.sin, lambda x: np.diag(np.cos(x)), point, dtype=np.float32)

    assert judged(subject, mode).verdict is not Verdict.FAIL


# Wrong entries.


@both_modes
@thoroughly
@given(name=names, seed=seeds, where=st.floats(0, 1), sign=st.sampled_from([-1, 1]))
def test_an_entry_that_is_off_by_a_millionth_is_found(name, mode, seed, where, sign):
    row, column = chosen(name, where)

    def error(claimed):
        claimed[row, column] *= 1 + 2e-6 * sign
        return claimed

    judgement = judged(mixing(name, seed, error), mode, seed)

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

    judgement = judged(mixing(name, seed, error), mode, seed)

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

    judgement = judged(mixing(name, seed, error), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(column, row)}


@both_modes
def test_every_claimed_zero_that_is_none_is_found_in_a_band(mode):
    missed = []
    for row, column in np.argwhere(PATTERNS["banded"]).tolist():

        def error(claimed, row=row, column=column):
            claimed[row, column] = 0.0
            return claimed

        if (column, row) not in places(judged(mixing("banded", 3, error), mode)):
            missed.append((column, row))

    assert missed == []


def beside_an_entry(name, seed, where, size=0.7):
    """A function with an entry more than is claimed, in a row in which another column has one."""
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
    judgement = judged(subject, mode, seed)

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
        row += 1  # of an output that stands still, see below

    def error(claimed):
        claimed[row, column] = size + (claimed[row, column] != 0)
        return claimed

    judgement = judged(mixing(name, seed, error), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(column, row)}


@both_modes
@pytest.mark.parametrize("size", [1, 4, 12])
def test_a_slope_claimed_of_an_output_that_is_zero_throughout_is_found(size, mode):
    def value(x):
        found = x.copy()
        found[0] = 0.0
        return found

    judgement = judged(claiming(value, lambda x: np.eye(size), np.linspace(0.3, 1.2, size)), mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(0, 0)}


@both_modes
@pytest.mark.parametrize("size", [1, 4, 12])
def test_a_slope_claimed_of_an_output_that_stands_still_is_found(size, mode):
    def value(x):
        found = x.copy()
        found[0] = 0.5
        return found

    judgement = judged(claiming(value, lambda x: np.eye(size), np.linspace(0.3, 1.2, size)), mode)

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

    assert judged(subject, mode).verdict is Verdict.FAIL


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

    assert judged(claiming(value, lambda x: np.diag(np.cos(x)), point), mode, seed).verdict is Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds)
def test_two_missing_entries_that_cancel_for_equal_steps_are_found_in_a_row_without_entries(mode, seed):
    def value(x):
        return np.append(np.sin(x), x[2] - x[5])

    point = np.random.default_rng(seed).uniform(0.3, 1.1, 12)
    claim = claiming(value, lambda x: np.vstack([np.diag(np.cos(x)), np.zeros(12)]), point)
    judgement = judged(claim, mode, seed)

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
    judgement = judged(claiming(value, lambda x: wrong, point), mode, seed)

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

    judgement = judged(mixing("diagonal", seed, error), mode, seed)

    assert places(judgement) == {(k, k) for k in wrong}


@both_modes
def test_the_entry_says_what_is_claimed_and_what_is_true(mode):
    wrong = np.eye(8)
    wrong[2, 2] = 1.25
    (finding,) = judged(claiming(lambda x: x, lambda x: wrong, np.linspace(0.3, 1.2, 8)), mode).findings
    (entry,) = finding.entries

    assert entry.claimed == pytest.approx(1.25)
    assert abs(entry.numerical - 1.0) <= entry.bar
    assert entry.bar < 1e-6


@both_modes
def test_an_argument_is_named(mode):
    wrong = np.eye(8)
    wrong[6, 6] = 1.25
    subject = claiming(lambda x: x, lambda x: wrong, np.linspace(0.3, 1.2, 8), parts={"first": 5, "second": 3})
    (finding,) = judged(subject, mode).findings

    assert (finding.argument, finding.entries[0].index) == ("second", (1,))


@pytest.mark.parametrize("value", [math.nan, pytest.param(math.inf), pytest.param(-math.inf)])
@both_modes
@pytest.mark.parametrize("name", ["one entry", "dense", "diagonal", "banded"])
def test_a_claim_that_is_not_finite_fails(name, mode, value):
    row, column = chosen(name, 0.4)

    def error(claimed):
        claimed[row, column] = value
        return claimed

    assert judged(mixing(name, 3, error), mode).verdict is Verdict.FAIL


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
    judgement = judged(singular(name, mode), mode)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NON_FINITE


@both_modes
@pytest.mark.parametrize("name", SINGULAR)
def test_nan_of_another_input_is_found_beside_an_infinite_slope(mode, name):
    judgement = judged(singular(name, mode, wrong=[(4, 4)]), mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(4, 4)}


@both_modes
@pytest.mark.parametrize("name", ["one entry", "dense", "diagonal", "banded"])
def test_a_claimed_nan_is_located(name, mode):
    row, column = chosen(name, 0.4)

    def error(claimed):
        claimed[row, column] = math.nan
        return claimed

    (finding,) = judged(mixing(name, 3, error), mode).findings
    truth = mixing(name, 3).gradient(mixing(name, 3).point, np.eye(PATTERNS[name].shape[0])[row])[column]

    assert finding.argument == "x"
    assert places(judged(mixing(name, 3, error), mode)) == {(column, row)}
    assert finding.entries[0].numerical == pytest.approx(truth, rel=1e-4)


@both_modes
@pytest.mark.parametrize("small", [1e-5, 1e-7])
def test_a_factor_of_two_is_found_in_the_small_one_of_two_inputs(small, mode):
    point = np.concatenate([np.full(6, small), np.full(6, 1 / small)])
    wrong = np.eye(12)
    wrong[2, 2] = 2.0
    subject = claiming(lambda x: x, lambda x: wrong, point, parts={"small": 6, "large": 6})

    assert judged(subject, mode).verdict is Verdict.FAIL


@both_modes
def test_a_factor_of_two_is_found_beside_a_large_output(mode):
    scale = np.array([1.0, 1e5])
    wrong = np.array([[2.0], [1e5]])
    subject = claiming(lambda x: scale * x, lambda x: wrong, np.array([0.7]))

    assert places(judged(subject, mode)) == {(0, 0)}


# The resolution.


@both_modes
@thoroughly
@given(name=names, seed=seeds, where=st.floats(0, 1))
def test_an_error_of_four_times_the_resolution_is_found(name, mode, seed, where):
    row, column = chosen(name, where)
    resolution = judged(mixing(name, seed), mode, seed).resolution.absolute

    def error(claimed):
        claimed[row, column] += 4 * resolution
        return claimed

    judgement = judged(mixing(name, seed, error), mode, seed)

    assert judgement.verdict is Verdict.FAIL
    assert (column, row) in places(judgement)


@both_modes
@thoroughly
@given(seed=seeds, spread=st.floats(0, 6), wrong=st.integers(0, 11))
def test_the_resolution_is_honest_whatever_the_sizes_of_the_inputs(mode, seed, spread, wrong):
    point = 10.0 ** (spread * np.random.default_rng(seed).uniform(-1, 1, 12))

    def claim(x, error=0.0):
        return np.diag(1 + error * (np.arange(12) == wrong))

    resolution = judged(claiming(lambda x: x, claim, point), mode, seed).resolution.absolute
    off = claiming(lambda x: x, lambda x: claim(x, 4 * resolution), point)

    assert judged(off, mode, seed).verdict is Verdict.FAIL


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

    resolution = judged(subject(0.0), mode, seed).resolution.absolute

    assert judged(subject(4 * resolution), mode, seed).verdict is Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds, level=st.floats(1e-14, 1e-3))
def test_the_resolution_is_honest_on_noisy_values(mode, seed, level):
    point = np.random.default_rng(seed).uniform(0.3, 1.1, 8)

    def subject(error):
        return claiming(lambda x: np.sin(x) + level * hashed(x), lambda x: np.diag(np.cos(x) + error), point)

    judgement = judged(subject(0.0), mode, seed)

    assert judgement.verdict is not Verdict.FAIL
    if judgement.verdict is Verdict.PASS:
        off = np.zeros(8)
        off[3] = 4 * judgement.resolution.absolute
        assert judged(subject(off), mode, seed).verdict is not Verdict.PASS


# What is tolerated.


@pytest.mark.parametrize("tolerated", [{"rtol": 0.02}, {"atol": 0.02}])
@both_modes
@pytest.mark.parametrize("name", ["dense", "diagonal", "banded", "one entry"])
def test_an_error_within_what_is_accepted_passes(name, mode, tolerated):
    subject = mixing(name, 4, lambda claimed: claimed * 1.01)

    assert judged(subject, mode).verdict is Verdict.FAIL
    assert judged(subject, mode, **tolerated).verdict is Verdict.PASS


@pytest.mark.parametrize("tolerated", [{"rtol": 0.005}, {"atol": 0.002}])
@both_modes
@pytest.mark.parametrize("name", ["dense", "diagonal", pytest.param("banded"), "one entry"])
def test_an_error_beyond_what_is_accepted_is_found(name, mode, tolerated):
    subject = mixing(name, 4, lambda claimed: claimed * 1.02)

    assert judged(subject, mode, **tolerated).verdict is Verdict.FAIL


# Doubt.


def elementwise(value, slope, point):
    return claiming(value, lambda x: np.diag(slope(x)), point)


def with_a_zero(size):
    point = np.linspace(0.5, 1.5, size)
    point[size // 2] = 0.0
    return point


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
    assert judged(elementwise(*KINKS[kind], with_a_zero(size)), mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@pytest.mark.parametrize("size", [1, 3, 10, pytest.param(40)])
def test_a_jump_is_inconclusive(mode, size):
    subject = elementwise(lambda x: x + (x >= 0), lambda x: np.ones_like(x), with_a_zero(size))

    assert judged(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@pytest.mark.parametrize("size", [1, 3, pytest.param(10), pytest.param(40)])
def test_an_edge_of_the_domain_is_inconclusive(mode, size):
    subject = elementwise(lambda x: x * np.sqrt(x), lambda x: 1.5 * np.sqrt(x), with_a_zero(size))

    assert judged(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@sizes
def test_a_value_that_is_nan_is_inconclusive(mode, size):
    subject = elementwise(lambda x: x / x * x, lambda x: np.ones_like(x), with_a_zero(size))

    assert judged(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
@pytest.mark.parametrize("name", ["dense", "diagonal"])
def test_noise_is_inconclusive(mode, name):
    matrix = sized(PATTERNS[name], 0)
    subject = claiming(lambda x: matrix @ x * (1 + hashed(matrix @ x)), lambda x: matrix, np.full(matrix.shape[1], 0.7))

    assert judged(subject, mode).verdict is Verdict.INCONCLUSIVE


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

    assert judged(subject, mode, seed).verdict is not Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds, distance=st.floats(-12, -1), size=st.sampled_from([1, 4, 30]))
def test_a_kink_nearby_is_never_called_an_error(mode, seed, distance, size):
    point = np.random.default_rng(seed).uniform(0.3, 1.0, size)
    point[0] = 10**distance

    assert judged(elementwise(*KINKS["a ramp"], point), mode, seed).verdict is not Verdict.FAIL


@both_modes
@thoroughly
@given(seed=seeds)
def test_a_choice_of_the_largest_is_never_called_an_error(mode, seed):
    point = np.random.default_rng(seed).uniform(0.3, 1.0, 8)
    point[3] = point[5] = 2.0

    def claim(x):
        return 1.0 * (np.arange(8) == 3)[None]

    assert judged(claiming(lambda x: x.max(keepdims=True), claim, point), mode, seed).verdict is Verdict.INCONCLUSIVE


@both_modes
@pytest.mark.parametrize("size", [12, 40])
def test_a_wrong_entry_is_found_beside_a_kink(mode, size):
    def slope(x):
        found = np.sign(x)
        found[1] = 1.5
        return found

    judgement = judged(elementwise(np.abs, slope, with_a_zero(size)), mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(1, 1)}


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

    judgement = judged(subject, mode)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle.reason is Reason.NON_FINITE
    assert subject.evaluations <= 2 * size + 1


@both_modes
@pytest.mark.parametrize("matrix", [np.ones((5, 5)), np.eye(40), np.ones((40, 40))], ids=["few", "diagonal", "dense"])
def test_a_wrong_entry_is_found_beside_an_output_that_is_nan(mode, matrix):
    judgement = judged(undefined_at_first(matrix, len(matrix), wrong=0.1), mode)

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

    judgement = judged(subject, mode)

    assert judgement.verdict is (Verdict.FAIL if error else Verdict.PASS)
    assert places(judgement) == ({(5, 5)} if error else set())
    assert error or subject.evaluations <= 3


@both_modes
@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_a_slope_claimed_of_an_output_that_stays_infinite_is_said_to_be_unchecked(mode, slope):
    """It may be a mask that the backward forgot, or an infinity that was added to the output."""

    def claim(x):
        return np.diag(np.where(np.arange(12) == 0, slope, 1.0))

    judgement = judged(claiming(lambda x: np.where(np.arange(12) == 0, -math.inf, x), claim, np.full(12, 0.7)), mode)

    assert judgement.verdict is Verdict.PASS
    assert any("were not checked" in note for note in judgement.notes) == bool(slope)


@both_modes
def test_a_function_that_is_nan_everywhere_is_inconclusive(mode):
    subject = claiming(lambda x: x * math.nan, lambda x: np.eye(4), np.ones(4))

    assert judged(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
def test_a_function_that_is_random_is_inconclusive(mode):
    draw = np.random.default_rng(0)
    subject = claiming(lambda x: x + 1e-3 * draw.normal(size=8), lambda x: np.eye(8), np.linspace(0.3, 1.2, 8))

    assert judged(subject, mode).verdict is Verdict.INCONCLUSIVE


@both_modes
def test_a_derivative_that_raises_fails(mode):
    def raising(*_):
        raise DerivativeError("RuntimeError: no")

    judgement = judged(NumpySubject(np.sin, raising, np.ones(3), tangent=raising), mode)

    assert judgement.verdict is Verdict.FAIL
    assert "RuntimeError: no" in judgement.message


# Bands and batches.

SCENES = {
    "right": lambda claimed: claimed,
    "one wrong entry": lambda claimed: claimed + 1e-3 * (np.arange(claimed.size).reshape(claimed.shape) == 0),
    "all wrong": lambda claimed: 1.01 * claimed,
}


@pytest.mark.parametrize(("held", "at_once"), [(1, 1), (1, 1 << 19), (50, 30), (1 << 25, 1), (200, 100)])
@pytest.mark.parametrize("scene", SCENES)
@both_modes
@pytest.mark.parametrize("name", ["dense", "diagonal", "banded"])
def test_bands_and_batches_make_no_difference(name, mode, scene, held, at_once, monkeypatch):
    error = SCENES[scene]
    whole = judged(mixing(name, 5, error), mode)
    monkeypatch.setattr(jacobian, "HELD", held)
    monkeypatch.setattr("gradproof.engine.jacobian.columns.AT_ONCE", at_once)
    judgement = judged(mixing(name, 5, error), mode)

    assert judgement.verdict is whole.verdict
    if scene == "one wrong entry":
        assert places(judgement) == places(whole) == {(0, 0)}


@both_modes
def test_a_kink_is_inconclusive_in_any_band(mode, monkeypatch):
    monkeypatch.setattr(jacobian, "HELD", 20)

    assert judged(elementwise(np.abs, np.sign, with_a_zero(10)), mode).verdict is Verdict.INCONCLUSIVE


def test_more_columns_than_are_judged_at_a_time_are_all_judged(monkeypatch):
    monkeypatch.setattr(jacobian, "WORST", 1)
    monkeypatch.setattr(jacobian, "CAREFULLY", 2)
    point = np.linspace(0.5, 1.5, 30)
    point[[3, 9, 15, 21, 27]] = 0.0

    def slope(x):
        found = np.sign(x)
        found[20] = 1.01
        return found

    judgement = judged(elementwise(np.abs, slope, point))

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(20, 20)}


def test_more_wrong_entries_than_are_shown_are_at_least_as_many():
    (finding,) = judged(elementwise(np.sin, lambda x: np.cos(x) * 1.5, np.linspace(0.3, 1.1, 100))).findings

    assert len(finding.entries) == 10
    assert "at least 10 entries" in finding.message


@pytest.mark.parametrize(("rtol", "verdict"), [(0.45, Verdict.FAIL), (0.55, Verdict.PASS)])
def test_an_error_in_every_entry_is_held_against_the_measured_slope(rtol, verdict):
    subject = elementwise(np.sin, lambda x: np.cos(x) * 0.5, np.linspace(0.3, 1.1, 100))

    assert judge_fully(subject, probes=1, seed=0, options=Probing(rtol=rtol)).verdict is verdict


# Cost.


def test_a_failure_does_not_cost_more_for_more_wrong_entries():
    few, many = (elementwise(np.sin, lambda x: np.cos(x) * 1.5, np.linspace(0.3, 1.1, size)) for size in (20, 500))
    judged(few)
    judged(many)

    assert many.evaluations < 2 * few.evaluations


@both_modes
def test_a_diagonal_takes_two_evaluations(mode):
    subject = elementwise(np.sin, np.cos, np.linspace(0.3, 1.1, 200))
    judged(subject, mode)

    assert subject.evaluations == 2


@both_modes
def test_a_dense_jacobian_takes_two_evaluations_a_column(mode):
    subject = mixing("dense", 0)
    judged(subject, mode)

    assert subject.evaluations == 2 * PATTERNS["dense"].shape[1]


def test_a_pullback_is_asked_for_once_a_row():
    subject = mixing("dense", 0)
    judged(subject)

    assert (subject.pullbacks, subject.pushforwards) == (PATTERNS["dense"].shape[0], 0)


def test_a_pushforward_is_asked_for_once_a_column():
    subject = mixing("dense", 0)
    judged(subject, "forward")

    assert (subject.pullbacks, subject.pushforwards) == (0, PATTERNS["dense"].shape[1])


@both_modes
def test_progress_is_told_and_ends_with_all_of_it(mode, monkeypatch):
    monkeypatch.setattr("gradproof.engine.jacobian.columns.AT_ONCE", 1)
    told = []
    judge_fully(
        in_mode(mixing("dense", 0), mode),
        probes=1,
        seed=0,
        options=Probing(),
        progress=lambda done, of: told.append(done / of),
    )

    assert told == sorted(told)
    assert told[-1] == 1.0
    assert all(0 < share <= 1 for share in told)


@both_modes
def test_a_seed_gives_the_same_judgement_again(mode):
    wrong = mixing("banded", 0, lambda claimed: 1.001 * claimed)

    assert judged(wrong, mode, seed=5) == judged(wrong, mode, seed=5)


@both_modes
@pytest.mark.parametrize("size", [2, 5, 60])
def test_columns_that_do_together_what_none_does_alone_need_no_further_care(mode, size):
    product = claiming(lambda x: np.array([x.prod()]), lambda x: np.zeros((1, size)), np.zeros(size))
    product.evaluations = 0

    judgement = judged(product, mode)

    assert judgement.verdict is Verdict.PASS
    assert product.evaluations <= 2 + 2 * size


@both_modes
def test_one_of_them_that_does_it_alone_is_found(mode):
    function = claiming(lambda x: np.array([x.prod() + x[3]]), lambda x: np.zeros((1, 5)), np.zeros(5))

    judgement = judged(function, mode)

    assert judgement.verdict is Verdict.FAIL
    assert [entry.index for entry in judgement.findings[0].entries] == [(3,)]


# A kink of the curvature: the error of a difference shrinks no faster than its step.


def joined(points, off=0.0):
    """Functions of one number each, x·exp(−|x|), whose curvature jumps at zero; the claim of the first is off."""

    def claim(x):
        slopes = (1 - abs(x)) * np.exp(-abs(x))
        slopes[0] += off
        return np.diag(slopes)

    return claiming(lambda x: x * np.exp(-abs(x)), claim, np.asarray(points, float))


@both_modes
@pytest.mark.parametrize("points", [[0, 3, 4, 5], [0, 3, 0, -5], [0, 3]], ids=str)
def test_a_kink_of_the_curvature_passes_after_a_few_finer_steps(mode, points):
    subject = joined(points)
    subject.evaluations = 0

    judgement = judged(subject, mode)

    assert judgement.verdict is Verdict.PASS
    assert subject.evaluations <= 6 + 6 * points.count(0)


@both_modes
@thoroughly
@given(seed=seeds, scale=st.floats(0.1, 30), times=st.floats(1.1, 1e3))
def test_an_error_beyond_the_resolution_is_found_at_a_kink_of_the_curvature(mode, seed, scale, times):
    right = judged(joined([0, scale, 2 * scale]), mode, seed)
    off = times * right.resolution.absolute  # above: a difference errs to below, and a claim may err just as it does

    wrong = judged(joined([0, scale, 2 * scale], off), mode, seed)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert (0, 0) in places(wrong)


@both_modes
def test_a_column_that_noise_hides_is_measured_with_care_alone(mode):
    saturated = [30.0, 31.0, 32.0, 33.0]
    margins = np.array([0.5, 1.0, 2.0, *saturated])
    subject = claiming(lambda x: np.array([np.logaddexp(0, -x).sum()]), lambda x: -1 / (1 + np.exp(x))[None], margins)
    subject.evaluations = 0

    judgement = judged(subject, mode)

    assert judgement.verdict is Verdict.PASS
    assert subject.evaluations == 2 * 3 + 4 * len(saturated)


@both_modes
@pytest.mark.parametrize("wrong", range(7))
def test_a_wrong_entry_is_found_among_columns_that_noise_hides(mode, wrong):
    margins = np.array([0.5, 30.0, 1.0, 31.0, 2.0, 32.0, 33.0])

    def claim(x):
        slopes = -1 / (1 + np.exp(x))
        slopes[wrong] += 1e-3
        return slopes[None]

    judgement = judged(claiming(lambda x: np.array([np.logaddexp(0, -x).sum()]), claim, margins), mode)

    assert judgement.verdict is Verdict.FAIL
    assert (wrong, 0) in places(judgement)


@both_modes
@pytest.mark.parametrize("error", [1e-3, 1.0, -30.0])
@pytest.mark.parametrize("rise", [lambda x: np.maximum(x, 0), abs], ids=["squared hinge", "x|x|"])
def test_a_slope_claimed_where_a_square_starts_to_rise_is_wrong_and_no_stairs(mode, error, rise):
    point = np.array([0.0, 0.7, -1.2, 0.4, 0.9, 1.1])
    rest = np.array([error, 0.0, 0.0, 0.0, 0.0, 0.0])
    function = claiming(lambda x: np.array([(x * rise(x)).sum()]), lambda x: 2 * rise(x)[None] + rest, point)

    judgement = judged(function, mode)

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(0, 0)}
