"""Test whether a step is the optimizer's rule, applied to the gradient of the loss.

The rules are those of torch's optimizers, applied to private copies of the parameters in their own precision and in
double precision. The difference of the two is the rounding that a right step may have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from gradproof.engine.results import Entry, Finding
from gradproof.engine.thresholds import ENOUGH, MANY, ROUNDINGS, SLIGHT, UNRESOLVED
from gradproof.frameworks.torch.training.observed_steps import OptimizerStep, Update

Rule = Callable[[list[Tensor]], Optimizer]
SHOWN = 5  # entries of a finding
SINGLE_TENSOR = {"foreach": False, "fused": False, "differentiable": False, "capturable": False}
OF_RULES = "Compare the optimizer's step with the rule that it is derived from: signs, bias corrections, weight decay."


def rule_findings(step: OptimizerStep, names: Sequence[str]) -> Iterator[Finding]:
    """Report parameters that an optimizer moved otherwise than its rule does; raise where the rule cannot be applied.

    The rule is known by the class of torch's that the optimizer is, or is derived from.
    """
    kind, updates = step.rule, [update for update in step.updates if update.gradient is not None]
    if kind is None or not updates:
        return
    native, wide = (_applied(kind, updates, widened=widened) for widened in (False, True))
    for update, near, exact in zip(updates, native, wide, strict=True):
        what = f"{type(step.optimizer).__name__} moved {{}} otherwise than the rule of torch.optim.{kind.__name__} does"
        exact = _rounded_in_common(update, _real(update.after).double(), _real(exact))
        coarse = _coarsest(update)
        yield from _difference(names[update.number], what, update.before, update.after, near, exact, coarse)


def reference_findings(
    rule: Rule, names: Sequence[str], before: Sequence[Tensor], after: Sequence[Tensor], gradients: Sequence[Tensor]
) -> Iterator[Finding]:
    """Report parameters that moved otherwise than a given rule moves them, from the same values and gradients."""
    both = []
    for widened in (False, True):
        copies = [_copy(value, gradient, widened=widened) for value, gradient in zip(before, gradients, strict=True)]
        with torch.enable_grad():
            rule(list(copies)).step()
        both.append([each.detach() for each in copies])
    for name, old, new, near, exact in zip(names, before, after, *both, strict=True):
        yield from _difference(name, "The step moved {} otherwise than the rule that was given", old, new, near, exact)


def gradient_findings(
    step: OptimizerStep, names: Sequence[str], gradients: Sequence[Tensor | None]
) -> Iterator[Finding]:
    """Report parameters that were stepped with another gradient than that of the loss.

    A gradient may be clipped, masked or unscaled before a step, which keeps signs and lets nothing grow. It may be
    scaled to length one, by itself or with all others. A gradient may also have terms added to it, such as weight
    decay, and then points into about the same direction.
    """
    whole = math.hypot(*(_length(update.gradient) for update in step.updates))
    for update in step.updates:
        own = gradients[update.number]
        if update.gradient is None or own is None or not bool(own.any()) or not bool(update.gradient.any()):
            continue
        used, right = _real(update.gradient).double(), _real(own).double()
        slack = ROUNDINGS * torch.finfo(update.gradient.dtype).eps
        if bool(((used * right >= 0) & (abs(used) <= abs(right) * (1 + slack))).all()):
            continue
        factor, alike = float(used @ right / (right @ right)), cosine(used, right)
        is_permuted = used.sort().values.equal(right.sort().values)
        is_longer = factor > 1 + SLIGHT and _is_multiple(used, right, factor, slack)
        if alike > UNRESOLVED and not is_longer and not is_permuted:
            continue
        if alike > 1 - SLIGHT**2 and any(abs(length - 1) < SLIGHT**2 for length in (_length(update.gradient), whole)):
            continue
        same = f"{factor:.4g} times it" if abs(alike) > 1 - SLIGHT**2 else f"at a cosine of {alike:.2f} to it"
        same = "its entries in another order" if is_permuted else same
        yield Finding(
            kind="gradient-used",
            message=f"{names[update.number]} was stepped with another gradient than that of the loss: {same}.",
            argument=names[update.number],
            hint="Look for a gradient of an earlier batch, one that was accumulated or scaled twice, or a wrong sign.",
        )


def _length(gradient: Tensor | None) -> float:
    return 0.0 if gradient is None else float(_real(gradient).double().norm())


def _is_multiple(used: Tensor, right: Tensor, factor: float, slack: float) -> bool:
    """Return True if one gradient is a multiple of another, to rounding, or about twice as long and more.

    A gradient at a nearby point may be somewhat longer, and point into about the same direction.
    """
    if bool((abs(used - factor * right) <= slack * factor * abs(right).max()).all()):
        return True
    return used.numel() >= MANY and factor > 2 - SLIGHT and cosine(used, right) > 1 - SLIGHT**2


def cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine of the angle between two vectors; zero where one of them is zero."""
    length = float(one.norm() * other.norm())
    return float(one @ other) / length if length else 0.0


def uphill(before: Tensor, after: Tensor, gradient: Tensor) -> float:
    """Return how clearly a parameter moved along its gradient: 1 where all entries did, 0 where it went downhill.

    Few entries may point the same way by chance.
    """
    move, slope = (_real(after) - _real(before)).double(), _real(gradient).double()
    alike = cosine(move, slope)
    if alike <= 0:
        return 0.0
    both = (move != 0) & (slope != 0)
    signs = float((move * slope > 0)[both].double().mean())
    all_along = int(both.sum()) >= MANY and (alike > 1 - SLIGHT**2 or signs > 1 - SLIGHT)
    return 1.0 if all_along else min(alike, 1 - SLIGHT)


def _applied(kind: type[Optimizer], updates: Sequence[Update], *, widened: bool) -> list[Tensor]:
    """Return the values that a rule gives to private copies of some parameters."""
    copies, groups, states = [], [], []
    for update in updates:
        assert update.gradient is not None
        parameter = _copy(update.before, update.gradient, widened=widened)
        copies.append(parameter)
        groups.append({**update.group, **{name: off for name, off in SINGLE_TENSOR.items() if name in update.group}})
        states.append({name: _state(value, update.before, parameter) for name, value in update.state.items()})
    make: Any = kind
    optimizer = make([{**group, "params": [parameter]} for group, parameter in zip(groups, copies, strict=True)])
    for parameter, state in zip(copies, states, strict=True):
        if state:
            optimizer.state[parameter] = state
    optimizer.step()
    return [parameter.detach() for parameter in copies]


def _coarsest(update: Update) -> float:
    """Return the unit of rounding of hyperparameters that are tensors, such as a rate in single precision."""
    tensors = [each for value in update.group.values() for each in (value if isinstance(value, tuple) else (value,))]
    return max(
        (torch.finfo(each.dtype).eps for each in tensors if isinstance(each, Tensor) and each.is_floating_point()),
        default=0.0,
    )


def _rounded_in_common(update: Update, after: Tensor, exact: Tensor) -> Tensor:
    """Return what a rule gives where bias corrections are rounded to single precision, if the step was so rounded.

    Compiled and capturable optimizers compute 1 − βᵗ in single precision. All entries then move by one common factor
    more or less than they should, beside a decay of the parameters themselves.
    """
    count = float(update.state.get("step", 0)) + 1
    corrections = [1 - float(beta) ** count for beta in update.group.get("betas", ())]
    if not corrections or not min(corrections) > 0:
        return exact
    before = _real(update.before).double()
    decay = float(update.group["lr"]) * float(update.group.get("weight_decay", 0.0))
    start = before * (1 - decay) if update.group.get("decoupled_weight_decay") else before
    expected, moved = exact - start, after - start
    factor = float(moved @ expected) / (float(expected @ expected) or math.inf)
    is_rounding = abs(factor - 1) <= ROUNDINGS * torch.finfo(torch.float32).eps / min(corrections)
    return start + factor * expected if is_rounding else exact


def _copy(value: Tensor, gradient: Tensor, *, widened: bool) -> Parameter:
    dtype = (torch.complex128 if value.is_complex() else torch.float64) if widened else value.dtype
    parameter = Parameter(value.detach().to(dtype, copy=True))
    parameter.grad = gradient.to(dtype, copy=True)
    return parameter


def _state(value: Any, before: Tensor, parameter: Parameter) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(parameter.dtype, copy=True) if value.dtype == before.dtype and value.dim() else value.clone()


def _difference(
    name: str, what: str, before: Tensor, after: Tensor, near: Tensor, exact: Tensor, coarse: float = 0.0
) -> Iterator[Finding]:
    """Report the entries that differ from a rule by more than rounding; `coarse` is that of its hyperparameters."""
    unit = torch.finfo(before.dtype).eps
    expected, moved = _real(exact) - _real(before).double(), _real(after).double() - _real(before).double()
    largest = torch.maximum(_real(before).abs(), _real(after).abs()).double()
    rounding = unit * (largest + ROUNDINGS * float(abs(expected).max())) + abs(_real(near).double() - _real(exact))
    rounding += coarse * abs(expected)
    off = abs(moved - expected)
    wrong = ~(off <= ROUNDINGS * rounding)
    if not bool(wrong.any()):
        return
    count, worst = int(wrong.sum()), torch.where(wrong, off - ROUNDINGS * rounding, -math.inf).argsort(descending=True)
    factor, alike = float(moved @ expected) / (float(expected @ expected) or math.inf), cosine(moved, expected)
    times = f": by {factor:.4g} times as much" if abs(alike) > 1 - ENOUGH and expected.numel() > 1 else ""
    shape = (*before.shape, 2) if before.is_complex() else before.shape
    yield Finding(
        kind="rule",
        message=f"{what.format(name)}{times}, in {count} {'entry' if count == 1 else 'entries'}.",
        argument=name,
        entries=tuple(
            Entry(
                index=tuple(int(each) for each in torch.unravel_index(place, shape))[: before.dim()],
                claimed=float(moved[place]),
                numerical=float(expected[place]),
                bar=float(ROUNDINGS * rounding[place]),
            )
            for place in worst[: min(count, SHOWN)]
        ),
        hint=OF_RULES,
    )


def _real(values: Tensor) -> Tensor:
    """Return the values as one real vector."""
    return (torch.view_as_real(values.resolve_conj()) if values.is_complex() else values).detach().reshape(-1)
