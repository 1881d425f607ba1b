"""A probe: few evaluations where claim and slope agree clearly, more steps where they do not, and a true resolution."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.contraction import (
    CAUTION,
    claim_of,
    contract,
    contract_each,
    contract_with_sampled_bars,
    restricted,
)
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.options import Probing
from gradproof.engine.probing import probe_direction
from gradproof.engine.subject import Step
from gradproof.engine.thresholds import CALLS, LARGE, SAMPLE
from support.numpy_subject import NumpySubject, elementwise, hashed

thoroughly = settings(max_examples=100, deadline=None, derandomize=True)
points = st.lists(st.floats(0.3, 3), min_size=1, max_size=20)


def sine(at, wrong=0.0, **options):
    return elementwise(np.sin, lambda x: np.cos(x) + wrong, at, **options)


def ladder_of(subject, seed=0, exponents=(0, 1)):
    ladder = Ladder(subject, subject.direction(seed, Step(first_step(subject.numbers.precision))))
    for exponent in exponents:
        ladder.add(exponent)
    return ladder


@thoroughly
@given(at=points, seed=st.integers(0, 9999))
def test_a_right_gradient_of_a_smooth_function_agrees_after_four_evaluations_and_one_pullback(at, seed):
    subject = sine(at)
    (probe,) = probe_direction(subject, seed, Probing())

    assert probe.agrees
    assert (subject.evaluations, subject.pullbacks) == (4, 1)


@thoroughly
@given(at=points, seed=st.integers(0, 9999), which=st.integers(0, 19), error=st.floats(1e-6, 1e3))
def test_one_wrong_entry_disagrees_whatever_the_direction(at, seed, which, error):
    wrong = np.zeros(len(at))
    wrong[which % len(at)] = error
    (probe,) = probe_direction(sine(at, wrong), seed, Probing())

    assert not probe.agrees


def test_a_seed_replays_exactly():
    first, again = (probe_direction(sine([1.0, 2.0], 0.1), 5, Probing())[0] for _ in range(2))

    assert (first.claim, first.contraction) == (again.claim, again.contraction)


def test_another_seed_asks_along_another_direction():
    first, other = (probe_direction(sine([1.0, 2.0]), seed, Probing())[0] for seed in (5, 6))

    assert not np.array_equal(first.ladder.direction, other.ladder.direction)
    assert not np.array_equal(first.cotangent, other.cotangent)


def test_a_span_varies_the_coordinates_within_it_alone():
    (probe,) = probe_direction(sine([1.0, 2.0, 3.0, 4.0]), 0, Probing(), (1, 3))

    assert np.flatnonzero(probe.ladder.direction).tolist() == [1, 2]


def test_an_error_outside_the_span_is_not_probed():
    (probe,) = probe_direction(sine([1.0, 2.0, 3.0, 4.0], np.array([9.0, 0, 0, 0])), 0, Probing(), (1, 3))

    assert probe.agrees


def test_a_step_that_is_requested_is_the_step_that_is_taken():
    (probe,) = probe_direction(sine([100.0, 200.0]), 0, Probing(step=1e-4))

    assert np.all(abs(probe.ladder.direction) <= 1.0001e-4)
    assert np.all(abs(probe.ladder.direction) >= 0.4999e-4)
    assert len(probe.ladder.samples) == 2


@pytest.mark.parametrize("options", [Probing(rtol=0.1), Probing(atol=0.1)])
def test_a_probe_tolerates_nothing_but_says_that_tolerated_errors_would_not_be_seen(options):
    (probe,) = probe_direction(sine([1.0, 1.2, 0.5], np.array([0, 1e-2, 0])), 0, options)
    (strict,) = probe_direction(sine([1.0, 1.2, 0.5], np.array([0, 1e-2, 0])), 0, Probing())

    assert not probe.agrees
    assert probe.resolution > 1e3 * strict.resolution


def test_a_function_that_differs_from_call_to_call_is_not_repeatable():
    calls = iter(range(1000))
    subject = elementwise(lambda x: np.sin(x) + 1e-3 * next(calls), np.cos, [1.0, 2.0])
    (probe,) = probe_direction(subject, 0, Probing())

    assert not probe.repeatable


def test_a_difference_from_call_to_call_may_be_meant():
    calls = iter(range(1000))
    subject = elementwise(lambda x: np.sin(x) + 1e-9 * next(calls), np.cos, [1.0, 2.0])
    (probe,) = probe_direction(subject, 0, Probing(nondet_tol=1e-3))

    assert probe.repeatable


def test_doubt_makes_the_ladder_grow_on_both_sides():
    (probe,) = probe_direction(sine([1.0, 2.0], 1.0), 0, Probing())

    assert probe.ladder.lowest < 0
    assert probe.ladder.highest > 1


@pytest.mark.parametrize("size", [1e-10, 1e-8, 1e-6])
def test_coarser_steps_narrow_the_bar_of_a_noisy_function(size):
    at = np.linspace(0.3, 2.8, 100)
    subject = elementwise(lambda x: np.sin(x) * (1 + size * hashed(x)), np.cos, at)
    cheap = contract(ladder_of(subject), subject.cotangent(0)).bar
    (probe,) = probe_direction(subject, 0, Probing())

    assert probe.agrees
    assert probe.contraction.bar < cheap / 10 * CAUTION


def test_finer_steps_narrow_the_bar_near_kinks():
    at = np.linspace(0.3, 2.8, 100)
    corners = at + 2 * first_step(2.2e-16)
    subject = elementwise(lambda x: abs(x - corners), lambda x: np.sign(x - corners), at)
    cheap = contract(ladder_of(subject), subject.cotangent(0)).bar
    (probe,) = probe_direction(subject, 0, Probing())

    assert probe.agrees
    assert probe.contraction.bar < cheap / 1000


def near_kinks(wrong=0.0, size=5000, every=200):
    """Many smooth outputs, and one in so many whose kink lies a step away."""
    at = np.linspace(0.5, 2.5, size)
    odd = np.arange(size) % every == 0
    corners = at + 1.5 * first_step(2.2e-16)
    return elementwise(
        lambda x: np.sin(x) + odd * abs(x - corners),
        lambda x: np.cos(x) + odd * np.sign(x - corners) + wrong,
        at,
    )


def test_few_odd_outputs_near_kinks_are_looked_at_by_themselves():
    smooth, few = probe_direction(near_kinks(), 0, Probing())

    assert smooth.agrees
    assert few.agrees
    assert few.ladder.subject.outputs.size == 25
    assert np.flatnonzero(smooth.cotangent == 0).size == 25


@pytest.mark.parametrize("which", [0, 1, 4800, 4999])
def test_an_error_is_seen_among_the_smooth_outputs_and_among_the_odd_ones(which):
    wrong = np.zeros(5000)
    wrong[which] = 1e-3

    assert not all(probe.agrees for probe in probe_direction(near_kinks(wrong), 0, Probing()))


def mixed(rows, noise, seed=0, wrong=None):
    """Many noisy outputs of few inputs: the bars of all together are wide beside one contribution."""
    matrix = np.random.default_rng(seed).normal(size=(rows, 4))
    claimed = matrix if wrong is None else matrix + wrong
    return NumpySubject(
        lambda x: (matrix @ x) * (1 + noise * hashed(matrix @ x)), lambda x, u: claimed.T @ u, [0.7, 1.1, 1.3, 0.9]
    )


def test_blocks_of_outputs_sharpen_a_wide_bar():
    subject = mixed(4096, 1e-3)
    (probe,) = probe_direction(subject, 0, Probing())

    assert probe.agrees
    assert 1 < subject.pullbacks <= 2 * CALLS + 4
    assert probe.bar < contract(probe.ladder, subject.cotangent(0)).bar / 2


def test_blocks_do_not_evaluate_the_function_again():
    subject = mixed(4096, 1e-3)
    (probe,) = probe_direction(subject, 0, Probing())

    assert subject.evaluations <= 2 * len(probe.ladder.samples) + 1


@thoroughly
@given(values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), seed=st.integers(0, 99))
def test_a_claim_is_the_inner_product_of_gradient_and_direction(values, seed):
    gradient = np.array(values)
    direction = np.random.default_rng(seed).uniform(0.5, 1, gradient.size)
    claim = claim_of(sine([1.0]), gradient, direction, Probing())

    assert claim.slope == pytest.approx(float(gradient @ direction), rel=1e-12, abs=1e-12)
    assert claim.largest_entry == abs(gradient).max()
    assert claim.largest_contribution == abs(gradient * direction).max()


def test_coordinates_that_do_not_move_do_not_count_as_the_shortest_step():
    subject = elementwise(np.sin, np.cos, [1.0, 2.0, 3.0])

    assert Ladder(subject, np.array([0.0, 0.5, -0.7])).shortest == 0.5


def test_the_bars_of_many_outputs_add_like_a_random_walk():
    subject = sine(np.linspace(0.3, 2.8, 10_000))
    ladder = ladder_of(subject)
    bars = ladder.estimates().bar * abs(subject.cotangent(0))

    assert contract(ladder, subject.cotangent(0)).bar == pytest.approx(2 * math.sqrt(bars @ bars))


def test_the_bar_of_one_output_is_its_own():
    subject = sine([1.0])
    ladder = ladder_of(subject)

    assert contract(ladder, np.ones(1)).bar == pytest.approx(ladder.estimates().bar[0])


def test_an_unknown_slope_without_weight_is_no_loss():
    subject = elementwise(lambda x: np.where(x == 1.0, 1.0, np.where(x < 1.5, np.nan, x)), None, [1.0, 2.0])
    ladder = ladder_of(subject)

    assert contract(ladder, np.array([1.0, 1.0])).bar == math.inf
    assert contract(ladder, np.array([0.0, 1.0])).bar < 1e-9


def test_bars_whose_squares_underflow_are_added_plainly():
    subject = elementwise(lambda x: 1e-200 * np.sin(x), None, [1.0, 2.0])
    ladder = ladder_of(subject)

    assert contract(ladder, np.ones(2)).bar == pytest.approx(ladder.estimates().bar.sum())


def test_a_range_of_outputs_can_be_combined_alone():
    subject = sine(np.linspace(0.3, 2.8, 10))
    ladder, cotangent = ladder_of(subject), subject.cotangent(0)
    left, right = contract(ladder, cotangent, 0, 4), contract(ladder, cotangent, 4, 10)

    assert left.slope + right.slope == pytest.approx(contract(ladder, cotangent).slope)


def test_a_restricted_vector_is_zero_outside_its_range():
    assert restricted(sine([1.0]), np.array([1.0, 2.0, 3.0]), 1, 2).tolist() == [0, 2, 0]


def test_a_disagreement_without_bounds_has_no_finite_excess():
    (probe,) = probe_direction(sine([1.0, 2.0], math.nan), 0, Probing())

    assert not probe.agrees
    assert probe.excess == math.inf


MANY_OUTPUTS = 600_000


def spread_out(at, wrong=0.0):
    """Three inputs that many outputs follow, each in its own proportion."""
    shares = 1 + (np.arange(MANY_OUTPUTS) % 1009) / 1009

    def gradient(x, u):
        per_input = (shares * u).reshape(-1, 3).sum(axis=0)
        return per_input * (np.cos(x) + wrong)

    return NumpySubject(lambda x: shares * np.tile(np.sin(x), MANY_OUTPUTS // 3), gradient, at)


@pytest.mark.parametrize("seed", range(5))
def test_sampled_bars_of_very_many_outputs_are_nearly_the_bars_of_all(seed):
    subject = spread_out([0.5, 1.0, 2.0])
    ladder, cotangents = ladder_of(subject, seed), [subject.cotangent(seed), subject.cotangent(seed + 1)]

    both = contract_with_sampled_bars(ladder, cotangents), contract_each(ladder, cotangents)
    for seen, known in zip(*both, strict=True):
        assert abs(seen.slope - known.slope) <= 1e-3 * known.bar
        assert 0.8 * known.bar < seen.bar < 1.25 * known.bar
        assert 0.8 * known.floor < seen.floor < 1.25 * known.floor
        assert 0.8 * known.size < seen.size < 1.25 * known.size


def waves(size, wrong=0.0):
    """As many outputs as inputs; one claim may be wrong."""

    def slope(x):
        found = np.cos(x)
        found[size // 3] += wrong
        return found

    return elementwise(np.sin, slope, np.linspace(0.3, 1.2, size))


@pytest.mark.parametrize(("size", "let_go"), [(SAMPLE - 1, False), (SAMPLE, True)])
def test_values_that_are_gathered_are_let_go_from_a_few_thousand_on(size, let_go):
    subject = waves(size)
    subject.outputs.gathered = True
    (probe,) = probe_direction(subject, 0, Probing())

    assert probe.agrees
    assert (subject.evaluations, subject.pullbacks) == (4, 1)
    assert all((sample.plus is None) is let_go for sample in probe.ladder.samples)


def test_values_that_were_let_go_are_evaluated_again_where_they_leave_a_doubt():
    held, gathered = waves(SAMPLE, wrong=0.1), waves(SAMPLE, wrong=0.1)
    gathered.outputs.gathered = True
    (known,), (seen,) = probe_direction(held, 0, Probing()), probe_direction(gathered, 0, Probing())

    assert not seen.agrees
    assert seen.contraction == known.contraction
    assert gathered.evaluations == held.evaluations + 4


def test_very_many_outputs_are_probed_as_cheaply_as_few():
    subject = spread_out([0.5, 1.0, 2.0])
    (probe,) = probe_direction(subject, 0, Probing())

    assert probe.agrees
    assert (subject.evaluations, subject.pullbacks) == (4, 1)
    assert {sample.plus is None and sample.minus is None for sample in probe.ladder.samples} == {True}


def test_a_wrong_entry_behind_very_many_outputs_disagrees():
    (probe,) = probe_direction(spread_out([0.5, 1.0, 2.0], wrong=np.array([0, 1e-6, 0])), 0, Probing())

    assert not probe.agrees


def test_one_undefined_output_among_very_many_is_set_aside_and_the_rest_agree():
    def values(x):
        outputs = np.tile(np.sin(x), MANY_OUTPUTS // 3)
        outputs[77] = math.nan if x[0] > 0.5 else 0.0
        return outputs

    def gradient(x, u):
        u = u.copy()
        u[77] = 0.0
        return u.reshape(-1, 3).sum(axis=0) * np.cos(x)

    probes = probe_direction(NumpySubject(values, gradient, [0.5, 1.0, 2.0]), 0, Probing())

    assert all(probe.agrees for probe in probes)
    assert sum(probe.unresolved for probe in probes) <= 1


def test_a_clear_disagreement_of_a_large_function_is_confirmed_after_four_evaluations_and_one_pullback():
    subject = sine(np.linspace(0.5, 1.2, LARGE), wrong=0.1)
    (probe,) = probe_direction(subject, 0, Probing(), confirming=True)

    assert not probe.agrees
    assert (subject.evaluations, subject.pullbacks) == (4, 1)


@pytest.mark.parametrize(
    ("value", "slope", "at"),
    [
        (lambda x: np.sin(x).astype(np.float16), np.cos, [0.5, 1.0, 2.0]),  # constant on the first steps
        (lambda x: x**3, lambda x: 3 * x**2 + 1e-3, [0.0, 0.0, 0.0]),  # all slopes vanish, which two steps do not show
        (np.sin, lambda x: np.cos(x) + 1e-12, [0.5, 1.0, 2.0]),  # within the bar
    ],
    ids=["quantised", "vanishing", "agreeing"],
)
def test_a_confirmation_is_as_careful_as_a_first_probe_where_two_steps_are_not_enough(value, slope, at):
    first, again = (elementwise(value, slope, at) for _ in range(2))
    (known,), (seen,) = probe_direction(first, 0, Probing()), probe_direction(again, 0, Probing(), confirming=True)

    assert seen.contraction == known.contraction
    assert again.evaluations == first.evaluations
