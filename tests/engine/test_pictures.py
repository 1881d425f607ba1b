"""What pictures show: remainders that fall as Taylor has it, and maps that point at the wrong block."""

import itertools
import math

import numpy as np
import pytest
import torch

from gradproof import check
from gradproof.engine.options import Probing
from gradproof.engine.pictures import heat_map
from gradproof.engine.results import Verdict
from gradproof.engine.subject import DerivativeError
from gradproof.engine.thresholds import HANDFUL
from gradproof.gallery.specimen import planted
from support.engine import judged
from support.numpy_subject import NumpySubject, elementwise


def sine(size=5, wrong=0.0):
    return elementwise(np.sin, lambda x: np.cos(x) + wrong, np.linspace(0.3, 1.2, size))


def mapped(subject, **options):
    return heat_map(subject, 0, Probing(), **options)


def slopes(reading):
    """The slopes of the remainder against the step, on logarithmic scales, from point to point."""
    points = [(math.log(point.step), math.log(point.remainder)) for point in reading.steps if point.remainder]
    return [(b - y) / (a - x) for (x, y), (a, b) in itertools.pairwise(points)]


def matrix(wrong):
    """x ↦ Ax, with a claimed gradient that is off by `wrong` in A."""
    rows, columns = wrong.shape
    true = np.random.default_rng(0).normal(size=(rows, columns))
    return NumpySubject(
        lambda x: true @ x,
        lambda x, u: (true + wrong).T @ u,
        np.linspace(0.5, 1.5, columns),
        tangent=lambda x, v: (true + wrong) @ v,
    )


def coloured(heat):
    return {(i, j) for i, row in enumerate(heat.errors) for j, error in enumerate(row) if error}


def test_the_remainder_of_a_right_gradient_falls_with_the_square_of_the_step():
    (reading,) = judged(sine()).readings

    assert len(reading.steps) == 2
    assert slopes(reading) == pytest.approx([2.0], abs=0.05)


def test_the_remainder_of_a_wrong_gradient_falls_with_the_step():
    judgement = judged(sine(wrong=0.1))

    assert judgement.verdict is Verdict.FAIL
    assert len(judgement.readings[0].steps) > 4
    for reading in judgement.readings:
        finest = slopes(reading)[:4]
        assert finest == pytest.approx([1.0] * len(finest), abs=0.05)


def test_steps_are_lengths_and_come_in_order():
    subject = sine(wrong=0.1)
    (first, *_) = judged(subject).readings
    steps = [point.step for point in first.steps]

    assert steps == sorted(steps)
    for shorter, longer in itertools.pairwise(steps):
        assert longer / shorter == pytest.approx(4.0)


def test_remainders_cost_no_evaluations():
    subject = sine()
    judged(subject)

    assert subject.evaluations == 4


def test_an_affine_function_leaves_rounding_alone():
    (reading,) = judged(elementwise(lambda x: 3 * x, lambda x: 3 + 0 * x, np.linspace(0.3, 1.2, 50))).readings

    assert all(point.remainder <= 4 * reading.rounding for point in reading.steps)


def test_a_claim_that_is_not_finite_has_no_remainders():
    for reading in judged(sine(wrong=math.nan)).readings:
        assert reading.steps == ()


def test_outputs_that_are_not_finite_and_not_probed_leave_the_remainders_finite():
    subject = elementwise(
        lambda x: np.where(x > 1, np.inf, np.sin(x)),
        lambda x: np.where(x > 1, 0.0, np.cos(x)) + 0.1,
        np.linspace(0.3, 1.2, 5),
    )

    for reading in judged(subject).readings:
        assert reading.steps
        assert all(math.isfinite(point.remainder) for point in reading.steps)


def test_a_plain_check_of_very_many_outputs_has_no_remainders():
    (reading, *_) = judged(sine(size=100_000)).readings

    assert reading.steps == ()


def test_values_that_were_let_go_leave_the_same_remainders():
    held, let_go = sine(size=5_000), sine(size=5_000)
    let_go.outputs.gathered = True
    (known,), (seen,) = judged(held).readings, judged(let_go).readings

    assert [point.step for point in seen.steps] == [point.step for point in known.steps]
    for point, other in zip(seen.steps, known.steps, strict=True):
        assert point.remainder == pytest.approx(other.remainder, abs=4 * known.rounding)


# ── maps ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_small_map_shows_the_wrong_entries_themselves(mode):
    wrong = np.zeros((6, 4))
    wrong[2, 1], wrong[5, 3] = 0.25, -0.5
    subject = matrix(wrong)
    subject.mode = mode
    (heat,) = mapped(subject)

    assert coloured(heat) == {(2, 1), (5, 3)}
    assert heat.errors[2][1] == pytest.approx(0.25, rel=1e-6)
    assert heat.errors[5][3] == pytest.approx(0.5, rel=1e-6)
    assert heat.exact
    assert str(heat.rows[5]) == "output[5]"
    assert str(heat.columns[3]) == "x[3]"


def test_a_large_map_is_aggregated():
    wrong = np.zeros((500, 300))
    wrong[250, 299] = 0.25
    subject = matrix(wrong)
    (heat,) = mapped(subject)

    assert (len(heat.rows), len(heat.columns)) == (16, 16)
    assert coloured(heat) == {(8, 15)}
    assert str(heat.rows[8]) == "output[250]"
    assert not heat.exact


def test_a_map_of_every_entry_is_finer():
    wrong = np.zeros((500, 300))
    wrong[250, 299] = 0.25
    (heat,) = mapped(matrix(wrong), blocks=HANDFUL)

    assert (len(heat.rows), len(heat.columns)) == (64, 64)
    assert coloured(heat) == {(32, 63)}


def test_a_map_costs_as_many_calls_however_large_the_jacobian_is():
    subject = matrix(np.ones((500, 300)))
    mapped(subject)

    assert subject.evaluations == 4 * 16
    assert subject.pullbacks == 16


def test_no_block_of_a_map_spans_two_tensors():
    subject = NumpySubject(np.sin, lambda x, u: 0 * u, np.linspace(0.1, 1, 105), parts={"a": 99, "b": 1, "c": 5})
    (heat,) = mapped(subject)

    assert [place.path for place in heat.columns] == ["a"] * 15 + ["b"] + ["c"]
    assert [place.index[0] for place in heat.columns if place.path != "a"] == [0, 0]


@pytest.mark.parametrize(
    ("shape", "indices"),
    [
        ((5, 7), [(0, 0), (0, 2), (0, 4), (1, 0), (1, 2), (1, 4), (2, 0), (2, 2), (2, 4), (3, 0), (3, 2), (3, 4)]),
        ((10, 7), [(row, 0) for row in range(10)]),
        ((40, 7), [(row * 40 // 16, 0) for row in range(12)]),
    ],
)
def test_no_block_begins_in_the_middle_of_a_slice_that_another_shares(shape, indices):
    x = torch.linspace(0.1, 1, shape[0] * shape[1], dtype=torch.float64).reshape(shape).requires_grad_()
    (heat,) = check(planted("Sine", torch.sin, lambda g, x: 0.5 * g * x.cos()), x, seed=0).maps

    assert [place.index for place in heat.columns][: len(indices)] == indices


def test_the_parts_of_few_complex_numbers_have_blocks_of_their_own():
    z = torch.linspace(0.1, 1, 3, dtype=torch.complex128).requires_grad_()
    (heat,) = check(planted("Sine", torch.sin, lambda g, z: g), z, seed=0).maps

    assert heat.exact
    assert [str(place) for place in heat.columns[:2]] == ["inputs[0][0].real", "inputs[0][0].imag"]


def test_a_map_of_very_many_tensors_is_cut_evenly():
    parts = {f"part{number}": 2 for number in range(50)}
    (heat,) = mapped(NumpySubject(np.sin, lambda x, u: 0 * u, np.linspace(0.1, 1, 100), parts=parts))

    assert len(heat.columns) == 16


def test_a_right_jacobian_has_no_map():
    assert mapped(matrix(np.zeros((30, 20)))) == ()


def test_a_function_too_large_for_a_map_has_none():
    assert mapped(sine(size=2_000_000, wrong=0.1)) == ()


def test_a_derivative_that_raises_has_no_map():
    def refuse(x, u):
        raise DerivativeError("no")

    assert mapped(NumpySubject(np.sin, refuse, np.ones(3))) == ()
