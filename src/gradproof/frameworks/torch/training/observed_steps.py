"""Observe the optimizers that a step function calls: which parameters they step, from which values to which."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradproof.frameworks.torch.storage import is_sparse
from gradproof.frameworks.torch.training.parameters import values_of
from gradproof.sparse.optim.steps import gradient_of

NEED_MORE = (LBFGS, SparseAdam)  # the loss at other points; gradients that are sparse tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What an optimizer does to one parameter: its values before and after, gradient, hyperparameters and state.

    `number` is the parameter's place among those of the check. Of a sparse parameter values and gradient are those of
    its stored entries.
    """

    number: int
    before: Tensor
    after: Tensor
    gradient: Tensor | None
    group: Mapping[str, Any]
    state: Mapping[str, Any]


@dataclass(slots=True)
class OptimizerStep:
    """One call of an optimizer's `step`."""

    optimizer: Optimizer
    updates: list[Update]

    @property
    def is_torchs(self) -> bool:
        """Whether the optimizer is one of torch's, or derived from one."""
        return self._kind is not Optimizer

    @property
    def rule(self) -> type[Optimizer] | None:
        """The optimizer of torch's whose rule this is; None where it is unknown, or needs more than the gradient."""
        return None if self._kind in (Optimizer, *NEED_MORE) else self._kind

    @property
    def follows_the_gradient_alone(self) -> bool:
        """Whether neither earlier steps nor the size of the parameters have a part in this one."""
        if self._kind in NEED_MORE:
            return False
        return not any(update.state or update.group.get("weight_decay") for update in self.updates)

    @property
    def _kind(self) -> type[Optimizer]:
        known = (each for each in type(self.optimizer).__mro__ if getattr(torch.optim, each.__name__, None) is each)
        return next(known, Optimizer)


@dataclass(slots=True)
class ObservedSteps:
    """The steps that optimizers take of some parameters while a step function runs."""

    parameters: Sequence[Tensor]
    steps: list[OptimizerStep] = field(default_factory=list)
    _depth: int = 0

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Record every step of an optimizer that holds one of the parameters, until the context is left."""
        hooks = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._after)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @property
    def numbers(self) -> set[int]:
        """The places of the parameters that were stepped."""
        return {update.number for step in self.steps for update in step.updates}

    def _before(self, optimizer: Optimizer, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1 and (updates := list(self._updates(optimizer))):  # one step may call another
            self.steps.append(OptimizerStep(optimizer, updates))

    def _after(self, optimizer: Optimizer, *_: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and self.steps and self.steps[-1].optimizer is optimizer:
            self.steps[-1].updates = [
                replace(update, after=values_of(self.parameters[update.number]).clone())
                for update in self.steps[-1].updates
            ]

    def _updates(self, optimizer: Optimizer) -> Iterator[Update]:
        """Yield the updates that an optimizer is about to make: a sparse parameter shares the memory of its values."""
        places = {values_of(parameter).data_ptr(): number for number, parameter in enumerate(self.parameters)}
        for group in optimizer.param_groups:
            for held in group["params"]:
                number = places.get(values_of(held).data_ptr()) if held.numel() else None
                if number is not None:
                    before = values_of(held).clone()
                    yield Update(
                        number=number,
                        before=before,
                        after=before,
                        gradient=gradient_values(self.parameters[number]),
                        group={name: value for name, value in group.items() if name != "params"},
                        state=copy.deepcopy(dict(optimizer.state.get(held, {}))),
                    )


def gradient_values(parameter: Tensor) -> Tensor | None:
    """Return the gradient of a parameter, of a sparse one at its stored entries."""
    gradient = parameter.grad
    if gradient is None:
        return None
    if is_sparse(parameter):
        return gradient_of(parameter, gradient, on_mismatch="project").clone()
    return gradient.detach().to_dense() if is_sparse(gradient) else gradient.detach().clone()
