"""Columns that share no row are grouped, where that saves evaluations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.jacobian.coloring import coloring as grouped
from gradproof.engine.thresholds import FEW

thoroughly = settings(max_examples=200, deadline=None, derandomize=True)


def coloring(xp, jacobian):
    """Color columns that all take steps of one size."""
    return grouped(xp, jacobian, np.ones(jacobian.shape[1]))


@st.composite
def patterns(draw):
    rows, columns = draw(st.integers(1, 30)), draw(st.integers(1, 60))
    density = draw(st.sampled_from([0.0, 0.01, 0.03, 0.1, 0.5, 1.0]))
    numbers = np.random.default_rng(draw(st.integers(0, 99_999)))
    return np.where(numbers.uniform(size=(rows, columns)) < density, numbers.normal(size=(rows, columns)), 0.0)


@thoroughly
@given(jacobian=patterns())
def test_every_column_is_in_one_group(jacobian):
    groups = coloring(np, jacobian)

    if groups is not None:
        assert sorted(column for group in groups for column in group) == list(range(jacobian.shape[1]))
        assert all(groups)


@thoroughly
@given(jacobian=patterns())
def test_no_two_columns_of_a_group_have_an_entry_in_one_row(jacobian):
    for group in coloring(np, jacobian) or []:
        assert ((jacobian[:, group] != 0).sum(1) <= 1).all()


@thoroughly
@given(jacobian=patterns())
def test_groups_hold_several_columns_on_average(jacobian):
    groups = coloring(np, jacobian)

    assert groups is None or FEW * len(groups) <= jacobian.shape[1]


@thoroughly
@given(jacobian=patterns())
def test_a_row_with_many_entries_leaves_nothing_worth_grouping(jacobian):
    busiest = (jacobian != 0).sum(1).max()

    if FEW * busiest > jacobian.shape[1]:
        assert coloring(np, jacobian) is None


@pytest.mark.parametrize("size", [1, 2])
def test_a_few_columns_are_not_worth_grouping(size):
    assert coloring(np, np.eye(size)) is None


@pytest.mark.parametrize("size", [3, 4, 5, 100])
def test_a_diagonal_is_one_group(size):
    assert coloring(np, np.eye(size)) == [list(range(size))]


@pytest.mark.parametrize("width", [0, 1, 2])
def test_a_band_takes_as_many_groups_as_it_is_wide(width):
    block = sum(np.eye(60, k=k) for k in range(-width, width + 1))

    assert len(coloring(np, block)) == 2 * width + 1


def test_empty_columns_go_with_any_others():
    jacobian = np.zeros((3, 20))
    jacobian[:, 4] = 1.0

    assert coloring(np, jacobian) == [list(range(20))]


def test_a_jacobian_of_nothing_but_zeros_is_one_group():
    assert coloring(np, np.zeros((5, 8))) == [list(range(8))]


def test_blocks_are_taken_apart():
    blocks = np.kron(np.eye(8), np.ones((3, 2)))

    assert coloring(np, blocks) == [list(range(0, 16, 2)), list(range(1, 16, 2))]


def test_an_arrow_is_not_worth_grouping():
    arrow = np.eye(20)
    arrow[0] = 1.0

    assert coloring(np, arrow) is None


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, 5e-324])
def test_what_is_not_zero_is_an_entry_whatever_it_is(odd):
    jacobian = np.zeros((2, 8))
    jacobian[1, 3], jacobian[1, 5] = odd, 1.0
    groups = coloring(np, jacobian)

    assert not any({3, 5} <= set(group) for group in groups)


def test_a_negative_zero_is_no_entry():
    assert coloring(np, -np.zeros((2, 8))) == [list(range(8))]


def test_the_jacobian_is_left_as_it_is():
    jacobian = np.eye(9)
    coloring(np, jacobian)

    assert np.array_equal(jacobian, np.eye(9))


def test_columns_whose_steps_differ_in_size_are_kept_apart():
    steps = np.where(np.arange(40) % 2, 1e-7, -1e5)

    assert grouped(np, np.eye(40), steps) == [list(range(0, 40, 2)), list(range(1, 40, 2))]


def test_a_step_of_zero_is_no_hindrance():
    assert grouped(np, np.eye(8), np.zeros(8)) == [list(range(8))]
