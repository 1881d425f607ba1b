"""Rules of optimizers written out, rightly or with one mistake, as classes derived from torch's.

The right ones have to pass a check, those with a mistake have to fail. All go on from a few steps of torch's own, so
that there are moments.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Adamax, AdamW, Optimizer, RMSprop

WARM = 3  # right steps before the one that is checked
Update = Callable[[Tensor, Tensor, dict[str, Any], dict[str, Any], str], None]


def sgd(p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any], wrong: str) -> None:
    decay = {"no weight decay": 0.0, "weight decay's sign": -1.0, "weight decay twice": 2.0}.get(wrong, 1.0)
    if wrong != "decay after momentum":
        g = g + decay * group["weight_decay"] * p
    share = 1.0 if wrong == "no dampening" else 1 - group["dampening"]
    held = state["momentum_buffer"]
    moved = group["momentum"] * held + (-share if wrong == "momentum's sign" else share) * g
    if wrong == "momentum of the gradient before":
        moved = held.clone()
    state["momentum_buffer"] = moved
    step = g + group["momentum"] * moved if group["nesterov"] else moved
    if wrong == "no lookahead":
        step = moved
    elif wrong == "lookahead twice":
        step = g + group["momentum"] * (g + group["momentum"] * moved)
    elif wrong == "no momentum":
        step = g
    elif wrong == "decay after momentum":
        step = step + group["weight_decay"] * p
    p.sub_(step, alpha=group["lr"] ** 2 if wrong == "the rate squared" else group["lr"])


def adam(p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any], wrong: str, *, decoupled: bool) -> None:
    lr, eps, decay, (one, two) = group["lr"], group["eps"], group["weight_decay"], group["betas"]
    if wrong == "betas exchanged":
        one, two = two, one
    decoupled ^= wrong in ("decay in the gradient", "decay beside the gradient")
    if decoupled:
        p.mul_(1 - lr * decay * (2 if wrong == "decay twice" else 1))
    elif wrong != "no decay":
        g = g + decay * p
    state["step"] += 0 if wrong == "a step not counted" else 1
    count = float(state["step"])
    first, second = 1 - one**count, 1 - two**count
    if wrong in ("no first correction", "no correction"):
        first = 1.0
    if wrong in ("no second correction", "no correction"):
        second = 1.0
    state["exp_avg"] = m = one * state["exp_avg"] + (1 if wrong == "a sum for a mean" else 1 - one) * g
    squared = g.abs() if wrong == "the size for the square" else g * g
    state["exp_avg_sq"] = v = two * state["exp_avg_sq"] + (1 - two) * squared
    if group["amsgrad"] and wrong != "amsgrad without a maximum":
        state["max_exp_avg_sq"] = v = torch.maximum(state["max_exp_avg_sq"], v)
    if wrong == "the old second moment":
        v = (v - (1 - two) * squared) / two
    size = (v / second).sqrt() + eps
    if wrong == "eps under the root":
        size = (v / second + eps).sqrt()
    elif wrong == "eps before the correction":
        size = (v.sqrt() + eps) / second**0.5
    elif wrong == "no root":
        size = v / second + eps
    elif wrong == "the mean of the size":
        size = size.mean()
    p.sub_((g if wrong == "no first moment" else m) / first / size, alpha=lr)


def rmsprop(p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any], wrong: str) -> None:
    alpha, eps = group["alpha"], group["eps"]
    state["step"] += 1
    state["square_avg"] = v = alpha * state["square_avg"] + (1 - alpha) * g * g
    state["grad_avg"] = mean = alpha * state["grad_avg"] + (1 - alpha) * g
    if wrong != "not centred":
        v = v - (mean if wrong == "centred by the mean" else mean * mean)
    size = (v.clamp(min=0) + eps).sqrt() if wrong == "eps under the root" else v.sqrt() + eps
    state["momentum_buffer"] = step = group["momentum"] * state["momentum_buffer"] + g / size
    p.sub_(g / size if wrong == "no momentum" else step, alpha=group["lr"])


def adagrad(p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any], wrong: str) -> None:
    count = float(state["step"])
    state["step"] += 1
    rate = group["lr"] / (1 + (0 if wrong == "no decay of the rate" else count) * group["lr_decay"])
    state["sum"] = total = (0.9 if wrong == "a mean for a sum" else 1) * state["sum"] + g * g
    p.sub_(g / (total if wrong == "no root" else total.sqrt() + group["eps"]), alpha=rate)


def adamax(p: Tensor, g: Tensor, state: dict[str, Any], group: dict[str, Any], wrong: str) -> None:
    one, two = group["betas"]
    state["step"] += 1
    state["exp_avg"] = m = one * state["exp_avg"] + (1 - one) * g
    size = two * state["exp_inf"]
    state["exp_inf"] = u = (
        size + g.abs() if wrong == "a sum for a maximum" else torch.maximum(size, g.abs() + group["eps"])
    )
    p.sub_(m / u, alpha=group["lr"] / (1 if wrong == "no correction" else 1 - one ** float(state["step"])))


@dataclass(frozen=True)
class WrittenRule:
    """One of torch's optimizers with its options, and its rule as it is written out here."""

    kind: Any
    options: dict[str, Any]
    update: Update
    mistakes: tuple[str, ...]


RULES = {
    "SGD": WrittenRule(
        SGD,
        {"lr": 0.02, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.05},
        sgd,
        (
            "no weight decay",
            "weight decay's sign",
            "weight decay twice",
            "decay after momentum",
            "no dampening",
            "momentum of the gradient before",
            "momentum's sign",
            "no momentum",
            "the rate squared",
        ),
    ),
    "Nesterov": WrittenRule(
        SGD, {"lr": 0.01, "momentum": 0.9, "nesterov": True}, sgd, ("no lookahead", "lookahead twice")
    ),
    "Adam": WrittenRule(
        Adam,
        {"lr": 1e-3, "weight_decay": 0.05, "eps": 1e-6},
        partial(adam, decoupled=False),
        (
            "betas exchanged",
            "decay beside the gradient",
            "no decay",
            "a step not counted",
            "no first correction",
            "no second correction",
            "no correction",
            "a sum for a mean",
            "the size for the square",
            "the old second moment",
            "eps under the root",
            "eps before the correction",
            "no root",
            "the mean of the size",
            "no first moment",
        ),
    ),
    "AMSGrad": WrittenRule(
        Adam, {"lr": 1e-3, "amsgrad": True}, partial(adam, decoupled=False), ("amsgrad without a maximum",)
    ),
    "AdamW": WrittenRule(
        AdamW,
        {"lr": 1e-3, "weight_decay": 0.1},
        partial(adam, decoupled=True),
        ("decay in the gradient", "decay twice", "no correction"),
    ),
    "RMSprop": WrittenRule(
        RMSprop,
        {"lr": 1e-3, "alpha": 0.9, "eps": 1e-6, "momentum": 0.5, "centered": True},
        rmsprop,
        ("not centred", "centred by the mean", "eps under the root", "no momentum"),
    ),
    "Adagrad": WrittenRule(
        Adagrad,
        {"lr": 1e-2, "lr_decay": 0.1},
        adagrad,
        ("no decay of the rate", "a mean for a sum", "no root"),
    ),
    "Adamax": WrittenRule(Adamax, {"lr": 2e-3}, adamax, ("a sum for a maximum", "no correction")),
}


def written(rule: WrittenRule, wrong: str, net: nn.Module, loss: Callable[[], Tensor]) -> Optimizer:
    """The rule written out, with a mistake or none, after a few steps of torch's own."""

    class Written(rule.kind):  # type: ignore[misc]  # a class that is chosen when this runs
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    rule.update(p, p.grad, self.state[p], group, wrong)

    first = rule.kind(net.parameters(), **rule.options)
    warm_up(first, net, lambda: 4 * loss())  # so that a maximum of earlier moments is larger than the last one
    made = Written(net.parameters(), **rule.options)
    made.load_state_dict(copy.deepcopy(first.state_dict()))
    return made


def warm_up(optimizer: Optimizer, net: nn.Module, loss: Callable[[], Tensor]) -> None:
    for _ in range(WARM):
        net.zero_grad()
        loss().backward()
        optimizer.step()
