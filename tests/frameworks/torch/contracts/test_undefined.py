"""A backward copes with undefined incoming gradients."""

from __future__ import annotations

import pytest
import torch

from support.functions import with_context
from support.points import point


def pair(ctx, x):
    ctx.set_materialize_grads(False)
    return 2 * x, 3 * x


def test_right_functions_keep_it(asked, right):
    assert asked("undefined", *right) == []


def test_a_backward_that_multiplies_none_breaks_it(asked):
    (finding,) = asked("undefined", with_context(pair, lambda ctx, a, b: 2 * a + 3 * b), point(3))

    assert "TypeError" in finding.message
    assert "set_materialize_grads" in finding.hint


def test_a_backward_that_copes_with_all_undefined_but_not_with_one_breaks_it(asked):
    def backward(ctx, a, b):
        if a is None and b is None:
            return None
        return 2 * a + 3 * b

    (finding,) = asked("undefined", with_context(pair, backward), point(3))

    assert "output[0]" in finding.message
    assert "output[1]" not in finding.message


def test_a_backward_that_drops_the_others_when_one_is_undefined_breaks_it(asked):
    def backward(ctx, a, b):
        return None if a is None or b is None else 2 * a + 3 * b

    (finding,) = asked("undefined", with_context(pair, backward), point(3))

    assert finding.argument == "x"
    assert "zeros" in finding.message


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_right_slope_that_is_not_finite_keeps_it(asked, value):
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sqrt()

    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return incoming / (2 * x.sqrt())

    x = torch.tensor([value, 1.0, 2.0], dtype=torch.float64, requires_grad=True)

    assert asked("undefined", with_context(forward, backward), x) == []


def test_a_backward_that_makes_nan_of_nothing_alone_breaks_it(asked):
    def backward(ctx, a, b):
        return torch.full((3,), torch.nan, dtype=torch.float64) if a is None else 2 * a + (0 if b is None else 3 * b)

    assert asked("undefined", with_context(pair, backward), point(3))


def test_a_backward_that_makes_something_of_nothing_breaks_it(asked):
    def backward(ctx, a, b):
        return torch.ones(3, dtype=torch.float64) if a is None else 2 * a + (0 if b is None else 3 * b)

    assert asked("undefined", with_context(pair, backward), point(3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_gradients_that_autograd_fills_with_zeros_keep_it(asked, dtype):
    filled = with_context(lambda ctx, x: (2 * x, 3 * x), lambda ctx, a, b: 2 * a + 3 * b)

    assert asked("undefined", filled, point(3, dtype=dtype)) == []


def test_many_outputs_cost_few_pullbacks(asked):
    assert asked("undefined", lambda x: x.unbind(), point(30)) == []


def test_of_many_outputs_a_few_are_named(asked):
    def many(ctx, x):
        ctx.set_materialize_grads(False)
        return tuple(k * x for k in range(1, 9))

    (finding,) = asked(
        "undefined", with_context(many, lambda ctx, *g: sum(k * h for k, h in enumerate(g, 1))), point(2)
    )

    assert "and 4 more" in finding.message
