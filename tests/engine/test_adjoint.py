"""The adjoint test: a pullback and a pushforward agree if they are transposes of each other, and only then."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.engine.adjoint import adjoint_disagreement
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Verdict
from support.engine import seeds
from support.forward import judged_forward
from support.numpy_subject import NumpySubject, hashed

thoroughly = settings(max_examples=50, deadline=None, derandomize=True)


def linear(matrix, transpose, point=None, dtype=np.float64, noise=0.0):
    """Ax, with noise, whose pullback is any matrix."""
    point = np.linspace(0.3, 1.2, matrix.shape[1]) if point is None else point
    return NumpySubject(
        lambda x: matrix @ x * (1 + noise * hashed(matrix @ x)),
        lambda x, u: transpose @ u,
        point,
        dtype=dtype,
        tangent=lambda x, v: matrix @ v,
    )


@thoroughly
@given(inputs=st.integers(1, 50), outputs=st.integers(1, 50), seed=seeds, spread=st.floats(0, 12))
def test_transposes_of_each_other_do_not_disagree(inputs, outputs, seed, spread):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(outputs, inputs)) * 10.0 ** (spread * draw.uniform(-1, 1, (outputs, inputs)))

    assert adjoint_disagreement(linear(matrix, matrix.T), seed, Probing()) is None


@thoroughly
@given(size=st.integers(1, 50), seed=seeds)
def test_transposes_in_single_precision_do_not_disagree(size, seed):
    matrix = np.random.default_rng(seed).normal(size=(size, size)).astype(np.float32)

    assert adjoint_disagreement(linear(matrix, matrix.T, dtype=np.float32), seed, Probing()) is None


@thoroughly
@given(size=st.integers(1, 12), seed=seeds, place=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_one_entry_that_differs_is_a_disagreement(size, seed, place):
    matrix = np.random.default_rng(seed).normal(size=(size, size))
    other = matrix.T.copy()
    other[round(place[0] * (size - 1)), round(place[1] * (size - 1))] += 1e-4
    finding = adjoint_disagreement(linear(matrix, other), seed, Probing())

    assert finding is not None
    assert (finding.kind, finding.mode) == ("adjoint-mismatch", "forward")


@pytest.mark.parametrize(
    "wrong", [lambda m: m, lambda m: -m.T, lambda m: 2 * m.T, lambda m: m.T[::-1], lambda m: 0 * m.T]
)
def test_what_is_no_transpose_is_a_disagreement(wrong):
    matrix = np.random.default_rng(0).normal(size=(6, 6))

    assert adjoint_disagreement(linear(matrix, wrong(matrix)), 0, Probing()) is not None


def test_zero_against_zero_is_no_disagreement():
    assert adjoint_disagreement(linear(np.zeros((3, 3)), np.zeros((3, 3))), 0, Probing()) is None


@pytest.mark.parametrize("seed", range(5))
def test_an_error_that_noisy_slopes_cannot_see_the_adjoint_can(seed):
    matrix = np.random.default_rng(seed).normal(size=(8, 8))
    subject = linear(matrix, matrix.T * (1 + 1e-7), noise=1e-5)

    assert judge(subject, probes=1, seed=seed, options=Probing()).verdict is not Verdict.FAIL
    assert judged_forward(subject, seed).verdict is not Verdict.FAIL
    assert adjoint_disagreement(subject, seed, Probing()) is not None
    assert adjoint_disagreement(linear(matrix, matrix.T, noise=1e-5), seed, Probing()) is None


@thoroughly
@given(inputs=st.integers(1, 30), outputs=st.integers(1, 30), seed=seeds, signs=st.booleans())
def test_what_is_tolerated_against_the_values_is_tolerated_against_each_other(inputs, outputs, seed, signs):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(outputs, inputs))
    shares = draw.choice([-1.0, 1.0], matrix.shape) if signs else np.ones(matrix.shape)
    off, shifted = matrix * (1 + 1e-3 * shares), matrix + 1e-3 * shares

    assert adjoint_disagreement(linear(matrix, off.T), seed, Probing(rtol=1e-3)) is None
    assert adjoint_disagreement(linear(matrix, shifted.T), seed, Probing(atol=1e-3)) is None


@pytest.mark.parametrize("seed", range(5))
def test_far_more_than_what_is_tolerated_is_a_disagreement(seed):
    matrix = np.random.default_rng(seed).normal(size=(8, 8))

    assert adjoint_disagreement(linear(matrix, -matrix.T), seed, Probing(rtol=1e-3)) is not None
    assert adjoint_disagreement(linear(matrix, -matrix.T), seed, Probing(atol=1e-3)) is not None


def test_a_tangent_that_is_nan_where_the_value_is_nan_is_no_disagreement():
    subject = NumpySubject(
        lambda x: np.where(np.arange(3) == 1, math.nan, x),
        lambda x, u: u,
        [1.0, 2.0, 3.0],
        tangent=lambda x, v: np.where(np.arange(3) == 1, math.nan, v),
    )

    assert adjoint_disagreement(subject, 0, Probing()) is None
