"""Modules whose backward evaluates them again: they hold the tensors of the call that the backward belongs to."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradproof import Verdict, check, compare, gradgradcheck
from support.functions import doubled
from support.points import normal, point


class Checkpointed(nn.Module):
    def __init__(self, last=torch.sin):
        super().__init__()
        self.weight, self.last = nn.Parameter(normal(3, 3, seed=2)), last
        self.dropout = nn.Dropout(0.3)

    def block(self, x):
        return self.last(self.dropout(torch.tanh(x @ self.weight)) @ self.weight)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)


class SquareWithoutFactor(torch.autograd.Function):
    """x², whose first derivative is right, and whose second one is half of what it should be."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return incoming * (x + x.detach())


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_the_second_derivatives_of_a_checkpointed_module_pass(coverage):
    report = check(Checkpointed(), point(2, 3), order=2, coverage=coverage, seed=1)

    assert report.passed, str(report)


def test_a_checkpointed_module_passes_gradgradcheck():
    assert gradgradcheck(Checkpointed(), (point(2, 3),))


def test_a_wrong_second_derivative_of_a_checkpointed_module_fails():
    module = Checkpointed(SquareWithoutFactor.apply)

    assert check(module, point(2, 3), seed=1).passed
    assert check(module, point(2, 3), order=2, seed=1).verdict is Verdict.FAIL


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_checkpointed_module_in_low_precision_is_judged_by_double_precision(dtype):
    module, x = Checkpointed().to(dtype), point(2, 3, dtype=dtype)

    report = check(module, x, seed=1)

    assert report.passed, str(report)
    assert not any("In double precision" in note for note in report.notes)
    assert module.weight.dtype is dtype


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_wrong_gradient_of_a_checkpointed_module_in_low_precision_fails(dtype):
    module = Checkpointed(doubled).to(dtype)

    assert check(module, point(2, 3, dtype=dtype), seed=1).verdict is Verdict.FAIL


def test_a_checkpointed_module_is_equivalent_to_the_same_function_of_its_weights():
    module = Checkpointed().eval()

    def plain(x):
        return torch.sin(torch.tanh(x @ module.weight) @ module.weight)

    assert compare(module, plain, (point(2, 3),), seed=0).verdict is Verdict.PASS
