"""A backward is linear in the incoming gradient."""

from __future__ import annotations

import pytest
import torch

from gradproof import Verdict, check, gradcheck
from support.functions import identity, with_context
from support.points import point


def test_right_functions_keep_it(asked, right):
    assert asked("linear", *right) == []


SPOILT = {
    "adds a constant": lambda ctx, g: g + 1e-3,
    "does not multiply by the incoming gradient": lambda ctx, g: torch.ones_like(g),
    "squares": lambda ctx, g: g * g,
    "takes the size": lambda ctx, g: g.abs(),
    "keeps what is positive": lambda ctx, g: g.clamp(min=0),
    "clips entries": lambda ctx, g: g.clamp(-100, 100),
    "clips the norm": lambda ctx, g: g * (10 / g.norm()).clamp(max=1),
    "divides by what comes in": lambda ctx, g: g * g / g,
}


@pytest.mark.parametrize("backward", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_backward_that_is_not_linear_breaks_it(asked, backward, dtype):
    (finding,) = asked("linear", with_context(identity, backward), point(4, dtype=dtype))

    assert finding.argument == "x"
    assert "incoming gradient" in finding.message


def test_the_message_says_what_comes_of_zeros(asked):
    (finding,) = asked("linear", with_context(identity, lambda ctx, g: g + 0.25), point(3))

    assert "zeros" in finding.message
    assert "0.25" in finding.message
    assert "does not depend on it" in finding.hint


def test_one_input_of_several_is_named(asked):
    product = with_context(lambda ctx, x, y: x + y, lambda ctx, g: (g, g.abs()))
    (finding,) = asked("linear", product, (point(3), point(3, seed=2)))

    assert finding.argument == "y"


def test_a_backward_of_complex_numbers_that_conjugates_what_comes_in_is_linear(asked):
    assert asked("linear", lambda z: z.conj(), point(3, dtype=torch.complex128)) == []


def test_an_answer_that_is_another_every_time_is_not_called_non_linear(asked):
    noisy = with_context(identity, lambda ctx, g: g * (1 + torch.rand(g.shape, generator=NOISE, dtype=g.dtype) * 0.1))

    assert asked("linear", noisy, point(4)) == []


NOISE = torch.Generator().manual_seed(0)

HOMOGENEOUS = {
    "the largest entry alone": lambda g: torch.where(g.abs() == g.abs().max(), 2 * g, 0.0),
    "a ratio of norms": lambda g: 2 * g * g.abs().max() / g.norm().clamp(min=1e-300),
    "another rule where nothing is zero": lambda g: 2 * g if (g == 0).any() else 3 * g,
}


@pytest.mark.parametrize("size", [2, 5, 100])
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_a_rule_that_is_right_for_one_output_at_a_time_alone_breaks_it(asked, name, size):
    function = with_context(lambda ctx, x: 2 * x, lambda ctx, g: HOMOGENEOUS[name](g))
    (finding,) = asked("linear", function, point(size), coverage="full")

    assert "The sum of two incoming gradients" in finding.message
    assert not gradcheck(function, point(size), raise_exception=False)


def test_right_functions_keep_it_under_full_coverage_too(asked, right):
    assert asked("linear", *right, coverage="full") == []


@pytest.mark.parametrize(("left", "verdict"), [(0.0, Verdict.PASS), (1.0, Verdict.FAIL), (float("nan"), Verdict.FAIL)])
def test_outputs_without_entries_have_a_gradient_of_zero(left, verdict):
    function = with_context(lambda ctx, x: x.new_zeros(0), lambda ctx, g: torch.full((3,), left, dtype=g.dtype))

    report = check(function, point(3), seed=0)

    assert report.verdict is verdict
    assert report.passed or report.findings[0].kind == "linear"
