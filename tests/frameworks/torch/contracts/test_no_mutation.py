"""A backward only reads."""

from __future__ import annotations

import torch

from gradproof import check
from support.functions import with_context
from support.points import point


def doubled(ctx, x):
    ctx.save_for_backward(x)
    return 2 * x


def test_right_functions_keep_it(asked, right):
    assert asked("no-mutation", *right) == []


def test_a_backward_that_writes_to_its_incoming_gradient_breaks_it(asked):
    (finding,) = asked("no-mutation", with_context(doubled, lambda ctx, g: g.mul_(2)), point(3))

    assert "the incoming gradient of Ruled" in finding.message
    assert "clone" in finding.hint


def test_a_write_that_autograd_does_not_see_breaks_it(asked):
    (finding,) = asked("no-mutation", with_context(doubled, lambda ctx, g: g.data.mul_(2)), point(3))

    assert "incoming gradient" in finding.message


def test_one_number_of_a_hundred_thousand_that_is_written_to_breaks_it(asked):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x.data[77_777] += 1e-12
        return 2 * g

    (finding,) = asked("no-mutation", with_context(doubled, backward), point(100_000))

    assert "writes to x" in finding.message or "saved" in finding.message


def test_large_inputs_that_are_only_read_keep_it(asked):
    assert asked("no-mutation", with_context(doubled, lambda ctx, g: 2 * g), point(100_000)) == []


def test_a_write_to_the_incoming_gradient_in_the_midst_of_others_breaks_it(asked):
    inner = with_context(doubled, lambda ctx, g: g.mul_(2))

    assert asked("no-mutation", lambda x: inner(x.sin()).cos(), point(3))


def test_a_backward_that_writes_to_an_input_breaks_it(asked):
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        x.data.add_(1)
        return 2 * g

    (finding,) = asked("no-mutation", with_context(doubled, backward), point(3))

    assert "writes to x" in finding.message


def test_a_backward_that_writes_to_a_result_breaks_it(asked):
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    def backward(ctx, g):
        (result,) = ctx.saved_tensors
        gradient = g * result
        result.data.zero_()
        return gradient

    (finding,) = asked("no-mutation", with_context(forward, backward), point(3))

    assert "output" in finding.message


def test_a_backward_that_writes_to_what_it_saved_breaks_it(asked):
    def forward(ctx, x):
        ctx.save_for_backward(x.cos())
        return x.sin()

    def backward(ctx, g):
        (cosine,) = ctx.saved_tensors
        gradient = g * cosine
        cosine.data.mul_(0.5)
        return gradient

    (finding,) = asked("no-mutation", with_context(forward, backward), point(3))

    assert "what Ruled saved" in finding.message


def test_a_forward_that_overwrites_what_it_saved_is_noted():
    def forward(ctx, x):
        cosine = x.cos()
        ctx.save_for_backward(cosine)
        return x.sin(), cosine

    inner = with_context(forward, lambda ctx, g, _: g * ctx.saved_tensors[0])

    def overwriting(x):
        sine, cosine = inner(x)
        cosine.data.zero_()
        return sine

    report = check(overwriting, point(3), contracts=("no-mutation",), seed=0)

    assert any("overwritten" in note for note in report.notes)
    assert not report.passed


def test_a_forward_that_leaves_what_it_saved_is_not_noted():
    function = with_context(doubled, lambda ctx, g: 2 * g)

    report = check(lambda x: function(x).sin(), point(3), contracts=("no-mutation",), seed=0)

    assert not any("overwritten" in note for note in report.notes)


def test_saved_numbers_that_are_not_finite_are_no_change(asked):
    x = torch.tensor([1.0, torch.inf], dtype=torch.float64, requires_grad=True)

    assert asked("no-mutation", with_context(doubled, lambda ctx, g: 2 * g), x) == []


def test_what_was_saved_and_written_to_but_is_never_requested_is_no_error(asked):
    def forward(ctx, x):
        cosine = x.cos()
        ctx.save_for_backward(cosine)
        cosine.add_(1)
        return 2 * x

    assert asked("no-mutation", with_context(forward, lambda ctx, g: 2 * g), point(3)) == []
