"""Points at which the function has no derivative: kinks, jumps, and inputs that tie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

from gradproof.engine.contraction import inner, predicted, restricted
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.steps import SHORT
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.localisation.bisection import search
from gradproof.engine.perturbed import negative_zeros
from gradproof.engine.probe import Probe
from gradproof.engine.results import Obstacle, Place, Reason
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import ALIKE, CLEARLY, MANY, SLIGHT, STEADY, TRACE
from gradproof.engine.views import whole_of


class Kink:
    """An output's slope changes at the point itself."""

    reason = Reason.KINK
    kinds = frozenset({Kind.AGREEMENT, Kind.UNLOCATED})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle that says where the kink is, and whether the claim lies between its two slopes."""
        subject, probe = comparison.subject, comparison.probe
        if not probe.kinks:
            return None
        output, direction = probe.kinks[0], probe.ladder.direction
        unit = subject.arrays.zeros_like(subject.centre)
        unit[output] = 1.0
        before, after = (float(side[output]) for side in probe.ladder.sides(probe.ladder.samples[0]))
        claimed, place, coordinate = predicted(subject, direction, unit), None, _kinked_coordinate(probe)
        if coordinate is not None:
            piece = restricted(subject, direction, coordinate, coordinate + 1)
            alone = Ladder(subject, piece)
            alone.add(probe.ladder.lowest)
            step = float(direction[coordinate].sum())
            sides = [float(side[output]) / step for side in alone.sides(alone.samples[0])]
            before, after = sides if step > 0 else reversed(sides)
            claimed, place = predicted(subject, piece, unit) / step, subject.inputs.locate(coordinate)
        return kink_at(place, subject.outputs.locate(output), (before, after), claimed)


class Jump:
    """An output jumps at the point itself."""

    reason = Reason.JUMP
    kinds = frozenset({Kind.AGREEMENT})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle that names the output."""
        subject, probe = comparison.subject, comparison.probe
        if not (comparison.is_weak and probe.unresolved):
            return None
        steep = ", or rises too steeply to be distinguished from a jump"
        for jumps, how in ((probe.ladder.jumps(), ""), (probe.ladder.side_jumps(), steep)):
            places = subject.arrays.where(jumps)[0]
            if places.shape[0]:
                return Obstacle(
                    self.reason,
                    f"{subject.outputs.locate(int(places[0]))} jumps at the point itself{how}, so it has no slope "
                    "there.",
                    "Check at a point beside it, or leave out of wrt= the inputs that only choose between cases.",
                )
        return None


class SignedZero:
    """The sign of an input of −0.0 matters, as for `copysign`, and a step along another input turns it into +0.0."""

    reason = Reason.JUMP
    kinds = frozenset({Kind.AGREEMENT, Kind.DISAGREEMENT, Kind.ENTRY})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if a weak agreement has other values at +0.0, or if a wrong claim is right at −0.0."""
        if comparison.kind is Kind.AGREEMENT and not comparison.is_weak:
            return None
        whole = whole_of(comparison.subject)
        negative = negative_zeros(whole)
        if not bool(negative.any()):
            return None
        if comparison.kind is Kind.AGREEMENT:
            kept, lost = (whole.evaluate(_signed(whole, negative, zero, 0 * whole.point), 1.0) for zero in (-0.0, 0.0))
            holds = bool(((kept != lost) & ~whole.arrays.isnan(kept)).any())
        else:
            holds = _is_right_at_negative_zeros(comparison, negative)
        if not holds:
            return None
        first = whole.inputs.locate(int(whole.arrays.where(negative)[0][0]))
        return Obstacle(
            self.reason,
            f"The values for inputs of −0.0 ({first} first) are not those for +0.0, and a step along another input "
            "turns −0.0 into +0.0.",
            "Pass +0.0 instead of −0.0, or a number beside zero.",
            argument=first.path,
        )


class Ties:
    """Inputs tie, as equal inputs of a median do: the slope along all of them is not the sum of their slopes.

    This is an additivity test. Where a derivative exists, slopes add up except for curvature, which shrinks with the
    step. At a tie they differ by the same amount on steps of every length.
    """

    reason = Reason.KINK
    kinds = frozenset({Kind.ENTRY, Kind.UNLOCATED})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if the slopes along inputs do not add up to the slope along all of them."""
        if comparison.adds_up:
            return None
        subject, coordinate, noise = comparison.subject, comparison.coordinate, comparison.probe.contraction.floor
        if coordinate is None:
            pairs = pairwise(_directions(comparison))
            parts = ((each, subject.arrays.where(sides > 0, each, 0.0)) for each, sides in pairs)
            least = ALIKE * comparison.probe.excess
        else:
            drawn = _directions(comparison)
            parts = ((each, restricted(subject, each, coordinate, coordinate + 1)) for each in drawn)
            least = TRACE * comparison.error
        if not _is_not_additive(subject, parts, comparison.probe.cotangent, least + CLEARLY * noise / SHORT):
            return None
        return Obstacle(
            self.reason,
            "The slope along several inputs together is not the sum of their slopes one by one, as where inputs tie "
            "for a median, so the function has no derivative at the point.",
            "Check at a point where no inputs are equal.",
        )


def _signed(subject: Subject, negative: Array, zero: float, direction: Array) -> Array:
    """Return a direction along which inputs of −0.0 keep their sign (`zero` is −0.0), or lose it (0.0)."""
    return subject.arrays.where(negative, zero, direction)


def _is_right_at_negative_zeros(comparison: Comparison, negative: Array) -> bool:
    """Return True if contracted values differ where the sign of −0.0 is kept, and have the claimed slope there."""
    subject, direction, probe = comparison.subject, comparison.direction, comparison.probe
    if len(direction.shape) > 1:  # columns are compared one by one, as entries
        return False
    ahead, behind, lost = (
        subject.evaluate(_signed(subject, negative, zero, each), 1.0)
        for zero, each in ((-0.0, direction), (-0.0, -direction), (0.0, direction))
    )
    if not inner(subject, probe.cotangent, ahead - lost):
        return False
    slope, claimed = (
        inner(subject, probe.cotangent, ahead - behind) / 2,
        probe.predicted(_signed(subject, negative, 0.0, direction)),
    )
    return abs(slope - claimed) <= SLIGHT * comparison.error


def _directions(comparison: Comparison) -> Iterator[Array]:
    subject, step = comparison.subject, comparison.options.first(comparison.subject)
    return (subject.direction(comparison.probe.seed + k, step) for k in range(MANY))


def _is_not_additive(subject: Subject, pairs: Iterable[tuple[Array, Array]], cotangent: Array, least: float) -> bool:
    """Return True if slopes are not additive for one of the pairs of a direction and a part of it.

    At a tie the error of additivity is the same on steps of every length; that of noise is not.
    """
    for direction, part in pairs:
        whole = _additivity_error(subject, direction, part, cotangent, 1.0)
        shorter = (_additivity_error(subject, direction, part, cotangent, t) for t in (SHORT, math.sqrt(SHORT)))
        if whole > least and all(each > least and abs(each - whole) < whole / CLEARLY for each in shorter):
            return True
    return False


def _additivity_error(subject: Subject, direction: Array, part: Array, cotangent: Array, t: float) -> float:
    """Return how far slopes, or their jumps at the point, along a part and the rest are from adding up to the whole."""
    slopes, jumps = [], []
    for piece in (direction, direction - part, part):
        ahead, behind = (inner(subject, cotangent, subject.evaluate(piece, s) - subject.centre) for s in (t, -t))
        slopes.append((ahead - behind) / (2 * t))
        jumps.append((ahead + behind) / t)
    return max(abs(whole - rest - single) for whole, rest, single in (slopes, jumps))


def kink_at(place: Place | None, output: Place, sides: tuple[float, float], claimed: float) -> Obstacle:
    """Describe a kink: at which input, if one alone has it, with the slopes of an output before and after it."""
    before, after, claimed = sides[0] + 0.0, sides[1] + 0.0, claimed + 0.0  # no minus zero
    least, most = sorted((before, after))
    slack = 0.01 * (most - least)
    where = "between" if least - slack <= claimed <= most + slack else "outside"
    return Obstacle(
        Reason.KINK,
        f"The slope of {output} is {before:.6g} before {place or 'the point'} and {after:.6g} after it; the claimed "
        f"{claimed:.6g} lies {where} them.",
        "Check at a point beside the kink. At the kink itself any value between the slopes is a convention."
        if where == "between"
        else "No convention gives a value outside the slopes: look at the backward for this case.",
        argument=place.path if place else None,
    )


def _kinked_coordinate(probe: Probe) -> int | None:
    """Return the input with the kink, by bisection on the second difference; None where no single input has it."""
    subject, output, sample = probe.ladder.subject, probe.kinks[0], probe.ladder.samples[0]
    centre = subject.centre[output]

    def second_difference(low: int, high: int) -> float:
        piece = restricted(subject, probe.ladder.direction, low, high)
        ahead, behind = subject.evaluate(piece, sample.t)[output], subject.evaluate(piece, -sample.t)[output]
        found = float((ahead - centre) - (centre - behind))
        return found if math.isfinite(found) else 0.0

    before, after = (float(side[output]) for side in probe.ladder.sides(sample))
    whole = (after - before) * sample.t
    least = STEADY * abs(whole)
    found = search(
        subject.inputs.size, subject.inputs.spans, second_difference, threshold=least, whole=whole, most=1
    ).found
    return found[0] if found and abs(second_difference(found[0], found[0] + 1)) > least else None
