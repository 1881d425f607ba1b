"""Quantiles: of normal numbers, of the largest of them, and of an array."""

from __future__ import annotations

import math
from statistics import NormalDist

from gradproof.engine.subject import Array
from gradproof.engine.thresholds import SAMPLE


def deviations_for(entries: int, rate: float) -> float:
    """Return how many standard deviations the largest of so many normal numbers exceeds at this rate.

    >>> round(deviations_for(1, 0.0455), 2), deviations_for(10**8, 1e-6) > deviations_for(10**4, 1e-6)
    (2.0, True)
    """
    return -NormalDist().inv_cdf(max(rate / max(entries, 1), 1e-300) / 2)


def largest_of(draws: int, share: float) -> float:
    """Return the quantile of the largest magnitude among so many standard normal numbers.

    >>> round(largest_of(1, 0.5), 3)
    0.674
    """
    return NormalDist().inv_cdf((1 + share ** (1 / max(draws, 1))) / 2)


def median(values: Array) -> float:
    """Return the median of the finite values."""
    return quantile(values, 0.5)


def quantile(values: Array, share: float) -> float:
    """Return a quantile of the finite values, from a regular sample if there are many."""
    step = max(1, int(values.shape[0]) // SAMPLE) | 1  # odd, so that it visits all columns of a power of two
    known = sorted(value for value in values[::step].tolist() if math.isfinite(value))
    return known[min(int(share * len(known)), len(known) - 1)] if known else 0.0
