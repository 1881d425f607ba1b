"""A batch of tangents gives what a loop gives."""

from __future__ import annotations

import torch

from gradproof import Verdict, check
from support.functions import with_context
from support.points import point


class Twice(torch.autograd.Function):
    """2x, whose jvp is wrong for batches."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def jvp(ctx, dx):
        return Flipped.apply(dx)

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x, 0


class Flipped(torch.autograd.Function):
    """2x, with a wrong rule for batches."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x.flip(0), 0


def test_right_functions_keep_it_or_say_that_they_cannot_be_tested(right):
    report = check(*right, modes="forward", contracts=None, seed=5)

    assert not [finding for finding in report.findings if finding.kind == "batched-forward"]


def test_right_functions_keep_it(asked):
    assert asked("batched-forward", lambda x, y: (x @ y, x.sum()), (point(2, 3), point(3, 2, seed=2))) == []
    assert asked("batched-forward", torch.sin, point()) == []
    assert asked("batched-forward", lambda z: z.exp(), point(3, dtype=torch.complex128)) == []
    assert asked("batched-forward", torch.nn.Linear(3, 2, dtype=torch.float64), point(4, 3)) == []


def test_a_wrong_rule_for_batches_breaks_it(asked):
    (finding,) = asked("batched-forward", Twice.apply, point(3))

    assert "vmap" in finding.message


def old_style(jvp=lambda ctx, dx: 2 * dx):
    """A Function that torch.func does not take: its forward saves for itself."""
    return with_context(lambda ctx, x: 2 * x, lambda ctx, g: 2 * g, jvp=jvp)


def by_numbers(ctx, dx):
    """A jvp that takes a number out of its tangent, which no implementation of vmap can batch."""
    return 2 * dx + 0 * float(dx.sum())


def test_a_function_that_torch_func_does_not_take_is_batched_as_gradcheck_does():
    report = check(old_style(), point(3), modes="forward", seed=0)

    assert report.passed
    assert not any("batched-forward" in note for note in report.notes)


def test_a_function_that_cannot_be_batched_is_worth_a_note():
    report = check(old_style(by_numbers), point(3), modes="forward", seed=0)

    assert report.verdict is Verdict.PASS
    assert any("Contract 'batched-forward': " in note for note in report.notes)


def test_a_function_that_cannot_be_batched_is_a_finding_where_it_was_requested(asked):
    (finding,) = asked("batched-forward", old_style(by_numbers), point(3))

    assert "setup_context" in finding.message


def test_second_derivatives_are_left_alone():
    report = check(torch.sin, point(3), modes="forward", order=2, contracts=("batched-forward",), seed=0)

    assert report.passed, str(report)


def test_inputs_whose_entries_share_memory_keep_it(asked):
    for shared in (point(1, 3).detach().expand(4, 3), point(6).detach().unfold(0, 3, 1)):
        assert asked("batched-forward", lambda x: x * x.sum(), shared.requires_grad_()) == []
