"""Slopes along several directions at once: from values, or from a Jacobian that was measured, they are the same."""

import numpy as np

from gradproof.engine.estimators.directional import Measured, slopes_along
from gradproof.engine.estimators.steps import first_step
from support.numpy_subject import NumpySubject

MATRIX = np.random.default_rng(0).normal(size=(5, 3))


def bending():
    point = np.array([0.3, 0.7, 1.1])
    return NumpySubject(lambda x: np.sin(MATRIX @ x), None, point), np.cos(MATRIX @ point)[:, None] * MATRIX


def test_slopes_along_directions_lie_within_their_bars():
    subject, jacobian = bending()
    directions = np.random.default_rng(1).normal(size=(4, 3)) * first_step(subject.numbers.precision)

    slopes, bars = slopes_along(subject, directions)

    assert (abs(slopes - directions @ jacobian.T) <= 3 * bars).all()
    assert bars.max() < 1e-7 * abs(slopes).max()
    assert subject.evaluations == 4 * 4


def test_a_measured_jacobian_gives_slopes_without_evaluations_and_bars_that_add_up():
    subject, jacobian = bending()
    directions = np.array([[1.0, -2.0, 0.0], [0.0, 0.0, 3.0]])

    slopes, bars = Measured(jacobian, np.full((5, 3), 0.1)).along(directions)

    assert np.allclose(slopes, directions @ jacobian.T)
    assert np.allclose(bars, [[0.3] * 5, [0.3] * 5])
    assert subject.evaluations == 0
