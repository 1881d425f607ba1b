"""Right training steps of many kinds: every optimizer of torch's, and what people put around them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer, lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn

Loss = Callable[[], Tensor]
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "SGD, foreach": partial(optim.SGD, lr=0.01, momentum=0.9, foreach=True),
    "SGD, fused": partial(optim.SGD, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.01, fused=True),
    "SGD, rate as a tensor": partial(optim.SGD, lr=torch.tensor(0.01)),
    "Adam, fused": partial(optim.Adam, lr=1e-3, amsgrad=True, weight_decay=0.01, fused=True),
    "Adam, foreach": partial(optim.Adam, lr=1e-3, foreach=True),
    "Adam, fused, rate as a tensor": partial(optim.Adam, lr=torch.tensor(1e-3), fused=True),
    "Adam, decoupled": partial(optim.Adam, lr=1e-3, weight_decay=0.1, decoupled_weight_decay=True),
    "AdamW, fused": partial(optim.AdamW, lr=1e-3, fused=True),
    "AdamW, amsgrad": partial(optim.AdamW, lr=1e-3, amsgrad=True),
    "Adagrad, fused": partial(optim.Adagrad, lr=1e-2, fused=True),
    "Adagrad, decaying": partial(optim.Adagrad, lr=1e-2, lr_decay=0.1, initial_accumulator_value=0.1, foreach=True),
    "Adadelta": partial(optim.Adadelta, lr=1.0, weight_decay=0.01),
    "Adadelta, foreach": partial(optim.Adadelta, lr=1.0, foreach=True),
    "Adamax": partial(optim.Adamax, weight_decay=0.01),
    "NAdam": partial(optim.NAdam, lr=1e-3, weight_decay=0.01),
    "NAdam, decoupled": partial(optim.NAdam, lr=1e-3, weight_decay=0.01, decoupled_weight_decay=True, foreach=True),
    "RAdam": partial(optim.RAdam, weight_decay=0.01),
    "RAdam, decoupled": partial(optim.RAdam, weight_decay=0.01, decoupled_weight_decay=True, foreach=True),
    "RMSprop, centred": partial(optim.RMSprop, lr=1e-3, centered=True, momentum=0.9, weight_decay=0.01),
    "RMSprop, foreach": partial(optim.RMSprop, lr=1e-3, foreach=True),
    "Rprop": partial(optim.Rprop, lr=1e-3),
    "ASGD": partial(optim.ASGD, lr=0.01, t0=1),
    "Adafactor": partial(optim.Adafactor, lr=1e-2),
    "LBFGS": partial(optim.LBFGS, lr=0.1, max_iter=3),
    "LBFGS, line search": partial(optim.LBFGS, max_iter=4, line_search_fn="strong_wolfe"),
}


ADAMW = partial(optim.AdamW, lr=1e-3)


class ClippedSGD(optim.SGD):
    """Clips its gradients and lowers its rate before it steps."""

    def step(self, closure: Any = None) -> Any:
        """Step by the rule, at a rate that is a hundredth lower."""
        for group in self.param_groups:
            group["lr"] *= 0.99
            nn.utils.clip_grad_norm_(group["params"], 0.1)
        return super().step(closure)


class SignDescent(Optimizer):
    """A rule that torch does not have."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move every entry by the rate."""
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad.sign(), alpha=group["lr"])


def then(change: Callable[[nn.Module], Any], kind: Any = ADAMW) -> Callable[..., Any]:
    """A right step, and something after it."""

    def make(net: nn.Module, _loss: Loss) -> Callable[[], None]:
        optimizer = kind(net.parameters())

        def step() -> None:
            optimizer.step()
            with torch.no_grad():
                change(net)

        return step

    return make


def first(change: Callable[[nn.Module], Any], kind: Any = ADAMW) -> Callable[..., Any]:
    """Something with the gradients, and a right step."""

    def make(net: nn.Module, _loss: Loss) -> Callable[[], None]:
        optimizer = kind(net.parameters())

        def step() -> None:
            change(net)
            optimizer.step()

        return step

    return make


def scheduled(schedule: Callable[[Optimizer], Any]) -> Callable[..., Any]:
    def make(net: nn.Module, _loss: Loss) -> Callable[[], None]:
        optimizer = optim.SGD(net.parameters(), lr=0.02, momentum=0.5)
        made = schedule(optimizer)

        def step() -> None:
            optimizer.step()
            made.step()

        return step

    return make


def averaged(net: nn.Module, _loss: Loss) -> Callable[[], None]:
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    mean = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    rate = SWALR(optimizer, swa_lr=5e-4)

    def step() -> None:
        optimizer.step()
        mean.update_parameters(net)
        rate.step()

    return step


def scaled(kind: Any, *, clip: bool = False) -> Callable[..., Any]:
    """The usual loop with a scaler of gradients, which makes its own backward."""

    def make(net: nn.Module, loss: Loss) -> Callable[[], None]:
        optimizer, scaler = kind(net.parameters()), torch.amp.GradScaler("cpu", init_scale=1024.0)

        def step() -> None:
            state = torch.get_rng_state()
            optimizer.zero_grad()
            scaler.scale(loss()).backward()
            torch.set_rng_state(state)
            if clip:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            scaler.step(optimizer)
            scaler.update()

        return step

    return make


def hooked(net: nn.Module, _loss: Loss) -> Optimizer:
    """Gradients are clipped before the step and a weight is masked after it, both by hooks of the optimizer."""
    optimizer, weight = optim.AdamW(net.parameters(), lr=1e-3), next(net.parameters())
    mask = torch.rand_like(weight) < 0.9
    with torch.no_grad():
        weight.mul_(mask)
    optimizer.register_step_pre_hook(lambda *_: (nn.utils.clip_grad_norm_(net.parameters(), 0.05), None)[1])
    optimizer.register_step_post_hook(lambda *_: weight.data.mul_(mask))
    return optimizer


def grouped(net: nn.Module, _loss: Loss) -> Optimizer:
    weights = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() <= 1]
    return optim.AdamW([{"params": weights, "weight_decay": 0.1}, {"params": others, "lr": 1e-4}], lr=1e-3)


def matrices_apart(net: nn.Module, _loss: Loss) -> Callable[[], None]:
    """Muon for matrices, AdamW for all else."""
    matrices = [p for p in net.parameters() if p.dim() == 2]
    muon = optim.Muon(matrices, lr=1e-3) if matrices else None
    others = [p for p in net.parameters() if p.dim() != 2]
    adam = optim.AdamW(others, lr=1e-3) if others else None

    def step() -> None:
        for optimizer in (muon, adam):
            if optimizer is not None:
                optimizer.step()

    return step


def of_unit_length(net: nn.Module) -> None:
    for p in net.parameters():
        if p.grad is not None and bool(p.grad.any()):
            p.grad.div_(p.grad.norm())


def with_noise(net: nn.Module) -> None:
    for p in net.parameters():
        if p.grad is not None:
            p.grad.add_(0.1 * p.grad.norm() / math.sqrt(p.numel()) * torch.randn_like(p))


def with_decay(net: nn.Module) -> None:
    for p in net.parameters():
        if p.grad is not None:
            p.grad.add_(p.detach(), alpha=1e-4)


RIGHT: dict[str, Callable[[nn.Module, Loss], Any]] = {
    **{name: lambda net, _loss, kind=kind: kind(net.parameters()) for name, kind in OPTIMIZERS.items()},
    "Muon and AdamW": matrices_apart,
    "groups": grouped,
    "hooks": hooked,
    "derived, clipping": lambda net, _loss: ClippedSGD(net.parameters(), lr=0.01),
    "signs": lambda net, _loss: SignDescent(net.parameters(), lr=1e-5),
    "clipped norm": first(lambda net: nn.utils.clip_grad_norm_(net.parameters(), 0.1)),
    "clipped values": first(lambda net: nn.utils.clip_grad_value_(net.parameters(), 1e-3)),
    "unit gradients": first(of_unit_length, partial(optim.SGD, lr=1e-4)),
    "noisy gradients": first(with_noise, partial(optim.SGD, lr=0.01)),
    "decay in the gradients": first(with_decay, partial(optim.SGD, lr=0.01)),
    "bounded weights": then(lambda net: [p.clamp_(-2, 2) for p in net.parameters()]),
    "steps, schedule": scheduled(lambda optimizer: lr_scheduler.StepLR(optimizer, 1)),
    "cosine, schedule": scheduled(lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10)),
    "one cycle, schedule": scheduled(lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=20)),
    "averaged": averaged,
    "scaler, SGD": scaled(partial(optim.SGD, lr=0.01)),
    "scaler, fused Adam": scaled(partial(optim.Adam, lr=1e-3, fused=True)),
    "scaler, clipping": scaled(partial(optim.AdamW, lr=1e-3), clip=True),
}
