"""Strides change nothing."""

from __future__ import annotations

import pytest
import torch

from support.functions import identity, with_context
from support.points import point


def in_memory_order(g):
    """A kernel that walks through memory, whatever the strides say."""
    return torch.as_strided(g, (g.numel(),), (1,), g.storage_offset()).reshape(g.shape).clone()


def test_right_functions_keep_it(asked, right):
    assert asked("contiguity", *right) == []


def test_a_backward_that_views_what_comes_in_breaks_it(asked):
    (finding,) = asked("contiguity", with_context(identity, lambda ctx, g: g.view(-1).view(g.shape)), point(3, 4))

    assert "non-contiguous incoming gradient" in finding.message
    assert "RuntimeError" in finding.message
    assert "reshape" in finding.hint


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 2)])
def test_a_backward_that_walks_through_memory_breaks_it(asked, shape, dtype):
    (finding,) = asked(
        "contiguity", with_context(identity, lambda ctx, g: in_memory_order(g)), point(*shape, dtype=dtype)
    )

    assert finding.argument == "x"


def test_a_backward_that_reads_its_input_through_memory_breaks_it(asked):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    def backward(ctx, g):
        return g * in_memory_order(ctx.saved_tensors[0]).cos()

    (finding,) = asked("contiguity", with_context(forward, backward), point(3, 4))

    assert "inputs of other strides" in finding.message


def test_a_backward_that_raises_for_other_strides_breaks_it(asked):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    def backward(ctx, g):
        x = ctx.saved_tensors[0]
        return (g.reshape(-1) * x.view(-1).cos()).reshape(x.shape)

    (finding,) = asked("contiguity", with_context(forward, backward), point(3, 4))

    assert "RuntimeError" in finding.message


def test_a_forward_that_asks_for_contiguous_inputs_keeps_it(asked):
    assert asked("contiguity", lambda x: x.view(-1).sin(), point(3, 4)) == []


def test_a_forward_whose_value_depends_on_strides_is_not_compared(asked):
    assert asked("contiguity", lambda x: x * x.stride(0), point(3, 4)) == []


def test_a_gradient_that_is_all_rounding_keeps_it(asked):
    def normalised(x, bias):
        return torch.nn.functional.batch_norm(x + bias, None, None, training=True).pow(2)

    assert asked("contiguity", normalised, (point(6, 3), point(3, seed=2))) == []
