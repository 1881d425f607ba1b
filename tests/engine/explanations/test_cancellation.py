"""Catastrophic cancellation is distinguished from values that are small."""

import itertools

import numpy as np
import pytest

from gradproof.engine.explanations.conditioning import is_cancelled
from support.difficulties import leftover
from support.numpy_subject import elementwise

POINTS = np.array([1.3, -0.7, 2.9])


def drawn():
    """A function that never gives the same value twice."""
    numbers = itertools.count(1)
    return lambda x: leftover(x) + 1e-15 * next(numbers)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_left_of_larger_numbers_is_cancelled(seed):
    assert is_cancelled(elementwise(leftover, leftover, POINTS), seed)


@pytest.mark.parametrize(
    ("value", "slope"),
    [
        (np.sin, np.cos),
        (np.sin, leftover),  # the slope alone
        (leftover, np.cos),  # the values alone
        (leftover, lambda x: 1e-13 * np.cos(x)),
        (leftover, drawn()),
        (lambda x: x - np.pi, lambda x: 0 * x + 1),
    ],
    ids=["neither", "slope", "values", "small-slope", "random-slope", "root"],
)
def test_what_keeps_its_size_or_is_never_the_same_is_none(value, slope):
    assert not is_cancelled(elementwise(value, slope, np.append(POINTS, np.pi)), 0)
