"""One probe: the slope that a gradient claims along a random direction beside the measured one.

The pullback claims ⟨Jᵀu, v⟩, or the pushforward ⟨u, Jv⟩, for a direction v of the inputs and a cotangent u of the
outputs. A ladder measures ⟨u, Jv⟩.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from gradproof.engine.contraction import CAUTION, Claim, Contraction, inner, predicted
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.rounding import ROUNDING
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.perturbed import PerturbedClaims
from gradproof.engine.results import least_error
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CLEARLY, ENOUGH, GROSS, MARGIN, MEANINGFUL, STEADY, TRACE

ROUNDING_FLOOR = 4e-12  # of the derivative's largest entry, or of the largest value: rounding that any entry may have


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A claimed and a measured slope along one direction, and what they were computed from.

    `held_change` is the largest change that is claimed of an input that this probe does not move. `complete` says
    whether the ladder has all samples that a disagreement calls for. `kinks` are outputs with a kink at the point, and
    `unresolved` is the number of outputs that were left out since their bars are too wide.
    """

    seed: int
    ladder: Ladder
    cotangent: Array
    claimed: Array
    contraction: Contraction
    claim: Claim
    held_change: float = 0.0
    enough: float = ENOUGH
    repeatable: bool = True
    complete: bool = False
    kinks: tuple[int, ...] = ()
    unresolved: int = 0

    def predicted(self, piece: Array) -> float:
        """Return the slope that is claimed along a part of the direction."""
        subject = self.ladder.subject
        if subject.mode == "forward":
            return predicted(subject, piece, self.cotangent)
        return inner(subject, piece, self.claimed)

    @property
    def largest_entry(self) -> float:
        """The size of the derivative: its largest entry, or a bound on it where only slopes are known."""
        known = self.ladder.subject.scale.entry
        if self.ladder.subject.mode == "forward":
            return known or self.claim.largest_entry / self.ladder.shortest
        return max(known, self.claim.largest_entry)

    @property
    def largest_change(self) -> float:
        """The largest change that is claimed of one input, or of one output where only slopes are known."""
        known = self.ladder.subject.scale.change
        if self.ladder.subject.mode == "forward":
            return known or self.claim.largest_entry
        return max(known, self.claim.largest_contribution, self.held_change)

    def rounding_floor(self, ladder: Ladder) -> float:
        """Return the rounding that a slope along a ladder's direction may have, whatever its own size."""
        return rounding_floor(ladder, self.largest_entry, self.largest_change)

    @cached_property
    def bar(self) -> float:
        """The largest difference between claim and slope that measurement and rounding explain."""
        accumulated = CLEARLY * self.ladder.subject.numbers.precision * self.contraction.size
        return self.contraction.bar + self.claim.rounding + accumulated + self.rounding_floor(self.ladder)

    @cached_property
    def perturbed_claims(self) -> PerturbedClaims:
        """The claimed gradient at points a few units of rounding away, for all entries at once; in reverse mode."""
        return PerturbedClaims.of(self.ladder.subject, self.cotangent, self.ladder.direction, self.seed)

    @cached_property
    def resolution(self) -> float:
        """The smallest error in one entry that would have been called wrong.

        It is more than the bar. A longer ladder multiplies bars by a caution, twice where noise is most of the bar; in
        low precision an error needs a margin; and an output's weight scales its errors.
        """
        if self.unresolved >= self.ladder.subject.outputs.size or not math.isfinite(self.ladder.shortest):
            return math.inf  # nothing was seen, or nothing was moved
        if len(self.ladder.samples) == 2:
            caution, weight = CAUTION**2 if self.contraction.bar > 10 * self.contraction.floor else CAUTION, 1.0
        else:
            caution, weight = 1.0 if self.complete else CAUTION, self.least_weight
        if self.ladder.subject.numbers.precision > ENOUGH:
            caution *= 1 + MARGIN
        apart = min(abs(self.error), self.bar)
        return float(least_error(caution * self.bar + self.claim.tolerated, apart, weight * self.ladder.shortest))

    @property
    def least_weight(self) -> float:
        """The least weight in the cotangent that is not zero."""
        weights = abs(self.cotangent)
        return float(self.ladder.subject.arrays.where(weights > 0, weights, math.inf).min())

    @cached_property
    def error(self) -> float:
        """The claimed slope less the measured one."""
        return self.claim.slope - self.contraction.slope

    @cached_property
    def excess(self) -> float:
        """The part of the error that the bar does not explain."""
        return abs(self.error) - self.bar if math.isfinite(self.error) else math.inf

    @property
    def agrees(self) -> bool:
        """Whether the claim lies within the bar."""
        return self.excess <= 0

    @property
    def coarse(self) -> bool:
        """Whether the bar is wide and can be narrowed by more samples: finer ones, or longer than the two first."""
        if can_be_narrowed(self.contraction, self.claim, self.enough):
            return True
        hidden = self.contraction.bar > MEANINGFUL * self.largest_change > 0
        return hidden and len(self.ladder.samples) == 2 and self.ladder.subject.numbers.precision < ENOUGH


def can_be_narrowed(contraction: Contraction, claim: Claim, enough: float) -> bool:
    """Return True if a bar is much wider than rounding makes it, so that more samples can narrow it."""
    return contraction.bar > max(enough * claim.largest_contribution, GROSS * contraction.floor)


def rounding_floor(ladder: Ladder, entry: float, change: float) -> float:
    """Return the rounding that a slope may have, given the largest entry and the largest change by one input.

    Inputs and outputs may have very different units. For several inputs the changes are comparable, and the entries are
    not; for several outputs it is the other way round. So the lesser counts. If nothing changes, as in a saturated
    softmax, the rounding of the values counts, over a step as long as the point.
    """
    subject = ladder.subject
    many, values = math.sqrt(ladder.moved), first_step(subject.numbers.precision) * subject.scale.value
    relative = values * many if change < TRACE * values else min(entry * ladder.reach, change * many)
    least = ROUNDING_FLOOR * relative
    return least if math.isfinite(least) else 0.0


def says_nothing(probe: Probe) -> bool:
    """Return True if the bar is so wide that agreement verifies nothing."""
    subject, bar, largest = probe.ladder.subject, probe.bar, probe.claim.largest_contribution
    if largest:
        return bar > max(MEANINGFUL * largest, probe.claim.tolerated) and bar > TRACE * _natural(subject)
    if _hides(probe):
        return True
    coarse_slopes = float(probe.ladder.coarse_slopes().max()) if len(probe.ladder.samples) > 2 else 0.0
    return bar > GROSS * probe.contraction.floor and bar > TRACE * max(_natural(subject), coarse_slopes)


def _hides(probe: Probe) -> bool:
    """Return True if the bar of a zero slope is wide enough to hide how the values change on the coarsest sample.

    Changes that rounding explains do not count.
    """
    ladder, subject = probe.ladder, probe.ladder.subject
    slopes, rounding = ladder.coarse_slopes(), ROUNDING * subject.numbers.precision * abs(subject.centre)
    clear = slopes * ladder.samples[-1].t > GROSS * rounding
    moves = subject.arrays.where(clear, slopes * probe.cotangent, 0.0)
    return probe.bar > STEADY * math.sqrt(float(moves @ moves)) > 0


def _natural(subject: Subject) -> float:
    """Return the slope of values that change by as much as the inputs do, relative to their size."""
    xp, values = subject.arrays, abs(subject.centre)
    return first_step(subject.numbers.precision) * float(xp.where(xp.isfinite(values), values, 0.0).max())
