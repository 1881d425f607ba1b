"""A gradient of zero where values stand still on small steps alone, as after a cast or in a quantiser.

It is the gradient of the stairs, and not of what they stand for: it is not wrong, and a pass is worth a note.
"""

from __future__ import annotations

import math

from gradproof.engine.contraction import restricted
from gradproof.engine.estimators.differences import RATIO, precision_shown
from gradproof.engine.estimators.ladder import SAMPLE, WIDE, first_step
from gradproof.engine.subject import Array, Subject

TREAD = (
    "The values stand still on small steps and rise evenly on large ones, as after a cast to a lower precision: a "
    "gradient of zero is that of the stairs, and not of what they stand for."
)
FELT = 64.0  # units of rounding by which values would move if they were smooth
SHORT = RATIO**-3  # of the first step, and no less: on shorter ones differences between like numbers vanish
EVENLY = 2.0  # times as much on one side as on the other, at the most


def shows_a_cast(subject: Subject) -> bool:
    """Whether all values are numbers of a lower precision than their type's."""
    every = slice(None, None, max(1, subject.outputs.size // SAMPLE))
    return precision_shown(subject.arrays, [subject.centre[every]]) > subject.precision


def is_on_a_tread(subject: Subject, direction: Array) -> bool:
    """Whether values that are cast, and stand still along a direction, rise evenly on far longer steps along it."""
    if not shows_a_cast(subject):
        return False
    long = WIDE / first_step(subject.precision)
    ahead = subject.evaluate(direction, long) - subject.centre
    behind = subject.centre - subject.evaluate(direction, -long)
    rises = (ahead * behind > 0) & (abs(ahead) <= EVENLY * abs(behind)) & (abs(behind) <= EVENLY * abs(ahead))
    return bool(rises.any())


def stands_still_along(subject: Subject, direction: Array, coordinate: int, slope: float) -> bool:
    """Whether one coordinate moves nothing on a step on which it would be felt, were this slope that of the values.

    That is to one side at least: the tread may end on the other.
    """
    xp = subject.arrays
    piece = restricted(subject, direction, coordinate, coordinate + 1)
    change = abs(slope * float(piece.sum()))
    largest = float(xp.where(xp.isfinite(subject.centre), abs(subject.centre), 0.0).max())
    if not 0 < change < math.inf:
        return False
    t = max(FELT * (subject.precision * largest + subject.tiny) / change, SHORT)
    return t < 1 and any(bool((subject.evaluate(piece, side * t) == subject.centre).all()) for side in (1.0, -1.0))
