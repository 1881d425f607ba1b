"""Right numbers in wrong places are named: transposed, shifted, conjugated, overwritten, in one block alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from support.diagnosing import diagnoses_of, elementwise, every_shape, first_of, subject_of


@pytest.mark.parametrize("shape", [(5, 5), (2, 4, 4), (16, 16), (3, 6)], ids=str)
def test_exchanged_dimensions_are_named(shape):
    subject = elementwise(lambda right, u, x: np.swapaxes(right, -1, -2).reshape(right.shape), shape)

    assert first_of(subject) == "transposed"


@pytest.mark.parametrize("size", [3, 8, 120])
def test_a_matrix_that_is_not_transposed_is_named(size):
    matrix = np.random.default_rng(5).normal(size=(size, size)) / math.sqrt(size)
    subject = subject_of(lambda x: matrix @ x, lambda u, x: (matrix @ u,), {"x": (size,)}, {"y": (size,)})

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "transposed"
    assert "transposed Jacobian" in diagnosis.message


@pytest.mark.parametrize("shape", [(5,), (3, 4), (12, 11)], ids=str)
@pytest.mark.parametrize(
    ("gradient", "text"),
    [
        (lambda u, z: u * np.exp(z), "with the factors in it conjugated"),
        (lambda u, z: np.conj(u * np.conj(np.exp(z))), "the conjugate of the right one"),
        (lambda u, z: np.conj(u) * np.conj(np.exp(z)), "of the conjugate of the incoming gradient"),
    ],
)
def test_a_missing_conjugate_is_named(shape, gradient, text):
    subject = subject_of(np.exp, lambda u, z: (gradient(u, z),), {"z": shape}, {"y": shape}, complex_too=("z", "y"))

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "conjugate"
    assert text in diagnosis.message


@pytest.mark.parametrize("shape", [(5,), (9, 8)], ids=str)
def test_lost_imaginary_parts_are_named(shape):
    subject = subject_of(
        lambda z: np.abs(z) ** 2, lambda u, z: ((2 * u * z.real).astype(complex),), {"z": shape}, {"y": shape},
        complex_too=("z",),
    )  # fmt: skip

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "block"
    assert "in the real parts alone" in diagnosis.message


@pytest.mark.parametrize(("length", "reads"), [(5, 8), (30, 50), (400, 700)])
@pytest.mark.parametrize("width", [1, 3])
def test_overwritten_duplicates_are_named(length, reads, width):
    rows = np.random.default_rng(length).integers(0, length, reads)

    def overwrite(u, x):
        result = np.zeros_like(x)
        result[rows] = (u * np.cos(x[rows]))[np.arange(reads)]
        return (result,)

    subject = subject_of(lambda x: np.sin(x[rows]), overwrite, {"x": (length, width)}, {"y": (reads, width)})

    assert first_of(subject) == "overwritten"


@every_shape
@pytest.mark.parametrize("offset", [1, -1])
def test_a_shift_by_one_is_named(shape, offset):
    assert first_of(elementwise(lambda right, u, x: np.roll(right, offset, -1), shape)) == "shifted"


@every_shape
def test_a_shift_of_the_incoming_gradient_is_named(shape):
    subject = elementwise(lambda right, u, x: np.roll(u, 1, -1) * (2 * x + np.cos(x)), shape)

    assert first_of(subject) == "shifted"


@every_shape
@pytest.mark.parametrize(("kept", "text"), [(slice(0, 2), "in the first 2 of"), (slice(-2, None), "in the last 2 of")])
def test_a_block_that_is_right_alone_is_named(shape, kept, text):
    def corrupt(right, u, x):
        result = np.zeros_like(right)
        result[..., kept] = right[..., kept]
        return result

    (diagnosis, *_) = diagnoses_of(elementwise(corrupt, shape))

    assert diagnosis.name == "block"
    assert text in diagnosis.message
