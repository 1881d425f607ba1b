"""Lone columns, rows and tiles that are wrong among hundreds of thousands of entries in 16 bits."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from gradproof.engine.estimators.segment import SegmentOutcome, problem_of, segment_test
from gradproof.engine.localisation.confinement import confinement_of
from gradproof.engine.localisation.segment_blocks import in_parts
from gradproof.engine.localisation.segment_region import region_of
from gradproof.engine.options import Probing
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from support.kernels import refusing_double

ROWS, COLUMNS = 576, 256
TILE = slice(16, 48), slice(16, 48)


def rms_norm(x):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def mixed_rows(x):
    """Rows depend on their neighbours, so that no group of coordinates is treated by itself."""
    return torch.tanh(x + 0.5 * x.roll(1, 0) + 0.5 * x.roll(1, 1))


def spoiled(where, factor):
    def spoil(gradient):
        wrong = gradient.clone()
        wrong[where] *= factor
        return wrong

    return spoil


def problem_about(function, spoil, dtype=torch.bfloat16):
    x = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    return problem_of(TorchSubject.of(refusing_double(function, spoil), x, None), 0, 0.0, 0.0)


def judged(problem):
    result = segment_test(problem.subject, seed=0)
    if result.outcome is SegmentOutcome.DISAGREES:
        return result
    return in_parts(problem, result, 0, Probing())


BUGS = {
    "last column zero": ((slice(None), slice(-1, None)), 0.0),
    "two columns zero": ((slice(None), slice(7, 9)), 0.0),
    "last rows zero": ((slice(-4, None), slice(None)), 0.0),
    "a tile of 32 by 32 × 1.5": (TILE, 1.5),
}


@pytest.mark.parametrize(
    ("function", "bug"),
    [
        (rms_norm, "last column zero"),
        (rms_norm, "a tile of 32 by 32 × 1.5"),
        (mixed_rows, "two columns zero"),
        (mixed_rows, "last rows zero"),
    ],
)
def test_a_wrong_part_is_found_and_lies_within_what_is_named(function, bug):
    where, factor = BUGS[bug]
    problem = problem_about(function, spoiled(where, factor))

    result = judged(problem)
    assert result.outcome is SegmentOutcome.DISAGREES
    region = region_of(problem, result, 0)

    wrong = torch.zeros(ROWS, COLUMNS)
    wrong[where] = 1.0
    assert float((region.mask * wrong.view(-1)).sum()) >= 0.9 * float(wrong.sum())


@pytest.mark.parametrize("function", [rms_norm, mixed_rows])
def test_right_gradients_do_not_disagree(function):
    assert judged(problem_about(function, lambda gradient: gradient)).outcome is not SegmentOutcome.DISAGREES


def test_a_wrong_column_is_named_as_a_block():
    problem = problem_about(functional.gelu, spoiled(BUGS["last column zero"][0], 0.0))

    region = region_of(problem, judged(problem), 0)

    assert [span for axis, span in region.box.items() if axis.number == 1] == [(COLUMNS - 1, COLUMNS)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_that_receive_the_gradient_of_other_rows_are_found(dtype):
    """Their own outputs, by themselves, show nothing wrong."""

    def leaking(gradient):
        wrong = gradient.clone()
        wrong[16:18] += 0.5 * gradient[30:32]
        return wrong

    problem = problem_about(rms_norm, leaking, dtype)
    result = judged(problem)

    assert result.outcome is SegmentOutcome.DISAGREES
    assert str(region_of(problem, result, 0)) == f"x[16, 0] to x[17, {COLUMNS - 1}]"


def test_a_few_coordinates_are_tested_in_short_vectors():
    problem = problem_about(rms_norm, spoiled((slice(3, 5), slice(None)), 1.5))
    moving = torch.zeros(ROWS, COLUMNS, dtype=torch.float64)
    moving[3:5] = 1.0

    found = confinement_of(replace(problem, moving=moving.view(-1)), 0, 0.3)

    assert found is not None
    assert found.problem.subject.inputs.size == found.problem.subject.outputs.size == 2 * COLUMNS
    assert found.problem.subject.inputs.locate(COLUMNS).index == (4, 0)
    assert segment_test(found.problem.subject, seed=0).outcome is SegmentOutcome.DISAGREES


def test_a_few_coordinates_that_change_every_output_are_not_tested_alone():
    problem = problem_about(lambda x: torch.tanh(x + x[:1, :1]), lambda gradient: gradient)
    moving = torch.zeros(ROWS * COLUMNS, dtype=torch.float64)
    moving[0] = 1.0

    assert confinement_of(replace(problem, moving=moving), 0, 0.3) is None


def test_claims_that_add_up_do_not_widen_the_bars_of_those_that_do_not():
    """The first segment has random signs: its noise is that of roundings, by the root of their number."""
    result = segment_test(problem_about(rms_norm, lambda gradient: gradient).subject, seed=0)

    assert result.bar < 2e-2 * math.sqrt(ROWS * COLUMNS)


def test_a_long_sum_may_err_by_some_roundings_throughout():
    """A sum in another order has another error, and the gradient of a linear function has the same one everywhere."""
    problem = problem_about(lambda x: x.cumsum(-1).sum(), lambda gradient: gradient * (1 + 5e-7), torch.float32)

    assert judged(problem).outcome is not SegmentOutcome.DISAGREES


@pytest.mark.parametrize(("inside", "bias"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)], ids=str)
def test_claims_may_share_an_error_of_half_a_spacing_of_the_precision_that_the_values_show(inside, bias):
    """As under autocast: a forward rounds operands that its backward, in single precision, does not."""

    def rounding(x):
        return (x.to(inside) * torch.linspace(1, 2, COLUMNS).to(inside)).to(torch.float16)

    assert problem_about(rounding, lambda gradient: gradient, torch.float16).bias == bias
