"""NumPy functions whose slopes are hard to measure: rounded, cancelled, tied, chaotic, or not the same twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from support.engine import claiming
from support.numpy_subject import NumpySubject

Values = Any


def rounded(x: Values, digits: int) -> Values:
    """Round to so many binary digits, as a cast does whose exponents reach far enough."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(mantissa * 2.0**digits), exponent - digits)


def leftover(x: Values) -> Values:
    """Return zero but for rounding: the same number, computed in two ways, less itself."""
    return (x * 3.7 + x * 1.1) - x * 4.8


def half(x: Values) -> Values:
    """Cast to half precision and back."""
    return x.astype(np.float16).astype(np.float64)


def logistic(times: int) -> tuple[Callable[[Values], Values], Callable[[Values], Values]]:
    """Return a chaotic map and its derivative, which doubles with every iteration on average."""

    def values(x: Values) -> Values:
        for _ in range(times):
            x = 4 * x * (1 - x)
        return x

    def slope(x: Values) -> Values:
        product = np.ones_like(x)
        for _ in range(times):
            product, x = product * (4 - 8 * x), 4 * x * (1 - x)
        return product

    return values, slope


class Fickle:
    """A gradient of a sine that is wrong for the first few incoming gradients and right afterwards."""

    def __init__(self, wrong_calls: int) -> None:
        self.wrong_calls = wrong_calls

    def __call__(self, x: Values, incoming: Values) -> Values:
        self.wrong_calls -= 1
        return np.cos(x) * incoming * (2 if self.wrong_calls >= 0 else 1)


def median_beside_a_sine(point: Values, error: float = 0.0, last_error: float = 0.0) -> NumpySubject:
    """Return a median and a smooth term of the same inputs; the error is of all slopes, or of the last one."""
    size = len(point)
    errors = error + last_error * (np.arange(size) == size - 1)

    def slopes(x: Values) -> Values:
        return 2.0 * (np.arange(size) == np.argmax(x == np.median(x))) + np.cos(x) + errors

    def function(x: Values) -> Values:
        return np.atleast_1d(2 * np.median(x) + np.sin(x).sum())

    return claiming(function, slopes, point)


def rounding_inside(point: Values, digits: int, factor: float = 1.0) -> NumpySubject:
    """Return A·sin(x + 0.3) of rounded inputs; the derivative by the second input is off by a factor."""
    matrix = np.random.default_rng(5).uniform(0.4, 1.2, (6, point.size))

    def gradient(x: Values, incoming: Values) -> Values:
        found = np.cos(x + 0.3) * (matrix.T @ incoming)
        found[1] *= factor
        return found

    return NumpySubject(lambda x: matrix @ np.sin(rounded(x, digits) + 0.3), gradient, point)
