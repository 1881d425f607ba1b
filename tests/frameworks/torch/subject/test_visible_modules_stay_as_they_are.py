"""Modules that a function can reach, by whatever way, keep their buffers and attributes."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from gradproof import check
from support.points import point


class Counting(torch.nn.Module):
    """A module that writes to one buffer, and puts another one in the place of a second."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3, dtype=torch.float64))
        self.register_buffer("nothing", None)

    def forward(self, x):
        self.calls += 1
        self.last = x.detach().clone()
        return x.sin()


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize(
    "seen", [lambda module: lambda x: module(x), lambda module: module.forward], ids=["in a closure", "as self"]
)
def test_the_buffers_of_modules_that_a_function_can_see_stay_as_they_are(seen, coverage):
    module = Counting()
    calls, last = module.calls, module.last
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)

    assert check(seen(module), (x,), coverage=coverage).passed

    assert module.calls is calls
    assert module.last is last
    assert calls.item() == 0
    assert last.tolist() == [0.0, 0.0, 0.0]


def test_the_running_statistics_of_a_captured_normalisation_stay_as_they_are():
    norm = torch.nn.BatchNorm1d(3).double()
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    x = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()

    assert check(lambda x: norm(x), (x,), order=2).passed

    assert all(torch.equal(before[name], tensor) for name, tensor in norm.state_dict().items())
    assert norm.num_batches_tracked == 0


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_a_module_among_the_arguments_stays_as_it_is(coverage):
    module = Counting()
    last = module.last

    assert check(lambda x, module: module(x), (point(3), module), coverage=coverage).passed

    assert module.last is last
    assert module.calls.item() == 0


class Holder:
    """Not a module, and has one."""

    def __init__(self, module):
        self.module = module

    def run(self, x):
        return self.module(x)


REACHES = {
    "in a list": lambda module: (lambda held: lambda x: held[0](x))([module]),
    "in a dict": lambda module: (lambda held: lambda x: held["one"](x))({"one": module}),
    "as a default": lambda module: lambda x, module=module: module(x),
    "in a partial": lambda module: functools.partial(lambda module, x: module(x), module),
    "as an attribute of self": lambda module: Holder(module).run,
    "as an attribute of an attribute": lambda module: Holder(Holder(module).run).run,
    "in a container in a container": lambda module: (lambda held: lambda x: held["all"][0][0](x))({"all": [(module,)]}),
    "as the function of a partial": functools.partial,
    "in a data-parallel module": nn.DataParallel,
    "in another function": lambda module: (lambda inner: lambda x: inner(x))(lambda x: module(x)),
}


@pytest.mark.parametrize("reach", REACHES)
def test_the_buffers_of_modules_that_are_reached_in_other_ways_stay_as_they_are(reach):
    module = Counting()

    assert check(REACHES[reach](module), (torch.ones(3, dtype=torch.float64, requires_grad=True),)).passed

    assert module.calls.item() == 0


def test_a_lazy_module_that_a_function_can_see_is_no_obstacle():
    lazy = nn.LazyBatchNorm1d(dtype=torch.float64)

    assert check(lambda x: x.sin() if lazy.training else lazy(x), (point(4, 3),)).passed


def test_buffers_that_were_made_in_inference_mode_are_no_obstacle():
    with torch.inference_mode():
        norm = nn.BatchNorm1d(3).double().eval()
    norm.requires_grad_(False)

    assert check(lambda x: norm.running_mean.sum().item() + x.sin(), (point(4, 3),)).passed


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_the_buffers_of_a_compiled_module_stay_as_they_are():
    script = torch.jit.script(nn.BatchNorm1d(3).double())
    before = {name: tensor.clone() for name, tensor in script.state_dict().items()}

    assert check(script, point(4, 3)).passed

    assert all(torch.equal(before[name], tensor) for name, tensor in script.state_dict().items())


class Accumulating(torch.autograd.Function):
    """A product whose backward adds to the gradient of its weight by itself."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x * weight.detach()

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            (x.detach() * ctx.weight).backward(incoming)
        return incoming * ctx.weight.detach(), None


@pytest.mark.parametrize("given", [None, 2.0])
def test_the_gradients_that_a_backward_adds_up_by_itself_are_taken_back(given):
    weight = torch.full((3,), 1.5, dtype=torch.float64, requires_grad=True)
    weight.grad = held = None if given is None else torch.full_like(weight, given).detach()

    assert check(lambda x: Accumulating.apply(x, weight), point(3)).passed

    assert weight.grad is held
    assert held is None or held.tolist() == [given] * 3


def test_captured_tensors_that_a_function_writes_to_stay_as_they_are():
    calls, weight = torch.zeros(()), nn.Parameter(torch.full((3,), 5.0, dtype=torch.float64))

    def function(x):
        calls.add_(1)
        weight.data.clamp_(max=1.0)
        return x * weight

    check(function, point(3))

    assert calls.item() == 0
    assert weight.tolist() == [5.0] * 3


class Moving(nn.Module):
    """A module that binds its attributes anew in every call: a number, a tensor, a submodule and its mode."""

    def __init__(self):
        super().__init__()
        self.calls, self.average, self.inner = 0, torch.zeros(3, dtype=torch.float64), None

    def forward(self, x):
        self.calls += 1
        self.average = 0.9 * self.average + 0.1 * x.detach()
        self.newest = x
        if self.inner is None:
            self.inner = nn.Linear(3, 3, dtype=torch.float64)
        self.eval()
        return self.inner(x).sin()


@pytest.mark.parametrize("seen", [lambda module: module, lambda module: lambda x: module(x)], ids=["itself", "seen"])
@pytest.mark.parametrize("order", [1, 2])
def test_the_attributes_of_modules_are_bound_to_what_they_were(seen, order):
    module = Moving()
    before = dict(vars(module))

    check(seen(module), point(3), order=order, seed=0)

    assert vars(module).keys() == before.keys()
    assert all(vars(module)[name] is value for name, value in before.items())
    assert not list(module.children())
    assert (module.calls, module.training, module.inner) == (0, True, None)


def test_an_attribute_that_a_hook_computes_before_each_call_stays_as_it_is():
    layer = nn.utils.spectral_norm(nn.Linear(3, 2, dtype=torch.float64)).eval()
    weight = layer.weight

    assert check(layer, point(2, 3), seed=0).passed

    assert layer.weight is weight
