"""A batch of incoming gradients gives what a loop gives."""

from __future__ import annotations

import torch

from gradproof import Verdict, check


class Twice(torch.autograd.Function):
    """2x, with a wrong rule for batches."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return 2 * g

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x.flip(0), 0


def identity(ctx, x):
    return x.clone()


def doubled(ctx, x):
    return 2 * x


def test_right_functions_keep_it_or_say_that_they_cannot_be_asked(right):
    report = check(*right, contracts=None, seed=5)

    assert not [finding for finding in report.findings if finding.kind == "batched"]


def test_right_functions_keep_it(asked, point):
    assert asked("batched", lambda x, y: (x @ y, x.sum()), (point(2, 3), point(3, 2, seed=2))) == []
    assert asked("batched", torch.sin, point()) == []
    assert asked("batched", lambda z: z.exp(), point(3, dtype=torch.complex128)) == []
    assert asked("batched", lambda x, y: x.sin(), (point(3), point(3, seed=2))) == []


def test_a_wrong_rule_for_batches_breaks_it(asked, point, ruled):
    (finding,) = asked("batched", ruled(doubled, lambda ctx, g: Twice.apply(g)), point(3))

    assert finding.argument == "inputs[0]"
    assert "vmap" in finding.message


def test_a_backward_that_remembers_what_came_first_breaks_it(asked, point, ruled):
    kept = {}

    def backward(ctx, g):
        if torch._C._functorch.is_batchedtensor(g):
            return kept["first"]
        kept["first"] = g.clone()
        return g.clone()

    assert asked("batched", ruled(identity, backward), point(3))


def test_a_backward_that_cannot_be_batched_is_worth_a_note(point, ruled):
    report = check(ruled(identity, lambda ctx, g: g * (g.sum().item() * 0 + 1)), point(3), seed=0)

    assert report.verdict is Verdict.PASS
    assert any("Contract 'batched': " in note for note in report.notes)


def test_a_backward_that_cannot_be_batched_is_a_finding_where_it_was_asked_for(asked, point, ruled):
    (finding,) = asked("batched", ruled(identity, lambda ctx, g: g * (g.sum().item() * 0 + 1)), point(3))

    assert "torch.func.vmap" in finding.message
