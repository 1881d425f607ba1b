"""Kernels that compute in float32 inside: right ones pass as they are used, wrong ones are found, in any precision."""

from __future__ import annotations

import pytest
import torch
from benchmarks.kernels import BUGS, KINDS, RIGHT, USUAL, Case

import gradproof
from gradproof import Verdict
from support.functions import rule
from support.kernels import refusing_double
from support.points import normal, point

FUNCTIONS = ["gelu", "softmax", "layer norm", "linear"]
HALVES = [torch.float16, torch.bfloat16]


def checked(kind, function, dtype, bug=RIGHT):
    return Case(kind, function, dtype, bug, 8, 24).checked()


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("kind", [kind for kind in USUAL if kind != "autocast"])
def test_right_kernels_of_every_kind_pass_in_float32(kind, function):
    assert checked(kind, function, torch.float32).passed


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kind", USUAL)
def test_right_kernels_of_every_kind_are_never_failed_in_half_precisions(kind, dtype):
    assert Verdict.FAIL not in {checked(kind, function, dtype).verdict for function in FUNCTIONS}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("bug", BUGS)
def test_bugs_are_found_in_half_precisions_without_double_precision_to_judge_by(bug, dtype):
    assert checked("refuses float64", "gelu", dtype, bug).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", ["consumes its graph", "gradient in forward", "gradient over input"])
@pytest.mark.parametrize("bug", ["zero", "+ 10 %", "last column"])
def test_bugs_are_found_in_kernels_that_use_their_memory_again(kind, bug):
    assert checked(kind, "softmax", torch.float32, bug).verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", ["casts", "refuses float64", "refuses it in backward"])
def test_that_double_precision_cannot_be_had_is_a_note(kind):
    report = checked(kind, "gelu", torch.float32)

    assert report.passed
    assert any("judged in its own precision" in note for note in report.notes)


def test_a_derivative_that_raises_in_double_precision_alone_is_a_note():
    def backward(gradient, x):
        if x.dtype == torch.float64:
            raise KeyError(x.dtype)
        return gradient * x.cos()

    report = gradproof.check(rule(torch.sin, backward), point(5, dtype=torch.float32), seed=0)

    assert report.passed
    assert any("In double precision the derivative raises" in note for note in report.notes)


def test_a_backward_that_consumes_its_graph_is_noted_and_fails_where_the_contract_is_requested():
    kernel = KINDS["consumes its graph"](torch.tanh, RIGHT)
    x = point(6, dtype=torch.float32)

    assert gradproof.check(kernel, x, seed=0).passed
    assert gradproof.check(kernel, x, seed=0, contracts=("repeatable",)).verdict is Verdict.FAIL


def test_a_kernel_that_writes_over_its_input_leaves_the_caller_s_alone():
    x = point(4, dtype=torch.float32)
    before = x.detach().clone()
    report = gradproof.check(KINDS["gradient over input"](torch.tanh, RIGHT), x, seed=0)

    assert report.passed
    assert any("writes to x" in note for note in report.notes)
    assert torch.equal(x, before)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_lone_wrong_row_is_named(dtype):
    def last_row_doubled(gradient):
        return torch.cat([gradient[:-1], 2 * gradient[-1:]])

    BUGS["last row doubled"] = last_row_doubled
    try:
        report = checked("refuses float64", "tanh", dtype, "last row doubled")
    finally:
        del BUGS["last row doubled"]

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].argument == "x"
    assert "x[7, " in report.findings[0].message or report.findings[0].entries


@pytest.mark.parametrize(
    ("function", "bug"),
    [("gelu", "a tile"), ("log softmax", "last column"), ("log softmax", "missing term"), ("cumulative sum", "a tile")],
)
def test_errors_among_many_right_entries_are_found_in_bfloat16(function, bug):
    assert Case("refuses float64", function, torch.bfloat16, bug, 128, 256).checked().verdict is Verdict.FAIL


@pytest.mark.parametrize("function", ["gelu", "log softmax", "cumulative sum", "l2 norm"])
def test_right_kernels_of_many_entries_pass_at_the_price_of_some_hundred_evaluations(function):
    report = Case("refuses float64", function, torch.bfloat16, RIGHT, 128, 256).checked()

    assert report.passed
    assert report.cost.evaluations < 250


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_loss_that_some_inputs_change_by_less_than_a_rounding_passes(dtype):
    """The rows of a weight whose classes are improbable, and no target, leave the value as it is."""
    targets = torch.arange(16) * 7 % 20 // 2

    def loss(x):
        return torch.nn.functional.cross_entropy(x[:16] @ x[16:].T, targets)

    kernel = refusing_double(loss, lambda gradient: gradient)
    for seed in range(4):
        x = normal(36, 12, seed=seed).to(dtype).requires_grad_()

        assert gradproof.check(kernel, x, seed=seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("seed", range(4))
def test_a_gradient_of_zero_never_passes_because_a_loss_is_rounded(seed):
    kernel = refusing_double(
        lambda x: torch.nn.functional.cross_entropy(x, torch.arange(32) * 7 % 50), lambda gradient: 0 * gradient
    )
    x = normal(32, 50, seed=seed).to(torch.bfloat16).requires_grad_()

    assert not gradproof.check(kernel, x, seed=seed, contracts=()).passed


@pytest.mark.parametrize("constant", [0.7, 3.0])
def test_a_gradient_of_zero_passes_where_nothing_changes(constant):
    kernel = refusing_double(lambda x: constant + 0 * x.sum(), lambda gradient: gradient)

    assert gradproof.check(kernel, normal(8, 24).to(torch.bfloat16).requires_grad_(), seed=0).passed


@pytest.mark.parametrize("function", ["log softmax", "l2 norm", "cross entropy"])
def test_a_gradient_of_zero_is_found_beside_values_of_one_size_that_were_cast(function):
    assert checked("casts", function, torch.float64, "zero").verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_rows_that_are_padded_with_minus_infinity_are_judged_by_their_finite_entries(dtype):
    x = normal(17, 33).to(dtype)
    x[:, 25:] = -torch.inf

    def softmax(x):
        return x.softmax(-1)

    def without_the_last_row(gradient):
        return gradient * (torch.arange(17)[:, None] < 16)

    right = refusing_double(softmax, lambda gradient: gradient)
    assert gradproof.check(right, x.requires_grad_(), seed=0).passed
    assert gradproof.check(refusing_double(softmax, without_the_last_row), x, seed=0).verdict is Verdict.FAIL


def test_a_sum_in_half_precision_that_no_short_step_changes_is_judged_although_its_kernel_writes_over_its_input():
    kernel = KINDS["gradient over input"](lambda x: x.logsumexp(-1), "sign")

    report = gradproof.check(kernel, normal(129, 255).to(torch.bfloat16).requires_grad_(), seed=0)

    assert report.verdict is Verdict.FAIL


def test_a_sum_that_is_a_whole_number_by_chance_is_not_taken_for_a_count():
    kernel = refusing_double(lambda x: torch.nn.functional.silu(x).sum(), torch.zeros_like)
    points = (normal(9, 20, seed=seed, dtype=torch.bfloat16) for seed in range(60))
    whole = next(x for x in points if float(kernel(x)) % 1 == 0 and 16 < float(kernel(x)) < 100)

    assert gradproof.check(kernel, whole.requires_grad_(), seed=0).verdict is Verdict.FAIL


def test_a_gradient_of_zero_of_half_a_million_outputs_is_found():
    assert Case("casts", "log softmax", torch.bfloat16, "zero", 512, 1024).checked().verdict is Verdict.FAIL
