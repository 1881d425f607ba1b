"""Functions that give different values at the same point."""

from __future__ import annotations

from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.thresholds import GROSS


class Nondeterministic:
    """The function does not repeat its values, and the error is of the size that this explains."""

    reason = Reason.NONDETERMINISTIC
    kinds = frozenset({Kind.AGREEMENT, Kind.DISAGREEMENT})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle where values differ from call to call."""
        probe = comparison.probe
        if probe.repeatable or not (comparison.is_weak if probe.agrees else probe.excess < GROSS * probe.bar):
            return None
        return Obstacle(
            self.reason,
            "The function gives different values at the same point, with every global generator in the same state.",
            "Seed the generators that it makes for itself, or pass nondet_tol= if the difference is meant.",
        )
