"""A jvp only reads."""

from __future__ import annotations

import pytest
import torch

from gradproof import check
from support.functions import with_context
from support.points import point

NAME = "no-mutation-forward"


def no_backward(ctx, g):
    raise NotImplementedError


def square(ctx, x):
    y = x * x
    ctx.save_for_forward(x, y)
    return y


def by_jvp(rule, forward=square):
    return with_context(forward, no_backward, jvp=rule)


def test_right_functions_keep_it(right):
    report = check(*right, modes="forward", contracts=(NAME,), seed=5)

    assert not [finding for finding in report.findings if finding.kind == NAME]


def test_a_jvp_that_reads_keeps_it(asked):
    assert asked(NAME, by_jvp(lambda ctx, t: 2 * t * ctx.saved_tensors[0]), point(3)) == []


def test_a_jvp_that_writes_to_its_input_breaks_it(asked):
    def rule(ctx, tangent):
        x, _ = ctx.saved_tensors
        slope = 2 * tangent * x
        x.data.mul_(1.5)
        return slope

    (finding,) = asked(NAME, by_jvp(rule), point(3))

    assert "writes to x" in finding.message
    assert "clone" in finding.hint


def test_a_jvp_that_writes_to_its_tangent_breaks_it(asked):
    def rule(ctx, tangent):
        return tangent.mul_(2 * ctx.saved_tensors[0])

    (finding,) = asked(NAME, by_jvp(rule), point(3))

    assert "the tangent of x" in finding.message


def test_a_jvp_that_writes_to_its_result_breaks_it(asked):
    def rule(ctx, tangent):
        x, y = ctx.saved_tensors
        y.data.add_(1)
        return 2 * tangent * x

    (finding,) = asked(NAME, by_jvp(rule), point(3))

    assert "the value of output differs" in finding.message


def test_a_jvp_that_writes_to_an_input_that_is_not_varied_breaks_it(asked):
    def product(ctx, x, factor):
        ctx.save_for_forward(factor)
        return x * factor

    def rule(ctx, tangent, _):
        (factor,) = ctx.saved_tensors
        slope = tangent * factor
        factor.data.zero_()
        return slope

    (finding,) = asked(NAME, by_jvp(rule, product), (point(3), point(3, seed=2).detach()))

    assert "writes to factor" in finding.message


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
def test_a_function_that_writes_in_place_to_a_copy_keeps_it(asked, dtype):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    doubled = by_jvp(lambda ctx, t: t.mul_(2), forward)

    assert asked(NAME, lambda x: doubled(x.clone()), point(3, dtype=dtype)) == []


def test_it_is_tested_by_default():
    rule = by_jvp(lambda ctx, tangent: tangent.mul_(2 * ctx.saved_tensors[0]))

    assert NAME in {finding.kind for finding in check(rule, point(3), modes="forward", seed=0).findings}
