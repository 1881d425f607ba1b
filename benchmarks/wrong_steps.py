"""Training steps with one mistake each: rules written out wrongly, and wrong steps around a right rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from benchmarks.written_rules import RULES, warm_up, written

Change = Callable[[list[Tensor]], Any]
Loss = Callable[[], Tensor]


@dataclass(frozen=True)
class Wrong:
    """A step, and the options of the check that its user would pass."""

    step: Any
    options: dict[str, Any] = field(default_factory=dict)


def around(change: Change, *, after: bool = False, kind: Any = SGD, **options: Any) -> Any:
    """A right rule, and a change of the parameters or their gradients before or after it."""

    def make(net: nn.Module, loss: Loss) -> Wrong:
        parameters = list(net.parameters())
        optimizer = kind(parameters, **(options or {"lr": 0.01}))
        warm_up(optimizer, net, loss)

        def step() -> None:
            if not after:
                change(parameters)
            optimizer.step()
            if after:
                with torch.no_grad():
                    change(parameters)

        return Wrong(step)

    return make


def each(change: Callable[[Tensor], Any]) -> Change:
    return lambda parameters: [change(p) for p in parameters]


def gradient_set(make: Callable[[Tensor], Tensor]) -> Change:
    def change(p: Tensor) -> None:
        assert p.grad is not None
        p.grad = make(p.grad)

    return each(change)


def largest(parameters: list[Tensor]) -> Tensor:
    return max(parameters, key=lambda p: float(p.grad.norm()) if p.grad is not None else 0.0)


def of_the_largest(change: Callable[[Tensor], Any]) -> Change:
    return lambda parameters: change(largest(parameters))


def turn(p: Tensor) -> None:
    assert p.grad is not None
    p.grad.neg_()


def reversed_rows(p: Tensor) -> None:
    assert p.grad is not None
    p.grad = p.grad.flip(0)


def skipping_a_group(net: nn.Module, _loss: Loss) -> Wrong:
    class Skipping(SGD):
        def step(self, closure: Any = None) -> None:
            with torch.no_grad():
                for group in self.param_groups[:1]:
                    for p in group["params"]:
                        p.sub_(p.grad, alpha=group["lr"])

    first, *others = net.parameters()
    return Wrong(Skipping([{"params": [first]}, {"params": others}], lr=0.01))


def rate_of_the_first_group(net: nn.Module, _loss: Loss) -> Wrong:
    class First(SGD):
        def step(self, closure: Any = None) -> None:
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.sub_(p.grad, alpha=self.param_groups[0]["lr"])

    first, *others = net.parameters()
    return Wrong(First([{"params": [first], "lr": 0.02}, {"params": others, "lr": 0.01}]))


def maximize_that_minimizes(net: nn.Module, _loss: Loss) -> Wrong:
    class Minimizing(SGD):
        def step(self, closure: Any = None) -> None:
            with torch.no_grad():
                for p in self.param_groups[0]["params"]:
                    p.sub_(p.grad, alpha=self.param_groups[0]["lr"])

    return Wrong(Minimizing(net.parameters(), lr=0.01, maximize=True), {"expect": "increase"})


def scheduled_twice(net: nn.Module, _loss: Loss) -> Wrong:
    """The rate is 0.01 · 0.9 after one epoch, and the scheduler was stepped for each of its two parts."""
    optimizer = SGD(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

    def step() -> None:
        optimizer.step()

    optimizer.step()
    schedule.step()
    schedule.step()
    return Wrong(step, {"rule": lambda parameters: SGD(parameters, lr=0.009)})


def clipped_too_late(net: nn.Module, _loss: Loss) -> Wrong:
    optimizer = SGD(net.parameters(), lr=0.01)

    def step() -> None:
        optimizer.step()
        nn.utils.clip_grad_norm_(net.parameters(), 1e-3)

    def rule(parameters: list[Tensor]) -> Optimizer:
        nn.utils.clip_grad_norm_(parameters, 1e-3)
        return SGD(parameters, lr=0.01)

    return Wrong(step, {"rule": rule})


def clipped_one_by_one(net: nn.Module, _loss: Loss) -> Wrong:
    """Each gradient has the norm that all of them together should have."""
    optimizer = SGD(net.parameters(), lr=0.01)

    def step() -> None:
        for p in net.parameters():
            nn.utils.clip_grad_norm_([p], 1e-3)
        optimizer.step()

    def rule(parameters: list[Tensor]) -> Optimizer:
        nn.utils.clip_grad_norm_(parameters, 1e-3)
        return SGD(parameters, lr=0.01)

    return Wrong(step, {"rule": rule})


def of_another_batch(net: nn.Module, loss: Loss) -> Wrong:
    """The gradients are those at the parameters of some steps ago, with other data."""
    optimizer = SGD(net.parameters(), lr=0.01)
    old = [torch.randn_like(p) for p in net.parameters()]

    def step() -> None:
        for p, gradient in zip(net.parameters(), old, strict=True):
            p.grad = gradient
        optimizer.step()

    return Wrong(step)


def averaged_weights_put_in(net: nn.Module, _loss: Loss) -> Wrong:
    """The step ends with the weights that only an evaluation should see."""
    optimizer = Adam(net.parameters(), lr=1e-3)
    average = [p.detach() + 0.1 * torch.randn_like(p) for p in net.parameters()]

    def step() -> None:
        optimizer.step()
        with torch.no_grad():
            for p, mean in zip(net.parameters(), average, strict=True):
                p.copy_(0.99 * mean + 0.01 * p)

    return Wrong(step)


def unscaled_by_nobody(net: nn.Module, _loss: Loss) -> Wrong:
    """The gradients of a scaled loss, which nothing divides by the scale."""
    wrong: Wrong = around(gradient_set(lambda g: 65536.0 * g), kind=SGD, lr=1e-6)(net, _loss)
    return wrong


def left_out_of_the_optimizer(net: nn.Module, _loss: Loss) -> Wrong:
    return Wrong(AdamW(list(net.parameters())[1:], lr=1e-3))


AROUND: dict[str, Callable[[nn.Module, Loss], Wrong]] = {
    "ascent": around(gradient_set(torch.neg)),
    "one gradient's sign": around(of_the_largest(turn)),
    "one gradient's rows reversed": around(of_the_largest(reversed_rows)),
    "the sizes of the gradients": around(gradient_set(torch.abs)),
    "accumulated twice": around(gradient_set(lambda g: 2 * g)),
    "the sum of four processes": around(gradient_set(lambda g: 4 * g)),
    "not unscaled": unscaled_by_nobody,
    "another batch": of_another_batch,
    "another batch added": around(
        gradient_set(lambda g: g + 3 * g.norm() * nn.functional.normalize(torch.randn_like(g), dim=0))
    ),
    "noise on the parameters": around(each(lambda p: p.add_(0.1 * torch.randn_like(p))), after=True),
    "rounded to bfloat16": around(each(lambda p: p.copy_(p.bfloat16())), after=True),
    "stepped twice": around(each(lambda p: p.sub_(0.01 * p.grad)), after=True),
    "decayed twice": around(each(lambda p: p.mul_(1 - 1e-4)), after=True, kind=AdamW, lr=1e-3, weight_decay=0.1),
    "one put back": around(of_the_largest(lambda p: p.add_(0.01 * p.grad)), after=True),
    "a rate of 500": lambda net, _loss: Wrong(SGD(net.parameters(), lr=500.0)),
    "a group skipped": skipping_a_group,
    "the rate of another group": rate_of_the_first_group,
    "maximize ignored": maximize_that_minimizes,
    "scheduled twice": scheduled_twice,
    "clipped after the step": clipped_too_late,
    "clipped one by one": clipped_one_by_one,
    "averaged weights put in": averaged_weights_put_in,
    "left out of the optimizer": left_out_of_the_optimizer,
}


def wrong_steps() -> Iterator[tuple[str, Callable[[nn.Module, Loss], Wrong]]]:
    """Every mistake by name, with what makes a step of it for a network and its loss."""
    for name, rule in RULES.items():
        for mistake in rule.mistakes:
            yield (
                f"{name}: {mistake}",
                lambda net, loss, rule=rule, mistake=mistake: Wrong(written(rule, mistake, net, loss)),
            )
    yield from AROUND.items()
