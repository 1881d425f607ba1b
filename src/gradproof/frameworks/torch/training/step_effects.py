"""The effect of a step: whether every parameter moved, whether it moved downhill, and whether the loss went down."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from gradproof.engine.results import Finding, Obstacle, Reason
from gradproof.engine.thresholds import CLEARLY, MANY, SLIGHT, TWO_DIGITS
from gradproof.frameworks.torch.training.observed_steps import ObservedSteps
from gradproof.frameworks.torch.training.optimizer_rule import cosine, uphill
from gradproof.frameworks.torch.training.other_moves import Move
from gradproof.frameworks.torch.training.parameters import values_of
from gradproof.frameworks.torch.training.step_subject import TakenStep

UNKNOWN = (
    "Whether this is the step of a rule is not known: no optimizer of torch's took it. Pass rule=, for example "
    "rule=lambda parameters: torch.optim.Adam(parameters, lr=0.01)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossChange:
    """The loss before and after a step, what the gradient predicts, and the rounding of the loss.

    `sign` is −1 where the loss is expected to increase.
    """

    before: float
    after: float
    predicted: float
    rounding: float
    sign: float = 1.0

    @property
    def rises(self) -> bool:
        """Whether the loss goes the wrong way by more than rounding."""
        return self.sign * (self.after - self.before) > TWO_DIGITS * self.rounding

    @property
    def is_predicted(self) -> bool:
        """Whether the gradient predicts that the loss goes the wrong way."""
        return self.sign * self.predicted > 0

    @property
    def way(self) -> str:
        """The wrong way, as a verb."""
        return "rose" if self.sign > 0 else "fell"


def overshoot(change: LossChange) -> Finding:
    """Describe a step along which the loss first goes the right way, and then further back."""
    curvature = change.after - change.before - change.predicted  # of the parabola through both values and the slope
    best = -change.predicted / (2 * curvature) if curvature else 1.0
    return Finding(
        kind="loss",
        message=f"The loss {change.way} from {change.before:.6g} to {change.after:.6g}, although the gradient predicts "
        f"a change of {change.predicted:+.3g}: the step is too long.",
        hint=f"A parabola through the values has its best point at {best:.1g} of this step: lower the rate.",
    )


def against_the_gradient(change: LossChange) -> Finding:
    """Describe a step that goes the wrong way to first order, and in the loss."""
    return Finding(
        kind="loss",
        message=f"The loss {change.way} from {change.before:.6g} to {change.after:.6g}, as the gradient predicts "
        f"({change.predicted:+.3g}): the step goes the wrong way.",
        hint="Look for a wrong sign, maximize=True, or a gradient of another loss. If the loss is meant to go this "
        "way, pass expect='increase', or expect='any'.",
    )


def carried_uphill(change: LossChange) -> Obstacle:
    """Say that momentum, weight decay or a mask makes a right step go the wrong way."""
    return Obstacle(
        Reason.STEP_SIZE,
        f"The loss {change.way} from {change.before:.6g} to {change.after:.6g}: the step is the optimizer's rule, and "
        "what it carries over from earlier steps, its weight decay, or what is done beside it outweighs the gradient.",
        "Check another step, or lower the rate. Pass expect='any' if the loss may go either way.",
    )


def left_out(step: TakenStep, observed: ObservedSteps) -> Iterator[Finding]:
    """Report parameters that have a gradient and did not move, although a step would show in their precision."""
    stepped = {update.number: (each, update) for each in observed.steps for update in each.updates}
    names = [part.path for part in step.space.parts]
    for name in step.unmoved:
        number = names.index(name)
        holder, update = stepped.get(number, (None, None))
        if holder is None or update is None or holder.rule is None:
            if _too_short_to_show(step, number):
                continue
        elif not bool(update.after.ne(update.before).any()):
            continue  # its rule moves it no more, as is judged beside the other parameters
        yield Finding(
            kind="left-out",
            message=f"{name} has a gradient and did not move.",
            argument=name,
            hint="Pass it to the optimizer. If the step is not meant to move it, leave it out of the parameters of the "
            "check.",
        )


def _too_short_to_show(step: TakenStep, number: int) -> bool:
    """Return True if a step in proportion to the gradient, as of the parameters that moved, is lost in rounding."""
    part = step.space.parts[number]
    delta, gradient = step.delta, step.gradient
    moved = delta != 0
    rate = float(delta[moved].norm() / gradient[moved].norm()) if bool(gradient[moved].any()) else math.inf
    values, own = step.before.tensors[number], gradient[part.start : part.stop]
    unit = step.space.precision * float(abs(values_of(values)).max())
    return not rate * float(abs(own).max()) > CLEARLY * unit


def wrong_ways(step: TakenStep, observed: ObservedSteps) -> tuple[list[Finding], Obstacle | None]:
    """Look for parameters that moved along their gradients, where no rule that is known moved them.

    All entries along the gradient are a wrong sign. Some of them may be momentum, which leaves the check undecided.
    """
    known = {update.number for each in observed.steps if each.is_torchs for update in each.updates}
    findings: list[Finding] = []
    obstacle = None
    for number, part in enumerate(step.space.parts):
        if number in known:
            continue
        where = slice(part.start, part.stop)
        start = step.start[where]
        share = uphill(start, start + step.delta[where], step.gradient[where])
        if share == 1.0:
            findings.append(
                Finding(
                    kind="uphill",
                    message=f"{part.path} moved along its gradient, and not against it.",
                    argument=part.path,
                    hint="Look for a wrong sign in the step. If the loss is meant to increase, pass expect='increase'.",
                )
            )
        elif share > 0 and obstacle is None:
            obstacle = Obstacle(
                Reason.STEP_SIZE,
                f"{part.path} moved uphill, at a cosine of {share:.2g} to its gradient, which momentum may do and a "
                "wrong rule too.",
                UNKNOWN,
            )
    return findings, obstacle


def undirected(step: TakenStep, observed: ObservedSteps) -> Obstacle | None:
    """Look for a step of no known rule that a wrong one may be as well: at unequal rates, or along no gradient at all.

    A rate for each group of parameters may be meant, and momentum may turn a step away from its gradient.
    """
    known = {update.number for each in observed.steps if each.is_torchs for update in each.updates}
    rates: dict[str, float] = {}
    moves, slopes, follows = [], [], True
    for number, part in enumerate(step.space.parts):
        where = slice(part.start, part.stop)
        slope = step.gradient[where]
        if number in known or not bool(slope.any()):
            continue
        start = step.start[where]
        rate = -Move(start, start + step.delta[where]).multiple_of(slope, step.space.precision)
        follows = follows and rate > 0
        rates[part.path] = rate
        moves.append(step.delta[where])
        slopes.append(slope)
    if not rates:
        return None
    slow, fast = min(rates, key=rates.__getitem__), max(rates, key=rates.__getitem__)
    if follows and rates[fast] > (1 + SLIGHT) * rates[slow]:
        message = (
            f"The parameters moved against their gradients at unequal rates: {fast} by {rates[fast]:.4g} times its "
            f"gradient, {slow} by {rates[slow]:.4g} times."
        )
        return Obstacle(Reason.STEP_SIZE, message, UNKNOWN)
    move, slope = torch.cat(moves), torch.cat(slopes)
    alike, count = -cosine(move, slope), int(move.count_nonzero())
    if count >= MANY**2 and alike < CLEARLY / math.sqrt(count):
        message = f"The step has a cosine of {alike:.2g} to the downhill direction, as a random one has too."
        return Obstacle(Reason.STEP_SIZE, message, UNKNOWN)
    return None
