"""Every obstacle to a verdict has a reason, a message and a hint."""

import math

import numpy as np
import pytest

from gradproof.engine.explanations import explain
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.explanations.domain import all_undefined
from gradproof.engine.options import Probing
from gradproof.engine.probing import probe_direction
from gradproof.engine.results import Reason, Verdict
from support.difficulties import logistic
from support.engine import either_coverage, is_verified_on_segments, judged, reason_of
from support.numpy_subject import NumpySubject, elementwise, hashed

SEEDS = range(5)


def abs_at_its_corner(claimed, size=5, which=2):
    points = np.linspace(0.5, 1.0, size)
    corner = np.zeros(size)
    corner[which] = 1.0
    return elementwise(
        lambda x: np.sin(x) + corner * abs(x - points),
        lambda x: np.cos(x) + corner * claimed,
        points,
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("claimed", [-1.0, 0.0, 0.3, 1.0])
def test_a_convention_at_a_kink_is_inconclusive_and_said_to_lie_between_the_slopes(claimed, seed):
    judgement = judged(abs_at_its_corner(claimed), seed)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.KINK
    assert "between" in judgement.message
    assert "x[2]" in judgement.message
    assert "output[2]" in judgement.message


@pytest.mark.parametrize("seed", SEEDS)
def test_a_claim_outside_the_slopes_at_a_kink_is_said_to_lie_outside(seed):
    judgement = judged(abs_at_its_corner(1.5), seed)

    assert judgement.verdict is not Verdict.PASS
    assert judgement.verdict is Verdict.FAIL or "outside" in judgement.message


def test_the_slopes_on_both_sides_of_a_kink_are_given_in_the_input_s_own_units():
    corner = 0.75
    subject = elementwise(lambda x: np.where(x > corner, 3 * (x - corner), x - corner), lambda x: 2 + 0 * x, [corner])
    messages = {judged(subject, seed).message for seed in SEEDS}

    assert all("is 1 before x[0] and 3 after it" in message for message in messages)


def test_a_kink_is_located_among_many_inputs_of_one_output():
    points = np.linspace(0.5, 1.0, 1000)
    corners = points + 0.1
    corners[321] = points[321]
    subject = NumpySubject(lambda x: abs(x - corners).sum(), lambda x, u: np.sign(x - corners) * u[0], points)
    judgement = judged(subject)

    assert reason_of(judgement) is Reason.KINK
    assert "x[321]" in judgement.message


@pytest.mark.parametrize("seed", SEEDS)
def test_a_jump_at_the_point_is_called_a_jump(seed):
    points = np.array([0.5, 0.7, 0.9])
    subject = elementwise(lambda x: np.sin(x) + np.array([0, 1.0, 0]) * (x >= points), np.cos, points)
    judgement = judged(subject, seed)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.JUMP
    assert "output[1]" in judgement.message


def islands(x):
    """A function that is defined at the point alone."""
    return np.where(x == np.array([0.5, 0.7]), np.sin(x), np.nan)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_function_that_is_undefined_on_both_sides_is_undefined(seed):
    judgement = judged(elementwise(islands, np.cos, [0.5, 0.7]), seed)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.DOMAIN


def test_what_the_function_said_when_it_was_undefined_is_quoted():
    subject = elementwise(islands, np.cos, [0.5, 0.7])
    subject.trouble = "ValueError: x must be a half"

    assert "x must be a half" in judged(subject).message


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_gradient_at_the_edge_of_a_domain_passes_on_its_one_sided_slope(seed):
    subject = elementwise(lambda x: np.where(x < 0.5, np.nan, np.sin(x)), np.cos, [0.5])

    assert judged(subject, seed).verdict is Verdict.PASS


@pytest.mark.parametrize("seed", SEEDS)
def test_a_wrong_gradient_at_the_edge_of_a_domain_fails_on_its_one_sided_slope(seed):
    subject = elementwise(lambda x: np.where(x < 0.5, np.nan, np.sin(x)), lambda x: 2 * np.cos(x), [0.5])

    assert judged(subject, seed).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", SEEDS)
def test_values_too_rough_for_a_slope_are_noise(seed):
    points = np.linspace(0.5, 1.0, 20)
    judgement = judged(elementwise(hashed, lambda x: 0 * x + 1, points), seed)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.NOISE


@pytest.mark.parametrize("seed", SEEDS)
def test_values_that_differ_from_call_to_call_are_nondeterministic(seed):
    draw = np.random.default_rng(seed)
    judgement = judged(elementwise(lambda x: np.sin(x) + draw.normal(size=x.shape), np.cos, [0.5, 0.7, 0.9]), seed)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.NONDETERMINISTIC


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_function_without_any_finite_value_is_non_finite_and_costs_nothing_more(value):
    subject = elementwise(lambda x: x * 0 + value, np.cos, [0.5, 0.7])
    judgement = judged(subject)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.NON_FINITE
    assert subject.evaluations == 0


def test_some_outputs_that_are_not_finite_are_counted():
    holes = np.array([0.0, np.nan, 0.0, np.nan])
    subject = elementwise(lambda x: np.sin(x) + holes, np.cos, [0.5, 0.6, 0.7, 0.8])
    judgement = judged(subject)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.NON_FINITE
    assert "2 of 4" in judgement.message


def test_an_output_that_is_the_same_infinity_all_around_is_not_in_the_way():
    mask = np.array([0.0, -np.inf, 0.0])
    subject = elementwise(lambda x: np.sin(x) + mask, lambda x: np.where(mask == 0, np.cos(x), 0), [0.5, 0.6, 0.7])

    assert judged(subject).verdict is Verdict.PASS


def test_a_claim_that_is_not_finite_at_a_kink_is_inconclusive():
    subject = elementwise(lambda x: np.sqrt(abs(x - 0.5)), lambda x: np.sign(x - 0.5) * np.inf, [0.5])
    judgement = judged(subject)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.NON_FINITE


def test_every_obstacle_comes_with_a_hint():
    draw = np.random.default_rng(0)
    subjects = [
        abs_at_its_corner(0.0),
        elementwise(islands, np.cos, [0.5, 0.7]),
        elementwise(hashed, lambda x: 0 * x, [0.5, 0.7]),
        elementwise(lambda x: draw.normal(size=x.shape), np.cos, [0.5]),
        elementwise(lambda x: x * np.nan, np.cos, [0.5]),
    ]

    assert all(judged(subject).obstacle.hint for subject in subjects)


def test_a_smooth_function_has_no_obstacle():
    subject = elementwise(np.sin, np.cos, [0.5, 0.7])
    (probe,) = probe_direction(subject, 0, Probing())

    assert all_undefined(subject) is None
    assert explain(Comparison(kind=Kind.AGREEMENT, probe=probe, options=Probing(), unresolved_allowed=0.02)) is None


def test_a_constant_function_has_nothing_in_its_way():
    assert judged(elementwise(lambda x: 0 * x + 7, lambda x: 0 * x, [0.5, 0.7])).verdict is Verdict.PASS


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_a_jump_with_the_point_in_its_middle_is_found_as_well(seed, slope):
    judgement = judged(elementwise(lambda x: np.sign(x) + slope * x, lambda x: slope + 0 * x, np.zeros(3)), seed)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert reason_of(judgement) is Reason.JUMP


def test_a_rough_function_that_is_claimed_to_be_constant_is_judged():
    points = np.linspace(0.5, 1.0, 3)
    subject = elementwise(lambda x: 100 * x + 1e-3 * hashed(x), lambda x: 0 * x, points)

    assert judged(subject).verdict is Verdict.FAIL


@pytest.mark.parametrize("frequency", [1e10, 1e11, 1e12, 1e13, 1e15])
def test_a_right_slope_of_an_oscillation_finer_than_the_steps_is_never_called_wrong(frequency):
    for seed in range(8):
        points = np.random.default_rng(seed).uniform(0.1, 0.9, 3)
        subject = elementwise(
            lambda x: x + 1e-3 * np.sin(frequency * x), lambda x: 1 + 1e-3 * frequency * np.cos(frequency * x), points
        )
        assert judged(subject, seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("times", [10, 20, 30, 40, 60])
def test_a_right_slope_of_a_chaotic_function_is_never_called_wrong(times):
    values, slope = logistic(times)
    for seed in range(8):
        points = np.random.default_rng(seed).uniform(0.1, 0.9, 3)
        assert judged(elementwise(values, slope, points), seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("points", [np.linspace(0.3, 0.9, 4), np.zeros(4)])
@pytest.mark.parametrize("factor", [2.0, 1e4, 1e8, 1e12])
def test_a_claim_that_is_far_too_steep_is_wrong_all_the_same_where_the_function_is_smooth(factor, points):
    for seed in SEEDS:
        subject = elementwise(np.sin, lambda x: factor * np.cos(x), points)
        assert judged(subject, seed).verdict is Verdict.FAIL


@pytest.mark.parametrize("factor", [2.0, 100.0, 1e4])
def test_a_claim_that_is_far_too_steep_is_wrong_where_values_pass_through_single_precision(factor):
    for seed in SEEDS:
        points = np.linspace(0.3, 0.9, 4)
        subject = elementwise(
            lambda x: np.sin(x).astype(np.float32).astype(np.float64), lambda x: factor * np.cos(x), points
        )
        assert judged(subject, seed).verdict is Verdict.FAIL


FLAT = {
    "cube": (lambda x: x**3, lambda x, u: 3 * x * x * u),
    "fourth power": (lambda x: (x**4).sum(keepdims=True), lambda x, u: 4 * x**3 * u),
    "product": (lambda x: x.prod(keepdims=True), lambda x, u: 0 * x * u),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", FLAT)
def test_a_slope_that_falls_to_nothing_is_distinguished_from_noise(name, seed):
    function, gradient = FLAT[name]
    right = NumpySubject(function, gradient, np.zeros(3))
    wrong = NumpySubject(function, lambda x, u: gradient(x, u) + 1e-3 * u, np.zeros(3))

    assert judged(right, seed).verdict is Verdict.PASS
    assert judged(wrong, seed).verdict is Verdict.FAIL


def test_values_that_differ_with_a_graph_and_without_are_not_called_nondeterministic(explained):
    calls = iter(range(10**6))
    rough = elementwise(
        lambda x: np.sin(x) + 1e-3 * hashed(x) + (1e-15 if not next(calls) else 0.0), np.cos, [0.5, 0.7]
    )

    assert is_verified_on_segments(judged(rough))
    assert explained == {"Noisy"}


# What is claimed may be right below all samples, or be off by what rounding makes of the rule.


@either_coverage
@pytest.mark.parametrize("frequency", [1e7, 1e8, 1e9])
@pytest.mark.parametrize("size", [1.0, 0.1])
def test_a_slight_oscillation_below_the_steps_is_not_called_wrong(coverage, frequency, size):
    def verdict(seed):
        point = np.random.default_rng(seed).uniform(0.3, 1.2, 4)
        subject = elementwise(
            lambda x: np.exp(x) + size * np.sin(frequency * x) / frequency,
            lambda x: np.exp(x) + size * np.cos(frequency * x),
            point,
        )
        return judged(subject, seed, coverage=coverage).verdict

    assert [seed for seed in SEEDS if verdict(seed) is Verdict.FAIL] == []


@either_coverage
@pytest.mark.parametrize("frequency", [1e7, 1e8])
def test_a_slope_that_neither_an_oscillation_nor_its_trend_has_is_wrong(coverage, frequency):
    subject = elementwise(
        lambda x: np.exp(x) + np.sin(frequency * x) / frequency, lambda x: 3 + np.exp(x), np.linspace(0.3, 1.2, 4)
    )

    assert judged(subject, coverage=coverage).verdict is Verdict.FAIL


@either_coverage
@pytest.mark.parametrize("share", [1e-3, 1e-5, 1e-7])
def test_what_rounding_makes_of_a_rule_is_not_called_wrong(coverage, share, explained):
    def verdict(seed):
        point = np.random.default_rng(seed).uniform(0.3, 1.2, 4)
        subject = elementwise(np.sin, lambda x: np.cos(x) * (1 + share * hashed(x)), point)
        return judged(subject, seed, coverage=coverage).verdict

    assert not [seed for seed in SEEDS if verdict(seed) is Verdict.FAIL]
    assert explained == {"IllConditioned"}


@either_coverage
@pytest.mark.parametrize("share", [1e-3, 1e-5, 1e-7])
def test_an_error_of_the_same_size_that_stays_is_wrong(coverage, share):
    subject = elementwise(np.sin, lambda x: np.cos(x) * (1 + share), np.linspace(0.3, 1.2, 4))

    assert judged(subject, coverage=coverage).verdict is Verdict.FAIL


@either_coverage
@pytest.mark.parametrize("share", [1e-3, 1e-5])
def test_a_rule_that_is_wrong_for_zeros_alone_is_wrong(coverage, share):
    point = np.array([0.0, 0.3, 0.6, 0.9])
    subject = elementwise(np.sin, lambda x: np.cos(x) * np.where(x == 0, 1 + share, 1.0), point)

    assert judged(subject, coverage=coverage).verdict is Verdict.FAIL


def test_what_stands_in_the_way_of_one_argument_names_it_however_short_its_name():
    def defined_at_the_point_alone(x):
        with np.errstate(invalid="ignore"):
            return np.concatenate([np.sqrt(-(x[:2] ** 2)), np.sin(x[2:])])

    subject = elementwise(
        defined_at_the_point_alone,
        lambda x: np.append(0 * x[:2], np.cos(x[2:])),
        [0.0, 0.0, 0.9, 1.0],
        parts={"a": 2, "b": 2},
    )
    judgement = judged(subject)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.message.endswith("(with respect to a).")
