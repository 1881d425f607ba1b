"""Full coverage of functions that cannot be called on a batch of points, or are wrong in one."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention

from gradproof import Verdict
from support.checks import full
from support.findings import wrong_places
from support.functions import rule
from support.points import point


def with_an_item(x):
    return x * x.sum().item() ** 0 + x.sin()


def with_a_branch(x):
    return x.sin() if x.sum() > -1e9 else x.cos()


class ThroughNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(np.sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return incoming * torch.from_numpy(np.cos(x.detach().numpy()))

    @staticmethod
    def jvp(ctx, tangent):
        return None


class WrongInBatches(torch.autograd.Function):
    """A sine, of which several at once are all wrong, or all but the last."""

    @staticmethod
    def forward(x, last):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return incoming * x.cos(), None

    @staticmethod
    def vmap(info, dims, x, last):
        value = (1.1 * x).sin()
        if last:
            value[-1] = x[-1].sin()
        return value, 0


SHARED = torch.zeros(40, dtype=torch.float64)


class IntoSharedMemory(torch.autograd.Function):
    """A sine that always comes in the same memory."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        memory = SHARED[: x.numel()]
        torch.sin(x.detach(), out=memory)
        return memory

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return incoming * x.cos()


def with_a_graph_inside(x):
    (slope,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return slope


def with_a_graph_of_its_own(x):
    with torch.enable_grad():
        y = x if x.requires_grad else x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((y**3).sum(), y, create_graph=True)
    return slope


def dropping(x):
    return F.dropout(x.sin(), 0.4)


def drawing(x):
    return x.sin() * torch.rand(x.shape, dtype=x.dtype) + random.random() * float(np.random.rand()) * x


def counting_in_place(x):
    y = x.clone()
    y[2:5] *= 3.0
    y.add_(x.sin())
    return y


def through_a_list(x):
    return torch.stack([float(k + 1) * entry.sin() for k, entry in enumerate(x.tolist() and x.unbind())])


HARD = {
    "a number taken out": with_an_item,
    "a branch on the data": with_a_branch,
    "wrong in batches": lambda x: WrongInBatches.apply(x, False),
    "shared memory": IntoSharedMemory.apply,
    "a graph inside": with_a_graph_inside,
    "a graph of its own": with_a_graph_of_its_own,
    "dropout": dropping,
    "draws": drawing,
    "writing in place": counting_in_place,
    "a list": through_a_list,
    "NumPy": ThroughNumpy.apply,
    "a nonzero": lambda x: x[x.detach().abs().nonzero().squeeze(-1)].sin(),
}


@pytest.mark.parametrize("size", [5, 12])
@pytest.mark.parametrize("name", HARD)
def test_a_right_function_that_is_hard_to_batch_passes(name, size):
    report = full(HARD[name], point(size))

    assert report.verdict is Verdict.PASS, str(report)


EASY_TO_PUSH = [name for name in HARD if name.split()[0] not in ("NumPy", "wrong", "shared") and "graph" not in name]


@pytest.mark.parametrize("name", EASY_TO_PUSH)
def test_a_right_function_that_is_hard_to_batch_passes_in_forward_mode(name):
    report = full(HARD[name], point(12), "forward")

    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.parametrize("name", [name for name in HARD if name != "dropout"])
def test_an_error_in_a_function_that_is_hard_to_batch_is_found(name):
    spoilt = rule(lambda x: x.clone(), lambda g, x: g * (1 + 0.01 * (torch.arange(12) == 7)))
    report = full(lambda x: HARD[name](spoilt(x)), point(12))

    assert report.verdict is Verdict.FAIL
    assert (7,) in {index for _, index, _, _ in wrong_places(report)}


def test_batches_that_are_wrong_but_for_the_last_are_no_fault_of_the_gradient():
    report = full(lambda x: WrongInBatches.apply(x, True), point(12))

    assert report.verdict is not Verdict.FAIL, str(report)


class WrongBackwardInBatches(torch.autograd.Function):
    """Doubles, by a rule that is wrong for several incoming gradients at once."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, incoming):
        return _Twice.apply(incoming)

    @staticmethod
    def vmap(info, dims, x):
        return 2 * x, 0


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, incoming):
        return 2 * incoming

    @staticmethod
    def vmap(info, dims, x):
        return 3 * x, 0


def test_a_backward_that_is_wrong_in_batches_is_evaluated_one_by_one():
    assert full(WrongBackwardInBatches.apply, point(12)).verdict is Verdict.PASS


@pytest.mark.parametrize("name", [*HARD, "wrong"])
@pytest.mark.parametrize("grad_mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_nothing_of_the_callers_is_changed(name, grad_mode):
    function = {**HARD, "wrong": rule(torch.sin, lambda g, x: 2 * g)}[name]
    x, y = point(12), point(12, seed=4).detach()
    x.grad = torch.full_like(x, 7.0)
    field, values, filters = x.grad, x.detach().clone(), list(warnings.filters)
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()

    with grad_mode():
        enabled = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        full(lambda x, y: function(x) + y, (x, y))
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == enabled

    assert torch.equal(x, values)
    assert (x._version, y._version, x.is_leaf, x.requires_grad) == (0, 0, True, True)
    assert x.grad is field
    assert bool((field == 7).all())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert (np.random.get_state()[1] == states[2]).all()
    assert warnings.filters == filters
