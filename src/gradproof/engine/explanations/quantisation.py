"""Values, or inputs, that are rounded to a lower precision inside the function.

Quantised values are piecewise constant: on a plateau every slope is zero, and across its edge the value jumps by a
quantum. A cast to a half precision makes plateaus of up to 2⁻⁸ of the value.
"""

from __future__ import annotations

import math

from gradproof.engine.contraction import contract, inner, predicted
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.noise import on_a_grid
from gradproof.engine.estimators.rounding import precision_shown
from gradproof.engine.estimators.steps import BOTTOM, LONGEST, RATIO, SHORT, first_step
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.explanations.noise import is_rough
from gradproof.engine.localisation.partial_slopes import best_exponent
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CLEARLY, COARSEST, ENOUGH, FEW, GROSS, SAMPLE, TWO_DIGITS

LENGTHS = tuple(2.0 ** (k * 0.6180339887 % 1) for k in range(7))  # step lengths, no two in a ratio of small numbers
ZERO_GRADIENT = (
    "The values are constant on small steps and rise evenly on large ones, as after a cast to a lower precision: a "
    "gradient of zero is that of the quantised function, and not of the function that it approximates."
)
QUANTISED = Obstacle(
    Reason.QUANTISED,
    "The outputs are piecewise constant at the step sizes used, as after a cast to a lower precision: the slope is "
    "zero on each plateau and says nothing about the claim.",
    "Check the function without the rounding. A backward that ignores the rounding, a straight-through estimator, is a "
    "choice and no derivative.",
)


class QuantisedValues:
    """Outputs are constant on the finest steps and jump on coarser ones."""

    reason = Reason.QUANTISED
    kinds = frozenset({Kind.AGREEMENT, Kind.DISAGREEMENT, Kind.UNCONFIRMED, Kind.UNLOCATED})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if outputs are on a plateau, and that may be what the error comes from."""
        ladder = comparison.probe.ladder
        plateaus = len(ladder.samples) > 2 and bool(ladder.plateaus().any())
        return QUANTISED if plateaus and (is_rough(comparison) or _on_longer_plateaus(comparison)) else None


class ZeroOfCast:
    """The claim is zero, and the values are constant since they were cast to a lower precision.

    Values on a grid, such as counts, have a gradient of zero by their definition.
    """

    reason = Reason.QUANTISED
    kinds = frozenset({Kind.AGREEMENT})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if values that are constant along the direction show a cast."""
        if comparison.probe.claim.largest_entry or not rises_on_long_steps(comparison.subject, comparison.direction):
            return None
        return None if on_a_grid(comparison.subject.arrays, comparison.subject.centre) else QUANTISED


class QuantisedEntry:
    """One input changes the outputs only by whole quanta."""

    reason = Reason.QUANTISED
    kinds = frozenset({Kind.ENTRY})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if the measured slope, or the claimed one, is the zero of a plateau."""
        entry = comparison.entry
        assert entry is not None
        zero_of_a_plateau = not entry.numerical and (_is_below_a_quantum(comparison) or _jumps_as_claimed(comparison))
        if zero_of_a_plateau or (not entry.claimed and _is_constant_on_short_steps(comparison)):
            return QUANTISED
        return None


class QuantisedInputs:
    """Inputs are rounded to a lower precision inside.

    A step from zero is rounded by a share of its own length, the same at four times the length, and so is a step that
    happens to be near a multiple of the rounding. Then the slopes on all steps of a ladder agree, and are off; on steps
    of other lengths they are off by another share.
    """

    reason = Reason.QUANTISED
    kinds = frozenset({Kind.ENTRY})

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Return an obstacle if slopes on steps of several lengths differ, and lie around the claim."""
        if comparison.share > COARSEST or not self._varies(comparison):
            return None
        return Obstacle(
            self.reason,
            "Steps of different lengths show different slopes, which lie around the claim, as where inputs are "
            "rounded to a lower precision inside.",
            "Check the function without the rounding, or pass inputs of the lower precision, or ones that are not "
            "zero.",
        )

    def _varies(self, comparison: Comparison) -> bool:
        probe, subject, piece = comparison.probe, comparison.subject, comparison.direction
        exponent = best_exponent(probe) if probe.ladder.samples else BOTTOM[0]
        lows, highs, slopes = list[float](), list[float](), list[float]()
        size, claimed = 0.0, probe.predicted(piece)
        for length in LENGTHS:
            ladder = Ladder(subject, length * piece)
            ladder.add(exponent, exponent + 1)
            contraction = contract(ladder, probe.cotangent)
            size = max(size, contraction.size / length)
            slopes.append(contraction.slope / length)
            lows.append((contraction.slope - contraction.bar) / length)
            highs.append((contraction.slope + contraction.bar) / length)
            if len(slopes) == FEW and max(lows) <= min(highs):  # one slope would do for all
                lucky, *others = (high - low for low, high in zip(lows, highs, strict=True))
                return GROSS * lucky < min(others) and max(lows[1:]) <= claimed <= min(highs[1:])
        width = max(slopes) - min(slopes)
        off = max(min(slopes) - claimed, claimed - max(slopes))
        return max(lows) > min(highs) and off * max(map(abs, slopes)) <= CLEARLY * width * size


def cast_of(subject: Subject) -> float:
    """Return the precision of a cast, if all values are numbers of a lower precision than their type's; else zero."""
    every = slice(None, None, max(1, subject.outputs.size // SAMPLE))
    shown = precision_shown(subject.arrays, [subject.centre[every]])
    return shown if shown > subject.numbers.precision else 0.0


def rises_on_long_steps(subject: Subject, direction: Array) -> bool:
    """Return True if values of low precision, constant along a direction, rise evenly on far longer steps."""
    precision = subject.numbers.precision
    if not cast_of(subject) and precision < ENOUGH:
        return False
    longer = beyond_plateaus(precision) * direction
    ahead = subject.evaluate(longer, 1.0) - subject.centre
    behind = subject.centre - subject.evaluate(longer, -1.0)
    return bool(rises_evenly(ahead, behind).any())


def beyond_plateaus(precision: float) -> float:
    """Return how many first steps lead beyond the plateaus of a half precision and of this one."""
    return max(COARSEST, TWO_DIGITS * precision) / first_step(precision)


def rises_evenly(ahead: Array, behind: Array) -> Array:
    """Flag the changes that are as on a slope: of one sign and about one size ahead of the point and behind it."""
    return (ahead * behind > 0) & (abs(ahead) <= RATIO * abs(behind)) & (abs(behind) <= RATIO * abs(ahead))


def _on_longer_plateaus(comparison: Comparison) -> bool:
    """Return True if the error comes from outputs that are constant on all steps, and is below the others' quantum."""
    probe = comparison.probe
    if probe.agrees:
        return False
    ladder, xp, centre = probe.ladder, probe.ladder.subject.arrays, abs(probe.ladder.subject.centre)
    quantised = ladder.plateaus()
    height = xp.where(quantised, math.inf, centre)
    constant = xp.isfinite(centre)
    for sample in ladder.samples:
        for side in (sample.minus, sample.plus):
            change = abs(side - ladder.subject.centre)
            height = xp.where(quantised & (change > 0) & (change < height), change, height)
            constant = constant & (change == 0)
    quantum = 2 * float(xp.where(quantised, height / centre, math.inf).min())  # twice: mantissas from 1 to 2
    if not quantum <= COARSEST:
        return False
    held = xp.where(constant, probe.cotangent, 0.0)
    claimed = predicted(ladder.subject, ladder.direction, held)
    off = abs(probe.error - claimed)
    return off <= probe.bar and abs(claimed) * ladder.samples[-1].t <= quantum * float(abs(held) @ centre)


def _is_below_a_quantum(comparison: Comparison) -> bool:
    """Return True if the claimed change on the longest step is less than the quantum of the values.

    The quantum is that of a cast, or what all inputs together show. What is claimed of other outputs has to be within
    the bar.
    """
    subject, cotangent = comparison.subject, comparison.probe.cotangent
    longest = LONGEST / first_step(subject.numbers.precision)
    xp, values = subject.arrays, abs(cotangent * subject.centre)
    claimed = comparison.probe.predicted(comparison.direction)
    quantum = cast_of(subject) * float(xp.where(xp.isfinite(values), values, 0.0).sum())
    if abs(claimed) * longest <= quantum:
        return True
    quanta = _quanta(subject, comparison.probe.ladder.direction)
    others = predicted(subject, comparison.direction, xp.where(quanta > 0, 0.0, cotangent))
    return abs(others) <= comparison.bar and abs(claimed - others) * longest <= float(abs(cotangent) @ quanta)


def _quanta(subject: Subject, direction: Array) -> Array:
    """Return the smallest change of every output that takes several values and is constant around each; else zero.

    A change larger than the quantum of a half precision is a jump of the function, as from one bound to the other.
    """
    xp, precision = subject.arrays, subject.numbers.precision

    def constant_around(at: float, value: Array) -> Array:
        return (subject.evaluate(direction, at + 1.0) == value) & (subject.evaluate(direction, at - 1.0) == value)

    quantised = constant_around(0.0, subject.centre)
    least = xp.where(quantised, math.inf, xp.zeros_like(subject.centre))  # of two numbers torch makes single precision
    lengths = (LONGEST * RATIO**k / first_step(precision) for k in range(FEW))  # far enough to leave most plateaus
    for at in (sign * length for length in lengths for sign in (1.0, -1.0)):
        if not bool(quantised.any()):
            break
        value = subject.evaluate(direction, at)
        change = abs(value - subject.centre)
        moved = quantised & (change > 0)
        if bool(moved.any()):
            quantised &= ~moved | constant_around(at, value)
            least = xp.where(moved & (change < least), change, least)
    return xp.where(quantised & (least <= COARSEST * abs(subject.centre)), least, 0.0)


def _quanta_of_casts() -> list[float]:
    """Return quanta that casts to a half precision may leave, relative to the values, down to a sum's of many."""
    return [COARSEST / RATIO**k for k in range(2 * FEW)]


def _jumps_as_claimed(comparison: Comparison) -> bool:
    """Return True if values that are constant along one coordinate change both ways, as claimed, on longer steps."""
    subject, probe, piece = comparison.subject, comparison.probe, comparison.direction
    xp, centre, finest = subject.arrays, subject.centre, probe.ladder.samples[0].t if probe.ladder.samples else 1.0
    constant = (subject.evaluate(piece, finest) == centre) & (subject.evaluate(piece, -finest) == centre)
    if subject.mode != "forward":
        return bool((constant | (probe.cotangent == 0)).all()) and _change_as_claimed(comparison)
    claims = xp.where(constant, subject.pushforward(piece), 0.0)
    worst = int(xp.argmax(abs(claims)))
    claim, value = float(claims[worst]), abs(float(centre[worst]))
    if not (0 < abs(claim) < math.inf and 0 < value < math.inf):
        return False
    for t in (quantum * value / abs(claim) for quantum in _quanta_of_casts()):
        up, down = (float(subject.evaluate(piece, way * t)[worst] - centre[worst]) * way for way in (1.0, -1.0))
        if up * claim > 0 < down * claim and 1 / RATIO <= (up + down) / (2 * t * claim) <= RATIO:
            return True
    return False


def _change_as_claimed(comparison: Comparison) -> bool:
    """Return True if the contracted values change, both ways, about as claimed on a step of some quanta."""
    subject, probe, piece = comparison.subject, comparison.probe, comparison.direction
    claim = probe.predicted(piece)
    if not 0 < abs(claim) < math.inf:
        return False
    scales = [1 / first_step(subject.numbers.precision)]
    contracted = subject.arrays.where(probe.cotangent)[0]
    if contracted.shape[0] == 1 and bool(subject.centre[contracted[0]] != 0):  # then it is known whose plateau it is
        scales.append(abs(float((probe.cotangent * subject.centre)[contracted[0]]) / claim))
    for t in (quantum * scale for scale in scales for quantum in _quanta_of_casts()):
        changes = (subject.evaluate(piece, t) - subject.centre, subject.centre - subject.evaluate(piece, -t))
        up, down = (inner(subject, probe.cotangent, change) / (t * claim) for change in changes)
        if up and down and 1 / RATIO <= (up + down) / 2 <= RATIO:
            return True
    return False


def _is_constant_on_short_steps(comparison: Comparison) -> bool:
    """Return True if, on one side at least, a step long enough to show one coordinate's slope changes no output."""
    subject, piece = comparison.subject, comparison.direction
    entry = comparison.entry
    change = abs(entry.numerical * float(piece.sum())) if entry else 0.0
    xp, centre = subject.arrays, subject.centre
    largest = float(xp.where(xp.isfinite(centre), abs(centre), 0.0).max())
    if not 0 < change < math.inf:
        return False
    t = max(TWO_DIGITS * (subject.numbers.precision * largest + subject.numbers.tiny) / change, SHORT)
    return t < 1 and any(bool((subject.evaluate(piece, side * t) == centre).all()) for side in (1.0, -1.0))
