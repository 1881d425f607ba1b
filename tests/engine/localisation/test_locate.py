"""Wrong entries are found by index, worst first, at a price that grows like the logarithm of their number."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.contraction import inner
from gradproof.engine.localisation.bisection import search
from gradproof.engine.localisation.locate import SHOWN, localise
from gradproof.engine.options import Probing
from gradproof.engine.probing import probe_direction
from gradproof.engine.results import Verdict
from support.engine import either_coverage, judged
from support.numpy_subject import NumpySubject, elementwise

thoroughly = settings(max_examples=100, deadline=None, derandomize=True)
SIZES = [10, 100, 1000, 10_000, 100_000]


def planted(size, errors, **options):
    """sin of many entries, with errors planted in some entries of its gradient."""
    wrong = np.zeros(size)
    for index, error in errors.items():
        wrong[index] = error
    return elementwise(np.sin, lambda x: np.cos(x) + wrong, np.linspace(0.3, 1.2, size), **options)


def summed(size, errors):
    """The sum of sin over many entries, with errors planted in its gradient."""
    wrong = np.zeros(size)
    for index, error in errors.items():
        wrong[index] = error
    return NumpySubject(lambda x: np.sin(x).sum(), lambda x, u: (np.cos(x) + wrong) * u[0], np.linspace(0.3, 1.2, size))


def indices(judgement):
    return [entry.index[0] for finding in judgement.findings for entry in finding.entries]


def scattered(size, count, seed):
    return np.random.default_rng(seed).choice(size, count, replace=False).tolist()


@pytest.mark.parametrize("make", [planted, summed])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("count", [1, 3, 10])
def test_wrong_entries_are_found_by_index(make, size, count):
    wrong = scattered(size, count, seed=count)
    judgement = judged(make(size, dict.fromkeys(wrong, 0.05)))

    assert judgement.verdict is Verdict.FAIL
    assert sorted(indices(judgement)) == sorted(wrong)


@pytest.mark.parametrize("make", [planted, summed])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("place", [0.0, 0.37, 1.0])
def test_one_wrong_entry_costs_evaluations_like_the_logarithm(make, size, place):
    index = round(place * (size - 1))
    subject = make(size, {index: 0.1})

    assert indices(judged(subject)) == [index]
    assert subject.evaluations <= 2 * math.log2(size) + 62


@pytest.mark.parametrize("size", [100, 10_000])
def test_ten_times_the_entries_cost_less_than_eight_evaluations_more(size):
    small, large = planted(size, {7: 0.1}), planted(10 * size, {7: 0.1})
    judged(small)
    judged(large)

    assert large.evaluations - small.evaluations <= 8


@thoroughly
@given(
    size=st.integers(10, 300),
    errors=st.lists(st.floats(0.01, 10), min_size=2, max_size=5, unique=True),
    seed=st.integers(0, 9999),
)
def test_the_worst_entry_comes_first(size, errors, seed):
    judgement = judged(planted(size, dict(zip(scattered(size, len(errors), seed), errors, strict=True))), seed)
    gaps = [abs(entry.claimed - entry.numerical) for finding in judgement.findings for entry in finding.entries]

    assert len(gaps) == len(errors)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps == pytest.approx(sorted(errors, reverse=True), rel=1e-6)


@thoroughly
@given(size=st.integers(2, 500), place=st.floats(0, 1), error=st.floats(1e-5, 1e5), seed=st.integers(0, 9999))
def test_an_entry_is_shown_with_its_claim_and_its_true_slope_for_one_output(size, place, error, seed):
    index = round(place * (size - 1))
    subject = planted(size, {index: error})
    (entry,) = judged(subject, seed).findings[0].entries
    truth = math.cos(subject.point[index])

    assert entry.index == entry.output.index == (index,)
    assert entry.claimed == pytest.approx(truth + error, rel=1e-12)
    assert abs(entry.numerical - truth) <= entry.bar + 1e-12


@pytest.mark.parametrize("make", [planted, summed])
@pytest.mark.parametrize("size", [20, 1000, 20_000])
def test_of_a_gradient_that_is_wrong_throughout_ten_entries_are_shown(make, size):
    judgement = judged(make(size, dict.fromkeys(range(size), 0.5)))

    assert len(indices(judgement)) == SHOWN == 10
    assert len(set(indices(judgement))) == 10
    assert "at least 10 entries" in judgement.message


def test_errors_of_either_sign_that_nearly_cancel_are_both_found():
    assert sorted(indices(judged(planted(1000, {17: 0.1, 18: -0.1})))) == [17, 18]


def test_the_argument_that_is_wrong_is_named():
    subject = planted(30, {13: 0.1}, parts={"weight": 10, "bias": 5, "scale": 15})
    (finding,) = judged(subject).findings

    assert finding.argument == "bias"
    assert finding.entries[0].index == (3,)


def test_each_argument_that_is_wrong_has_a_finding_of_its_own():
    subject = planted(30, {3: 0.1, 20: 0.2}, parts={"weight": 10, "bias": 5, "scale": 15})

    assert {finding.argument for finding in judged(subject).findings} == {"weight", "scale"}


def test_all_outputs_that_one_wrong_entry_affects_are_named():
    matrix = np.random.default_rng(0).normal(size=(6, 5))
    claimed = matrix.copy()
    claimed[[1, 4], 2] += [0.5, 0.1]
    subject = NumpySubject(lambda x: matrix @ x, lambda x, u: claimed.T @ u, np.linspace(1, 2, 5))
    (entry,) = judged(subject).findings[0].entries

    assert entry.index == (2,)
    assert entry.output.index == (1,)
    assert [place.index for place in entry.also] == [(4,)]


def test_an_entry_that_the_user_tolerates_is_not_shown_beside_one_that_is_not():
    subject = planted(100, {5: 1.0, 50: 1e-3})
    probe = probe_direction(subject, 0, Probing())[0]
    located = localise(probe, Probing(atol=1e-2))

    assert [coordinate for coordinate, _ in located.entries] == [5]


@thoroughly
@given(
    size=st.integers(1, 2000),
    hidden=st.dictionaries(st.integers(0, 1999), st.floats(0.1, 10), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 1999), max_size=4),
)
def test_the_search_finds_every_hidden_coordinate_across_any_tensors(size, hidden, cuts):
    hidden = {at % size: value for at, value in hidden.items()}
    edges = sorted({0, size, *(cut for cut in cuts if cut < size)})
    spans = list(itertools.pairwise(edges))

    def residual(low, high):
        return sum(value for at, value in hidden.items() if low <= at < high)

    found = search(size, spans, residual, threshold=1e-6, whole=residual(0, size), most=10)

    assert sorted(found.found) == sorted(hidden)
    assert found.left == []


def test_the_search_stops_at_the_most_that_were_requested_and_says_what_is_left():
    found = search(64, [(0, 64)], lambda low, high: float(high - low), threshold=0.5, whole=64.0, most=3)

    assert len(found.found) == 3
    assert found.left


@pytest.mark.parametrize("size", [16, 1024, 1 << 20])
def test_the_search_for_one_coordinate_asks_once_a_split(size):
    asked = []

    def residual(low, high):
        asked.append((low, high))
        return float(low <= size // 3 < high)

    assert search(size, [(0, size)], residual, threshold=0.5, whole=1.0, most=1).found == [size // 3]
    assert len(asked) == math.log2(size)


def test_tensors_are_distinguished_before_they_are_split():
    asked = []

    def residual(low, high):
        asked.append((low, high))
        return float(low <= 99 < high)

    search(100, [(0, 90), (90, 100)], residual, threshold=0.5, whole=1.0, most=1)

    assert asked[0] == (0, 90)


def test_values_without_weight_do_not_spoil_a_contraction():
    subject = planted(3, {})

    assert inner(subject, np.array([1.0, 0.0, 2.0]), np.array([1.0, np.nan, 3.0])) == 7.0


@pytest.mark.parametrize("arguments", [2, 3, 7])
@either_coverage
def test_every_argument_that_is_wrong_is_named(arguments, coverage):
    parts = {f"x{number}": 20 for number in range(arguments)}
    factors = np.repeat([1.0 if number == 1 else 1.5 + number for number in range(arguments)], 20)
    points = np.linspace(0.3, 1.2, 20 * arguments)
    subject = elementwise(np.sin, lambda x: np.cos(x) * factors, points, parts=parts)

    judgement = judged(subject, coverage=coverage)

    assert {finding.argument for finding in judgement.findings} == set(parts) - {"x1"}


def test_an_input_that_does_not_move_is_not_looked_at_whatever_its_values_do():
    """Values that change from call to call seem to be moved by what does not move."""
    calls = iter(range(10**6))
    subject = NumpySubject(
        lambda x: x + next(calls) % 7, lambda x, u: 2 * u, np.linspace(0.3, 1.2, 4), parts={"a": 2, "b": 2}
    )

    (probe,) = probe_direction(subject, 0, Probing(), span=(0, 2))

    assert {coordinate for coordinate, _ in localise(probe, Probing()).entries} <= {0, 1}
