"""Slopes far below all samples: of a function with a slight ripple they are others.

The lgamma of a negative million has a pole at every integer, and several of them lie within a usual step. What is
claimed is the slope between two of them, which only steps far finer than usual ones show.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gradproof.engine.contraction import inner, restricted
from gradproof.engine.estimators.differences import RATIO
from gradproof.engine.estimators.ladder import first_step
from gradproof.engine.explanations.obstacles import GRAINS, Obstacle
from gradproof.engine.localisation import Located
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry

CLEAR = 64.0  # times the rounding of values that an error has to make up on a step
BELOW = (0, 1)  # samples above the lowest of such steps
NEARER = 8.0  # times, so much nearer to what is claimed than that is to what all samples show

RIPPLE = Obstacle(
    "scale: on steps far below the usual ones the slope is what is claimed, and on usual ones it is another, as of a "
    "function with a slight ripple",
    "Check at a point of a smaller size, or the function without the ripple.",
)


def without_ripples(probe: Probe, located: Located) -> Located | Obstacle:
    """The wrong entries without those that far finer steps bear out; or that, where they bear out all of them.

    Where the worst is wrong on such steps as well, the others are not asked about.
    """
    if not located.entries or not _is_right_far_below(probe, *located.entries[0]):
        return located
    wrong = [pair for pair in located.entries[1:] if not _is_right_far_below(probe, *pair)]
    return replace(located, entries=tuple(wrong)) if wrong else RIPPLE


def _is_right_far_below(probe: Probe, coordinate: int, entry: Entry) -> bool:
    """Whether one coordinate moves values as claimed on about the shortest steps that leave its error to be seen.

    That they stand still says nothing: so do differences between like numbers.
    """
    ladder, subject = probe.ladder, probe.ladder.subject
    piece = restricted(subject, ladder.direction, coordinate, coordinate + 1)
    gap = abs(entry.claimed - entry.numerical) * float(abs(piece).max()) / 2  # an output weighs no less than half
    least = max(GRAINS * subject.precision / first_step(subject.precision), CLEAR * probe.sums.floor / gap)
    if not least < ladder.samples[0].t:
        return False
    claimed, shortest = probe.predicted(piece), RATIO ** math.ceil(math.log(least, RATIO))

    def slope(t: float) -> float:
        change = subject.evaluate(piece, t) - subject.evaluate(piece, -t)
        return inner(subject, probe.cotangent, change) / (2 * t) if bool(change.any()) else math.nan

    apart = []
    for t in (shortest * RATIO**above for above in BELOW):
        apart.append(abs(slope(t) - claimed))
        if not apart[-1] <= gap / NEARER:
            return False
    return abs(slope(1.0) - claimed) > NEARER * max(apart)  # errors of several outputs may cancel under their weights
