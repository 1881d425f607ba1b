"""Observe the optimizers that a step function calls: which parameters they step, from which values to which.

What an optimizer does lies between its own hooks: one before a step may clip gradients, one after it mask parameters.
"""

from __future__ import annotations

import copy
import threading
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
    its stored entries. `last_gradient` and `last_group` are those after the step: a derived class may have clipped the
    gradient, or lowered its rate, before it applied the rule.
    """

    number: int
    before: Tensor
    after: Tensor
    gradient: Tensor | None
    group: Mapping[str, Any]
    state: Mapping[str, Any]
    last_gradient: Tensor | None = None
    last_group: Mapping[str, Any] | None = None

    def from_last(self) -> Update:
        """Return the same update, made from the gradient and the hyperparameters after the step."""
        gradient = self.gradient if self.last_gradient is None else self.last_gradient
        return replace(self, gradient=gradient, group=self.last_group or self.group)


@dataclass(slots=True, eq=False)
class OptimizerStep:
    """One call of an optimizer's `step`, by itself or by an optimizer that wraps it."""

    optimizer: Optimizer
    updates: list[Update]
    is_wrapped: bool = False

    @property
    def is_torchs(self) -> bool:
        """Whether the optimizer is one of torch's, or derived from one."""
        return _kind_of(self.optimizer) is not Optimizer

    @property
    def rule(self) -> type[Optimizer] | None:
        """The optimizer of torch's whose rule this is; None where it is unknown, or needs more than the gradient."""
        kind = _kind_of(self.optimizer)
        return None if kind in (Optimizer, *NEED_MORE) else kind

    @property
    def follows_the_gradient_alone(self) -> bool:
        """Whether neither earlier steps nor the size of the parameters have a part in this one."""
        if isinstance(self.optimizer, NEED_MORE):
            return False
        return not any(update.state or update.group.get("weight_decay") for update in self.updates)

    @property
    def readings(self) -> Iterator[OptimizerStep]:
        """The step from the gradients and hyperparameters that it was given, and from those that it made of them."""
        yield self
        yield replace(self, updates=[update.from_last() for update in self.updates])


def _kind_of(optimizer: Optimizer) -> type[Optimizer]:
    known = (each for each in type(optimizer).__mro__ if getattr(torch.optim, each.__name__, None) is each)
    return next(known, Optimizer)


@dataclass(slots=True)
class _Watched:
    """An optimizer while it steps: how often its `step` has been entered, and what is recorded of it."""

    hooks: list[Any]
    is_inner: bool
    depth: int = 0
    step: OptimizerStep | None = None


@dataclass(slots=True)
class ObservedSteps:
    """The steps that optimizers take of some parameters while a step function runs."""

    parameters: Sequence[Tensor]
    steps: list[OptimizerStep] = field(default_factory=list)
    _stepping: dict[Optimizer, _Watched] = field(default_factory=dict)
    _thread: int = field(default_factory=threading.get_ident)

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Record every step of an optimizer that holds one of the parameters, until the context is left."""
        hooks = [register_optimizer_step_pre_hook(self._enter), register_optimizer_step_post_hook(self._leave)]
        try:
            yield
        finally:
            for hook in [*hooks, *(hook for watched in self._stepping.values() for hook in watched.hooks)]:
                hook.remove()
            self._stepping.clear()

    def _enter(self, optimizer: Optimizer, *_: Any) -> None:
        """Have the optimizer's own hooks followed by `_before`, and preceded by `_after`."""
        if threading.get_ident() != self._thread:
            return  # torch calls these hooks for the optimizers of all threads
        if optimizer not in self._stepping:
            last = optimizer.register_step_pre_hook(self._before)
            first = optimizer.register_step_post_hook(self._after)
            optimizer._optimizer_step_post_hooks.move_to_end(first.id, last=False)  # type: ignore[attr-defined]  # torch keeps them in an ordered dict
            self._stepping[optimizer] = _Watched([last, first], is_inner=bool(self._stepping))
        self._stepping[optimizer].depth += 1

    def _before(self, optimizer: Optimizer, *_: Any) -> None:
        if self._stepping[optimizer].depth > 1 or any(
            other is not optimizer and watched.step is not None and watched.step.is_torchs
            for other, watched in self._stepping.items()
        ):
            return  # a derived class calls the step of torch's, or one of torch's calls others
        updates = list(self._updates(optimizer))
        if updates:
            watched = self._stepping[optimizer]
            watched.step = OptimizerStep(optimizer, updates, watched.is_inner)
            self.steps.append(watched.step)

    def _after(self, optimizer: Optimizer, *_: Any) -> None:
        watched = self._stepping[optimizer]
        if watched.depth > 1 or watched.step is None:
            return
        later = self.steps[self.steps.index(watched.step) + 1 :]
        by_inner = {update.number for step in later for update in step.updates}
        groups = {number: group for number, _, group in self._held(optimizer)}
        watched.step.updates = [
            replace(
                update,
                after=values_of(self.parameters[update.number]).clone(),
                last_gradient=self._last_gradient(update),
                last_group=groups.get(update.number),
            )
            for update in watched.step.updates
            if update.number not in by_inner
        ]

    def _leave(self, optimizer: Optimizer, *_: Any) -> None:
        watched = self._stepping.get(optimizer)
        if watched is None or threading.get_ident() != self._thread:
            return
        watched.depth -= 1
        if not watched.depth:
            for hook in self._stepping.pop(optimizer).hooks:
                hook.remove()
            self.steps = [step for step in self.steps if step.updates]

    def _updates(self, optimizer: Optimizer) -> Iterator[Update]:
        """Yield the updates that an optimizer is about to make: a sparse parameter shares the memory of its values.

        A scaler of gradients leaves it to fused optimizers to unscale them, or to stay where one is infinite.
        """
        if bool(getattr(optimizer, "found_inf", None)):
            return
        scale = getattr(optimizer, "grad_scale", None)
        for number, held, group in self._held(optimizer):
            before = values_of(held).clone()
            gradient = gradient_values(self.parameters[number])
            yield Update(
                number=number,
                before=before,
                after=before,
                gradient=gradient if scale is None or gradient is None else gradient / scale,
                group=group,
                state=copy.deepcopy(dict(optimizer.state.get(held, {}))),
            )

    def _held(self, optimizer: Optimizer) -> Iterator[tuple[int, Tensor, dict[str, Any]]]:
        """Yield the parameters that an optimizer holds: place in the check, tensor, a copy of its hyperparameters."""
        places = {values_of(parameter).data_ptr(): number for number, parameter in enumerate(self.parameters)}
        for group in optimizer.param_groups:
            hyperparameters = copy.deepcopy({name: value for name, value in group.items() if name != "params"})
            for held in group["params"]:
                number = places.get(values_of(held).data_ptr()) if held.numel() else None
                if number is not None:
                    yield number, held, hyperparameters

    def _last_gradient(self, update: Update) -> Tensor | None:
        """Return the gradient after a step, if the step changed it and left something of it."""
        last = gradient_values(self.parameters[update.number])
        if last is None or update.gradient is None or not bool(last.any()) or last.equal(update.gradient):
            return None
        return last


def gradient_values(parameter: Tensor) -> Tensor | None:
    """Return the gradient of a parameter, of a sparse one at its stored entries."""
    gradient = parameter.grad
    if gradient is None:
        return None
    if is_sparse(parameter):
        return gradient_of(parameter, gradient, on_mismatch="project").clone()
    return gradient.detach().to_dense() if is_sparse(gradient) else gradient.detach().clone()
