"""Functions with structure far below the usual steps, such as values from a fine table: no right rule fails for it."""

import numpy as np
import pytest

from gradproof.engine.results import Verdict
from support.engine import judged_fully
from support.numpy_subject import NumpySubject

PITCH = 1e-6


def from_table(x):
    below = np.floor(x / PITCH)
    low, high = np.sin(below * PITCH), np.sin((below + 1) * PITCH)
    return low + (x / PITCH - below) * (high - low)


def slopes_in_table(x):
    below = np.floor(x / PITCH)
    return (np.sin((below + 1) * PITCH) - np.sin(below * PITCH)) / PITCH


def table(seed, wrong=1.0):
    factors = np.ones(6)
    factors[2] = wrong
    places = np.floor(np.random.default_rng(seed).uniform(0.2, 1.3, 6) / PITCH) + 0.2
    return NumpySubject(from_table, lambda x, incoming: incoming * factors * slopes_in_table(x), places * PITCH)


@pytest.mark.parametrize("seed", range(6))
def test_values_from_a_fine_table_are_never_called_wrong(seed):
    assert judged_fully(table(seed), seed=seed).verdict is not Verdict.FAIL


def test_slopes_of_a_fine_table_are_explained_by_an_oscillation(explained):
    judged_fully(table(0))

    assert "Oscillation" in explained


@pytest.mark.parametrize("factor", [1.001, 0.9, -1.0])
@pytest.mark.parametrize("seed", range(3))
def test_a_wrong_slope_of_a_fine_table_is_found(seed, factor):
    judgement = judged_fully(table(seed, factor), seed=seed)

    assert judgement.verdict is Verdict.FAIL
    assert (2,) in {entry.index for entry in judgement.entries}
