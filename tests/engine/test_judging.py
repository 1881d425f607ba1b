"""From probes to a verdict: two directions confirm a failure, an obstacle has a reason, and the resolution holds."""

import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradproof.engine.estimators.steps import first_step
from gradproof.engine.results import Verdict
from gradproof.engine.subject import DerivativeError
from support.difficulties import Fickle
from support.engine import in_every_precision, is_verified_on_segments, judged
from support.numpy_subject import NumpySubject, elementwise, hashed, ideally

thoroughly = settings(max_examples=60, deadline=None, derandomize=True)


def sine(size=5, wrong=0.0, **options):
    return elementwise(np.sin, lambda x: np.cos(x) + wrong, np.linspace(0.3, 1.2, size), **options)


def test_a_numpy_function_is_judged_without_torch():
    program = (
        "import sys, numpy as np\n"
        "from support.numpy_subject import elementwise\n"
        "from gradproof.engine.judging import judge\n"
        "from gradproof.engine.options import Probing\n"
        "subject = elementwise(np.sin, lambda x: np.cos(x) + (x > 1), np.linspace(0.3, 1.2, 5))\n"
        "print(judge(subject, probes=1, seed=0, options=Probing()).verdict.value, 'torch' in sys.modules)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )

    assert done.stdout.split() == ["fail", "False"], done.stderr


@in_every_precision
def test_a_right_gradient_passes(dtype):
    assert judged(sine(dtype=dtype)).verdict is Verdict.PASS


@in_every_precision
def test_a_gradient_with_the_wrong_sign_fails(dtype):
    subject = elementwise(np.sin, lambda x: -np.cos(x), np.linspace(0.3, 1.2, 5), dtype=dtype)

    assert judged(subject).verdict is Verdict.FAIL


def test_every_probe_is_read_back_with_its_own_seed():
    judgement = judged(sine(), probes=4)

    assert len({reading.seed for reading in judgement.readings}) == len(judgement.readings) == 4
    assert all(reading.agrees for reading in judgement.readings)


def test_a_failure_rests_on_two_readings_that_disagree():
    judgement = judged(sine(wrong=0.1))

    assert [reading.agrees for reading in judgement.readings] == [False, False]


def test_a_disagreement_along_one_direction_of_three_is_not_called_wrong(explained):
    # The first direction disagrees at its two looks: the cheap one and the closer one.
    judgement = judged(NumpySubject(np.sin, Fickle(2), np.linspace(0.3, 1.2, 5)))

    assert [reading.agrees for reading in judgement.readings] == [False, True, True]
    assert explained == {"OneDirectionAlone"}
    assert is_verified_on_segments(judgement)


def test_a_function_without_entries_passes_with_a_note():
    judgement = judged(elementwise(np.sin, np.cos, []))

    assert judgement.verdict is Verdict.PASS
    assert "no entries" in judgement.notes[0]


def test_a_pullback_that_raises_is_a_failure_that_quotes_it():
    def broken(x, u):
        raise DerivativeError("ValueError: shapes differ")

    judgement = judged(NumpySubject(np.sin, broken, [1.0]))

    assert judgement.verdict is Verdict.FAIL
    assert judgement.findings[0].kind == "backward-raised"
    assert "shapes differ" in judgement.message


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_claim_that_is_not_finite_where_the_slope_is_fails_and_names_the_entry(bad):
    wrong = np.zeros(7)
    wrong[4] = bad
    judgement = judged(sine(7, wrong))

    assert judgement.verdict is Verdict.FAIL
    assert judgement.findings[0].kind == "non-finite-gradient"
    assert judgement.findings[0].entries[0].index == (4,)


@in_every_precision
@thoroughly
@given(
    size=st.sampled_from([1, 3, 30, 300]),
    name=st.sampled_from(["sin", "exp", "square", "product"]),
    place=st.floats(0, 1),
    sign=st.sampled_from([-1, 1]),
    seed=st.integers(0, 99_999),
)
def test_an_error_of_four_times_the_resolution_in_one_entry_is_found(dtype, size, name, place, sign, seed):
    points = np.random.default_rng(seed).uniform(0.3, 1.3, size)
    value, slope = {
        "sin": (np.sin, np.cos),
        "exp": (np.exp, np.exp),
        "square": (lambda x: x * x, lambda x: 2 * x),
        "product": (lambda x: x * np.sin(x), lambda x: np.sin(x) + x * np.cos(x)),
    }[name]
    passed = judged(elementwise(value, slope, points, dtype=dtype), seed)
    index = round(place * (size - 1))
    error = np.zeros(size)
    error[index] = sign * 4 * passed.resolution.absolute
    # The planted error is in the gradient itself, for an incoming gradient of any size between one half and one.
    wrong = NumpySubject(value, lambda x, u: slope(x) * u + error, points, dtype=dtype)
    judgement = judged(wrong, seed)

    assert passed.verdict is Verdict.PASS
    if dtype is np.float16:  # from such coarse values alone, doubt may be all that is left
        assert judgement.verdict is not Verdict.PASS
    else:
        assert judgement.verdict is Verdict.FAIL
        assert [entry.index for entry in judgement.findings[0].entries] in ([(index,)], [])


@thoroughly
@given(inputs=st.integers(1, 20), outputs=st.integers(1, 200), place=st.floats(0, 1), seed=st.integers(0, 99_999))
def test_the_resolution_of_a_mixing_function_is_kept(inputs, outputs, place, seed):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(outputs, inputs))

    def planted(error):
        return NumpySubject(
            lambda x: np.tanh(matrix @ x),
            lambda x, u: matrix.T @ (u * (1 - np.tanh(matrix @ x) ** 2)) + error,
            draw_points,
        )

    draw_points = draw.uniform(0.3, 1.3, inputs)
    passed = judged(planted(0.0), seed)
    error = np.zeros(inputs)
    error[round(place * (inputs - 1))] = 4 * passed.resolution.absolute

    assert passed.verdict is Verdict.PASS
    assert judged(planted(error), seed).verdict is Verdict.FAIL


@thoroughly
@example(size=1, frequency=300.0, place=0.0, sign=1, seed=122)
@example(size=4, frequency=300.0, place=0.0, sign=-1, seed=226)
@given(
    size=st.sampled_from([1, 4, 30]),
    frequency=st.sampled_from([1.0, 30.0, 300.0]),
    place=st.floats(0, 1),
    sign=st.sampled_from([-1, 1]),
    seed=st.integers(0, 99_999),
)
def test_an_error_of_the_resolution_itself_in_one_entry_of_the_jacobian_never_passes(
    size, frequency, place, sign, seed
):
    points = np.random.default_rng(seed).uniform(0.3, 1.3, size)
    index = round(place * (size - 1))

    def planted(error):
        off = np.zeros(size)
        off[index] = error
        return elementwise(lambda x: np.sin(frequency * x), lambda x: frequency * np.cos(frequency * x) + off, points)

    passed = judged(planted(0.0), seed)

    assert passed.verdict is Verdict.PASS
    assert judged(planted(sign * 1.01 * passed.resolution.absolute), seed).verdict is not Verdict.PASS


@pytest.mark.parametrize("noise", [1e-12, 1e-9, 1e-6])
def test_the_resolution_of_a_noisy_function_is_kept(noise):
    points = np.linspace(0.3, 1.2, 50)

    def planted(error):
        return NumpySubject(lambda x: np.sin(x) * (1 + noise * hashed(x)), lambda x, u: np.cos(x) * u + error, points)

    for seed in range(10):
        passed = judged(planted(0.0), seed)
        error = np.zeros(50)
        error[seed] = 4 * passed.resolution.absolute

        assert passed.verdict is Verdict.PASS
        assert judged(planted(error), seed).verdict is Verdict.FAIL


def test_the_resolution_in_double_precision_is_fine():
    assert judged(sine(100)).resolution.relative < 1e-7


def test_the_relative_resolution_of_a_zero_gradient_is_infinite():
    subject = elementwise(lambda x: 0 * x + 3, lambda x: 0 * x, [1.0, 2.0])

    assert judged(subject).resolution.relative == math.inf


@thoroughly
@given(
    size=st.integers(1, 40),
    seed=st.integers(0, 99_999),
    scale=st.floats(-8, 8),
    values=st.floats(-12, 12),
)
def test_a_right_gradient_of_any_scale_passes_in_double_precision(size, seed, scale, values):
    scale, values = 10.0**scale, 10.0**values
    points = scale * np.random.default_rng(seed).uniform(0.3, 1.3, size)
    subject = elementwise(lambda x: values * np.sin(x / scale), lambda x: values / scale * np.cos(x / scale), points)

    assert judged(subject, seed).verdict is Verdict.PASS


@in_every_precision
@pytest.mark.parametrize("k", [1, 10, 30, 100, 300])
def test_the_right_gradient_of_an_oscillation_is_never_called_wrong(dtype, k):
    def verdict(seed):
        points = np.random.default_rng(seed).uniform(0.3, 3, 20)
        value = ideally(lambda x: np.sin(k * x), dtype)
        return judged(elementwise(value, lambda x: k * np.cos(k * x), points, dtype=dtype), seed).verdict

    assert [seed for seed in range(15) if verdict(seed) is Verdict.FAIL] == []


@pytest.mark.parametrize(
    ("dtype", "digits"),
    [(np.float64, 8), (np.float64, 12), (np.float64, 16), (np.float32, 8), (np.float32, 10), (np.float16, 4)],
)
def test_the_smooth_slope_of_quantised_values_is_never_called_wrong(dtype, digits):
    def verdict(seed):
        points = np.random.default_rng(seed).uniform(0.5, 2, 4)
        subject = elementwise(lambda x: np.rint(np.sin(x) * 2**digits) / 2**digits, np.cos, points, dtype=dtype)
        return judged(subject, seed).verdict

    assert [seed for seed in range(15) if verdict(seed) is Verdict.FAIL] == []


@in_every_precision
@pytest.mark.parametrize("noise", [1e-10, 1e-6, 1e-2])
@pytest.mark.parametrize("size", [1, 30])
def test_the_right_gradient_of_a_noisy_function_is_never_called_wrong(dtype, noise, size):
    def verdict(seed):
        points = np.random.default_rng(seed).uniform(0.3, 2.8, size)
        subject = elementwise(lambda x: np.sin(x) * dtype(1 + noise * hashed(x)), np.cos, points, dtype=dtype)
        return judged(subject, seed).verdict

    assert [seed for seed in range(15) if verdict(seed) is Verdict.FAIL] == []


@thoroughly
@given(steps=st.floats(-100, 100), size=st.integers(1, 30), seed=st.integers(0, 9999))
def test_the_right_gradient_beside_a_kink_is_never_called_wrong(steps, size, seed):
    points = np.random.default_rng(seed).uniform(0.3, 2.8, size)
    corners = points + steps * first_step(2.2e-16)
    subject = elementwise(lambda x: np.maximum(x - corners, 0), lambda x: 1.0 * (x > corners), points)

    assert judged(subject, seed).verdict is not Verdict.FAIL


def test_one_argument_in_trouble_does_not_hide_that_the_other_was_verified():
    corner = np.array([1.0, 0.0, 0.0, 0.0])
    subject = elementwise(
        lambda x: np.sin(x) + corner * abs(x - 0.7),
        lambda x: np.cos(x),
        [0.7, 0.8, 0.9, 1.0],
        parts={"kinked": 2, "calm": 2},
    )
    judgement = judged(subject)

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert "kinked" in judgement.message
    assert "calm was verified on its own." in judgement.notes


def among_many(tensors, kinked, wrong=None):
    """A function of many tensors of two entries, of which some have a kink at the point and one a wrong gradient."""
    corner, error = np.zeros(2 * tensors), np.zeros(2 * tensors)
    corner[[2 * number for number in kinked]] = 1.0
    if wrong is not None:
        error[2 * wrong] = 0.1
    points = np.linspace(0.3, 1.2, 2 * tensors)
    parts = {f"x{number}": 2 for number in range(tensors)}
    return elementwise(lambda x: np.sin(x) + corner * abs(x - points), lambda x: np.cos(x) + error, points, parts=parts)


def test_a_kink_in_one_of_many_tensors_is_found_by_bisection():
    probes = {}
    for tensors in (8, 256):
        judgement = judged(among_many(tensors, kinked=[3]))
        assert judgement.verdict is Verdict.INCONCLUSIVE
        assert "x3" in judgement.message
        probes[tensors] = len(judgement.readings)

    assert "x128 to x255 were verified on their own." in judgement.notes
    assert probes[256] <= 3 * probes[8]


def test_a_wrong_gradient_among_many_tensors_is_found_beside_a_kink():
    judgement = judged(among_many(64, kinked=[3], wrong=40))

    assert judgement.verdict is Verdict.FAIL
    assert judgement.findings[0].argument == "x40"


def test_kinks_in_all_of_many_tensors_take_a_bounded_number_of_probes():
    judgement = judged(among_many(256, kinked=range(256)))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert len(judgement.readings) < 256


def test_a_wrong_entry_of_a_calm_argument_is_found_beside_one_in_trouble():
    subject = elementwise(
        lambda x: np.sin(x) + np.array([1.0, 0, 0, 0]) * abs(x - 0.7),
        lambda x: np.cos(x) + np.array([0, 0, 0, 0.1]),
        [0.7, 0.8, 0.9, 1.0],
        parts={"kinked": 2, "calm": 2},
    )
    judgement = judged(subject)

    assert judgement.verdict is Verdict.FAIL
    assert (judgement.findings[0].argument, judgement.findings[0].entries[0].index) == ("calm", (1,))


def test_a_few_outputs_that_say_nothing_are_left_out_with_a_note():
    rough = np.arange(500) % 125 == 0
    subject = elementwise(
        lambda x: np.where(rough, hashed(x), np.sin(x)),
        lambda x: np.where(rough, 0, np.cos(x)),
        np.linspace(0.5, 2.5, 500),
    )
    judgement = judged(subject)

    assert judgement.verdict is Verdict.PASS
    assert judgement.notes[0].startswith("4 of 500 output entries")


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("factor", "rtol", "verdict"), [(0.9, 0.09, "fail"), (0.9, 0.11, "pass"), (0.5, 0.45, "fail")])
def test_rtol_is_kept_to_entry_by_entry(size, seed, factor, rtol, verdict):
    subject = elementwise(np.sin, lambda x: np.cos(x) * factor, np.linspace(0.3, 1.0, size))

    assert judged(subject, seed, rtol=rtol).verdict.value == verdict


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("atol", "verdict"), [(0.9e-3, "fail"), (1.1e-3, "pass")])
def test_atol_is_kept_to_entry_by_entry(seed, atol, verdict):
    subject = elementwise(np.sin, lambda x: np.cos(x) + 1e-3, np.linspace(0.3, 1.0, 40))

    assert judged(subject, seed, atol=atol).verdict.value == verdict


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("error", "verdict"), [(0.008, "pass"), (0.012, "fail")])
def test_what_is_tolerated_of_entries_is_not_held_against_outputs_that_cancel(seed, error, verdict):
    right = np.array([[1.0, -1.0, 2.0], [-1.0, 1.0, 0.5]])
    claimed = right * (1 + error * np.array([[1, -1, 1], [1, 1, -1]]))
    subject = NumpySubject(lambda x: right @ x, lambda x, u: claimed.T @ u, np.array([0.7, 1.3, -0.9]))

    assert judged(subject, seed, rtol=0.01).verdict.value == verdict


@pytest.mark.parametrize("tolerated", [{"rtol": 0.1}, {"atol": 0.1}])
def test_a_tolerated_error_passes(tolerated):
    subject = elementwise(np.sin, lambda x: np.cos(x) * 1.01, np.linspace(0.3, 1.0, 5))

    assert judged(subject).verdict is Verdict.FAIL
    assert judged(subject, **tolerated).verdict is Verdict.PASS


def test_a_pass_at_the_edge_of_a_domain_says_that_it_saw_one_side():
    def square_from_one_on(x):
        return np.where(x >= 1, x * x, np.nan)

    judgement = judged(NumpySubject(square_from_one_on, lambda x, incoming: 2 * x * incoming, np.ones(1)))

    assert judgement.verdict is Verdict.PASS
    assert any("on one side" in note for note in judgement.notes)
