"""Training steps with one mistake are found, and right steps of the same networks never fail."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, NAdam, RMSprop

from gradproof import Verdict, check_step
from gradproof.sparse import SparseLinear

NETWORKS = {
    "perceptron": lambda: nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)),
    "kinks": lambda: nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.LayerNorm(24), nn.Linear(24, 3)),
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 8, 3), nn.GELU(), nn.Flatten(), nn.Linear(32, 3)
    ),
    "sparse": lambda: nn.Sequential(SparseLinear(6, 20, density=0.4), nn.SiLU(), nn.Linear(20, 3)),
}
RIGHT = {
    "SGD": partial(SGD, lr=0.05),
    "momentum": partial(SGD, lr=0.02, momentum=0.9, dampening=0.1, weight_decay=0.01),
    "nesterov": partial(SGD, lr=0.02, momentum=0.9, nesterov=True),
    "Adam": partial(Adam, lr=1e-3),
    "amsgrad": partial(Adam, lr=1e-3, amsgrad=True, weight_decay=0.01),
    "AdamW": partial(AdamW, lr=1e-3, weight_decay=0.1),
    "NAdam": partial(NAdam, lr=1e-3),
    "RMSprop": partial(RMSprop, lr=1e-3, momentum=0.5),
    "Adagrad": partial(Adagrad, lr=1e-2, lr_decay=0.1),
}


def setting(network, seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    net = NETWORKS[network]().to(dtype)
    x, y = torch.randn(32, 6, dtype=dtype), torch.randint(3, (32,))
    return net, lambda: nn.functional.cross_entropy(net(x), y)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("optimizer", RIGHT)
@pytest.mark.parametrize("network", NETWORKS)
def test_right_steps_pass_one_after_the_other(network, optimizer, dtype):
    net, loss = setting(network, dtype=dtype)
    steps = RIGHT[optimizer](net.parameters())

    for seed in range(3):
        report = check_step(steps, loss, net, seed=seed)
        assert report.passed, report


def moved_by(net, change):
    """A step function that adds `change(parameter, number)` to every parameter."""

    def step():
        with torch.no_grad():
            for number, parameter in enumerate(net.parameters()):
                parameter.add_(change(parameter, number))

    return step


def deriving(kind, change, **options):
    """An optimizer derived from one of torch's that changes the parameters once more after its step."""

    class Derived(kind):
        def step(self, closure=None):
            super().step(closure)
            with torch.no_grad():
                for group in self.param_groups:
                    for parameter in group["params"]:
                        change(parameter, group)

    return lambda net: Derived(net.parameters(), **options)


def without_bias_correction(net):
    class Derived(Adam):
        def step(self, closure=None):
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.sub_(group["lr"] * 0.1 * p.grad / ((0.001 * p.grad**2).sqrt() + group["eps"]))

    return Derived(net.parameters(), lr=1e-3)


def stale(net):
    optimizer = SGD(net.parameters(), lr=0.01)
    old = [torch.randn_like(p) for p in net.parameters()]

    def step():
        for p, gradient in zip(net.parameters(), old, strict=True):
            p.grad = gradient
        optimizer.step()

    return step


def with_gradients_times(factor, chosen=lambda number: True):
    def make(net):
        optimizer = SGD(net.parameters(), lr=0.01)

        def step():
            for number, p in enumerate(net.parameters()):
                if chosen(number):
                    p.grad.mul_(factor)
            optimizer.step()

        return step

    return make


def put_back(net):
    optimizer, first = Adam(net.parameters(), lr=1e-3), next(net.parameters())

    def step():
        kept = first.detach().clone()
        optimizer.step()
        with torch.no_grad():
            first.copy_(kept)

    return step


MISTAKES = {
    "ascent by a sign": lambda net: moved_by(net, lambda p, _: 0.05 * p.grad),
    "ascent by maximize": lambda net: SGD(net.parameters(), lr=0.05, maximize=True),
    "one layer with the wrong sign": lambda net: moved_by(net, lambda p, k: (0.05 if k == 2 else -0.05) * p.grad),
    "one layer's signs wrong": lambda net: moved_by(net, lambda p, k: (1e-3 if k == 0 else -1e-3) * p.grad.sign()),
    "a rate far too large": lambda net: SGD(net.parameters(), lr=500.0),
    "a rate far too large, by hand": lambda net: moved_by(net, lambda p, _: -500 * p.grad),
    "a parameter left out": lambda net: SGD(list(net.parameters())[:-1], lr=0.05),
    "a parameter put back": put_back,
    "a stale gradient": stale,
    "a gradient accumulated twice": with_gradients_times(2.0),
    "a gradient that is not unscaled": with_gradients_times(1024.0),
    "one gradient turned around": with_gradients_times(-1.0, lambda number: number == 1),
    "no bias correction": without_bias_correction,
    "weight decay twice": deriving(
        AdamW, lambda p, group: p.mul_(1 - group["lr"] * group["weight_decay"]), lr=1e-3, weight_decay=0.1
    ),
    "the step taken twice": deriving(SGD, lambda p, group: p.sub_(group["lr"] * p.grad), lr=0.01),
    "one group at another rate": deriving(
        SGD, lambda p, group: p.sub_(group["lr"] * p.grad) if p.dim() == 1 else None, lr=0.01
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_with_a_mistake_fails(network, mistake):
    net, loss = setting(network)

    report = check_step(MISTAKES[mistake](net), loss, net, seed=0)

    assert report.verdict is Verdict.FAIL, report


@pytest.mark.parametrize("network", NETWORKS)
def test_a_step_along_a_random_direction_does_not_pass(network):
    net, loss = setting(network)

    report = check_step(moved_by(net, lambda p, _: 1e-2 * torch.randn_like(p)), loss, net, seed=0)

    assert not report.passed


class Cut(torch.autograd.Function):
    """The identity, whose gradient is zero for some entries."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.cat([gradient[:1], 0 * gradient[1:]])


def test_a_gradient_that_is_wrongly_zero_fails_although_no_step_shows_it():
    net, loss = setting("perceptron")
    weight = nn.Parameter(torch.randn(5))

    report = check_step(
        SGD([*net.parameters(), weight], lr=0.01),
        lambda: loss() + Cut.apply(weight).sin().sum(),
        {**dict(net.named_parameters()), "weight": weight},
        seed=0,
    )

    assert report.verdict is Verdict.FAIL
    assert [finding.argument for finding in report.findings] == ["weight"]


def by_hand(net, *, beta=(0.9, 0.999), correct=(True, True), eps=1e-8, decay=0.1, times=1, coupled=False, sign=1.0):
    """A first step of AdamW, written by hand."""

    def change(p, _):
        g = p.grad + decay * p.detach() if coupled else p.grad
        m = (1 - beta[0]) * g / ((1 - beta[0]) if correct[0] else 1)
        v = (1 - beta[1]) * g * g / ((1 - beta[1]) if correct[1] else 1)
        decayed = 0 if coupled else times * decay * p.detach()
        return -1e-3 * (sign * m / (v.sqrt() + eps) + decayed)

    return moved_by(net, change)


VARIANTS = {
    "no first bias correction": {"correct": (False, True)},
    "no second bias correction": {"correct": (True, False)},
    "no bias correction": {"correct": (False, False)},
    "weight decay twice": {"times": 2},
    "no weight decay": {"times": 0},
    "coupled weight decay": {"coupled": True},
    "a wrong sign": {"sign": -1.0},
    "a large eps": {"eps": 1e-2},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_step_by_hand_is_held_to_the_rule_that_is_given(variant, dtype):
    rule = partial(AdamW, lr=1e-3, weight_decay=0.1)
    net, loss = setting("kinks", dtype=dtype)

    right = check_step(by_hand(net), loss, net, rule=rule, seed=0)
    wrong = check_step(by_hand(net, **VARIANTS[variant]), loss, net, rule=rule, seed=0)

    assert right.passed, right
    assert "rule" in [finding.kind for finding in wrong.findings], wrong


@pytest.mark.parametrize("clip", [nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_])
def test_clipped_and_masked_gradients_are_no_mistake(clip):
    net, loss = setting("perceptron")
    steps = Adam(net.parameters(), lr=1e-3)

    def step():
        clip(net.parameters(), 0.01)
        next(net.parameters()).grad[:2] = 0
        steps.step()

    assert check_step(step, loss, net, seed=0).passed


def test_a_loss_that_is_meant_to_increase_may():
    net, loss = setting("perceptron")

    assert check_step(SGD(net.parameters(), lr=0.05, maximize=True), loss, net, expect="increase", seed=0).passed
    assert not check_step(SGD(net.parameters(), lr=0.05), loss, net, expect="increase", seed=0).passed
