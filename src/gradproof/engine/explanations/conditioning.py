"""Amplified rounding: catastrophic cancellation in the values, and ill-conditioned rules.

Both show when the point moves by a few units of rounding, which hardly changes a well-conditioned function.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradproof.engine.contraction import inner
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.explanations.nondifferentiable import negative_zeros
from gradproof.engine.probe import Probe
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import ALIKE, CLEARLY, FEW, SLIGHT
from gradproof.engine.views import whole_of

POINTS = 8  # perturbed points, each a few units of rounding away


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
        subject, direction = comparison.subject, comparison.direction
        if len(direction.shape) > 1:  # columns are compared one by one, as entries
            return None
        if not error <= SLIGHT * _size(probe) or not all(map(_is_slight, comparison.probes)):
            return None
        operand, weights = (probe.cotangent, direction) if subject.mode == "reverse" else (direction, probe.cotangent)
        moved = perturbations(whole_of(subject), probe.seed, CLEARLY)  # all inputs, which may share a rounded sum
        claims = [inner(subject, weights, product(subject, operand, at)) for at in moved]
        if not error <= CLEARLY * (max(claims) - min(claims)):
            return None
        return Obstacle(
            self.reason,
            "The claim is off by no more than it changes by when the point moves by a few units of rounding, as for a "
            "nearly singular matrix.",
            "Check at a point that is better conditioned: there every digit counts.",
        )


def _size(probe: Probe) -> float:
    return max(abs(probe.claim.slope), probe.claim.largest_contribution)


def _is_slight(probe: Probe) -> bool:
    """Return True if a probe's claim is right to two digits."""
    return abs(probe.claim.slope - probe.contraction.slope) <= SLIGHT * _size(probe)


def random_operand(subject: Subject, seed: int) -> Array:
    """Draw a random operand of the derivative: an incoming gradient, or a direction of the point's own size."""
    return subject.cotangent(seed) if subject.mode == "reverse" else subject.direction(seed, Step(1.0))


def product(subject: Subject, operand: Array, at: Array | None = None) -> Array:
    """Return the product that the derivative claims for an operand, Jᵀu or Jv, at the point or at point + `at`."""
    return subject.pullback(operand, at) if subject.mode == "reverse" else subject.pushforward(operand, at)


def scatter(subject: Subject, operand: Array, claimed: Array, seed: int) -> Array:
    """Return the root mean square change of each entry of a product when the point moves by a unit of rounding."""
    xp, square = subject.arrays, subject.arrays.zeros_like(claimed)
    for at in perturbations(subject, seed):
        apart = product(subject, operand, at) - claimed
        square += xp.where(xp.isfinite(apart), apart, 0.0) ** 2
    return (square / POINTS) ** 0.5


def perturbations(subject: Subject, seed: int, units: float = 1.0) -> Iterator[Array]:
    """Draw displacements of a few units of rounding. Keep inputs of −0.0: a step would change their sign."""
    step, negative = Step(units * subject.numbers.precision), negative_zeros(subject)
    for number in range(POINTS):
        yield subject.arrays.where(negative, -0.0, subject.direction(seed + number, step))


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
