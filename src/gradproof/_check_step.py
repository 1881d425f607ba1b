"""`check_step`: take one training step, and verify it.

Along the step Δ that an optimizer takes, the loss is a function of one number, φ(t) = L(θ + tΔ), and the gradient
claims its slope, φ'(0) = ⟨g, Δ⟩. The engine judges the claim as it judges any derivative. This holds for any optimizer,
whatever it makes of the gradient.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gradproof._examine import publish, session
from gradproof._report import Report
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Checked, Finding, Obstacle, Reason, Verdict
from gradproof.engine.subject import DerivativeError
from gradproof.engine.verdict import Judgement
from gradproof.errors import InputError
from gradproof.frameworks.torch.subject.calling import Tally
from gradproof.frameworks.torch.subject.memory import exhaustion_told
from gradproof.frameworks.torch.training.parameters import Snapshot, named_parameters, space_of
from gradproof.frameworks.torch.training.step_findings import finiteness_findings, not_finite, structure_findings
from gradproof.frameworks.torch.training.step_subject import LossAlongStep, RepeatableLoss, TakenStep

if TYPE_CHECKING:
    from gradproof.sparse import Pattern

REPEATED = 1e3  # units of rounding by which the loss may differ with and without a graph


def check_step(
    step: Optimizer | Callable[[], Any],
    loss: Callable[[], Tensor],
    parameters: Any,
    *,
    patterns: Mapping[str, Pattern] | None = None,
    seed: int | None = None,
) -> Report:
    """Take one training step, and verify it.

    A step passes if the loss changes along it as the gradient predicts to first order, if it changes the stored entries
    of sparse parameters and no others, and if everything stays finite. The step is taken for real: afterwards
    parameters, gradients and the optimizer are as a step leaves them. Random generators and a module's buffers are as
    one evaluation of the loss leaves them.

    In the report, slopes are those along the whole step. A finding's `kind` is "prediction" (the loss contradicts the
    gradient), "pattern" (a sparse parameter stores other entries), "unstored" (an entry outside `patterns` moved),
    "non-finite" or "malformed-gradient".

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
        seed: the seed of the step sizes at which the loss is evaluated; the seed of a report repeats them.
    """
    for given, what in ((loss, "loss"), (getattr(step, "step", step), "step")):
        if not callable(given):
            raise InputError(f"{what} is a {type(given).__name__}, which cannot be called. Pass a function.")
    began, seed = time.perf_counter(), session.chosen_seed(seed)
    named = named_parameters(parameters)
    masks = _masks(patterns or {}, named)
    buffers = dict(parameters.named_buffers()) if isinstance(parameters, nn.Module) else {}
    checking = _Checking(step, RepeatableLoss(loss, buffers), named, seed)
    with exhaustion_told():
        judgement = checking.judgement(masks)
    space = checking.space
    checked = Checked(
        name=_name_of(step),
        arguments=space.labels,
        outputs=(f"loss: {str(checking.dtype).removeprefix('torch.')}[]",),
        coordinates=space.entries,
        output_coordinates=1,
    )
    return publish(judgement, checked, tally=checking.tally, seconds=time.perf_counter() - began, seed=seed)


class _Checking:
    """One step on its way from the first evaluation of the loss to a judgement."""

    def __init__(
        self, step: Optimizer | Callable[[], Any], loss: RepeatableLoss, named: dict[str, Tensor], seed: int
    ) -> None:
        self.step, self.loss, self.seed = step, loss, seed
        self.names, self.parameters = list(named), tuple(named.values())
        self.before = Snapshot.of(self.parameters)
        self.space = space_of(self.names, self.before)
        self.tally, self.dtype = Tally(), self.parameters[0].dtype

    def judgement(self, masks: Mapping[str, Tensor]) -> Judgement:
        """Take the step, and judge it."""
        value = self._backward()
        try:
            gradient = self.space.coordinates([parameter.grad for parameter in self.parameters]).clone()
        except DerivativeError as error:
            return Judgement(findings=(_malformed(error),), notes=("No step was taken.",))
        self._take()
        with self.loss.side_effects_undone():
            after = Snapshot.of(self.parameters)
            findings = [
                *structure_findings(self.names, self.before, after, masks),
                *finiteness_findings(value, self.space, gradient, after),
            ]
            if findings:
                return Judgement(findings=tuple(findings))
            return self._along(TakenStep(self.parameters, self.space, self.before, after, gradient), value)

    def _along(self, step: TakenStep, value: float) -> Judgement:
        """Judge what the gradient claims along the step by what the loss does."""
        subject = LossAlongStep(step, self.loss, value, self.dtype)
        self.tally = subject.tally
        after, again = subject.value(1.0), subject.value(0.0)
        if not math.isfinite(after):
            return Judgement(findings=(not_finite(f"The loss is {after} after the step."),))
        notes = _notes(step, value, after)
        if abs(again - value) > REPEATED * subject.numbers.precision * abs(value):
            message = f"The loss is random: {value:.6g}, and {again:.6g} at the same parameters."
            hint = "Draw from torch's, NumPy's or Python's global generators, which are held during the check."
            return Judgement(obstacle=Obstacle(Reason.NONDETERMINISTIC, message, hint), notes=notes)
        if not bool(step.delta.any()):
            message = "No entry moved: there is no step to verify."
            hint = (
                "Check that the optimizer holds these parameters, and that its rate is not too small for their dtype."
            )
            return Judgement(obstacle=Obstacle(Reason.STEP_SIZE, message, hint), notes=notes)
        subject.centre[0] = again
        found = judge(subject, probes=1, seed=self.seed, options=Probing(atol=subject.claim_rounding))
        if found.verdict is Verdict.PASS and found.resolution.absolute > subject.claim_size:
            message = (
                "The step does not show in the loss: its values are too coarse to distinguish the slope from zero."
            )
            hint = "Take a longer step, or compute the loss in double precision."
            found = replace(found, obstacle=Obstacle(Reason.NOISE, message, hint))
        return replace(
            found,
            findings=tuple(_mispredicted(finding) for finding in found.findings),
            notes=(*notes, *found.notes),
        )

    def _backward(self) -> float:
        value = self.loss.loss()
        if not isinstance(value, Tensor) or value.numel() != 1 or value.is_complex():
            raise InputError("The loss is no real number: return a tensor with one real entry.")
        if not value.requires_grad:
            raise InputError(
                "The loss depends on nothing that requires grad: return it as it is computed, not detached."
            )
        for parameter in self.parameters:
            parameter.grad = None
        value.backward()  # type: ignore[no-untyped-call]  # torch's own
        self.dtype = value.dtype
        return float(value.detach())

    def _take(self) -> None:
        if not isinstance(self.step, Optimizer):
            self.step()
        elif isinstance(self.step, torch.optim.LBFGS):
            self.step.step(self._backward)  # type: ignore[no-untyped-call]  # torch's own
        else:
            self.step.step()


def _masks(patterns: Mapping[str, Pattern], named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return for each pattern the mask of the entries that may move."""
    for name, pattern in patterns.items():
        if name not in named:
            raise InputError(f"There is no parameter {name!r}: the parameters are {', '.join(named)}.")
        if tuple(named[name].shape) != pattern.shape:
            raise InputError(f"{pattern!r} does not fit {name}, which has shape {list(named[name].shape)}.")
    return {name: pattern.mask() for name, pattern in patterns.items()}


def _notes(step: TakenStep, before: float, after: float) -> tuple[str, ...]:
    predicted, moved = float(step.contributions.sum()), int((step.delta != 0).sum())
    notes = [
        f"The loss changed by {after - before:+.3g}, from {before:.6g} to {after:.6g}; to first order the gradient "
        f"predicts {predicted:+.3g}.",
        f"{moved:,} of {step.space.size:,} entries moved.",
    ]
    if predicted > 0:
        notes.append("The step leads uphill: the gradient predicts that the loss rises.")
    return (*notes, *(f"{name} has a gradient and did not move." for name in step.unmoved))


def _mispredicted(finding: Finding) -> Finding:
    """Put a finding of the engine into the words of a step."""
    if finding.kind != "wrong-gradient" or not finding.entries:
        return finding
    worst = finding.entries[0]
    return replace(
        finding,
        kind="prediction",
        message=f"The gradient predicts a slope of {worst.claimed:.10g} along the step, and the loss has "
        f"{worst.numerical:.10g} ± {worst.bar:.1g}.",
        hint="Check the gradients of the loss with gradproof.check, at these parameters.",
    )


def _malformed(error: DerivativeError) -> Finding:
    return Finding(
        kind="malformed-gradient",
        message=f"The gradient of {error.path} cannot be read: {error}.",
        argument=error.path,
        hint="Look at how the backward builds the indices of the gradient.",
    )


def _name_of(step: Optimizer | Callable[[], Any]) -> str:
    kind = type(step).__name__
    return f"{kind}.step" if isinstance(step, Optimizer) else str(getattr(step, "__name__", kind))
