"""A question and its answer: does the claimed gradient predict the slope along a random direction?

A probe compares ⟨Jᵀu, v⟩ or ⟨u, Jv⟩, which the pullback or the pushforward claims for a direction v in the inputs and a
direction u in the outputs, with ⟨u, Jv⟩, which a ladder measures.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.engine.contraction import CAUTION, CLAIM_ROUNDING, Claim, Contraction, inner, predicted
from gradproof.engine.estimators.differences import ROUNDING
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.subject import Array, Subject

ROUNDING_FLOOR = (
    4e-12  # of the derivative's largest entry, or of the largest value, which rounding may leave in any entry
)
NOTHING = 1e-4  # of the largest value, over a step as long as the point: below it a derivative is as good as none
ENOUGH = 3e-8  # a bar below this fraction of the largest contribution to the slope needs no improvement
NEAR_FLOOR = 30.0  # nor does one within this multiple of what rounding alone would give
MEANINGFUL = 0.2  # a bar wider than this fraction of the largest contribution would let too much pass
ZERO = 1e-3  # and wider than this fraction of what the values' size suggests, it does not show a gradient to be zero
LOW = 1e-10  # precision, above which a bar alone does not separate right from wrong
LOW_MARGIN = 1.3  # bars beyond the bar that an error must have then
HIDING = 0.02  # and wider than this fraction of the slope on the coarsest step, it may hide one


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A question and its answer, with what is needed to ask further."""

    seed: int
    ladder: Ladder
    cotangent: Array
    claimed: Array
    sums: Contraction
    claim: Claim
    aside: float = 0.0  # the largest change that is claimed of an input that stands still in this probe
    repeatable: bool = True
    thorough: bool = False  # whether the ladder has every sample that a disagreement would have given it
    kinks: tuple[int, ...] = ()
    unresolved: int = 0

    def predicted(self, piece: Array) -> float:
        """The slope that is claimed along a part of the direction."""
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
        """The largest change that is claimed of one input, or where only slopes are known of one output."""
        known = self.ladder.subject.scale.change
        if self.ladder.subject.mode == "forward":
            return known or self.claim.largest_entry
        return max(known, self.claim.largest_contribution, self.aside)

    def rounding_floor(self, ladder: Ladder) -> float:
        """What rounding may leave in a slope along a direction, whatever its own size."""
        return rounding_floor(ladder, self.largest_entry, self.largest_change)

    @property
    def bar(self) -> float:
        """How far measuring and rounding may set claim and slope apart."""
        accumulated = CLAIM_ROUNDING * self.ladder.subject.numbers.precision * self.sums.size
        return self.sums.bar + self.claim.rounding + accumulated + self.rounding_floor(self.ladder)

    @property
    def resolution(self) -> float:
        """The smallest error in one entry that would have been called wrong.

        It is more than the bar: on doubt bars are taken with caution, and more so where noise makes them up, where
        values are coarse, or where more samples would tell of more noise; and an error counts no more than its output
        does, and may lie on the side of the claim's own distance from the slope.
        """
        if self.unresolved >= self.ladder.subject.outputs.size:
            return math.inf
        if len(self.ladder.samples) == 2:
            caution = CAUTION**2 if self.sums.bar > 10 * self.sums.floor else CAUTION
        else:
            caution = (1 + min(1.0, self._distance / self.bar if self.bar else 0.0)) / self.least_weight
            caution *= 1.0 if self.thorough else CAUTION
        if self.ladder.subject.numbers.precision > LOW:
            caution *= 1 + LOW_MARGIN
        return (caution * self.bar + self.claim.tolerated) / self.ladder.shortest

    @property
    def least_weight(self) -> float:
        """The least weight that the incoming gradient gives an output, of those that it gives any."""
        weights = abs(self.cotangent)
        return float(self.ladder.subject.arrays.where(weights > 0, weights, math.inf).min())

    @property
    def _distance(self) -> float:
        """How far claim and slope lie apart."""
        return abs(self.claim.slope - self.sums.slope)

    @property
    def excess(self) -> float:
        """How much of the disagreement the bar does not explain."""
        return self._distance - self.bar if math.isfinite(self._distance) else math.inf

    @property
    def agrees(self) -> bool:
        """Whether the claim lies within the bar."""
        return self.excess <= 0

    @property
    def coarse(self) -> bool:
        """Whether the bar is wide, and may be narrowed."""
        return wide(self.sums, self.claim)


def wide(sums: Contraction, claim: Claim) -> bool:
    """Whether a bar may be worth narrowing: it is more than a trifle, and more than rounding makes it."""
    return sums.bar > max(ENOUGH * claim.largest_contribution, NEAR_FLOOR * sums.floor)


def rounding_floor(ladder: Ladder, entry: float, change: float) -> float:
    """What rounding may leave in a slope of a derivative with this largest entry, and this largest change by an entry.

    Inputs and outputs may be of very different units: between inputs entries do not compare, and changes do; between
    outputs it is the other way round. So the lesser counts. Where nothing moves, as in a saturated softmax, there are
    still the values, of which as much is left over a step as long as the point.
    """
    subject = ladder.subject
    many, values = math.sqrt(ladder.moved), first_step(subject.numbers.precision) * subject.scale.value
    least = ROUNDING_FLOOR * (values * many if change < NOTHING * values else min(entry * ladder.reach, change * many))
    return least if math.isfinite(least) else 0.0


def says_nothing(probe: Probe) -> bool:
    """Whether the bar is so wide that a pass would mean nothing."""
    subject, wide, largest = probe.ladder.subject, probe.bar, probe.claim.largest_contribution
    if largest:
        return wide > max(MEANINGFUL * largest, probe.claim.tolerated) and wide > ZERO * _natural(subject)
    if _hides(probe):
        return True
    coarse_slopes = float(probe.ladder.coarse_slopes().max()) if len(probe.ladder.samples) > 2 else 0.0
    return wide > NEAR_FLOOR * probe.sums.floor and wide > ZERO * max(_natural(subject), coarse_slopes)


def _hides(probe: Probe) -> bool:
    """Whether the bar of a slope that is claimed to be zero would hide how the values move on the coarsest sample.

    They have to move by more than their rounding: where that is all they do, there is nothing to hide.
    """
    ladder, sample = probe.ladder, probe.ladder.samples[-1]
    coarse_slopes, rounding = (
        ladder.coarse_slopes(),
        ROUNDING * ladder.subject.numbers.precision * abs(ladder.subject.centre),
    )
    moves = ladder.subject.arrays.where(
        coarse_slopes * sample.t > NEAR_FLOOR * rounding, coarse_slopes * probe.cotangent, 0.0
    )
    return probe.bar > HIDING * math.sqrt(float(moves @ moves)) > 0


def _natural(subject: Subject) -> float:
    """The slope that values of this size would have if they changed by as much as the inputs do."""
    xp, values = subject.arrays, abs(subject.centre)
    return first_step(subject.numbers.precision) * float(xp.where(xp.isfinite(values), values, 0.0).max())
