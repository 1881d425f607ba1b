"""Right Jacobians pass, whatever their pattern and the sizes of their inputs and entries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradproof.engine.results import Verdict
from support.engine import both_modes, claiming, judged_fully, seeds
from support.jacobians import mixing, names, thoroughly


@both_modes
@thoroughly
@given(name=names, seed=seeds)
def test_a_right_jacobian_passes(name, mode, seed):
    judgement = judged_fully(mixing(name, seed), mode, seed)

    assert judgement.verdict is Verdict.PASS
    assert judgement.findings == ()
    assert judgement.resolution.relative < 1e-5


@both_modes
def test_a_jacobian_of_nothing_but_zeros_passes(mode):
    subject = claiming(lambda x: np.ones(5), lambda x: np.zeros((5, 8)), np.linspace(0.1, 1.0, 8))

    assert judged_fully(subject, mode).verdict is Verdict.PASS


@pytest.mark.parametrize(("inputs", "outputs"), [(0, 3), (3, 0), (0, 0)])
@both_modes
def test_no_entries_pass_with_a_note(inputs, outputs, mode):
    subject = claiming(lambda x: np.ones(outputs), lambda x: np.zeros((outputs, inputs)), np.ones(inputs))
    judgement = judged_fully(subject, mode)

    assert judgement.verdict is Verdict.PASS
    assert "no entries" in judgement.notes[0]


@both_modes
@thoroughly
@given(seed=seeds, spread=st.floats(0, 8))
def test_a_right_diagonal_passes_whatever_the_sizes_of_its_inputs(mode, seed, spread):
    point = 10.0 ** (spread * np.random.default_rng(seed).uniform(-1, 1, 12))
    subject = claiming(np.sqrt, lambda x: np.diag(0.5 / np.sqrt(x)), point)

    assert judged_fully(subject, mode, seed).verdict is Verdict.PASS


@both_modes
@thoroughly
@given(seed=seeds, spread=st.floats(0, 6))
def test_a_right_dense_jacobian_is_never_called_wrong_whatever_the_sizes_of_its_entries(mode, seed, spread):
    draw = np.random.default_rng(seed)
    matrix = draw.normal(size=(7, 9)) * 10.0 ** (spread * draw.uniform(-1, 1, (7, 9)))
    subject = claiming(lambda x: matrix @ np.sin(x), lambda x: matrix * np.cos(x), draw.uniform(0.3, 1.1, 9))

    assert judged_fully(subject, mode, seed).verdict is Verdict.PASS


@pytest.mark.parametrize("curvature", [1.0, 30.0, 300.0])
@both_modes
def test_a_right_jacobian_of_a_bent_function_passes(curvature, mode):
    point = np.linspace(0.3, 1.1, 8)
    subject = claiming(lambda x: np.sin(curvature * x), lambda x: np.diag(curvature * np.cos(curvature * x)), point)

    assert judged_fully(subject, mode).verdict is Verdict.PASS


@both_modes
def test_rounding_in_single_precision_is_no_error(mode):
    point = np.linspace(0.3, 1.1, 8)
    subject = claiming(np.sin, lambda x: np.diag(np.cos(x)), point, dtype=np.float32)

    assert judged_fully(subject, mode).verdict is not Verdict.FAIL
