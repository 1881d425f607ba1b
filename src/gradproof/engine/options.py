"""The options that travel through the engine together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gradproof.engine.estimators.steps import first_step
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import ENOUGH


@dataclass(frozen=True, slots=True, kw_only=True)
class Probing:
    """What the user tolerates on top of the bar, and the step that the user wants, if any, in the inputs' units.

    A bar that is at most `enough` of the largest contribution is not refined.
    """

    rtol: float = 0.0
    atol: float = 0.0
    nondet_tol: float = 0.0
    step: float | None = None
    enough: float = ENOUGH

    def first(self, subject: Subject) -> Step:
        """Return the first step: the user's, or the best one for the subject's precision."""
        if self.step is not None:
            return Step(self.step, absolute=True)
        return Step(first_step(subject.numbers.precision))

    def along(self, subject: Subject, direction: Array) -> Probing:
        """Return the tolerances in the units of the claim: a Jacobian's entry, or a slope along a direction."""
        if subject.mode == "reverse" or not self.atol:
            return self
        return replace(self, atol=self.atol * math.sqrt(float((direction * direction).sum(-1).max())))


def tolerance_hint(error: float, slight: float = 1e-6) -> str:
    """Return what to add to the hint about a slight error, relative to the entry; nothing for a larger one.

    >>> tolerance_hint(3e-8)
    ' If so slight an error is meant, as of an iteration that stops early, pass rtol=1e-07.'
    """
    if not 0 < error < slight:
        return ""
    rtol = 10.0 ** math.ceil(math.log10(error))
    return f" If so slight an error is meant, as of an iteration that stops early, pass rtol={rtol:g}."
