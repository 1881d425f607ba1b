"""Modules that hold a tensor in several places, or a submodule on several paths, are called with all of them moved."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import check


class Twice(nn.Module):
    """One submodule, registered twice."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.again = nn.ModuleList([self.first])

    def forward(self, x):
        return self.again[0](self.first(x).tanh())


class Tied(nn.Module):
    """One weight of two submodules."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).tanh())


@pytest.mark.parametrize("kind", [Twice, Tied])
def test_shared_parameters_are_verified_and_stay_where_they_are(kind):
    module = kind().double()
    own = list(map(id, module.parameters()))

    report = check(module, torch.randn(2, 3, dtype=torch.float64), seed=0)

    assert report.passed, report
    assert list(map(id, module.parameters())) == own


class FillsItself(torch.autograd.Function):
    """A block that runs a module again in its backward, which fills the gradients of the parameters by itself."""

    @staticmethod
    def forward(ctx, x, module, factor):
        ctx.module, ctx.factor = module, factor
        ctx.save_for_backward(x)
        with torch.no_grad():
            return module(x)

    @staticmethod
    def backward(ctx, gradient):
        own = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            torch.autograd.backward(ctx.module(own), ctx.factor * gradient)
        return own.grad, None, None


class Reversible(nn.Module):
    """The block, whose submodule is registered twice."""

    def __init__(self, factor):
        super().__init__()
        self.block = nn.Linear(3, 3)
        self.others, self.factor = nn.ModuleList([self.block]), factor

    def forward(self, x):
        return FillsItself.apply(x, self.block, self.factor)


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_shared_submodule_whose_gradients_a_backward_fills_is_judged_as_it_is_used(factor):
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    report = check(Reversible(factor).double(), x, seed=0)

    assert report.passed == (factor == 1.0), report
