"""`check_step`: take one training step, and verify it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from torch import Tensor, nn
from torch.optim import Optimizer

from gradproof._examine import publish, session
from gradproof._report import Report
from gradproof.engine.results import Checked
from gradproof.errors import InputError
from gradproof.frameworks.torch.introspection.source import source_of
from gradproof.frameworks.torch.subject.memory import reporting_exhausted_memory
from gradproof.frameworks.torch.training.optimizer_rule import Rule
from gradproof.frameworks.torch.training.parameters import named_parameters
from gradproof.frameworks.torch.training.step_check import StepCheck
from gradproof.frameworks.torch.training.step_subject import RepeatableLoss

if TYPE_CHECKING:
    from gradproof.sparse import Pattern

Expected = Literal["decrease", "increase", "any"]


def check_step(
    step: Optimizer | Callable[[], Any],
    loss: Callable[[], Tensor],
    parameters: Any,
    *,
    patterns: Mapping[str, Pattern] | None = None,
    rule: Rule | None = None,
    expect: Expected = "decrease",
    seed: int | None = None,
) -> Report:
    """Take one training step, and verify the gradient, the step and what it does to the loss.

    1. The gradient is right: along the step and along a random direction of all parameters, the loss changes as the
       gradient claims, within the error bar of its values.
    2. The step is the optimizer's rule, applied to that gradient. The rules of torch's optimizers are applied again to
       private copies; an optimizer that is derived from one of them is held to its rule. `rule` gives the rule of any
       other step. Without it, a step of no known rule must not go along the gradient of any parameter, and what a step
       function does beside the optimizer's step is found where it repeats it, noted where it moves parameters towards
       zero, and leaves the check undecided otherwise.
    3. The loss goes down.

    Besides, every parameter that has a gradient moves, only stored entries of sparse parameters change, and everything
    stays finite. The step is taken for real: afterwards parameters, gradients and the optimizer are as a step leaves
    them. Random generators and a module's buffers are as one evaluation of the loss leaves them.

    A finding's `kind` is "prediction" (the loss contradicts the gradient), "rule", "gradient-used" (the step was made
    from another gradient), "uphill", "left-out" (a parameter did not move), "loss", "pattern" (a sparse parameter
    stores other entries), "unstored" (an entry outside `patterns` moved), "non-finite" or "malformed-gradient".

    >>> import torch
    >>> layer = torch.nn.Linear(3, 2).double()
    >>> x = torch.randn(8, 3, dtype=torch.float64)
    >>> adam = torch.optim.Adam(layer.parameters(), lr=0.01)
    >>> check_step(adam, lambda: layer(x).square().mean(), layer).passed
    True

    Args:
        step: an optimizer, or a function that takes a step from the gradients in `.grad`.
        loss: a function that returns the loss at the present parameters, a tensor with one real entry.
        parameters: what the step may change: a module, a mapping by name, or tensors, sparse ones too.
        patterns: for strided parameters, by name, the entries that a step may change.
        rule: a function that makes, of a list of parameters, the optimizer whose rule the step has to follow, such as
            `lambda parameters: torch.optim.AdamW(parameters, lr=0.01)`. It has the state that the function gives it.
        expect: what the loss has to do: "decrease", "increase" (as under `maximize=True`), or "any".
        seed: the seed of the step sizes at which the loss is evaluated; the seed of a report repeats them.
    """
    for given, what in ((loss, "loss"), (getattr(step, "step", step), "step"), (rule or loss, "rule")):
        if not callable(given):
            raise InputError(f"{what} is a {type(given).__name__}, which cannot be called. Pass a function.")
    if expect not in get_args(Expected):
        raise InputError(f"expect={expect!r} is none of {', '.join(map(repr, get_args(Expected)))}.")
    began, seed = time.perf_counter(), session.chosen_seed(seed)
    named = named_parameters(parameters)
    masks = _masks(patterns or {}, named)
    buffers = dict(parameters.named_buffers()) if isinstance(parameters, nn.Module) else {}
    check = StepCheck(step, RepeatableLoss(loss, buffers), named, seed=seed, rule=rule, expect=expect)
    with reporting_exhausted_memory():
        judgement = check.judgement(masks)
    file, line = source_of(loss)
    checked = Checked(
        name=_name_of(step),
        arguments=check.space.labels,
        outputs=(f"loss: {str(check.dtype).removeprefix('torch.')}[]",),
        coordinates=check.space.entries,
        output_coordinates=1,
        call="check_step",
        file=file,
        line=line,
    )
    return publish(judgement, checked, tally=check.tally, seconds=time.perf_counter() - began, seed=seed)


def _masks(patterns: Mapping[str, Pattern], named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return for each pattern the mask of the entries that may move."""
    for name, pattern in patterns.items():
        if name not in named:
            raise InputError(f"There is no parameter {name!r}: the parameters are {', '.join(named)}.")
        if tuple(named[name].shape) != pattern.shape:
            raise InputError(f"{pattern!r} does not fit {name}, which has shape {list(named[name].shape)}.")
    return {name: pattern.mask() for name, pattern in patterns.items()}


def _name_of(step: Optimizer | Callable[[], Any]) -> str:
    kind = type(step).__name__
    return f"{kind}.step" if isinstance(step, Optimizer) else str(getattr(step, "__name__", kind))
