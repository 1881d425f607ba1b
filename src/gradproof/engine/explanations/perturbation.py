"""How values and derivatives change when the point moves by a rounding: not at all, unless large numbers cancel."""

from __future__ import annotations

from collections.abc import Iterable

from gradproof.engine.contraction import inner
from gradproof.engine.subject import Array, Subject

NEARBY = 8  # points a rounding away
FEW = 3  # of them, at which values are looked at
OWN_SIZE = 0.1  # of what changes: a change beyond it leaves nothing of it
SEVERAL = 4.0  # roundings, so that inputs above the usual size move as well
RANGES = 4.0  # times the range of what is claimed at these points: an error beyond it is no accident of rounding
SLIGHT = 1e-2  # of what is claimed: an error beyond it is asked about only where nothing is left of it


def question(subject: Subject, seed: int) -> Array:
    """What a derivative is asked: an incoming gradient, or a direction of the point's own size."""
    return subject.cotangent(seed) if subject.mode == "reverse" else subject.direction(seed, 1.0, False)


def answer(subject: Subject, asked: Array) -> Array:
    """What it answers at the point."""
    return subject.pullback(asked) if subject.mode == "reverse" else subject.pushforward(asked)


def answer_at(subject: Subject, place: Array, asked: Array) -> Array:
    """What it answers at point + place."""
    return subject.pullback_at(place, asked) if subject.mode == "reverse" else subject.pushforward_at(place, asked)


def scatter(subject: Subject, asked: Array, claimed: Array, seed: int) -> Array:
    """How much each entry of an answer differs at points a rounding away: much, where numbers cancel in the rule."""
    xp, square = subject.arrays, subject.arrays.zeros_like(claimed)
    for nudge in _nudges(subject, seed):
        apart = answer_at(subject, nudge, asked) - claimed
        square = square + xp.where(xp.isfinite(apart), apart, 0.0) ** 2
    return (square / NEARBY) ** 0.5


def is_cancelled(subject: Subject, seed: int) -> bool:
    """Whether values and derivative are nothing but what rounding left of larger numbers, as of x − x by two ways.

    Both then change by their own size when the point moves by a rounding, and are the same again at the same point.
    """
    nudges = _nudges(subject, seed)
    if not _lost(subject.centre, (subject.evaluate(nudge, 1.0) for nudge in nudges[:FEW])):
        return False
    asked = question(subject, seed)
    claimed = answer(subject, asked)
    if bool((answer(subject, asked) != claimed).any()):
        return False
    return _lost(claimed, (answer_at(subject, nudge, asked) for nudge in nudges))


def wavers(subject: Subject, direction: Array, cotangent: Array, *, error: float, size: float, seed: int) -> bool:
    """Whether a slight error in a slope that is claimed, of this size, may be an accident of rounding in the rule.

    What is claimed then differs by as much from one point a few roundings away to another, as of a nearly singular
    matrix. The point itself is left out: a rule may be wrong there alone, as for inputs of exactly zero.
    """
    if not error <= SLIGHT * size:
        return False
    asked, weights = (cotangent, direction) if subject.mode == "reverse" else (direction, cotangent)
    nudges = _nudges(subject, seed, SEVERAL)
    claims = [inner(subject, weights, answer_at(subject, nudge, asked)) for nudge in nudges]
    return error <= RANGES * (max(claims) - min(claims))


def _nudges(subject: Subject, seed: int, units: float = 1.0) -> list[Array]:
    return [subject.direction(seed + number, units * subject.precision, False) for number in range(NEARBY)]


def _lost(vector: Array, nearby: Iterable[Array]) -> bool:
    """Whether it is another one nearby, as far from itself as it is large."""
    least = OWN_SIZE * float(abs(vector).max())
    return any(float(abs(other - vector).max()) >= least for other in nearby)
