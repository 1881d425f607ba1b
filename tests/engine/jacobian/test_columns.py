"""Columns of a Jacobian as a subject: each moves alone, and each step is evaluated once."""

import numpy as np
import pytest

from gradproof.engine.jacobian.columns import Columns, Largest, batches
from gradproof.engine.subject import Step
from support.numpy_subject import NumpySubject


def product_with(matrix):
    return NumpySubject(lambda x: np.sin(matrix @ x), lambda x, u: matrix.T @ u, np.arange(1.0, 4.0))


@pytest.fixture
def whole():
    return product_with(np.array([[1.0, 2.0, 0.0], [0.5, 0.0, 3.0]]))


@pytest.fixture
def some(whole):
    return Columns(whole, [2, 0], np.ones((2, 2)), 0, Largest(1.0, 1.0))


def test_the_values_along_each_column_are_those_of_the_whole(whole, some):
    direction = some.direction(0, Step(1e-3))
    values = some.evaluate(direction, 4.0)

    assert (values == np.concatenate([whole.evaluate(row, 4.0) for row in direction])).all()


def test_several_steps_are_the_same_as_one_after_the_other(some):
    direction = some.direction(0, Step(1e-3))
    together = some.evaluate_along(direction, [-1.0, 0.25, 4.0])

    assert all(
        (values == some.evaluate(direction, t)).all() for values, t in zip(together, [-1.0, 0.25, 4.0], strict=True)
    )


def test_a_column_is_evaluated_once_a_step(whole, some):
    direction = some.direction(0, Step(1e-3))
    before = whole.evaluations
    some.evaluate(direction, 1.0)
    some.evaluate(direction * np.array([[1.0], [0.0]]), 1.0)

    assert whole.evaluations - before == 2


def test_the_point_itself_is_evaluated_anew(whole, some):
    direction = some.direction(0, Step(1e-3))
    before = whole.evaluations
    some.evaluate(direction, 0.0)
    some.evaluate(direction, 0.0)

    assert whole.evaluations - before == 4


def test_a_column_that_was_taken_out_stays_constant(some):
    direction = some.direction(0, Step(1e-3))
    direction[1] = 0.0
    constant = some.evaluate(direction, 4.0)[2:]

    assert (constant == some.centre[2:]).all()


@pytest.mark.parametrize("width", [1, 1000, 1 << 18, 1 << 30])
def test_batches_cover_a_range_without_gap_or_overlap(width):
    pieces = list(batches(3, 20, width))

    assert [place for start, stop in pieces for place in range(start, stop)] == list(range(3, 20))
