"""Planted errors in the derivative of a jvp, and combinations of the modes that torch does not have."""

from __future__ import annotations

import pytest
import torch

from gradproof import Verdict, check
from support.checks import BOTH, NESTINGS, second_order
from support.findings import modes_and_arguments
from support.functions import Sine
from support.points import point


class OldSine(Sine):
    """The same, in the style with a context first."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x.sin()

    setup_context = torch.autograd.Function.setup_context


def test_a_jvp_that_detaches_fails_over_forward_with_respect_to_what_it_detached():
    class Detaching(Sine):
        @staticmethod
        def jvp(ctx, tangent):
            return tangent * ctx.saved_tensors[0].detach().cos()

    report = second_order(Detaching.apply, point(4), modes=BOTH)

    assert ("reverse over forward", "x") in modes_and_arguments(report)
    assert not {mode for mode, _ in modes_and_arguments(report)} & {"reverse over reverse", "forward over reverse"}


def test_a_jvp_that_forgets_the_tangent_fails_over_forward_with_respect_to_the_tangent():
    class Forgetting(Sine):
        @staticmethod
        def jvp(ctx, tangent):
            return tangent.detach() * ctx.saved_tensors[0].cos()

    report = second_order(Forgetting.apply, point(4), modes=BOTH)

    assert ("reverse over forward", "tangents[0]") in modes_and_arguments(report)
    assert ("reverse over forward", "x") not in modes_and_arguments(report)


def test_a_backward_that_detaches_fails_over_reverse_and_not_over_forward():
    class Detaching(Sine):
        @staticmethod
        def backward(ctx, incoming):
            return incoming * ctx.saved_tensors[0].detach().cos()

    report = second_order(Detaching.apply, point(4), modes=BOTH)

    assert {("reverse over reverse", "x"), ("forward over reverse", "x")} <= modes_and_arguments(report)
    assert not any(mode == "reverse over forward" for mode, _ in modes_and_arguments(report))


def test_a_wrong_jvp_of_a_backward_fails_in_forward_over_reverse_alone():
    class Cosine(torch.autograd.Function):
        """g·cos(x), with a jvp of the wrong sign."""

        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            ctx.save_for_forward(g, x)
            return g * x.cos()

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            return h * x.cos(), -h * g * x.sin()

        @staticmethod
        def jvp(ctx, s, t):
            g, x = ctx.saved_tensors
            return s * x.cos() + t * g * x.sin()

    class Outer(Sine):
        @staticmethod
        def backward(ctx, incoming):
            return Cosine.apply(incoming, *ctx.saved_tensors)

    report = second_order(Outer.apply, point(4), modes=BOTH)
    modes = {mode for mode, _ in modes_and_arguments(report)}

    assert ("forward over reverse", "x") in modes_and_arguments(report)
    assert not modes & {"reverse over reverse", "reverse over forward"}


def test_a_wrong_jvp_of_a_jvp_fails_in_forward_over_forward():
    def tangent_line(x):  # of sin at x itself: value and slope are right, and the curvature is cut off
        return x.detach().sin() + x.detach().cos() * (x - x.detach())

    assert check(tangent_line, point(4), modes="forward", contracts=(), seed=0).passed
    assert modes_and_arguments(second_order(tangent_line, point(4), modes=("forward",))) == {
        ("forward over forward", "x")
    }


@pytest.mark.parametrize("own", [Sine, OldSine], ids=lambda kind: kind.__name__)
def test_a_right_function_with_a_jvp_passes_and_forward_over_forward_is_a_note(own):
    report = second_order(own.apply, point(4), modes=BOTH)

    assert report.verdict is Verdict.PASS
    assert set(report.subject.derivatives) == NESTINGS - {"forward over forward"}
    assert any(
        "forward over forward" in note and "second tangents" in note and own.__name__ in note for note in report.notes
    )


def test_forward_over_forward_alone_through_a_jvp_is_a_rule_that_is_absent():
    def inner(x):
        return torch.func.jvp(Sine.apply, (x,), (torch.ones_like(x),))[1]

    values = point(4).detach()
    nested = torch.func.jvp(inner, (values,), (torch.ones_like(values),))[1]
    assert not nested.any()  # and should be -sin: torch takes them for zeros

    report = second_order(Sine.apply, point(4), modes=("forward",))

    assert [finding.kind for finding in report.findings] == ["no-forward-rule"]
    assert "torch ignores second tangents" in report.message


@pytest.mark.parametrize("own", [Sine, OldSine], ids=lambda kind: kind.__name__)
def test_by_default_a_right_function_with_a_jvp_passes(own):
    assert second_order(own.apply, point(4), modes=None).verdict is Verdict.PASS


def test_a_function_that_torch_cannot_nest_is_a_rule_that_is_absent():
    report = second_order(OldSine.apply, point(4), modes=("forward",))

    assert [finding.kind for finding in report.findings] == ["no-forward-rule"]
    assert "setup_context" in report.message


def test_a_function_that_uses_autograd_inside_has_no_rule_for_forward_over_forward():
    def inside(x):
        return torch.autograd.grad((x**4).sum(), x, create_graph=True)[0]

    report = second_order(inside, point(4), modes=("forward",))

    assert [finding.kind for finding in report.findings] == ["no-forward-rule"]
