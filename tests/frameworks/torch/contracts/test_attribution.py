"""A contract that torch's own rules break is a note, unless the contract was named."""

from __future__ import annotations

import torch

from gradproof import Verdict, check
from support.functions import with_context
from support.points import point


def distances(x):
    return torch.cdist(x, torch.ones(4, 3, dtype=torch.float64), p=3.0)


def test_torchs_own_wrong_rule_for_batches_is_worth_a_note():
    report = check(distances, point(5, 3), seed=0)

    assert report.passed, str(report)
    assert any("vmap" in note and "torch's own" in note for note in report.notes)


def test_torchs_own_wrong_rule_is_a_finding_where_it_was_named(asked):
    (finding,) = asked("batched", distances, point(5, 3))

    assert "differs from that in a loop" in finding.message


def test_torchs_own_backward_that_wants_contiguous_inputs_is_worth_a_note():
    places = torch.randint(0, 5, (2, 4, 4), generator=torch.Generator().manual_seed(0))
    report = check(lambda x: torch.nn.functional.nll_loss(x, places), point(2, 5, 4, 4), seed=0)

    assert report.passed, str(report)
    assert any("contiguous" in note for note in report.notes)


def test_torchs_own_backward_that_ignores_an_undefined_gradient_is_worth_a_note():
    report = check(lambda x: torch.native_group_norm(x, None, None, 2, 4, 3, 2, 1e-5), point(2, 4, 3), seed=0)

    assert report.passed, str(report)
    assert any("undefined incoming gradients" in note for note in report.notes)


def test_a_function_of_ones_own_behind_a_second_derivative_is_not_excused():
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return viewed(g * y), g * x

    viewed = with_context(lambda ctx, x: x.clone(), lambda ctx, g: g.view(-1).view(g.shape))
    inputs = (point(3, 4), point(3, 4, seed=2))
    report = check(with_context(forward, backward), inputs, order=2, modes="reverse", contracts=("contiguity",), seed=0)

    assert any(finding.kind == "contiguity" for finding in report.findings)


def test_the_hook_of_a_module_that_no_undefined_gradient_can_reach_is_not_the_users_rule():
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    layer.register_full_backward_pre_hook(lambda module, gradients: (1 * gradients[0],))

    report = check(layer, point(4, 3), seed=0)

    assert report.passed, str(report)
    assert any("undefined" in note for note in report.notes)


def test_the_hook_of_a_module_that_changes_its_gradient_is_checked():
    layer = torch.nn.Linear(3, 2, dtype=torch.float64)
    layer.register_full_backward_hook(lambda module, inputs, outputs: (2 * inputs[0],))

    assert check(layer, point(4, 3), seed=0).verdict is Verdict.FAIL
