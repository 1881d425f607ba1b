"""Every bar covers the truth: the slope and the bar come from the function's values alone."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gradproof.engine.contraction import contract, rounding_of_claims
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.rounding import precision_shown
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.options import Probing
from gradproof.engine.probing import probe_direction
from gradproof.engine.subject import Step
from support.engine import in_every_precision
from support.numpy_subject import elementwise, hashed, ideally

thoroughly = settings(max_examples=100, deadline=None, derandomize=True)
few_and_many_samples = st.sampled_from([(0, 1), (-2, -1, 0, 1), (0, 1, 2), (-3, -2, -1, 0, 1, 2)])

SMOOTH = {
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "cubic": (lambda x: x**3 - 2 * x + 1, lambda x: 3 * x**2 - 2),
    "quintic": (lambda x: x**5 - 4 * x**3 + x, lambda x: 5 * x**4 - 12 * x**2 + 1),
    "rational": (lambda x: 1 / (1 + x**2), lambda x: -2 * x / (1 + x**2) ** 2),
    "quotient": (lambda x: (x - 1) / (x**2 + 3), lambda x: (3 + 2 * x - x**2) / (x**2 + 3) ** 2),
}


def ideal(value, points, dtype):
    """A function whose values are rounded once, and whose arguments are not."""
    return elementwise(ideally(value, dtype), None, points, dtype=dtype, exact=True)


def ladder_of(subject, seed, exponents):
    step = first_step(subject.numbers.precision)
    ladder = Ladder(subject, subject.direction(seed, Step(step)))
    for exponent in exponents:
        ladder.add(exponent)
    return ladder


def misses(ladder, truth):
    """Outputs whose true slope lies outside the bar and the few roundings, or ten digits, that any claim is allowed."""
    estimates = ladder.estimates()
    truth = truth * ladder.direction
    allowed = estimates.bar + rounding_of_claims(ladder.subject.numbers.precision) * abs(truth)
    return np.flatnonzero(~(abs(estimates.value - truth) <= allowed)).tolist()


@in_every_precision
@settings(thoroughly, max_examples=200)
@given(
    exponents=few_and_many_samples,
    name=st.sampled_from(sorted(SMOOTH)),
    points=st.lists(st.floats(0.01, 3), min_size=8, max_size=8),
    seed=st.integers(0, 999),
)
def test_the_bar_of_a_smooth_function_covers_its_slope(dtype, exponents, name, points, seed):
    value, slope = SMOOTH[name]
    subject = ideal(value, points, dtype)

    assert misses(ladder_of(subject, seed, exponents), slope(subject.point)) == []


@in_every_precision
@settings(thoroughly, max_examples=200)
@given(points=st.lists(st.floats(0.3, 3), min_size=8, max_size=8), k=st.floats(0.1, 300), seed=st.integers(0, 999))
def test_the_bar_of_an_oscillation_that_the_steps_resolve_covers_its_slope(dtype, points, k, seed):
    subject = ideal(lambda x: np.sin(k * x), points, dtype)
    ladder = ladder_of(subject, seed, (0, 1))
    assume(4 * k * abs(ladder.direction).max() < np.pi)

    assert misses(ladder, k * np.cos(k * subject.point)) == []


@settings(thoroughly, max_examples=200)
@given(points=st.lists(st.floats(0.3, 3), min_size=8, max_size=8), k=st.floats(0.1, 300), seed=st.integers(0, 999))
def test_a_grown_ladder_in_single_precision_covers_the_slope_of_any_oscillation(points, k, seed):
    subject = ideal(lambda x: np.sin(k * x), points, np.float32)

    assert misses(ladder_of(subject, seed, range(-4, 2)), k * np.cos(k * subject.point)) == []


@in_every_precision
@settings(thoroughly, max_examples=120)
@given(
    exponents=few_and_many_samples,
    points=st.lists(st.floats(0.3, 3), min_size=8, max_size=8),
    seed=st.integers(0, 999),
    size=st.floats(-12, 12),
    scale=st.floats(-8, 8),
)
def test_the_bar_of_a_badly_scaled_function_covers_its_slope(dtype, exponents, points, seed, size, scale):
    size, scale = 10.0**size, 10.0**scale
    least, most = float(np.finfo(dtype).smallest_normal), float(np.finfo(dtype).max)
    assume(100 * least < size / 10 and size * 3 < most and 100 * least < scale / 10 and scale * 100 < most)
    subject = ideal(lambda x: size * (2 + np.sin(x / scale)), scale * np.array(points), dtype)

    assert misses(ladder_of(subject, seed, exponents), size / scale * np.cos(subject.point / scale)) == []


def bent(kind, corner, left, right):
    """Two lines that meet at a corner, and their slopes before and after it."""
    if kind == "abs":
        return lambda x: abs(x - corner), (-1.0, 1.0)
    if kind == "relu":
        return lambda x: np.maximum(x - corner, 0), (0.0, 1.0)
    if kind == "hinge":
        return lambda x: 1 + np.maximum(corner - x, 0), (-1.0, 0.0)
    lower, upper = sorted((left, right))
    return lambda x: 2 + np.maximum(lower * (x - corner), upper * (x - corner)), (lower, upper)


@in_every_precision
@settings(thoroughly, max_examples=300)
@given(
    exponents=few_and_many_samples,
    kind=st.sampled_from(["abs", "relu", "hinge", "max"]),
    point=st.floats(0.3, 3),
    steps=st.floats(-8, 8),
    left=st.floats(-3, 3),
    right=st.floats(-3, 3),
    seed=st.integers(0, 99),
)
def test_the_bar_near_a_kink_covers_the_slope_on_the_side_of_the_point(
    dtype, exponents, kind, point, steps, left, right, seed
):
    point = float(dtype(point))
    reach = first_step(float(np.finfo(dtype).eps)) * point
    corner = float(dtype(point + steps * reach))
    assume(corner != point)
    value, slopes = bent(kind, corner, left, right)
    subject = ideal(value, [point], dtype)

    assert misses(ladder_of(subject, seed, exponents), slopes[point > corner]) == []


@in_every_precision
@settings(thoroughly, max_examples=120)
@given(
    exponents=few_and_many_samples,
    kind=st.sampled_from(["abs", "relu", "hinge", "max"]),
    point=st.floats(0.3, 3),
    left=st.floats(-3, 3),
    right=st.floats(-3, 3),
    seed=st.integers(0, 99),
)
def test_the_bar_at_a_kink_covers_the_slopes_on_both_sides(dtype, exponents, kind, point, left, right, seed):
    corner = float(dtype(point))
    value, slopes = bent(kind, corner, left, right)
    ladder = ladder_of(ideal(value, [point], dtype), seed, exponents)

    assert misses(ladder, slopes[0]) == []
    assert misses(ladder, slopes[1]) == []


@thoroughly
@given(point=st.floats(0.3, 3), gap=st.floats(0.3, 30), at=st.floats(-30, 30), seed=st.integers(0, 99))
def test_the_bar_between_many_kinks_covers_the_slope_at_the_point(point, gap, at, seed):
    reach = first_step(2.2e-16) * point
    wide, start = gap * reach, point + at * reach
    steps = (point - start) / wide
    assume(1e-6 < steps % 1 < 1 - 1e-6 and abs(steps % 1 - 0.5) > 1e-6)

    def zigzag(x):
        return abs((x - start) / wide - np.rint((x - start) / wide)) * wide

    subject = ideal(zigzag, [point], np.float64)
    slope = 1.0 if steps % 1 < 0.5 else -1.0

    assert misses(ladder_of(subject, seed, range(-6, 3)), slope) == []


@thoroughly
@given(points=st.lists(st.floats(0.5, 1.4), min_size=4, max_size=4), seed=st.integers(0, 999))  # where it rises
def test_the_smooth_slope_of_quantised_values_is_within_the_bar(points, seed):
    subject = elementwise(lambda x: np.rint(np.sin(x) * 4096) / 4096, np.cos, points)

    (probe,) = probe_direction(subject, seed, Probing())

    assert probe.agrees


@thoroughly
@given(points=st.lists(st.floats(0.5, 1.2), min_size=4, max_size=4), seed=st.integers(0, 999))
def test_quantised_values_do_not_excuse_a_slope_twice_too_large(points, seed):
    subject = elementwise(lambda x: np.rint(np.sin(x) * 4096) / 4096, lambda x: 2 * np.cos(x), points)

    (probe,) = probe_direction(subject, seed, Probing())

    assert not probe.agrees


@thoroughly
@given(point=st.floats(0.5, 2), dead=st.floats(0.1, 200), seed=st.integers(0, 99))
def test_a_dead_region_that_ends_in_a_kink_is_not_mistaken_for_quantised_values(point, dead, seed):
    corner = point * (1 + dead * first_step(2.2e-16))
    subject = elementwise(lambda x: np.maximum(x - corner, 0), None, [point])

    assert misses(ladder_of(subject, seed, range(-3, 9)), 0.0) == []


def rough(size, dtype):
    """sin with noise of a relative size, rounded to a dtype."""
    return lambda x: (np.sin(np.float64(x)) * (1 + size * hashed(x))).astype(dtype)


def missed_sums(dtype, noise, outputs, exponents, draws):
    missed = 0
    for seed in range(draws):
        points = np.random.default_rng(seed).uniform(0.3, 2.8, outputs)
        subject = elementwise(rough(noise, dtype), None, points, dtype=dtype)
        ladder = ladder_of(subject, seed, exponents)
        cotangent = subject.cotangent(seed)
        sums = contract(ladder, cotangent)
        truth = float((np.cos(subject.point) * ladder.direction) @ cotangent)
        missed += not abs(sums.slope - truth) <= sums.bar
    return missed


@in_every_precision
def test_bars_of_noisy_outputs_with_random_signs_miss_less_than_once_in_a_thousand(dtype):
    assert sum(missed_sums(dtype, noise, 30, (0, 1), 700) for noise in (1e-12, 1e-8, 1e-4)) <= 1


@in_every_precision
def test_bars_of_grown_ladders_miss_less_than_once_in_a_thousand(dtype):
    top = {np.float64: 8, np.float32: 3, np.float16: 1}[dtype]

    assert sum(missed_sums(dtype, noise, 50, range(-2, top + 1), 500) for noise in (1e-10, 1e-4)) == 0


def test_a_straight_line_has_its_slope_and_a_bar_of_rounding_alone():
    subject = elementwise(lambda x: 3 * x, None, [1.0, 2.0])
    estimates = ladder_of(subject, 0, (0, 1)).estimates()

    assert np.all(estimates.bar <= 1e-9 * abs(estimates.value))


@pytest.mark.parametrize("side", [-1, 1])
def test_an_edge_on_one_side_leaves_the_slope_of_the_other_side(side):
    subject = elementwise(lambda x: np.where(side * (x - 1) < 0, np.nan, np.sin(x)), None, [1.0])
    ladder = ladder_of(subject, 0, (0, 1))

    assert np.isnan(ladder.samples[0].minus[0]) != np.isnan(ladder.samples[0].plus[0])
    assert ladder.estimates().bar[0] < 1e-4 * abs(ladder.direction[0])
    assert misses(ladder, np.cos(1.0)) == []


def test_an_edge_on_both_sides_leaves_nothing_known():
    subject = elementwise(lambda x: np.where(x == 1, 1.0, np.nan), None, [1.0])

    assert ladder_of(subject, 0, (0, 1)).estimates().bar[0] == np.inf


def test_one_output_at_an_edge_leaves_the_slopes_of_the_others_alone():
    alone = ladder_of(elementwise(np.sqrt, None, [1.0, 2.0]), 0, (0, 1)).estimates()
    subject = elementwise(lambda x: np.append(np.sqrt(x), np.nan), None, [1.0, 2.0])
    beside = ladder_of(subject, 0, (0, 1)).estimates()

    assert beside.value[:2].tolist() == alone.value.tolist()
    assert beside.bar[:2].tolist() == alone.bar.tolist()


@pytest.mark.parametrize(
    ("rounded", "unit"),
    [
        (lambda x: x, 0.0),
        (lambda x: x.astype(np.float32).astype(np.float64), 2.0**-23),
        (lambda x: x.astype(np.float16).astype(np.float64), 2.0**-10),
        (lambda x: np.rint(8 * x), 0.0),
    ],
    ids=["as they are", "single", "half", "counts"],
)
def test_the_precision_that_values_were_cast_to_shows_in_them_and_counts_show_none(rounded, unit):
    values = np.random.default_rng(0).uniform(0.5, 2, 20)

    assert precision_shown(np, [rounded(values), rounded(-values)]) == unit


@pytest.mark.parametrize("seed", range(6))
def test_the_bar_of_quantised_values_covers_the_slope_beside_a_kink(seed):
    point = 0.3125  # in half precision: the value is constant on fine steps, coarse ones reach beyond the kink
    corner = float(np.float16(point - 1.5 * first_step(float(np.finfo(np.float16).eps)) * point))
    value, (_, slope) = bent("max", corner, 0.0, 1.0)

    assert misses(ladder_of(ideal(value, [point], np.float16), seed, (-3, -2, -1, 0, 1, 2)), slope) == []
