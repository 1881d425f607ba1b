"""What a step function does to parameters beside the steps of their optimizers.

A mask, a bound or a decay moves values towards zero, which may well be meant. Another step along the same gradient and
a decay that the optimizer makes already are mistakes. What else moves parameters cannot be judged without its rule.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.engine.results import Finding, Obstacle, Reason
from gradproof.engine.thresholds import CLEARLY, ROUNDINGS
from gradproof.engine.verdict import Judgement
from gradproof.frameworks.torch.training.observed_steps import ObservedSteps, OptimizerStep, Update

HINT = "Pass rule= with a function that makes an optimizer of the whole step, or check the optimizer's step by itself."


@dataclass(frozen=True, slots=True)
class Move:
    """A change of one parameter beside the steps of its optimizers."""

    before: Tensor
    after: Tensor

    @property
    def is_towards_zero(self) -> bool:
        """Whether all entries that change keep their sign or become zero, and get smaller."""
        if self.before.is_complex():
            return bool((self.after.abs() <= self.before.abs()).all())
        return bool(((self.after * self.before >= 0) & (self.after.abs() <= self.before.abs())).all())

    def is_decay_of(self, update: Update) -> bool:
        """Whether this is the decay that the optimizer has made once already."""
        group = update.group
        decay = float(group.get("weight_decay", 0.0)) * float(group["lr"]) if "lr" in group else 0.0
        return decay != 0 and self._is_small(self.after - (1 - decay) * self.before, decay * self.before)

    def multiple_of(self, gradient: Tensor, unit: float | None = None) -> float:
        """Return by how many times a gradient the parameter moved; 0 where it moved otherwise.

        `unit` is the rounding of values that are held in a wider dtype than the parameter's.
        """
        along, moved = _wide(gradient), _wide(self.after) - _wide(self.before)
        square = float(along @ along)
        if along.numel() < 2 or not square:
            return 0.0
        factor = float(moved @ along) / square
        return factor if self._is_small(moved - factor * along, factor * along, unit) else 0.0

    def _is_small(self, rest: Tensor, move: Tensor, unit: float | None = None) -> bool:
        """Return True if a rest is rounding, and a move is clearly more."""
        rest, move = _wide(rest), _wide(move)
        largest = torch.maximum(_wide(self.before).abs(), _wide(self.after).abs())
        rounding = ROUNDINGS * (unit or torch.finfo(self.before.dtype).eps) * (largest + move.abs())
        return bool((rest.abs() <= rounding).all()) and float(move.norm()) > CLEARLY * float(rounding.norm())


def judge_other_moves(
    observed: ObservedSteps,
    names: Sequence[str],
    before: Sequence[Tensor],
    after: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
) -> Judgement:
    """Judge the changes of parameters that optimizers of torch's step, from before to after the step function."""
    findings: list[Finding] = []
    notes: list[str] = []
    obstacle = None
    for number, name in enumerate(names):
        stepped = [(each, update) for each in observed.steps for update in each.updates if update.number == number]
        if not stepped or not all(each.is_torchs for each, _ in stepped):
            continue
        kinds = " and ".join(dict.fromkeys(type(each.optimizer).__name__ for each, _ in stepped))
        if _from_one_gradient([update for _, update in stepped]):
            message = f"{name} was stepped {len(stepped)} times from one gradient, by {kinds}."
            hint = "Look for a step that is called twice, or for a parameter that two optimizers hold."
            findings.append(Finding(kind="rule", message=message, argument=name, hint=hint))
        for move in _moves(stepped, before[number], after[number]):
            wrong = "" if any(each.is_wrapped for each, _ in stepped) else _mistake(move, stepped, gradients[number])
            count = int((move.before != move.after).sum())
            where = f"beside the step of {kinds}, in {count:,} {'entry' if count == 1 else 'entries'}"
            if wrong:
                hint = "Look for a step or a decay that is made a second time, after the optimizer's own."
                message = f"{name} was changed {where}: {wrong}."
                findings.append(Finding(kind="rule", message=message, argument=name, hint=hint))
            elif move.is_towards_zero:
                notes.append(f"{name} was moved towards zero {where}, as a mask or a bound does.")
            elif obstacle is None:
                message = f"{name} was changed {where}, which the optimizer's rule does not explain."
                obstacle = Obstacle(Reason.STEP_SIZE, message, HINT)
    return Judgement(findings=tuple(findings), obstacle=obstacle, notes=tuple(notes))


def _from_one_gradient(updates: Sequence[Update]) -> bool:
    gradients = [update.gradient for update in updates if update.gradient is not None]
    return any(bool(later.any()) and later.equal(earlier) for earlier, later in itertools.pairwise(gradients))


def _moves(stepped: Sequence[tuple[OptimizerStep, Update]], before: Tensor, after: Tensor) -> Iterator[Move]:
    """Yield what changed a parameter before, between and after the steps of its optimizers."""
    at = before
    for _, update in stepped:
        if not at.equal(update.before):
            yield Move(at, update.before)
        at = update.after
    if not at.equal(after):
        yield Move(at, after)


def _mistake(move: Move, stepped: Sequence[tuple[OptimizerStep, Update]], gradient: Tensor | None) -> str:
    """Say what is wrong with a change; nothing where it may be meant."""
    if any(move.is_decay_of(update) for _, update in stepped):
        return "the optimizer's weight decay was made once more"
    factor = 0.0 if gradient is None else move.multiple_of(gradient)
    return f"by {factor:.4g} times its gradient" if factor else ""


def _wide(values: Tensor) -> Tensor:
    """Return values as one real vector in double precision."""
    return (torch.view_as_real(values.resolve_conj()) if values.is_complex() else values).detach().double().reshape(-1)
