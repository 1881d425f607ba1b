"""Factors, signs, approximations and masks are named, and an error without a pattern is not."""

from __future__ import annotations

import numpy as np
import pytest

from support.diagnosing import diagnoses_of, elementwise, every_shape, first_of, subject_of


@every_shape
@pytest.mark.parametrize("size", [2.0, 0.5, 3.0, -2.0, 1.37])
def test_a_constant_factor_is_named(shape, size):
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: size * right, shape))

    assert diagnosis.name == "factor"
    assert diagnosis.fit > 0.999
    expected = {2.0: " 2 times", 0.5: " ½ times", 3.0: " 3 ", -2.0: " −2 times", 1.37: " 1.37 times"}[size]
    assert expected in diagnosis.message


def test_a_factor_that_is_nearly_one_shows_by_how_much_it_is_not():
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: (1 + 2e-6) * right, (4, 5)))

    assert " 1.000002 times" in diagnosis.message


def test_a_factor_that_is_a_number_of_entries_says_so():
    subject = subject_of(lambda x: np.array([(x**3).mean()]), lambda u, x: (u * 3 * x * x,), {"x": (5, 7)}, {"y": (1,)})

    (diagnosis, *_) = diagnoses_of(subject)

    assert "35 (the number of entries of x)" in diagnosis.message


def test_a_factor_in_one_number_alone_is_not_named_unless_it_is_a_likely_one():
    odd = subject_of(lambda x: np.exp(x), lambda u, x: (1.2345 * u * np.exp(x),), {"x": (1,)}, {"y": (1,)})
    likely = subject_of(lambda x: np.exp(x), lambda u, x: (2 * u * np.exp(x),), {"x": (1,)}, {"y": (1,)})

    assert first_of(odd) is None
    assert first_of(likely) == "factor"


@every_shape
def test_a_sign_is_named(shape):
    assert first_of(elementwise(lambda right, u, x: -right, shape)) == "sign"


def test_a_factor_in_some_entries_says_which():
    def corrupt(right, u, x):
        right = right.copy()
        right[2:] *= 3
        return right

    (diagnosis, *_) = diagnoses_of(elementwise(corrupt, (6, 4)))

    assert diagnosis.name == "factor"
    assert "in 16 of 24 entries, those in the last 4 of 6 along dimension 0" in diagnosis.message


@every_shape
def test_a_detached_input_is_named(shape):
    assert first_of(elementwise(lambda right, u, x: 0 * right, shape)) == "detached"


@every_shape
def test_a_mask_that_the_function_has_not_is_named(shape):
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: right * (x > 0), shape))

    assert diagnosis.name == "mask"
    assert "where the input is negative" in diagnosis.message


@every_shape
def test_a_mask_that_is_inverted_is_named(shape):
    subject = subject_of(
        lambda x: np.maximum(x, 0) + 0 * x, lambda u, x: (u * (x <= 0),), {"x": shape}, {"y": shape}, seed=4
    )

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "mask"
    assert "inverted" in diagnosis.message


@every_shape
def test_a_mask_that_is_forgotten_is_named(shape):
    subject = subject_of(
        lambda x: np.maximum(x, 0) ** 3, lambda u, x: (3 * u * x * x,), {"x": shape}, {"y": shape}, seed=4
    )

    assert first_of(subject) == "mask"


def test_a_side_that_is_wrong_is_named():
    subject = elementwise(lambda right, u, x: np.where(x > 0, right, u * x), (5, 6))

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "mask"
    assert "wrong in the entries where the input is negative" in diagnosis.message


@every_shape
@pytest.mark.parametrize("size", [3e-2, 1e-4])
def test_an_approximation_is_named(shape, size):
    assert first_of(elementwise(lambda right, u, x: right * (1 + size * np.sin(5 * x)), shape)) == "approximation"


@every_shape
@pytest.mark.parametrize("seed", range(4))
def test_an_error_without_a_pattern_has_no_name(shape, seed):
    noise = np.random.default_rng(100 + seed).normal(size=shape)

    assert diagnoses_of(elementwise(lambda right, u, x: right * (1 + noise), shape), seed) == ()


@every_shape
@pytest.mark.parametrize("place", [1, 4])
def test_a_lone_wrong_entry_has_no_name(shape, place):
    def corrupt(right, u, x):
        right = right.copy()
        right.reshape(-1)[place] *= 1.23
        return right

    assert diagnoses_of(elementwise(corrupt, shape)) == ()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_low_precision_values_show_a_factor(dtype):
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: 2 * right, (4, 3), dtype=dtype))

    assert diagnosis.name == "factor"
    assert " 2 times" in diagnosis.message
