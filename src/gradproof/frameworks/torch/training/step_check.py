"""Take one training step and judge it.

Three things are judged, each by itself: the gradient is right, the step is the optimizer's rule applied to it, and the
loss goes down. The engine judges the first: along the step Δ the loss is a function of one number, φ(t) = L(θ + tΔ),
and the gradient claims its slope, φ'(0) = ⟨g, Δ⟩. A gradient that is wrongly zero makes no step, so the gradient is
judged along a random direction of the parameters too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Finding, Obstacle, Reason, Verdict
from gradproof.engine.subject import DerivativeError
from gradproof.engine.verdict import Judgement
from gradproof.errors import InputError
from gradproof.frameworks.torch.subject.timing import Tally
from gradproof.frameworks.torch.training.observed_steps import ObservedSteps, OptimizerStep, gradient_values
from gradproof.frameworks.torch.training.optimizer_rule import (
    Rule,
    gradient_findings,
    reference_findings,
    rule_findings,
)
from gradproof.frameworks.torch.training.other_moves import judge_other_moves
from gradproof.frameworks.torch.training.parameters import Snapshot, space_of, values_of
from gradproof.frameworks.torch.training.step_effects import (
    UNKNOWN,
    LossChange,
    against_the_gradient,
    carried_uphill,
    left_out,
    overshoot,
    undirected,
    wrong_ways,
)
from gradproof.frameworks.torch.training.step_findings import finiteness_findings, not_finite, structure_findings
from gradproof.frameworks.torch.training.step_subject import LossAlongStep, RepeatableLoss, TakenStep

REPEATED = 1e3  # units of rounding that the loss may differ by with and without a graph
DIRECTIONS = 3  # random directions at most, along which the gradient is verified: one may meet a kink
NAMED = 8  # wrong parameters that are named


class StepCheck:
    """One step, checked."""

    def __init__(
        self,
        step: Optimizer | Callable[[], Any],
        loss: RepeatableLoss,
        named: dict[str, Tensor],
        *,
        seed: int,
        rule: Rule | None = None,
        expect: str = "decrease",
    ) -> None:
        self.step, self.loss, self.seed, self.rule, self.expect = step, loss, seed, rule, expect
        self.names, self.parameters = list(named), tuple(named.values())
        self.before = Snapshot.of(self.parameters)
        self.space = space_of(self.names, self.before)
        self.tally, self.dtype = Tally(), self.parameters[0].dtype
        self.observed = ObservedSteps(self.parameters)

    def judgement(self, masks: Mapping[str, Tensor]) -> Judgement:
        """Take the step, and judge it."""
        value = self._backward()
        try:
            gradient = self.space.coordinates([parameter.grad for parameter in self.parameters]).clone()
            gradients = [gradient_values(parameter) for parameter in self.parameters]
        except DerivativeError as error:
            return Judgement(findings=(_malformed(error),), notes=("No step was taken.",))
        with self.observed.observing():
            self._take()
        with self.loss.side_effects_undone():
            after = Snapshot.of(self.parameters)
            findings = [
                *structure_findings(self.names, self.before, after, masks),
                *finiteness_findings(value, self.space, gradient, after),
            ]
            if findings:
                return Judgement(findings=tuple(findings))
            return self._of_finite(
                TakenStep(self.parameters, self.space, self.before, after, gradient), value, gradients
            )

    def _of_finite(self, step: TakenStep, value: float, gradients: list[Tensor | None]) -> Judgement:
        along = self._loss_along(step, value)
        after, again = along.value(1.0), along.value(0.0)
        if not math.isfinite(after):
            return Judgement(findings=(not_finite(f"The loss is {after} after the step."),))
        notes = _notes(step, value, after)
        if abs(again - value) > REPEATED * along.numbers.precision * abs(value):
            message = f"The loss is random: {value:.6g}, and {again:.6g} at the same parameters."
            hint = "Draw from torch's, NumPy's or Python's global generators, which are held during the check."
            return Judgement(obstacle=Obstacle(Reason.NONDETERMINISTIC, message, hint), notes=notes)
        if not bool(step.delta.any()):
            message = "No entry moved: there is no step to verify."
            hint = (
                "Check that the optimizer holds these parameters, and that its rate is not too small for their dtype."
            )
            return Judgement(obstacle=Obstacle(Reason.STEP_SIZE, message, hint), notes=notes)
        change = LossChange(
            before=again,
            after=after,
            predicted=step.predicted,
            rounding=along.numbers.precision * max(abs(again), abs(after)),
            sign=-1.0 if self.expect == "increase" else 1.0,
        )
        of_step = self._of_step(step, gradients)
        found = self._of_gradient(step, again)
        lines = [found, of_step, self._of_loss(change, of_step)]
        return replace(
            found,
            findings=tuple(finding for line in lines for finding in line.findings),
            obstacle=next((line.obstacle for line in lines if line.obstacle), None),
            notes=(*notes, *(note for line in lines for note in line.notes)),
        )

    def _loss_along(self, step: TakenStep, value: float, delta: Tensor | None = None) -> LossAlongStep:
        return LossAlongStep(step, self.loss, value, self.dtype, self.tally, delta)

    def _of_gradient(self, step: TakenStep, value: float) -> Judgement:
        """Judge the gradient along the step, and along a random direction, on which a kink is no obstacle."""
        found = self._judged(self._loss_along(step, value), self.seed, "along the step")
        if found.findings:
            return found
        disagreed = False
        for seed in range(self.seed + 1, self.seed + 1 + DIRECTIONS):
            other = self._judged(self._loss_along(step, value, step.random(seed)), seed, "along a random direction")
            if other.findings and disagreed:
                return replace(other, findings=tuple(self._named(step, value, seed)) or other.findings)
            disagreed = disagreed or bool(other.findings)  # to be confirmed along a second direction
            if other.verdict is Verdict.PASS:
                return replace(found if found.readings else other, readings=(*found.readings, *other.readings))
        note = f"Along random directions of the parameters the gradient could not be verified: {other.message}"
        return replace(found, notes=(*found.notes, note))

    def _judged(self, subject: LossAlongStep, seed: int, where: str) -> Judgement:
        if not subject.claim_size and where == "along the step":
            return Judgement()
        found = judge(subject, probes=1, seed=seed, options=Probing(atol=subject.claim_rounding))
        if found.verdict is Verdict.PASS and found.resolution.absolute > subject.claim_size > 0:
            message = (
                "The step does not show in the loss: its values are too coarse to distinguish the slope from zero."
            )
            hint = "Take a longer step, or compute the loss in double precision."
            found = replace(found, obstacle=Obstacle(Reason.NOISE, message, hint))
        return replace(found, findings=tuple(_mispredicted(finding, where) for finding in found.findings))

    def _named(self, step: TakenStep, value: float, seed: int) -> Iterator[Finding]:
        """Yield the findings of single parameters along a direction in which all of them together disagree."""
        count = 0
        for number, name in enumerate(self.names):
            found = self._judged(self._loss_along(step, value, step.random(seed, number)), seed, f"along {name} alone")
            for finding in found.findings:
                yield replace(finding, argument=name)
            count += bool(found.findings)
            if count >= NAMED:
                return

    def _of_step(self, step: TakenStep, gradients: list[Tensor | None]) -> Judgement:
        """Judge whether the step is a rule applied to the gradient, and whether every parameter takes part."""
        findings = list(left_out(step, self.observed))
        notes: list[str] = []
        obstacle = None
        if self.rule is not None:
            findings += self._by_the_rule(self.rule, step, gradients)
            return Judgement(findings=tuple(findings))
        for each in self.observed.steps:
            found, note = self._of_optimizer(each, gradients)
            findings += found
            notes += note
        if not any(each.is_torchs for each in self.observed.steps):
            notes.append(UNKNOWN)
        if self.expect == "decrease":
            uphill, obstacle = wrong_ways(step, self.observed)
            findings += uphill
            obstacle = obstacle or undirected(step, self.observed)
        before, after = ([values_of(each) for each in taken.tensors] for taken in (step.before, step.after))
        others = judge_other_moves(self.observed, self.names, before, after, gradients)
        return Judgement(
            findings=(*findings, *others.findings),
            obstacle=obstacle or others.obstacle,
            notes=(*notes, *others.notes),
        )

    def _of_optimizer(self, each: OptimizerStep, gradients: list[Tensor | None]) -> tuple[list[Finding], list[str]]:
        """Judge what one optimizer did, from the gradients that it was given or from those that it made of them."""
        first: list[Finding] | None = None
        notes: list[str] = []
        for reading in each.readings:
            findings = [*gradient_findings(reading, self.names, gradients)]
            try:
                findings += rule_findings(reading, self.names)
            except Exception as error:  # a derived class may take other hyperparameters or state
                name = each.rule.__name__ if each.rule else "Optimizer"
                notes = [f"The rule of torch.optim.{name} could not be applied again: {error}"]
            if not findings:
                return [], notes
            first = findings if first is None else first
        return first or [], notes

    def _by_the_rule(self, rule: Rule, step: TakenStep, gradients: list[Tensor | None]) -> Iterator[Finding]:
        chosen = [number for number, gradient in enumerate(gradients) if gradient is not None]
        return reference_findings(
            rule,
            [self.names[number] for number in chosen],
            [values_of(step.before.tensors[number]) for number in chosen],
            [values_of(step.after.tensors[number]) for number in chosen],
            [gradient for gradient in gradients if gradient is not None],
        )

    def _of_loss(self, change: LossChange, of_step: Judgement) -> Judgement:
        """Judge whether the loss goes the way that is expected."""
        if self.expect == "any" or not change.rises:
            return Judgement()
        if not change.is_predicted:
            return Judgement(findings=(overshoot(change),))
        known = bool(self.observed.steps) and all(each.is_torchs for each in self.observed.steps)
        alone = all(each.follows_the_gradient_alone for each in self.observed.steps)
        wrapped = any(each.is_wrapped for each in self.observed.steps)
        explained = not alone or wrapped or bool(of_step.notes)  # by momentum, decay, or what is done beside the step
        if known and explained and not of_step.findings and (wrapped or not of_step.obstacle):
            return Judgement(obstacle=carried_uphill(change))
        return Judgement(findings=(against_the_gradient(change),))

    def _backward(self) -> float:
        value = self.loss.loss()
        if not isinstance(value, Tensor) or value.numel() != 1 or value.is_complex():
            raise InputError("The loss is not a real number: return a tensor with one real entry.")
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


def _notes(step: TakenStep, before: float, after: float) -> tuple[str, ...]:
    predicted, moved = step.predicted, int((step.delta != 0).sum())
    notes = [
        f"The loss changed by {after - before:+.3g}, from {before:.6g} to {after:.6g}; to first order the gradient "
        f"predicts {predicted:+.3g}.",
        f"{moved:,} of {step.space.size:,} entries moved.",
    ]
    if predicted > 0:
        notes.append("The step leads uphill: the gradient predicts that the loss rises.")
    return (*notes, *(f"{name} has a gradient and did not move." for name in step.unmoved))


def _mispredicted(finding: Finding, where: str) -> Finding:
    """Put a finding of the engine into the words of a step."""
    if finding.kind != "wrong-gradient" or not finding.entries:
        return finding
    worst = finding.entries[0]
    return replace(
        finding,
        kind="prediction",
        message=f"The gradient predicts a slope of {worst.claimed:.10g} {where}, and the loss has "
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
