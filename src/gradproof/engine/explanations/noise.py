"""Functions whose values are too noisy for a slope to be measured."""

from __future__ import annotations

from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.probe import Probe
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.thresholds import ENOUGH, MARGIN, SLIGHT


class Noisy:
    """The noise of the values may hide the slope."""

    reason = Reason.NOISE
    kinds = frozenset({Kind.AGREEMENT, Kind.DISAGREEMENT, Kind.UNLOCATED})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if the bar is wide, or in low precision if the error is not clearly beyond it."""
        if not is_rough(comparison):
            return None
        return Obstacle(
            self.reason,
            "The function's values are too noisy for a slope to be measured at this size and precision.",
            "Check in float64, at fewer entries, or with wrt= for one input at a time.",
        )


class OneDirectionAlone:
    """The claim missed its bar along one direction, and met it along others."""

    reason = Reason.NOISE
    kinds = frozenset({Kind.UNCONFIRMED})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle that says by how much the bar was missed."""
        probe = comparison.probe
        return Obstacle(
            self.reason,
            f"The claimed slope missed its bar of {probe.bar:.2g} by {probe.excess:.2g} along one random direction and "
            "met it along two others.",
            "Run again with more probes=, or at another point.",
        )


def is_rough(comparison: Comparison) -> bool:
    """Return True if noise of any origin may explain an agreement or a disagreement."""
    probe = comparison.probe
    if comparison.kind is Kind.AGREEMENT:
        return comparison.is_weak
    if comparison.kind is Kind.UNLOCATED:
        return probe.coarse or not comparison.unresolved_allowed
    if comparison.kind is Kind.UNCONFIRMED:
        return True
    if probe.coarse and probe.contraction.bar > probe.contraction.size > 0 and not _hardly_moves(probe):
        return True
    unclear = min(each.excess / each.bar for each in comparison.probes) < MARGIN
    return unclear and comparison.subject.numbers.precision > ENOUGH


def _hardly_moves(probe: Probe) -> bool:
    """Return True if the values change, on the finest step on which they change at all, by far less than is claimed.

    Quantised values jump by at least the claimed change, and noise that could hide it is as large. Values that hardly
    change, as at the minimum of a square, show that the claim is wrong, however noisy the slope.
    """
    subject = probe.ladder.subject
    xp, rates = subject.arrays, subject.arrays.zeros_like(subject.centre)
    for sample in probe.ladder.samples:
        moved = xp.maximum(abs(sample.plus - subject.centre), abs(sample.minus - subject.centre))
        rates = xp.where(rates == 0, moved / sample.t, rates)
    return float(abs(probe.cotangent) @ rates) < SLIGHT * abs(probe.claim.slope)
