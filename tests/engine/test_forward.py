"""Pushforwards judged by values: right ones pass, and wrong ones are found output by output."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.results import Verdict
from gradproof.engine.subject import Step
from gradproof.engine.views import OutputSubset, in_mode
from support.engine import seeds
from support.forward import elementwise, judged_forward, mixing

thoroughly = settings(max_examples=50, deadline=None, derandomize=True)


def entries(judgement):
    return {
        (finding.argument, entry.index, entry.output and entry.output.index)
        for finding in judgement.findings
        for entry in finding.entries
    }


FUNCTIONS = {
    "sin": (np.sin, np.cos),
    "exp": (np.exp, np.exp),
    "square": (lambda x: x * x, lambda x: 2 * x),
    "product": (lambda x: x * np.sin(x), lambda x: np.sin(x) + x * np.cos(x)),
    "line": (lambda x: 3 * x, lambda x: 3 + 0 * x),
    "constant": (lambda x: 0 * x + 3, lambda x: 0 * x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@thoroughly
@given(size=st.integers(1, 40), seed=seeds, scale=st.floats(-6, 6))
def test_a_right_pushforward_passes_at_any_point_and_scale(name, size, seed, scale):
    value, slope = FUNCTIONS[name]
    scale = 10.0**scale
    points = scale * np.random.default_rng(seed).uniform(0.3, 1.3, size)
    subject = elementwise(lambda x: value(x / scale), lambda x: slope(x / scale) / scale, points)

    assert judged_forward(subject, seed).verdict is Verdict.PASS


@thoroughly
@given(inputs=st.integers(1, 20), outputs=st.integers(1, 60), seed=seeds)
def test_a_right_pushforward_of_a_mixing_function_passes(inputs, outputs, seed):
    draw = np.random.default_rng(seed)

    assert (
        judged_forward(mixing(draw.normal(size=(outputs, inputs)), draw.normal(size=inputs)), seed).verdict
        is Verdict.PASS
    )


@thoroughly
@given(outputs=st.integers(2, 40), seed=seeds, place=st.floats(0, 1), size=st.floats(-5, 1))
def test_one_wrong_output_is_found_and_named(outputs, seed, place, size):
    draw = np.random.default_rng(seed)
    matrix, point = draw.normal(size=(outputs, 1)), draw.uniform(0.1, 0.4, 1)
    error = np.zeros((outputs, 1))
    output = round(place * (outputs - 1))
    error[output] = 10.0**size
    judgement = judged_forward(mixing(matrix, point, error), seed)

    assert judgement.verdict is Verdict.FAIL
    assert entries(judgement) == {("x", (0,), (output,))}


@thoroughly
@given(
    inputs=st.integers(1, 12), outputs=st.integers(1, 12), seed=seeds, place=st.tuples(st.floats(0, 1), st.floats(0, 1))
)
def test_one_wrong_entry_of_the_jacobian_is_found_and_located(inputs, outputs, seed, place):
    draw = np.random.default_rng(seed)
    matrix, point = draw.normal(size=(outputs, inputs)) / inputs, draw.uniform(0.3, 1.3, inputs)
    output, coordinate = round(place[0] * (outputs - 1)), round(place[1] * (inputs - 1))
    error = np.zeros((outputs, inputs))
    error[output, coordinate] = 0.01
    judgement = judged_forward(mixing(matrix, point, error), seed)
    (entry,) = judgement.findings[0].entries

    assert judgement.verdict is Verdict.FAIL
    assert entries(judgement) == {("x", (coordinate,), (output,))}
    assert abs(entry.claimed - entry.numerical - 0.01) <= entry.bar + 1e-8


def test_two_wrong_entries_in_two_arguments_are_distinguished():
    matrix = np.random.default_rng(1).normal(size=(5, 6)) / 6
    error = np.zeros((5, 6))
    error[1, 0], error[4, 5] = 0.1, -0.2
    subject = mixing(matrix, np.linspace(0.3, 1.2, 6), error)
    subject.inputs = type(subject.inputs)({"a": 2, "b": 4}, np.float64)
    judgement = judged_forward(subject)

    assert judgement.verdict is Verdict.FAIL
    assert entries(judgement) == {("a", (0,), (1,)), ("b", (3,), (4,))}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("large", "error"), [(1e3, 1e-4), (1e6, 1e-4), (1e9, 0.1)])
def test_an_error_in_a_small_output_is_found_beside_outputs_that_are_large(large, error, seed):
    sizes = np.where(np.arange(30) == 17, 1.0, large)
    wrong = np.where(np.arange(30) == 17, error, 0.0)
    subject = elementwise(lambda x: sizes * np.sin(x), lambda x: sizes * np.cos(x) + wrong, np.linspace(0.3, 1.2, 30))
    judgement = judged_forward(subject, seed)

    assert judgement.verdict is Verdict.FAIL
    assert entries(judgement) == {("x", (17,), (17,))}


@pytest.mark.parametrize("seed", range(10))
def test_outputs_of_very_different_sizes_that_are_all_right_pass(seed):
    sizes = 10.0 ** np.linspace(-9, 9, 300)
    subject = elementwise(lambda x: sizes * np.sin(x), lambda x: sizes * np.cos(x), np.linspace(0.3, 1.2, 300))

    assert judged_forward(subject, seed).verdict is Verdict.PASS


def test_errors_that_cancel_under_every_incoming_gradient_of_ones_are_found():
    error = np.zeros((2, 1))
    error[0], error[1] = 0.1, -0.1

    assert judged_forward(mixing(np.ones((2, 1)), np.array([0.3]), error)).verdict is Verdict.FAIL


@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0, 1 + 1e-6])
def test_a_wrong_factor_fails(factor):
    subject = elementwise(np.sin, lambda x: factor * np.cos(x), np.linspace(0.3, 1.2, 5))

    assert judged_forward(subject).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0])
def test_a_wrong_factor_does_not_pass_in_low_precision_and_its_twin_does(dtype, factor):
    points = np.linspace(0.3, 1.2, 30)

    wrong = judged_forward(elementwise(np.sin, lambda x: factor * np.cos(x), points, dtype=dtype)).verdict

    assert judged_forward(elementwise(np.sin, np.cos, points, dtype=dtype)).verdict is Verdict.PASS
    if dtype is np.float16:  # from such coarse values alone, doubt may be all that is left
        assert wrong is not Verdict.PASS
    else:
        assert wrong is Verdict.FAIL


@thoroughly
@given(
    size=st.sampled_from([1, 3, 30, 300]),
    name=st.sampled_from(["sin", "exp", "square"]),
    place=st.floats(0, 1),
    seed=seeds,
)
def test_an_error_of_four_times_the_resolution_in_one_entry_is_found(size, name, place, seed):
    value, slope = FUNCTIONS[name]
    points = np.random.default_rng(seed).uniform(0.3, 1.3, size)
    passed = judged_forward(elementwise(value, slope, points), seed)
    error = np.zeros(size)
    error[round(place * (size - 1))] = 4 * passed.resolution.absolute
    wrong = judged_forward(elementwise(value, lambda x: slope(x) + error, points), seed)

    assert passed.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


def test_a_right_pushforward_is_computed_once_a_probe():
    subject = elementwise(np.sin, np.cos, np.linspace(0.3, 1.2, 5))
    judged_forward(subject, probes=3)

    assert subject.pushforwards == 3


@pytest.mark.parametrize("tolerated", [{"rtol": 0.1}, {"atol": 0.1}])
def test_a_tolerated_error_passes(tolerated):
    subject = elementwise(np.sin, lambda x: np.cos(x) * 1.01, np.linspace(0.3, 1.0, 5))

    assert judged_forward(subject).verdict is Verdict.FAIL
    assert judged_forward(subject, **tolerated).verdict is Verdict.PASS


def test_a_subject_without_entries_passes_with_a_note():
    judgement = judged_forward(elementwise(np.sin, np.cos, []))

    assert judgement.verdict is Verdict.PASS
    assert "no entries" in judgement.notes[0]


def test_an_output_of_a_subset_has_the_slope_that_it_has_among_all():
    subject = OutputSubset(in_mode(mixing(np.eye(3), np.array([0.1, 0.2, 0.3])), "forward"), np.array([2]))
    direction = subject.direction(0, Step(1.0))

    assert subject.pushforward(direction).tolist() == subject.whole.pushforward(direction)[[2]].tolist()
    assert subject.pushforward(direction, direction).shape == (1,)


def test_a_subject_in_its_own_mode_is_itself():
    subject = mixing(np.eye(2), np.array([0.1, 0.2]))

    assert in_mode(subject, "reverse") is subject
    assert in_mode(subject, "forward").mode == "forward"
