"""Wrong entries of very large gradients are found by index with a few evaluations."""

import numpy as np
import pytest

from gradproof.engine.judging import judge
from gradproof.engine.localisation.locate import localise
from gradproof.engine.options import Probing
from gradproof.engine.probing import probe_direction
from gradproof.engine.results import Verdict
from gradproof.engine.thresholds import LARGE
from gradproof.engine.views import ForwardMode
from support.numpy_subject import NumpySubject, elementwise

SIZE = LARGE + 1000
POINT = np.linspace(0.3, 1.2, SIZE)


def errors_at(errors):
    wrong = np.zeros(SIZE)
    for index, error in errors.items():
        wrong[index] = error
    return wrong


def sines(errors, **options):
    """Every output depends on its own input."""
    wrong = errors_at(errors)
    return elementwise(np.sin, lambda x: np.cos(x) + wrong, POINT, **options)


def neighbours(errors):
    """Every output depends on its own input and on the next one."""
    wrong = errors_at(errors)

    def gradient(x, u):
        through = u * np.roll(x, -1) + np.roll(u * x, 1)
        return through + wrong * u

    return NumpySubject(lambda x: x * np.roll(x, -1), gradient, POINT)


def total(errors):
    """One output depends on all inputs."""
    wrong = errors_at(errors)
    return NumpySubject(lambda x: np.sin(x).sum(), lambda x, u: (np.cos(x) + wrong) * u[0], POINT)


def sums(errors):
    """A few outputs depend on all inputs."""
    weights = np.random.default_rng(0).normal(size=(3, SIZE))
    wrong = errors_at(errors)
    return NumpySubject(lambda x: weights @ np.sin(x), lambda x, u: (np.cos(x) + wrong) * (weights.T @ u), POINT)


def located(subject):
    """The wrong entries, and the evaluations that looking for them took."""
    (probe, *_) = (probe for probe in probe_direction(subject, 0, Probing()) if not probe.agrees)
    before = subject.evaluations
    return localise(probe, Probing()), subject.evaluations - before


@pytest.mark.parametrize(("make", "most"), [(sines, 5), (neighbours, 8), (total, 23), (sums, 23)])
@pytest.mark.parametrize("index", [0, 77_777, SIZE - 1])
def test_one_wrong_entry_is_found(make, most, index):
    found, evaluations = located(make({index: 0.1}))

    assert [coordinate for coordinate, _ in found.entries] == [index]
    assert not found.more
    assert found.adds_up
    assert evaluations <= most


@pytest.mark.parametrize("make", [sines, neighbours, total, sums])
def test_an_entry_of_which_nothing_is_claimed_is_found_among_all(make):
    subject = make({})
    claim = subject.gradient

    def without_one(x, u):
        gradient = claim(x, u).copy()
        gradient[4321] = 0.0
        return gradient

    subject.gradient = without_one
    found, evaluations = located(subject)

    assert [coordinate for coordinate, _ in found.entries] == [4321]
    assert evaluations <= 27


@pytest.mark.parametrize("make", [sines, neighbours, total, sums])
def test_a_few_wrong_entries_are_all_found(make):
    found, _ = located(make({5: 0.1, 70_000: -0.3}))

    assert {coordinate for coordinate, _ in found.entries} == {5, 70_000}
    assert not found.more


@pytest.mark.parametrize("make", [sines, neighbours, total, sums])
def test_of_a_gradient_that_is_wrong_throughout_a_few_entries_are_shown(make):
    found, evaluations = located(make(dict.fromkeys(range(SIZE), 0.1)))

    assert 1 <= len(found.entries) <= 3
    assert found.more
    assert found.adds_up
    assert evaluations <= 32


def test_an_entry_is_shown_with_its_output_its_claim_and_its_slope():
    found, _ = located(sines({4321: 0.1}))
    ((_, entry),) = found.entries

    assert entry.index == entry.output.index == (4321,)
    assert entry.claimed == pytest.approx(np.cos(POINT[4321]) + 0.1, rel=1e-12)
    assert abs(entry.numerical - np.cos(POINT[4321])) <= entry.bar


def test_other_outputs_that_a_wrong_entry_affects_are_named():
    subject = neighbours({})
    subject.gradient = lambda x, u: np.where(np.arange(SIZE) == 99, 1.5, 1.0) * (u * np.roll(x, -1) + np.roll(u * x, 1))
    found, _ = located(subject)
    ((_, entry),) = found.entries

    assert entry.index == (99,)
    assert {entry.output.index, *(place.index for place in entry.also)} == {(98,), (99,)}


def test_a_slight_error_is_found_from_both_sides():
    found, evaluations = located(total({4321: 1e-5}))

    assert [coordinate for coordinate, _ in found.entries] == [4321]
    assert evaluations <= 2 * 18 + 8


def test_every_argument_that_is_wrong_is_named():
    parts = {"a": 1000, "b": SIZE - 3000, "c": 2000}
    subject = sines({7: 0.1, 5000: 0.2, SIZE - 1: 0.3}, parts=parts)

    judgement = judge(subject, probes=1, seed=0, options=Probing())

    assert {finding.argument for finding in judgement.findings} == {"a", "b", "c"}


def test_every_argument_of_a_gradient_that_is_wrong_throughout_is_named():
    parts = {"a": 1000, "b": SIZE - 3000, "c": 2000}
    subject = sines(dict.fromkeys(range(SIZE), 0.1), parts=parts)

    judgement = judge(subject, probes=1, seed=0, options=Probing())

    assert {finding.argument for finding in judgement.findings} == {"a", "b", "c"}


def test_a_wrong_pushforward_is_located_too():
    subject = elementwise(np.sin, np.cos, POINT)
    wrong = errors_at({4321: 0.1})
    subject.tangent = lambda x, v: (np.cos(x) + wrong) * v

    judgement = judge(ForwardMode(subject), probes=1, seed=0, options=Probing())

    assert [entry.index for entry in judgement.entries] == [(4321,)]


def test_inputs_that_tie_are_not_called_wrong():
    subject = NumpySubject(
        lambda x: np.median(x.reshape(-1, 3), axis=1),
        lambda x, u: np.stack([u, 0 * u, 0 * u], axis=1).reshape(-1),
        np.ones(3 * (LARGE // 3 + 10)),
    )

    assert judge(subject, probes=1, seed=0, options=Probing()).verdict is not Verdict.FAIL


def test_an_error_that_the_user_tolerates_is_tolerated():
    subject = sines({4321: 1e-4})

    assert judge(subject, probes=1, seed=0, options=Probing(atol=1e-3)).verdict is Verdict.PASS
    assert judge(subject, probes=1, seed=0, options=Probing(atol=1e-6)).verdict is Verdict.FAIL
