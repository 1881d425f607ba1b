"""Jacobians of many patterns, whose entries are of one size, so that no entry hides behind another."""

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st

from support.engine import claiming

thoroughly = settings(max_examples=25, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate])


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


def with_a_zero(size):
    point = np.linspace(0.5, 1.5, size)
    point[size // 2] = 0.0
    return point


def joined(points, off=0.0):
    """Functions of one number each, x·exp(−|x|), whose curvature jumps at zero; the claim of the first is off."""

    def claim(x):
        slopes = (1 - abs(x)) * np.exp(-abs(x))
        slopes[0] += off
        return np.diag(slopes)

    return claiming(lambda x: x * np.exp(-abs(x)), claim, np.asarray(points, float))
