"""Nothing of the inputs is changed, varied or not, whatever the function does and however the check ends."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import check
from support.endings import FUNCTIONS, every_ending, every_precision, right, run, wrong
from support.points import point


@every_precision
@pytest.mark.parametrize("function", FUNCTIONS[:-1], ids=lambda function: function.__name__)
def test_inputs_stay_as_they_are_bit_for_bit(function, dtype):
    x, y = point(4, dtype=dtype), point(4, seed=2, dtype=dtype).detach()
    x.grad = torch.full_like(x, 7.0)
    field = x.grad
    before = [each.detach().clone() for each in (x, y)]

    run(function, x, y)

    assert [each._version for each in (x, y)] == [0, 0]
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
    assert x.grad is field
    assert torch.equal(field, torch.full_like(x, 7.0))
    assert y.grad is None
    assert (x.requires_grad, y.requires_grad) == (True, False)
    assert x.is_leaf


@every_ending
def test_an_input_at_zero_and_nan_stays_as_it_is(function):
    x = torch.tensor([0.0, -0.0, float("nan"), 1.0], dtype=torch.float64, requires_grad=True)
    bits = x.detach().view(torch.int64).clone()

    run(function, x)

    assert torch.equal(x.detach().view(torch.int64), bits)


def test_the_memory_around_a_view_stays_as_it_is():
    base = point(20).detach()
    before = base.clone()

    run(wrong, base[2:18:3].requires_grad_(), base[5])

    assert torch.equal(base, before)
    assert base._version == 0


def test_requires_grad_of_an_input_chosen_by_wrt_stays_as_it_is():
    x = point(4).detach()

    assert run(right, x, wrt=0).passed
    assert not x.requires_grad


def test_the_graph_of_an_input_that_is_no_leaf_stays_as_it_is():
    root = point(4)
    x = root.exp()
    function = x.grad_fn

    assert run(right, x).passed
    assert x.grad_fn is function
    x.sum().backward()
    assert root.grad is not None


def test_hooks_of_an_input_are_not_run():
    x, calls = point(4), []
    x.register_hook(lambda gradient: calls.append(gradient))

    run(wrong, x)

    assert calls == []


def test_containers_stay_as_they_are():
    inner = {"x": point(4)}
    outer = [inner, 3]

    def emptying(batch, number):
        return batch.pop("x").sin() * number

    assert check(emptying, outer, seed=0).passed
    assert list(inner) == ["x"]
    assert outer == [inner, 3]


def test_a_fixed_input_that_is_written_to_stays_as_it_is():
    scratch = torch.zeros(4, dtype=torch.float64)

    def function(x, out):
        out.copy_(x.detach())
        return x.sin() + out.detach().clone()

    run(function, point(4), scratch)

    assert torch.equal(scratch, torch.zeros(4, dtype=torch.float64))
    assert scratch._version == 0


def test_a_fixed_input_that_is_written_to_without_changing_it_keeps_its_version():
    bounds = torch.tensor([0.5], dtype=torch.float64)

    def function(x, limit):
        return x.sin() * limit.clamp_(0.0, 1.0)

    assert run(function, point(4), bounds).passed
    assert bounds._version == 0


def test_a_fixed_input_that_is_written_to_on_later_calls_only_stays_as_it_is():
    counter, calls = torch.zeros(1, dtype=torch.float64), []

    def function(x, count):
        if calls:
            count += 1
        calls.append(None)
        return x.sin()

    run(function, point(4), counter)

    assert counter.item() == 0


def test_an_integer_input_that_is_written_to_stays_as_it_is():
    counter = torch.zeros(1, dtype=torch.int64)

    def function(x, count):
        count += 1
        return x.sin()

    assert run(function, point(4), counter).passed
    assert counter.item() == 0


def test_a_fixed_input_that_is_reshaped_in_place_keeps_its_shape():
    mask = torch.ones(4, dtype=torch.float64)

    def function(x, mask):
        return x.sin() * mask.unsqueeze_(0)

    run(function, point(4), mask)

    assert mask.shape == (4,)


def test_a_fixed_input_that_the_function_differentiates_keeps_requires_grad_and_grad():
    position, weight = point(4).detach(), point(4, seed=2)

    def forces(weight, position):
        position.requires_grad_()
        with torch.enable_grad():
            energy = (weight * position.sin()).sum()
        return torch.autograd.grad(energy, position, create_graph=True)[0]

    assert run(forces, weight, position).passed
    assert not position.requires_grad
    assert position.grad is None


def test_a_fixed_input_that_the_function_runs_backward_to_keeps_its_grad():
    position, weight = point(4), point(4, seed=2)

    def accumulating(weight, position):
        with torch.enable_grad():
            (position.sin()).sum().backward()
        return weight.sin()

    run(accumulating, weight, position, wrt=0)

    assert position.grad is None


@every_precision
@every_ending
def test_the_grad_of_a_captured_parameter_stays_as_it_is(function, dtype):
    if function is torch.relu and dtype.is_complex:
        pytest.skip("relu is for real numbers")
    empty, full = (nn.Parameter(point(4, dtype=dtype).detach()) for _ in range(2))
    full.grad = torch.full_like(full, 3.0)

    run(lambda x: function(x * empty + full), point(4, dtype=dtype))

    assert empty.grad is None
    assert torch.equal(full.grad, torch.full_like(full, 3.0))


@every_ending
def test_the_grads_and_values_of_a_module_stay_as_they_are(function):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

        def forward(self, x):
            return function(self.norm(self.layer(x)))

    module = Net().double().train()
    module.layer.weight.grad = torch.ones(4, 4, dtype=torch.float64)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    versions = {name: value._version for name, value in module.state_dict().items()}
    members = dict(module.named_parameters())

    run(module, point(3, 4))

    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert {name: value._version for name, value in module.state_dict().items()} == versions
    assert all(members[name] is value for name, value in module.named_parameters())
    assert module.training
    assert module.norm.training
    assert torch.equal(module.layer.weight.grad, torch.ones(4, 4, dtype=torch.float64))
    assert module.layer.bias.grad is None
