"""Amplified rounding: catastrophic cancellation in the values, and ill-conditioned rules.

Both show when the point moves by a few units of rounding, which hardly changes a well-conditioned function.
"""

from __future__ import annotations

from collections.abc import Iterable

from gradproof.engine.contraction import inner
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.perturbed import perturbations, product, random_operand
from gradproof.engine.probe import Probe
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import ALIKE, CLEARLY, FEW, SLIGHT
from gradproof.engine.views import whole_of


class Cancellation:
    """Values and claim are rounding errors of larger numbers that cancel, as for x − x computed in two ways."""

    reason = Reason.CANCELLATION
    kinds = frozenset({Kind.DISAGREEMENT})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if a unit of rounding in the point changes values and claim by their own size."""
        probe = comparison.probe
        if not _may_cancel(probe) or not is_cancelled(whole_of(comparison.subject), probe.seed):
            return None
        return Obstacle(
            self.reason,
            "The values and the claimed derivative change by their own size when the point moves by a unit of "
            "rounding: they are what rounding left of larger numbers that cancel.",
            "Check at a point, or at a size, where they do not cancel: a normalisation of more than one entry, for "
            "instance.",
        )


class IllConditioned:
    """The claim is off by no more than it varies within a few units of rounding of the point."""

    reason = Reason.CONDITIONING
    kinds = frozenset({Kind.DISAGREEMENT, Kind.ENTRY})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if a slight error is within the range of the claims at perturbed points.

        The point itself is left out: a rule may be wrong there alone, as for inputs of exactly zero.
        """
        probe, error = comparison.probe, comparison.error
        if len(comparison.direction.shape) > 1:  # columns are compared one by one, as entries
            return None
        if not error <= SLIGHT * _size(probe) or not all(map(_is_slight, comparison.probes)):
            return None
        if not error <= CLEARLY * _range_of_claims(comparison):
            return None
        return Obstacle(
            self.reason,
            "The claim is off by no more than it changes by when the point moves by a few units of rounding, as for a "
            "nearly singular matrix.",
            "Check at a point that is better conditioned: there every digit counts.",
        )


def _range_of_claims(comparison: Comparison) -> float:
    """Return by how much the claimed slope varies between perturbed points."""
    probe, subject, coordinate = comparison.probe, comparison.subject, comparison.coordinate
    if subject.mode == "forward":
        away = perturbations(whole_of(subject), probe.seed, CLEARLY)
        claims = [inner(subject, probe.cotangent, product(subject, comparison.direction, at)) for at in away]
        return max(claims) - min(claims)
    seen = probe.perturbed_claims
    if coordinate is None:
        return max(seen.slopes) - min(seen.slopes)
    return float(seen.high[coordinate] - seen.low[coordinate]) * abs(float(probe.ladder.direction[coordinate]))


def _size(probe: Probe) -> float:
    return max(abs(probe.claim.slope), probe.claim.largest_contribution)


def _is_slight(probe: Probe) -> bool:
    """Return True if a probe's claim is right to two digits."""
    return abs(probe.error) <= SLIGHT * _size(probe)


def is_cancelled(subject: Subject, seed: int) -> bool:
    """Return True if a unit of rounding changes values and derivative by their own size, and both are repeatable."""
    away = list(perturbations(subject, seed))
    if not _differs_by_its_size(subject.centre, (subject.evaluate(at, 1.0) for at in away[:FEW])):
        return False
    operand = random_operand(subject, seed)
    claimed = product(subject, operand)
    if bool((product(subject, operand) != claimed).any()):
        return False
    return _differs_by_its_size(claimed, (product(subject, operand, at) for at in away))


def _may_cancel(probe: Probe) -> bool:
    """Return True if the slope is below the claim, and values are zero or change by their own size on a fine step."""
    centre, finest = probe.ladder.subject.centre, probe.ladder.samples[0]
    if not 0 < abs(probe.claim.slope) >= abs(probe.contraction.slope):
        return False
    moved = abs(finest.plus - centre) > ALIKE * abs(centre)
    return bool(moved.any()) or not bool(centre.any())


def _differs_by_its_size(vector: Array, perturbed: Iterable[Array]) -> bool:
    """Return True if one of the perturbed vectors differs from the vector by the vector's own size."""
    least = ALIKE * float(abs(vector).max())
    return any(float(abs(other - vector).max()) >= least for other in perturbed)
