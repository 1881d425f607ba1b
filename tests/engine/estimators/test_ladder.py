"""Ladders of step sizes: slopes, kinks, jumps and noise, and each distinguished from the others."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.pieces import CACHED, slices
from gradproof.engine.subject import Step
from gradproof.engine.views import OutputSubset
from support.numpy_subject import elementwise, hashed

thoroughly = settings(max_examples=100, deadline=None, derandomize=True)


def ladder_of(value, points, exponents=(-2, -1, 0, 1), seed=0, **options):
    subject = elementwise(value, None, points, **options)
    ladder = Ladder(subject, subject.direction(seed, Step(first_step(subject.numbers.precision))))
    for exponent in exponents:
        ladder.add(exponent)
    return ladder


def noise_of(ladder):
    """The rounding of values relative to their size that the ladder reckons with."""
    return ladder.noise().shown


def bends(ladder):
    return np.flatnonzero(ladder.kinks(ladder.estimates().bar)).tolist()


@pytest.mark.parametrize("exponents", [(0, 1), (1, 0), (2, -1, 0, 1)])
def test_samples_are_in_the_order_of_their_steps(exponents):
    ladder = ladder_of(np.sin, [1.0], exponents)

    assert [sample.t for sample in ladder.samples] == [4.0**exponent for exponent in sorted(exponents)]
    assert (ladder.lowest, ladder.highest) == (min(exponents), max(exponents))


def test_a_sample_costs_two_evaluations():
    ladder = ladder_of(np.sin, [1.0], ())
    ladder.add(0)
    assert ladder.subject.evaluations == 2
    ladder.add(-1)
    assert ladder.subject.evaluations == 4


def test_samples_that_are_fetched_cost_nothing_when_they_are_added():
    ladder = ladder_of(np.sin, [1.0], ())
    ladder.fetch(0, 1, -1)
    assert ladder.samples == []
    ladder.add(0, 1)
    ladder.add(-1)

    assert [sample.t for sample in ladder.samples] == [0.25, 1.0, 4.0]
    assert ladder.subject.evaluations == 6


def test_samples_looked_at_aside_are_no_part_of_the_ladder_until_they_are_added():
    ladder = ladder_of(np.sin, [1.0], (0, 1))
    deep = ladder.aside(-3, -4)
    assert [sample.t for sample in deep.samples] == [4.0**-4, 4.0**-3]
    assert ladder.lowest == 0
    ladder.add(-4, -3, -2, -1)

    assert ladder.lowest == -4
    assert ladder.subject.evaluations == 12


def test_a_new_sample_makes_known_slopes_anew():
    ladder = ladder_of(lambda x: np.sin(1000 * x), [1.0], (0, 1))
    wide = ladder.estimates().bar[0]
    ladder.add(-1)

    assert ladder.estimates().bar[0] < wide


@thoroughly
@given(points=st.lists(st.floats(0.3, 3), min_size=5, max_size=5), which=st.integers(0, 4), seed=st.integers(0, 99))
def test_the_output_at_a_kink_is_found_among_smooth_ones(points, which, seed):
    corner = np.zeros(5)
    corner[which] = 1.0

    def value(x):
        return np.sin(x) + corner * abs(x - points[which])

    assert bends(ladder_of(value, points, seed=seed)) == [which]


@thoroughly
@given(
    points=st.lists(st.floats(0.3, 3), min_size=5, max_size=5),
    k=st.floats(0.1, 3000),
    exponents=st.sampled_from([(-2, -1, 0, 1), (-1, 0, 1), (-6, -5, -4, -3)]),
    seed=st.integers(0, 99),
)
def test_curvature_is_not_taken_for_a_kink(points, k, exponents, seed):
    assert bends(ladder_of(lambda x: np.cos(k * (x - np.array(points))), points, exponents, seed)) == []


@thoroughly
@given(power=st.floats(1.2, 1.8), points=st.lists(st.floats(0.3, 3), min_size=5, max_size=5), seed=st.integers(0, 99))
def test_a_slope_that_is_continuous_but_steep_is_not_taken_for_a_kink(power, points, seed):
    assert bends(ladder_of(lambda x: abs(x - np.array(points)) ** power, points, seed=seed)) == []


@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e-6, 1e-4])
def test_noise_is_taken_for_a_kink_in_few_outputs_of_many(size):
    points = np.linspace(0.3, 2.8, 5000)

    assert len(bends(ladder_of(lambda x: np.sin(x) * (1 + size * hashed(x)), points))) <= 50


def test_a_kink_beside_the_point_is_no_kink_at_the_point():
    corner = 1 + 0.3 * first_step(2.2e-16) / 16

    assert bends(ladder_of(lambda x: abs(x - corner), [1.0])) == []


def test_an_output_that_jumps_at_the_point_is_found():
    points = np.array([0.5, 1.0, 1.5])
    ladder = ladder_of(lambda x: np.sin(x) + np.array([0, 1, 0]) * (x >= points), points)

    assert np.flatnonzero(ladder.jumps()).tolist() == [1]


@thoroughly
@given(points=st.lists(st.floats(0.3, 3), min_size=5, max_size=5), k=st.floats(0.1, 1000), seed=st.integers(0, 99))
def test_neither_smooth_nor_kinked_outputs_jump(points, k, seed):
    def value(x):
        return np.cos(k * (x - np.array(points))) + abs(x - np.array(points))

    assert not ladder_of(value, points, seed=seed).jumps().any()


def test_the_sides_of_a_kink_have_slopes_of_their_own():
    ladder = ladder_of(lambda x: np.where(x > 1, 3 * (x - 1), x - 1), [1.0], (0,))
    before, after = ladder.sides(ladder.samples[0])
    slopes = sorted([before[0] / ladder.direction[0], after[0] / ladder.direction[0]])

    assert slopes == pytest.approx([1, 3], rel=1e-9)


@pytest.mark.parametrize("size", [1e-9, 1e-6, 1e-3])
def test_the_noise_of_a_grown_ladder_is_the_one_that_most_outputs_show(size):
    ladder = ladder_of(lambda x: np.sin(x) * (1 + size * hashed(x)), np.linspace(0.3, 2.8, 1000))

    assert size < noise_of(ladder) < 8 * size


def test_the_noise_is_never_finer_than_the_precision():
    ladder = ladder_of(lambda x: 2 * x, [1.0, 2.0])

    assert noise_of(ladder) >= 0.5 * np.finfo(np.float64).eps


def test_one_noisy_output_does_not_coarsen_the_noise_of_the_others():
    noisy = np.zeros(100)
    noisy[7] = 1e-3
    ladder = ladder_of(lambda x: np.sin(x) * (1 + noisy * hashed(x)), np.linspace(0.3, 2.8, 100))

    assert noise_of(ladder) < 1e-14


def test_a_subset_of_outputs_has_the_slopes_that_it_has_among_all():
    whole = ladder_of(np.sin, np.linspace(0.3, 2.8, 50), (0, 1))
    few = whole.of_outputs(OutputSubset(whole.subject, np.array([3, 40])))

    assert few.estimates().value.tolist() == whole.estimates().value[[3, 40]].tolist()
    assert few.estimates().bar.tolist() == whole.estimates().bar[[3, 40]].tolist()


def test_a_sample_takes_every_so_many_outputs():
    whole = ladder_of(np.sin, np.linspace(0.3, 2.8, 50), (0, 1))

    assert whole.sampled(7).estimates().value.tolist() == whole.estimates().value[::7].tolist()


def test_two_neighbouring_samples_are_a_ladder_of_their_own():
    ladder = ladder_of(np.sin, [1.0], (-1, 0, 1, 2))

    assert [sample.t for sample in ladder.between(1).samples] == [1.0, 4.0]


def test_an_output_that_is_never_finite_beside_the_point_leaves_the_others_their_coarsest_changes():
    ladder = ladder_of(lambda x: np.where(x > 2, np.where(x == 3, x, np.nan), x**2), [1.0, 3.0, 1.5])

    changes, steps = ladder.farthest()
    coarsest, centre = ladder.samples[-1], ladder.subject.centre
    expected = np.maximum(abs(coarsest.plus - centre), abs(coarsest.minus - centre))

    assert np.isnan(changes[1])
    assert changes[[0, 2]] == pytest.approx(expected[[0, 2]], rel=1e-12)
    assert (np.asarray(steps)[[0, 2]] == coarsest.t).all()


def test_pieces_of_a_long_vector_add_up_to_the_whole():
    ladder = ladder_of(np.sin, np.linspace(0.3, 2.8, 2 * CACHED + 17), (0, 1))
    pieces = np.concatenate([piece.value for _, piece in ladder.pieces(0, ladder.subject.outputs.size)])

    assert pieces.tolist() == ladder.estimates().value.tolist()


@given(low=st.integers(0, 10**6), length=st.integers(0, 10**6))
@thoroughly
def test_slices_cover_a_range_once_and_in_order(low, length):
    edges = [(each.start, each.stop) for each in slices(low, low + length)]

    assert all(0 < stop - start <= CACHED for start, stop in edges)
    assert [low, *(stop for _, stop in edges)] == [*(start for start, _ in edges), low + length]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_the_first_step_is_within_a_factor_of_three_of_the_cube_root_of_the_precision(dtype):
    precision = float(np.finfo(dtype).eps)

    assert math.cbrt(precision) / 3 < first_step(precision) < math.cbrt(precision)
