"""The same backward, run twice, gives the same gradient."""

from __future__ import annotations

import itertools

import pytest
import torch

from gradproof import check
from support.functions import with_context
from support.points import point


def identity(ctx, x):
    ctx.save_for_backward(x)
    return x.clone()


def test_right_functions_keep_it(asked, right):
    assert asked("repeatable", *right) == []


def test_a_backward_that_draws_random_numbers_breaks_it(asked):
    generator = torch.Generator().manual_seed(0)
    jittered = with_context(
        identity, lambda ctx, g: g * (1 + 1e-3 * torch.rand(g.shape, generator=generator, dtype=g.dtype))
    )
    (finding,) = asked("repeatable", jittered, point(4))

    assert finding.argument == "x"
    assert "twice" in finding.message
    assert "nondet_tol" in finding.hint


def test_a_tolerance_allows_it(asked):
    generator = torch.Generator().manual_seed(0)
    jittered = with_context(
        identity, lambda ctx, g: g * (1 + 1e-3 * torch.rand(g.shape, generator=generator, dtype=g.dtype))
    )

    assert asked("repeatable", jittered, point(4), nondet_tol=1e-2) == []


def test_a_backward_that_overwrites_what_it_saved_breaks_it(asked):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x.data.mul_(0.5)
        return g * x

    assert asked("repeatable", with_context(identity, backward), point(4))


def test_a_gradient_of_nan_is_the_same_twice(asked):
    assert asked("repeatable", with_context(identity, lambda ctx, g: g * torch.nan), point(3)) == []


def test_a_backward_that_hands_out_the_same_memory_every_time_keeps_it(asked):
    memory = torch.zeros(4, dtype=torch.float64)

    assert asked("repeatable", with_context(identity, lambda ctx, g: memory.copy_(g)), point(4)) == []
    assert asked("linear", with_context(identity, lambda ctx, g: memory.copy_(g)), point(4)) == []


def test_a_difference_of_a_rounding_is_a_note_and_a_failure_where_it_is_requested_by_name(asked):
    generator = torch.Generator().manual_seed(0)
    reordered = with_context(
        identity, lambda ctx, g: g * (1 + 2e-16 * torch.randint(-2, 3, g.shape, generator=generator, dtype=g.dtype))
    )
    report = check(reordered, point(50), seed=0)

    assert report.passed
    assert any("another order" in note for note in report.notes)
    assert asked("repeatable", reordered, point(50))


def test_a_sum_in_float32_in_another_order_is_a_note_in_float64_too(asked):
    generator = torch.Generator().manual_seed(0)
    single = with_context(
        identity, lambda ctx, g: g * (1 + 2**-24 * torch.randn(g.shape, generator=generator, dtype=g.dtype))
    )
    report = check(single, point(50), seed=0)

    assert not [finding for finding in report.findings if finding.kind == "repeatable"]
    assert any("another order" in note for note in report.notes)
    assert asked("repeatable", single, point(50))


@pytest.mark.parametrize("start", [0, 1, 2])
def test_the_scatter_of_several_calls_is_stated_relative_to_the_largest_entry(asked, start):
    calls = itertools.count(start)
    wide = with_context(
        lambda ctx, x, y: x + y, lambda ctx, g: (1e6 * g, g + g.abs().max() * [0, 1e-3, 4e-3][next(calls) % 3])
    )
    (finding,) = asked("repeatable", wide, (point(4), point(4, seed=2)))

    assert "Over 10 calls gradients scatter by up to 0.004 of the largest entry (y)." in finding.message


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("size", [3, 4, 5])
def test_a_backward_that_is_another_one_every_second_time_breaks_it_among_all_contracts(size, start):
    calls = itertools.count(start)
    alternating = with_context(identity, lambda ctx, g: g * (1 + 1e-6 * (next(calls) % 2)))

    report = check(alternating, point(size), seed=0)

    assert "repeatable" in [finding.kind for finding in report.findings]
