"""Inputs in company: where several tie, they do together what none of them does alone, and there is no derivative.

Of three equal inputs each by itself leaves their median where it is, and all together move it: what a backward claims
of one of them is neither right nor wrong. Of a function that has a derivative, an input adds the same whatever the
others do, but for curvature, which is less on shorter steps. Of inputs that tie it does not, by as much on any step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from gradproof.engine.contraction import Probing, inner, restricted
from gradproof.engine.estimators.differences import RATIO
from gradproof.engine.estimators.ladder import first_step
from gradproof.engine.explanations.obstacles import TIED, Obstacle
from gradproof.engine.localisation import Located
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry
from gradproof.engine.subject import Array, Subject

SHORT = RATIO**-3  # times a step: there curvature is less beside a slope, and a kink is not
SHARE = 1e-3  # of an error: one of many inputs that tie does so little otherwise in company
HALF = 1 / 8  # of an error: where half of the inputs make as much of it, and none by itself
SPARE = 4.0  # times the rounding of values
MANY = 12  # directions along which an input may show that it ties; of three equal ones a third do not show it
FEW = 6  # where there is no sign of it


def without_ties(probe: Probe, located: Located, options: Probing) -> Located | Obstacle:
    """The wrong entries without those of inputs that tie; or that, where all of them do, or where there are none.

    Where the entries make up what a probe of all inputs disagrees by, no inputs tie. Where the worst does not, they are
    wrong.
    """
    if located.adds_up and probe.ladder.whole is None:
        return located
    subject, step = probe.ladder.subject, options.step or first_step(probe.ladder.subject.precision)

    def directions(many: int) -> Iterator[Array]:
        return (subject.direction(probe.seed + k, step, options.step is not None) for k in range(many))

    def ties(coordinate: int, entry: Entry, many: int) -> bool:
        error = abs((entry.claimed - entry.numerical) * float(probe.ladder.direction[coordinate]))
        terms = {"error": error, "noise": probe.sums.floor}
        return is_tied(subject, coordinate, directions(many), probe.cotangent, **terms)

    if not located.entries:
        halves = ((each, subject.arrays.where(sides > 0, each, 0.0)) for each, sides in pairwise(directions(FEW)))
        terms = {"least": HALF * probe.excess, "noise": probe.sums.floor}
        return TIED if _do_otherwise(subject, halves, probe.cotangent, **terms) else located
    worst, *others = located.entries
    if not ties(*worst, MANY if located.adds_up is False else FEW):
        return located
    clear = [pair for pair in others if not ties(*pair, MANY)]
    return replace(located, entries=tuple(clear)) if clear else TIED


def is_tied(
    subject: Subject, coordinate: int, directions: Iterable[Array], weights: Array, *, error: float, noise: float
) -> bool:
    """Whether, along one of the directions, an input moves the inner outputs otherwise than it does by itself.

    `error` is by how much its slope along them is not as claimed, `noise` the rounding of the inner outputs.
    """
    pairs = ((each, restricted(subject, each, coordinate, coordinate + 1)) for each in directions)
    return _do_otherwise(subject, pairs, weights, least=SHARE * error, noise=noise)


def _do_otherwise(
    subject: Subject, pairs: Iterable[tuple[Array, Array]], weights: Array, *, least: float, noise: float
) -> bool:
    """Whether, of a direction and a part of it, the part moves the inner outputs otherwise alone, on any step.

    One of several such pairs is enough.
    """
    least += SPARE * noise / SHORT
    for direction, part in pairs:
        long = _apart(subject, direction, part, weights, 1.0)
        if long > least:
            short = _apart(subject, direction, part, weights, SHORT)
            if short > least and long / 2 < short < 2 * long:
                return True
    return False


def _apart(subject: Subject, direction: Array, part: Array, weights: Array, t: float) -> float:
    """How differently inputs move the inner outputs alone and in company: their slopes, or how these bend."""
    slopes, bends = [], []
    for piece in (direction, direction - part, part):
        ahead, behind = (inner(subject, weights, subject.evaluate(piece, step) - subject.centre) for step in (t, -t))
        slopes.append((ahead - behind) / (2 * t))
        bends.append((ahead + behind) / t)
    return max(abs(together - rest - single) for together, rest, single in (slopes, bends))
