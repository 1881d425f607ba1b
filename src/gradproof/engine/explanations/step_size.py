"""Functions whose slope depends on the size of the step: the claim is right on other steps than those measured."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import islice, takewhile

from gradproof.engine.contraction import CAUTION, SPREAD, Contraction, contract, inner
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.rounding import ROUNDING
from gradproof.engine.estimators.sawtooth import is_sawtooth
from gradproof.engine.estimators.steps import RATIO, first_step
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.probe import Probe
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CLEARLY, COARSEST, FEW, MEANINGFUL, NEGLIGIBLE, SLIGHT, TWO_DIGITS


class OtherSteps(ABC):
    """The claim is the slope on other steps than those measured. One probe is enough to show it."""

    reason = Reason.STEP_SIZE
    kinds = frozenset({Kind.DISAGREEMENT})
    obstacle: Obstacle

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return the obstacle if one of the probes shows the claimed slope on other steps."""
        return self.obstacle if any(map(self.shown_by, comparison.probes)) else None

    @abstractmethod
    def shown_by(self, probe: Probe) -> bool:
        """Return True if a probe shows the claimed slope on other steps, or may do so."""


class FinerSteps(OtherSteps):
    """The function oscillates or is chaotic on the usual steps, and the claim is the slope on finer ones.

    A rough function is smooth on steps so short that the change by the claimed slope is below its roughness.
    """

    obstacle = Obstacle(
        Reason.STEP_SIZE,
        "The function changes within the finest steps that can be taken, and the claim may be its slope there.",
        "Check at a point where it changes less, or a gentler version of it: fewer iterations, lower frequencies.",
    )

    def shown_by(self, probe: Probe) -> bool:
        """Return True if finer steps show the claimed slope, or if such steps cannot be taken."""
        ladder, unit = probe.ladder, probe.ladder.subject.numbers.precision
        finest = contract(ladder.between(0), probe.cotangent)
        if _confirms(finest, probe):
            return True
        rough, steep = finest.bar * ladder.samples[0].t, max(abs(probe.claim.slope), probe.claim.largest_contribution)
        spread = float(abs(probe.cotangent) @ ladder.coarse_slopes()) * ladder.samples[-1].t
        if finest.bar <= MEANINGFUL * finest.size or rough <= NEGLIGIBLE * (finest.floor / (ROUNDING * unit) + spread):
            return False  # it is smooth, or no rougher than rounding may make it
        if not (steep and 0 < rough / steep < math.inf):
            return False
        gentle = math.floor(math.log(rough / steep, RATIO)) - FEW
        possible = math.ceil(math.log(TWO_DIGITS * unit / first_step(unit), RATIO))
        lowest = max(gentle, possible)
        if lowest >= ladder.lowest:
            return False
        return _confirms(contract(ladder.aside(lowest, lowest + 1), probe.cotangent), probe) or gentle < possible


class Sawtooth:
    """Every fine step shows a slope that the values do not keep, and over a longer segment they change as claimed.

    x times a factor that is rounded inside has the factor for a slope on each of its plateaus, and jumps between them.
    """

    reason = Reason.STEP_SIZE
    kinds = frozenset({Kind.DISAGREEMENT, Kind.ENTRY})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if a long step is nearer to the claim, and segments agree with the claims alone."""
        ladder, alone = comparison.probe.ladder, comparison.coordinate is not None
        if len(ladder.direction.shape) > 1 or comparison.options.step or not _jumps_towards_the_claim(comparison):
            return None
        moving = 1.0 * (comparison.direction != 0) if alone or ladder.whole is not None else None
        if not is_sawtooth(comparison.subject, comparison.probe.seed, moving):
            return None
        return Obstacle(
            self.reason,
            "The slopes on fine steps do not add up to the change in value along a segment, and the claims do, as for "
            "a product with a factor that is cast to a lower precision.",
            "Check the function without the cast.",
        )


def _jumps_towards_the_claim(comparison: Comparison) -> bool:
    """Return True if the slope on a long step is nearer to the claim than to the slope on the first one.

    The step is as long as the plateaus of a half precision, and half of the outputs that change have to jump within it:
    quantisers with longer plateaus are taken as they are.
    """
    probe, subject, direction = comparison.probe, comparison.subject, comparison.direction
    t = RATIO ** math.floor(math.log(2 * COARSEST / first_step(subject.numbers.precision), RATIO))
    ladder = probe.ladder if comparison.coordinate is None else Ladder(subject, direction)
    near, far = ladder.values(1.0) - subject.centre, (ladder.values(t) - ladder.values(-t)) / (2 * t)
    fine, coarse = (inner(subject, probe.cotangent, slopes) for slopes in (near, far))
    claim = probe.predicted(direction)
    if not abs(coarse - claim) < abs(coarse - fine):
        return False
    jumps = abs(far - near) > SLIGHT * abs(far)
    return 2 * int(jumps.sum()) >= int((far != 0).sum())


class Oscillation:
    """The function oscillates slightly below the usual steps, and the claim is the slope within an oscillation.

    The lgamma of a negative million has a pole at every integer, and several of them lie within a usual step.
    """

    reason = Reason.STEP_SIZE
    kinds = frozenset({Kind.ENTRY})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if the shortest steps that could show the error show the claimed slope instead."""
        probe, subject, piece = comparison.probe, comparison.subject, comparison.direction
        unit, claimed, gap = subject.numbers.precision, probe.predicted(piece), comparison.error * probe.least_weight
        rounding = _rounding_of_slopes(subject, probe.cotangent, subject.evaluate(piece, 1.0) != subject.centre)
        if not 0 < gap < math.inf or not math.isfinite(rounding):
            return None
        least = max(TWO_DIGITS * unit / first_step(unit), CLEARLY * rounding / gap)
        if not least < (probe.ladder.samples[0].t if probe.ladder.samples else 1.0):
            return None

        def distance(t: float) -> float:
            change = subject.evaluate(piece, t) - subject.evaluate(piece, -t)
            if not bool(change.any()):  # no change proves nothing: a difference of equal numbers is zero too
                return math.nan
            return abs(inner(subject, probe.cotangent, change) / (2 * t) - claimed)

        steps = (least * RATIO**k for k in range(math.ceil(-math.log(least, RATIO))))
        distances = (each for each in map(distance, steps) if not math.isnan(each))
        near = list(takewhile(lambda each: each <= gap / CLEARLY, islice(distances, 2)))
        if len(near) < 2 or not distance(1.0) > CLEARLY * max(near):  # errors of several outputs may cancel
            return None
        return Obstacle(
            self.reason,
            "Steps far below the usual ones show the claimed slope, and the usual ones show another, as for a function "
            "with a slight oscillation.",
            "Check at a point of a smaller size, or the function without the oscillation.",
        )


def _rounding_of_slopes(subject: Subject, cotangent: Array, changing: Array) -> float:
    """Return the effect on a contracted slope, at t = 1, of the rounding of those values that change at all."""
    xp, unit = subject.arrays, ROUNDING * subject.numbers.precision
    rounded = xp.where(changing & xp.isfinite(subject.centre), cotangent * subject.centre, 0.0)
    return SPREAD * unit * math.sqrt(float(rounded @ rounded))


def _confirms(seen: Contraction, probe: Probe) -> bool:
    """Return True if two steps show the claimed slope, and contradict what all steps together show."""
    claimed, bar = probe.claim.slope, CAUTION * seen.bar
    informative = seen.bar <= MEANINGFUL * abs(claimed)
    whole = probe.contraction
    return informative and abs(seen.slope - claimed) <= bar < abs(seen.slope - whole.slope) - whole.bar
