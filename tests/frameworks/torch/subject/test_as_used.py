"""Functions are judged as they are used: by `loss.backward()` on a module's own parameters where only that works."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradproof import Verdict, check
from support.marks import coverages
from support.points import point


class Adjoint(torch.autograd.Function):
    """Euler steps whose backward evaluates the module again, at the parameters that it holds then."""

    @staticmethod
    def forward(ctx, module, factor, start, *parameters):
        with torch.no_grad():
            states = [start]
            for _ in range(3):
                states.append(states[-1] + 0.1 * module(states[-1]))
        ctx.module, ctx.factor, ctx.states = module, factor, states
        ctx.save_for_backward(*parameters)
        return states[-1]

    @staticmethod
    def backward(ctx, incoming):
        totals = [torch.zeros_like(parameter) for parameter in ctx.saved_tensors]
        for state in reversed(ctx.states[:-1]):
            with torch.enable_grad():
                state = state.detach().requires_grad_()
                after = state + 0.1 * ctx.module(state)
                found = torch.autograd.grad(after, (state, *ctx.saved_tensors), incoming, allow_unused=True)
            incoming, parts = found[0], [torch.zeros(()) if each is None else each for each in found[1:]]
            totals = [total + ctx.factor * part for total, part in zip(totals, parts, strict=True)]
        return None, None, incoming, *totals


class Solver(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.field, self.factor = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double(), factor

    def forward(self, start):
        return Adjoint.apply(self.field, self.factor, start, *self.field.parameters())


class Accumulating(torch.autograd.Function):
    """A reversible step whose backward frees what it saved, and lets autograd add to `.grad` of the parameters."""

    @staticmethod
    def forward(ctx, x, module):
        ctx.module, ctx.kept = module, x.detach()
        with torch.no_grad():
            return x + module(x)

    @staticmethod
    def backward(ctx, incoming):
        x = ctx.kept.requires_grad_()
        del ctx.kept
        with torch.enable_grad():
            ctx.module(x).backward(incoming)
        return incoming + x.grad, None


class Reversible(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.factor = nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double(), factor

    def forward(self, x):
        y = Accumulating.apply(x, self.inner)
        return y + (self.factor - 1) * (y - y.detach())


class Checkpointed(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.factor = nn.Linear(3, 3).double(), factor

    def forward(self, x):
        y = checkpoint(lambda x: self.inner(x).tanh(), x, use_reentrant=True)
        return y + (self.factor - 1) * (y - y.detach())


modules = pytest.mark.parametrize("make", [Solver, Reversible, Checkpointed])
reentrant = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")


@reentrant
@modules
@coverages
def test_a_right_module_passes(make, coverage):
    report = check(make(), point(2, 3), coverage=coverage, seed=1)

    assert report.passed, str(report)
    assert any("loss.backward()" in note for note in report.notes)


@reentrant
@modules
@coverages
def test_a_wrong_gradient_is_still_found(make, coverage):
    assert check(make(factor=1.01), point(2, 3), coverage=coverage, seed=1).verdict is Verdict.FAIL


@reentrant
@modules
@pytest.mark.parametrize("factor", [1.0, 1.5])
def test_parameters_and_their_gradients_stay_as_they_are(make, factor):
    module = make(factor)
    given = [torch.full_like(parameter, 2.0).detach() for parameter in module.parameters()]
    for parameter, gradient in zip(module.parameters(), given, strict=True):
        parameter.grad = gradient
    before = [(parameter, parameter.detach().clone(), parameter.data_ptr()) for parameter in module.parameters()]

    check(module, point(2, 3), seed=1)

    for parameter, (same, numbers, address), gradient in zip(module.parameters(), before, given, strict=True):
        assert parameter is same
        assert torch.equal(parameter, numbers)
        assert parameter.data_ptr() == address
        assert parameter.grad is gradient
        assert bool((gradient == 2.0).all())


@reentrant
def test_a_function_that_refuses_all_but_backward_passes():
    assert check(lambda x: checkpoint(torch.sin, x, use_reentrant=True), point(4), seed=1).passed


def test_a_module_that_is_wrong_either_way_is_judged_by_its_ordinary_gradient():
    class Wrong(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y + 0.1 * (y - y.detach())

    report = check(Wrong(3, 2).double(), point(4, 3), seed=1)

    assert report.verdict is Verdict.FAIL
    assert not any("loss.backward()" in note for note in report.notes)


class Freeing(torch.autograd.Function):
    """An invertible step that frees the memory of its input, and restores it in the backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.size, ctx.x = x.untyped_storage().size(), x
        y = x.exp()
        ctx.y = y.detach()
        x.untyped_storage().resize_(0)
        return y

    @staticmethod
    def backward(ctx, incoming):
        ctx.x.untyped_storage().resize_(ctx.size)
        with torch.no_grad():
            ctx.x.data.copy_(ctx.y.log())
        return incoming * ctx.x.exp()


@pytest.mark.parametrize("size", [4, 70_000])
def test_a_function_that_frees_the_memory_of_its_input_passes(size):
    x = point(size)
    numbers = x.detach().clone()

    report = check(Freeing.apply, x, seed=1)

    assert report.passed, str(report)
    assert any("frees the memory of" in note for note in report.notes)
    assert torch.equal(x, numbers)


class Implicit(nn.Module):
    """z = tanh(zW + x); its backward, a hook on z that removes itself, solves for the incoming gradient."""

    def __init__(self, factor=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.weight, self.factor, self.hook = nn.Parameter(0.2 * torch.randn(3, 3).double()), factor, None

    def cell(self, z, x):
        return torch.tanh(z @ self.weight + x)

    def solved(self, step, start):
        for _ in range(60):
            start = step(start)
        return start

    def forward(self, x):
        with torch.no_grad():
            start = self.solved(lambda z: self.cell(z, x), torch.zeros_like(x))
        start.requires_grad_()
        z = self.cell(start, x)

        def backward(incoming):
            assert self.hook is not None, "the hook of another call: this one would be called again, without an end"
            self.hook.remove()
            self.hook = None
            pulled = self.solved(lambda g: torch.autograd.grad(z, start, g, retain_graph=True)[0] + incoming, incoming)
            return self.factor * pulled

        self.hook = z.register_hook(backward) if z.requires_grad else None
        return z


@coverages
@pytest.mark.parametrize("modes", [("reverse",), ("reverse", "forward")])
def test_a_layer_that_keeps_the_hook_of_its_last_call_is_differentiated_right_after_a_call(coverage, modes):
    report = check(Implicit(), point(2, 3), coverage=coverage, modes=modes, seed=1)

    assert report.passed, str(report)
    assert len(set(report.notes)) == len(report.notes)


@coverages
def test_a_wrong_gradient_of_a_layer_that_keeps_a_hook_fails(coverage):
    assert check(Implicit(factor=1.01), point(2, 3), coverage=coverage, seed=1).verdict is Verdict.FAIL


@modules
@reentrant
def test_an_optimizer_that_steps_during_the_backward_does_not_step(make):
    module = make()
    optimizer, ran = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9), []

    def step(parameter):
        ran.append(parameter)
        optimizer.step()
        optimizer.zero_grad()

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    report = check(module, point(2, 3), seed=1)

    assert report.passed, str(report)
    assert any("hooks" in note for note in report.notes)
    assert not ran
    assert not optimizer.state
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    module(point(2, 3)).sum().backward()
    assert ran
