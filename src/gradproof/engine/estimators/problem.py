"""The values and claims that the segment test needs of a subject, at points rounded as the subject rounds them."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from functools import cached_property

from gradproof.engine.pieces import mapped
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import CLEARLY


class Alignment(enum.Enum):
    """The signs of a segment and its cotangent, which decide in what the errors of many entries add up.

    Random signs make roundings that are alike cancel. Where every entry is CLAIMED to add to the change, the errors of
    a factor add up. Where every coordinate increases and every output is MEASURED to add to the change, those of
    entries that are claimed to be zero do.
    """

    RANDOM = "random"
    CLAIMED = "claimed"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a segment test is given: a function, the coordinates that move, the tolerated errors, the measured noise.

    `moving` weights the coordinates: zero for those that stay, one for the others, or a factor with a sign, which a
    MEASURED segment keeps; None where all are one. `alignment` is that of every second segment, and of all of them
    where it is MEASURED. `scatter` is the variance of every value, `claim_noise` the standard deviation of a claim's
    entries, relative. `bias` is the relative error that all claims may share: their roundings, all one way.
    """

    subject: Subject
    moving: Array
    rtol: float
    atol: float
    alignment: Alignment = Alignment.CLAIMED
    scatter: Array = None
    claim_noise: float = 0.0
    bias: float = 0.0


def direction_of(problem: Problem, seed: int, width: float) -> Array:
    """Draw a direction, `width` times the point's scale, for the coordinates that move."""
    direction = problem.subject.direction(seed, Step(width))
    return direction if problem.moving is None else direction * problem.moving


def alignment_of(problem: Problem, number: int) -> Alignment:
    """Return the alignment of one of several segments."""
    every_second = Alignment.RANDOM if number % 2 == 0 else Alignment.CLAIMED
    return Alignment.MEASURED if problem.alignment is Alignment.MEASURED else every_second


def cotangent_of(subject: Subject, seed: int) -> Array:
    """Draw a cotangent; in reverse mode one that the outputs' precision holds, since the pullback rounds it."""
    cotangent = subject.cotangent(seed)
    return cotangent if subject.mode == "forward" else subject.outputs.rounded(cotangent)


def place_of(subject: Subject, step: Array) -> Array:
    """Return the displacement at which the function is evaluated: `step`, rounded as the point and the sum are."""
    rounded, point = subject.inputs.rounded(step), subject.point
    place = subject.inputs.rounded(point + rounded)
    place -= point
    return place if math.isfinite(float(place.sum())) else _without(subject, rounded, place)


def value_at(subject: Subject, cotangent: Array, step: Array) -> Array:
    """Evaluate at the point plus `step`; zero for the outputs that have no weight."""
    value = subject.evaluate(subject.inputs.rounded(step), 1.0) if bool((step != 0).any()) else subject.centre
    return _without(subject, cotangent, value)


def claimed_parts(subject: Subject, cotangent: Array, step: Array, across: Array) -> Array:
    """Return the change along `across` that is claimed at the point plus `step`, entry by entry or output by output."""
    place = subject.inputs.rounded(step)
    if subject.mode == "forward":
        claimed, weights = subject.pushforward(subject.inputs.rounded(across), place), cotangent
    else:
        claimed, weights = subject.pullback(cotangent, place), across
    parts = weights * claimed
    return parts if math.isfinite(float(parts.sum())) else _without(subject, weights, parts)


def _without(subject: Subject, weights: Array, values: Array) -> Array:
    """Return zero for the values that have no weight; the values themselves, and no copy, if all have one."""
    weightless = weights == 0
    return subject.arrays.where(weightless, 0.0, values) if bool(weightless.any()) else values


@dataclass(frozen=True)
class Chord:
    """A segment from point − step to point + step, and the cotangent that the values on it are contracted with."""

    subject: Subject
    step: Array
    cotangent: Array

    @cached_property
    def ends(self) -> tuple[Array, Array]:
        """The displacements at which the segment begins and ends, rounded as the inputs are."""
        return place_of(self.subject, -self.step), place_of(self.subject, self.step)

    @cached_property
    def across(self) -> Array:
        """The displacement between the two."""
        return self.ends[1] - self.ends[0]

    @classmethod
    def drawn(cls, problem: Problem, seed: int, width: float) -> Chord:
        """Draw a segment of this half-width, relative to the point's scale, and a cotangent."""
        return cls(problem.subject, direction_of(problem, seed, width), cotangent_of(problem.subject, seed))

    def aligned(self, alignment: Alignment, moving: Array = None) -> Chord:
        """Return the segment with the signs of an alignment, MEASURED ones times the signs of `moving`.

        MEASURED changes are read off on half of the segment, so that their noise is not that of the values at its
        ends. Outputs that change by hardly more than a rounding keep their random signs.
        """
        subject, step, cotangent = self.subject, self.step, self.cotangent
        xp = subject.arrays
        if alignment is Alignment.MEASURED:
            step = abs(step)
            above, below = (value_at(subject, cotangent, t * step) for t in (0.5, -0.5))
            least = CLEARLY * subject.numbers.precision

            def turned(cotangent: Array, above: Array, below: Array, centre: Array) -> Array:
                change = cotangent * (above - below)
                return cotangent * xp.where(change < -least * abs(cotangent * centre), -1.0, 1.0)

            signed = step if moving is None else step * xp.where(moving < 0, -1.0, 1.0)
            return Chord(subject, signed, mapped(xp, turned, cotangent, above, below, subject.centre))
        if alignment is Alignment.CLAIMED:
            signs = xp.where(claimed_parts(subject, cotangent, 0 * step, step) < 0, -1.0, 1.0)
            if subject.mode == "forward":
                return Chord(subject, step, signs * cotangent)
            return Chord(subject, signs * step, cotangent)
        return self

    def with_cotangent(self, cotangent: Array) -> Chord:
        """Return the segment with another cotangent."""
        return Chord(self.subject, self.step, cotangent)

    def value(self, t: float) -> Array:
        """Evaluate at point + t·step; zero for the outputs that have no weight."""
        return value_at(self.subject, self.cotangent, t * self.step)

    def shorter(self, t: float) -> Chord:
        """Return the segment from point − t·step to point + t·step."""
        return Chord(self.subject, t * self.step, self.cotangent)

    def claimed_parts(self, t: float, across: Array) -> Array:
        """Return the change along `across` that is claimed at point + t·step, entry by entry or output by output."""
        return claimed_parts(self.subject, self.cotangent, t * self.step, across)


def shortest(subject: Subject, across: Array) -> float:
    """Return the shortest displacement of a coordinate that moves; infinite if none does."""
    distance = abs(across)
    return float(subject.arrays.where(distance > 0, distance, math.inf).min())
