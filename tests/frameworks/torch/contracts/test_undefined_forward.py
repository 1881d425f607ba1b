"""A jvp copes with undefined and zero tangents."""

from __future__ import annotations

import torch

from gradproof import check
from support.functions import with_context
from support.points import point


def product(ctx, x, y):
    ctx.save_for_forward(x, y)
    ctx.set_materialize_grads(False)
    return x * y


def no_backward(ctx, g):
    raise NotImplementedError


def by_jvp(rule, forward=product):
    return with_context(forward, no_backward, jvp=rule)


def test_right_functions_keep_it(right):
    report = check(*right, modes="forward", contracts=("undefined-forward",), seed=5)

    assert not [finding for finding in report.findings if finding.kind == "undefined-forward"]


def test_a_jvp_that_multiplies_none_breaks_it(asked):
    def rule(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return y * dx + x * dy

    (finding,) = asked("undefined-forward", by_jvp(rule), (point(3), point(3, seed=2)))

    assert "x carries no tangent" in finding.message
    assert "TypeError" in finding.message


def test_a_jvp_that_forgets_one_when_the_other_is_undefined_breaks_it(asked):
    def rule(ctx, dx, dy):
        x, y = ctx.saved_tensors
        if dx is None or dy is None:
            return torch.zeros_like(x)
        return y * dx + x * dy

    (finding,) = asked("undefined-forward", by_jvp(rule), (point(3), point(3, seed=2)))

    assert "zeros" in finding.message


def test_a_jvp_that_treats_none_as_zeros_keeps_it(asked):
    def rule(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return (0 if dx is None else y * dx) + (0 if dy is None else x * dy)

    assert asked("undefined-forward", by_jvp(rule), (point(3), point(3, seed=2))) == []


def test_a_jvp_that_adds_a_constant_breaks_it(asked):
    shifted = by_jvp(lambda ctx, dx: dx + 1e-3, forward=lambda ctx, x: x.clone())
    (finding,) = asked("undefined-forward", shifted, point(3))

    assert "zeros" in finding.message
    assert "Multiply by the tangent" in finding.hint


def test_more_than_two_inputs_are_tested_in_two_halves(asked):
    inputs = tuple(point(2, seed=seed) for seed in range(7))

    assert asked("undefined-forward", lambda *parts: sum(part.sin() for part in parts), inputs) == []


def test_a_second_derivative_by_tangents_of_tangents_is_left_alone():
    report = check(torch.sin, point(3), modes="forward", order=2, contracts=("undefined-forward",), seed=0)

    assert report.passed, str(report)


def test_a_right_jvp_keeps_it_where_the_entries_of_an_input_share_memory(asked):
    def rule(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return (0 if dx is None else y * dx) + (0 if dy is None else x * dy)

    for shared in (point(1, 3).detach().expand(4, 3), point(6).detach().unfold(0, 3, 1)):
        assert asked("undefined-forward", by_jvp(rule), (shared.requires_grad_(), point(4, 3, seed=2))) == []


def test_a_tangent_of_none_for_an_output_that_depends_on_others_is_named(asked):
    def rule(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return None if dx is None else y * dx + (0 if dy is None else x * dy)

    (finding,) = asked("undefined-forward", by_jvp(rule), (point(3), point(3, seed=2)))

    assert "x carries no tangent" in finding.message
    assert "the jvp gave None" in finding.message
    assert "return zeros" in finding.message


def test_a_jvp_that_writes_to_its_tangents_keeps_it(asked):
    def rule(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return (0 if dx is None else dx.mul_(y)) + (0 if dy is None else dy.mul_(x))

    assert asked("undefined-forward", by_jvp(rule), (point(3), point(3, seed=2))) == []


def test_a_function_that_makes_dual_numbers_itself_keeps_it(asked):
    def slope(x):
        return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]

    assert asked("undefined-forward", slope, point(3)) == []
