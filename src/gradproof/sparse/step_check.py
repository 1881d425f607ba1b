"""Is one training step what it should be?

Along the step Δ that an optimiser takes, the loss is a function of one number, φ(t) = L(θ + tΔ), and the gradient
claims its slope: φ'(0) = ⟨g, Δ⟩. The slope is measured from values of the loss with an error bar, and the claim has to
lie within. That holds for any optimiser, whatever it made of the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gradproof.engine.results import Entry, Finding, Verdict
from gradproof.errors import InputError
from gradproof.frameworks.torch.subject.random_state import HeldGenerators
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.snapshots import Snapshot, gradient_values, named
from gradproof.sparse.step_line import Evaluation, Line
from gradproof.sparse.step_slope import Slope

SHOWN = 5  # entries of a finding


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one step did. `predicted` is ⟨gradient, step⟩; `slope` ± `bar` is what values of the loss say about it."""

    verdict: Verdict
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    loss_before: float
    loss_after: float
    predicted: float
    slope: float
    bar: float
    moved: int
    entries: int

    @property
    def passed(self) -> bool:
        """Whether the step was verified."""
        return self.verdict is Verdict.PASS

    @property
    def change(self) -> float:
        """How the loss changed."""
        return self.loss_after - self.loss_before

    def __str__(self) -> str:
        lines = [
            f"{self.verdict.name}  step: {self.moved:,} of {self.entries:,} entries moved",
            f"  loss        {self.loss_before:.6g} -> {self.loss_after:.6g} ({self.change:+.3g})",
            f"  first order {self.predicted:+.6g} predicted, {self.slope:+.6g} ± {self.bar:.1g} measured",
        ]
        lines += [f"  reason      {self.reason}"] if self.reason else []
        lines += [f"  found       {finding.message}" for finding in self.findings]
        lines += [f"  note        {note}" for note in self.notes]
        return "\n".join(lines)


def check_step(
    step: Optimizer | Callable[[], Any],
    loss: Callable[[], Tensor],
    parameters: Any,
    *,
    patterns: Mapping[str, Pattern] | None = None,
) -> StepReport:
    """Take one training step, and verify it.

    Stored entries may change and no others, patterns may not; the loss changes as the gradient predicts to first order;
    everything stays finite. The step is taken for real: afterwards parameters, gradients and the optimiser are as a
    step leaves them. Generators and a module's buffers are as one evaluation of the loss leaves them.

    >>> import torch
    >>> layer = torch.nn.Linear(3, 2).double()
    >>> x = torch.randn(8, 3, dtype=torch.float64)
    >>> adam = torch.optim.Adam(layer.parameters(), lr=0.01)
    >>> check_step(adam, lambda: layer(x).square().mean(), layer).passed
    True

    Args:
        step: an optimiser, or a function that takes a step from the gradients in `.grad`.
        loss: the loss at the present parameters, a real number.
        parameters: what the step may change: a module, a mapping by name, or tensors, sparse ones too.
        patterns: for strided parameters, by name, the entries that a step may change.
    """
    for given, what in ((loss, "loss"), (getattr(step, "step", step), "step")):
        if not callable(given):
            raise InputError(f"{what} is a {type(given).__name__}, which cannot be called. Pass a function.")
    tensors = named(parameters)
    allowed = _known_patterns(patterns or {}, tensors)
    buffers = dict(parameters.named_buffers()) if isinstance(parameters, nn.Module) else {}
    evaluation = Evaluation(loss, HeldGenerators(), buffers)
    before = {name: Snapshot.of(tensor) for name, tensor in tensors.items()}
    loss_before = _backward(loss, tensors)
    gradients = {name: gradient_values(tensor) for name, tensor in tensors.items()}
    _take(step, loss, tensors)
    with evaluation.keeping():
        after = {name: Snapshot.of(tensor) for name, tensor in tensors.items()}
        findings = [*_structure(before, after, allowed), *_finiteness(loss_before, gradients, after)]
        moved = {
            name: after[name].values - before[name].values for name in tensors if after[name].same_pattern(before[name])
        }
        line = Line(tensors, before, after, moved, gradients, evaluation)
        return _report(line, loss_before, findings, math.nan if findings else line.value(1.0))


def _report(line: Line, loss_before: float, findings: list[Finding], loss_after: float) -> StepReport:
    count = sum(int((delta != 0).sum()) for delta in line.moved.values())
    entries = sum(snapshot.values.numel() for snapshot in line.before.values())
    predicted, slope = math.nan, Slope(math.nan, math.nan)
    reason, notes = "", []
    if not findings:
        predicted = line.predicted
        again = line.value(0.0)
        if again != loss_before and abs(again - loss_before) > 1e3 * line.precision * abs(loss_before):
            reason = f"The loss is random: {loss_before:.6g}, and {again:.6g} at the same parameters."
        elif count == 0:
            reason = "No entry moved: there is no step to verify."
        elif not math.isfinite(loss_after):
            findings = [Finding(kind="non-finite", message=f"The loss is {loss_after} after the step.")]
        else:
            slope = line.slope(again)
            if not math.isfinite(slope.bar):
                reason = "The loss shows no slope along the step: it is not finite there, or changes too fast."
            elif not slope.contains(predicted):
                if slope.between(predicted):
                    reason = "The loss has a kink at the start of the step, and the claim lies between its two slopes."
                else:
                    findings = [_misprediction(predicted, slope)]
            elif slope.bar > line.size:
                reason = "The step does not show in the loss: its values are too coarse to tell the slope from none."
            if predicted > 0:
                notes.append("The step leads uphill: the gradient predicts that the loss rises.")
            notes += [f"{name} has a gradient and did not move." for name in line.left_behind]
    verdict = Verdict.FAIL if findings else Verdict.INCONCLUSIVE if reason else Verdict.PASS
    return StepReport(
        verdict=verdict,
        reason=reason,
        findings=tuple(findings),
        notes=tuple(notes),
        loss_before=loss_before,
        loss_after=loss_after,
        predicted=predicted,
        slope=slope.value,
        bar=slope.bar,
        moved=count,
        entries=entries,
    )


def _misprediction(predicted: float, slope: Slope) -> Finding:
    return Finding(
        kind="prediction",
        message=f"The gradient predicts a slope of {predicted:.10g} along the step, and the loss has "
        f"{slope.value:.10g} ± {slope.bar:.1g}.",
        hint="Check the gradients of the loss with gradproof.check, at these parameters.",
    )


def _structure(
    before: dict[str, Snapshot], after: dict[str, Snapshot], allowed: dict[str, Pattern]
) -> Iterator[Finding]:
    """Patterns that changed, and entries that had to stay."""
    for name, old in before.items():
        new = after[name]
        if not new.same_pattern(old):
            yield Finding(
                kind="pattern",
                message=f"The step changed which entries {name} stores, or its shape.",
                argument=name,
                hint="A step writes to the stored values alone: use gradproof.sparse.optimiser or apply_gradient_.",
            )
        elif name in allowed:
            outside = ((new.values != old.values) & ~allowed[name].mask()).nonzero()
            if outside.numel():
                yield Finding(
                    kind="unstored",
                    message=f"The step changed {outside.shape[0]} entries of {name} outside its pattern.",
                    argument=name,
                    entries=tuple(_moved_entry(old.values, new.values, tuple(k.tolist())) for k in outside[:SHOWN]),
                    hint="Mask the gradient, and mind weight decay and momentum, which move entries without one.",
                )


def _moved_entry(old: Tensor, new: Tensor, index: tuple[int, ...]) -> Entry:
    """An entry that had to keep its value: `claimed` is what it became, `numerical` what it was."""
    return Entry(index=index, claimed=abs(complex(new[index])), numerical=abs(complex(old[index])), bar=0.0)


def _finiteness(loss_before: float, gradients: dict[str, Tensor], after: dict[str, Snapshot]) -> Iterator[Finding]:
    if not math.isfinite(loss_before):
        yield Finding(kind="non-finite", message=f"The loss is {loss_before} before the step.")
    for what, values in (
        *((f"the gradient of {name}", gradient) for name, gradient in gradients.items()),
        *((f"{name} after the step", snapshot.values) for name, snapshot in after.items()),
    ):
        wrong = int((~torch.isfinite(values)).sum())
        if wrong:
            yield Finding(kind="non-finite", message=f"{wrong} entries of {what} are not finite.")


def _known_patterns(patterns: Mapping[str, Pattern], tensors: dict[str, Tensor]) -> dict[str, Pattern]:
    for name, pattern in patterns.items():
        if name not in tensors:
            raise InputError(f"There is no parameter {name!r}: the parameters are {', '.join(tensors)}.")
        if tuple(tensors[name].shape) != pattern.shape:
            raise InputError(f"{pattern!r} does not fit {name}, which has shape {list(tensors[name].shape)}.")
    return dict(patterns)


def _backward(loss: Callable[[], Tensor], tensors: dict[str, Tensor]) -> float:
    value = loss()
    if not isinstance(value, Tensor) or value.numel() != 1 or value.is_complex():
        raise InputError("The loss is no real number: return a tensor with one real entry.")
    if not value.requires_grad:
        raise InputError("The loss depends on nothing that requires grad: return it as it is computed, not detached.")
    for tensor in tensors.values():
        tensor.grad = None
    value.backward()  # type: ignore[no-untyped-call]  # torch's own
    return float(value.detach())


def _take(step: Optimizer | Callable[[], Any], loss: Callable[[], Tensor], tensors: dict[str, Tensor]) -> None:
    if not isinstance(step, Optimizer):
        step()
    elif isinstance(step, torch.optim.LBFGS):

        def closure() -> float:
            return _backward(loss, tensors)

        step.step(closure)  # type: ignore[no-untyped-call]  # torch's own
    else:
        step.step()
