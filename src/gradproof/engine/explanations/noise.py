"""Functions whose values are too noisy for a slope to be measured."""

from __future__ import annotations

from gradproof.engine.contraction import claimed, inner
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.probe import Probe
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, CLEARLY, COARSEST, ENOUGH, FEW, MARGIN, SLIGHT, TRACE
from gradproof.engine.views import whole_of


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


class NoiseOfOthers:
    """The noise of the values does not depend on one input, and is constant along it: it changes the slope unseen.

    Beside the point, where the other inputs have moved too, the slope is off by something else.
    """

    reason = Reason.NOISE
    kinds = frozenset({Kind.ENTRY})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if a slight error is not smooth from point to point, and the claim is."""
        if len(comparison.direction.shape) > 1 or comparison.share > COARSEST or not _varies(comparison):
            return None
        return Obstacle(
            self.reason,
            "The error changes by its own size when the other inputs move slightly, and the claim does not, as for "
            "values with a noise that one input does not change.",
            "Check the function without the noise, or in a higher precision inside.",
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


def _varies(comparison: Comparison) -> bool:
    """Return True if the error is not smooth between points a first step apart, and the claim is."""
    subject, seed = comparison.subject, comparison.probe.seed
    step, (claim, error) = comparison.options.first(subject), _claim_and_error(comparison, 0 * comparison.direction)
    for number in range(FEW):
        away = whole_of(subject).direction(seed + number, step)
        claims, errors = zip(*(_claim_and_error(comparison, at) for at in (away, -away)), strict=True)
        bend, of_claim = abs(sum(errors) - 2 * error), abs(sum(claims) - 2 * claim)
        if bend > max(ALIKE * abs(error), of_claim / ALIKE, CLEARLY * comparison.probe.contraction.floor):
            return True
        if bend <= TRACE * abs(error):  # noise bends so little once in a thousand times
            return False
    return False


def _claim_and_error(comparison: Comparison, at: Array) -> tuple[float, float]:
    """Return the slope that is claimed at point + `at`, and its distance from the slope of the values there."""
    subject, piece, cotangent = comparison.subject, comparison.direction, comparison.probe.cotangent
    claim = inner(subject, *claimed(subject, piece, cotangent, at)[::-1])
    change = subject.evaluate(at + piece, 1.0) - subject.evaluate(at - piece, 1.0)
    return claim, inner(subject, cotangent, change) / 2 - claim
