"""Points at or beyond the edge of the function's domain, and claims that are not finite."""

from __future__ import annotations

import math

from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.probe import Probe
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.subject import Subject

INSIDE = "Choose a point inside the function's domain."


class NonFiniteValues:
    """Some values are NaN or infinite at the point, and not constant around it."""

    reason = Reason.NON_FINITE
    kinds = frozenset({Kind.AGREEMENT})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle that counts the outputs without a finite value."""
        subject, probe = comparison.subject, comparison.probe
        if subject.scale.finite:
            return None
        centre, around = subject.centre, probe.ladder.samples[-1]
        constant = (around.plus == centre) & (around.minus == centre)
        count = int((~subject.arrays.isfinite(centre) & ~constant).sum())
        if not count:
            return None
        return Obstacle(
            self.reason,
            f"{count} of {subject.outputs.size} output entries are NaN or infinite at the point itself or beside it.",
            f"{INSIDE} The other entries agree.",
        )


class DomainEdge:
    """The function is defined on one side of the point at the most."""

    reason = Reason.DOMAIN
    kinds = frozenset({Kind.AGREEMENT})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle where the finest step leaves the domain."""
        if not comparison.is_weak or not undefined_beside(comparison.probe):
            return None
        trouble = comparison.subject.trouble
        detail = f" ({trouble})" if trouble else ""
        message = f"The function is not defined on both sides of the point, however small the step{detail}."
        return Obstacle(self.reason, message, INSIDE)


class NoFiniteSlope:
    """The claim is NaN or infinite, and the function has no clear slope there either."""

    reason = Reason.NON_FINITE
    kinds = frozenset({Kind.NON_FINITE})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle unless the values have a finite slope where none is claimed."""
        claim = comparison.broken
        if claim is None or claim.entry is not None:
            return None
        return Obstacle(
            self.reason,
            f"The claimed derivative is not finite in {claim.count} ({claim.place} first), and the function has no "
            "clear slope there either.",
            INSIDE,
            argument=claim.place.path,
        )


def undefined_beside(probe: Probe) -> bool:
    """Return True if the function has no finite value on one side of the point, or both, on the finest step."""
    finest = probe.ladder.samples[0]
    return not math.isfinite(float((finest.plus - finest.minus).sum()))


def all_undefined(subject: Subject) -> Obstacle | None:
    """Return an obstacle if the function has no finite value at the point at all."""
    if subject.scale.finite or bool(subject.arrays.isfinite(subject.centre).any()):
        return None
    return Obstacle(Reason.NON_FINITE, "Every output entry is NaN or infinite at the point itself.", INSIDE)


def some_undefined(subject: Subject) -> Obstacle | None:
    """Return an obstacle if some outputs are NaN at the point."""
    undefined = 0 if subject.scale.finite else int(subject.arrays.isnan(subject.centre).sum())
    if not undefined:
        return None
    message = f"{undefined} of {subject.outputs.size} output entries are NaN at the point itself."
    return Obstacle(Reason.NON_FINITE, message, f"{INSIDE} Nothing is wrong in the other entries.")
