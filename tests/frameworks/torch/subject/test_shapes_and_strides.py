"""Inputs of every shape and stride, empty ones, and inputs that share memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import check
from support.checks import BOTH
from support.findings import blamed
from support.functions import Spoiled, doubled
from support.marks import making_duals
from support.points import point


def _strided_with_gaps():
    return point(6, 8).detach()[::2, 1::3].requires_grad_()


LAYOUTS = {
    "0-dim": lambda: point(),
    "one entry": lambda: point(1, 1, 1),
    "transposed": lambda: point(3, 4).detach().t().requires_grad_(),
    "permuted": lambda: point(2, 3, 4).detach().permute(2, 0, 1).requires_grad_(),
    "with gaps": _strided_with_gaps,
    "channels last": lambda: point(2, 3, 4, 5).detach().to(memory_format=torch.channels_last).requires_grad_(),
    "expanded": lambda: point(3, 1).detach().expand(3, 4).requires_grad_(),
    "expanded scalar": lambda: point().detach().expand(5).requires_grad_(),
    "overlapping windows": lambda: point(8).detach().unfold(0, 3, 1).requires_grad_(),
    "diagonal": lambda: point(4, 4).detach().diagonal().requires_grad_(),
    "view of a larger base": lambda: point(10).detach()[3:7].requires_grad_(),
    "view of a much larger base": lambda: point(200_000).detach()[70_000:140_000:20_000].requires_grad_(),
    "not a leaf": lambda: 2 * point(3),
    "parameter": lambda: nn.Parameter(point(3).detach()),
    "conjugated": lambda: point(3, dtype=torch.complex128).detach().conj().requires_grad_(),
    "conjugated and transposed": lambda: point(3, 2, dtype=torch.complex128).detach().mH.requires_grad_(),
    "conjugated with gaps": lambda: point(7, dtype=torch.complex128).detach()[1::2].conj().requires_grad_(),
    "negated": lambda: point(3, dtype=torch.complex128).detach().conj().imag.requires_grad_(),
    "real part": lambda: point(3, dtype=torch.complex128).detach().real.requires_grad_(),
    "conjugated scalar": lambda: point(dtype=torch.complex128).detach().conj().requires_grad_(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_right_gradient_passes_in_any_layout(layout, seed):
    assert check(lambda x: x.sin() * x, LAYOUTS[layout](), seed=seed).passed


@making_duals
@pytest.mark.parametrize("layout", LAYOUTS)
def test_right_second_derivatives_pass_in_any_layout(layout):
    assert check(lambda x: x.sin() * x, LAYOUTS[layout](), modes=BOTH, order=2, seed=0, contracts=()).passed


@making_duals
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("start", [0, 3])
def test_a_function_reads_the_memory_around_a_view(start, order):
    view = point(15).detach()[5:].requires_grad_()

    assert check(
        lambda x: x.as_strided((2, 2), (1, 2), start).sin(), view, modes=BOTH, order=order, seed=0, contracts=()
    ).passed


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_gradient_is_found_in_any_layout(layout):
    x = LAYOUTS[layout]()
    spoiled = (0,) * x.dim()

    def spoil(gradient):
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        gradient[spoiled] *= 1.001
        return gradient

    report = check(lambda x: Spoiled.apply(x, spoil).sin(), x, seed=0)

    assert blamed(report) == {"x"}
    assert {entry.index for entry in report.findings[0].entries} == {spoiled}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_function_sees_the_callers_values_shape_and_strides(layout):
    x = LAYOUTS[layout]()
    seen = []

    def function(y):
        seen.append((y.stride(), y.detach().clone()))
        return y.sin()

    check(function, x, seed=0)

    strides, value = seen[0]
    assert strides == x.stride()
    assert torch.equal(value, x.detach())


@pytest.mark.parametrize("layout", ["transposed", "permuted", "with gaps", "channels last", "view of a larger base"])
def test_strides_are_kept_at_perturbed_points(layout):
    x = LAYOUTS[layout]()
    strides = set()

    def function(y):
        strides.add(y.stride())
        return y.sin()

    check(function, x, contracts=(), seed=0)

    assert strides == {x.stride()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)])
def test_an_empty_input_passes_with_a_note(shape, dtype):
    report = check(torch.sin, point(*shape, dtype=dtype), seed=0)

    assert report.passed
    assert "no entries to check" in report.notes[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_sum_of_an_empty_input_passes(dtype):
    assert check(torch.sum, point(0, dtype=dtype), seed=0).passed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex64])
@pytest.mark.parametrize("order", [1, -1])
def test_an_empty_input_beside_others_is_no_hindrance(dtype, order):
    inputs = (point(0, dtype=dtype), point(3, dtype=dtype))[::order]

    assert check(lambda a, b: torch.cat([a, b]).sin(), inputs, seed=0).passed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_empty_output_beside_others_is_no_hindrance(dtype):
    assert check(lambda x: (x[:0], x.sin()), point(3, dtype=dtype), seed=0).passed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_empty_output_passes_with_a_note(dtype):
    report = check(lambda x: x[:0], point(3, dtype=dtype), seed=0)

    assert report.passed
    assert "no entries to check" in report.notes[0]


def test_two_inputs_that_share_memory_are_varied_by_themselves():
    base = point(5).detach()
    inputs = (base[:4].requires_grad_(), base[1:].requires_grad_())

    assert check(lambda a, b: a.sin() * b, inputs, seed=0).passed
    assert blamed(check(lambda a, b: a.sin() * doubled(b), inputs, seed=0)) == {"b"}


def test_the_same_tensor_twice_is_two_inputs():
    x = point(3)

    assert check(lambda a, b: a.sin() * b, (x, x), seed=0).passed
    assert blamed(check(lambda a, b: a.sin() * doubled(b), (x, x), seed=0)) == {"b"}


def test_the_same_tensor_varied_and_fixed_is_fixed_in_one_place():
    x = point(3)

    assert check(lambda a, b: a.sin() * doubled(b), (x, x), wrt=0, seed=0).passed
