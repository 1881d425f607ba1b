"""A segment through a block of the coordinates at a third of the cost: two ends and two Gauss nodes.

What truncation and roughness add to the bar is taken from whole segments that were examined with all nodes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.engine.estimators.noise import variance_of
from gradproof.engine.estimators.panels import Unsmooth, affected_by, hidden_by_rounding
from gradproof.engine.estimators.problem import Alignment, Chord, Problem, shortest
from gradproof.engine.results import least_error
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY, MARGIN

GAUSS = (-(3**-0.5), 3**-0.5)  # exact for cubic claims


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickSegment:
    """Claimed and measured change, the bar, and the shortest displacement of a coordinate.

    `across` is the displacement between the ends, rounded as they are.
    """

    claimed: float
    measured: float
    bar: float
    shortest: float
    across: Array
    chord: Chord

    @property
    def residual(self) -> float:
        """The distance between claimed and measured change."""
        return abs(self.measured - self.claimed)

    @property
    def size(self) -> float:
        """The larger one of claimed and measured change."""
        return max(abs(self.claimed), abs(self.measured))

    @property
    def outside(self) -> bool:
        """Whether the residual is larger than the bar."""
        return self.residual > self.bar

    @property
    def error_needed(self) -> float:
        """The error in one entry that would have been clearly outside."""
        return float(least_error(MARGIN * self.bar, self.residual, self.shortest))


def quick_segment(
    problem: Problem, seed: int, width: float, unsmooth: Unsmooth, alignment: Alignment
) -> QuickSegment | None:
    """Hold claims against values along a segment; None where either is not finite.

    `unsmooth` is the part of the bar that truncation and roughness make.
    """
    subject = problem.subject
    chord = Chord.drawn(problem, seed, width).aligned(alignment, problem.moving)
    cotangent, ends, across = chord.cotangent, (chord.value(-1.0), chord.value(1.0)), chord.across
    claims = [chord.claimed_parts(t, across) for t in GAUSS]
    claimed, measured = sum(float(each.sum()) for each in claims) / 2, float(cotangent @ (ends[1] - ends[0]))
    if not math.isfinite(claimed + measured):
        return None
    size = math.sqrt(sum(float(each @ each) for each in claims) / 2)
    affected = affected_by(subject, (ends[0], subject.centre, ends[1]), cotangent)
    noise = sum(variance_of(problem, end, affected) for end in ends)
    rounding = math.hypot(problem.claim_noise * size, problem.bias * claimed / CLEARLY)
    bar = math.hypot(unsmooth.part(size, claimed), CLEARLY * math.sqrt(noise + rounding**2))
    if abs(measured - claimed) > bar:
        bar += hidden_by_rounding(problem, chord, affected, subject.centre)
    return QuickSegment(
        claimed=claimed,
        measured=measured,
        bar=bar,
        shortest=shortest(subject, across),
        across=across,
        chord=chord,
    )
