"""How far rounding in low precision may move the entries of a derivative, estimated no further than is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradproof.engine.perturbed import product, random_operand
from gradproof.engine.pieces import columns
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import FEW, ROUNDINGS, TRACE


def allowances(
    subject: Subject, wide: Subject, operand: Array, truth: Array, seed: int
) -> Iterator[tuple[Array, bool]]:
    """Yield bounds on the change of each entry that rounding alone explains, and whether there is no larger one.

    Each is at least as large and as dear as the one before, so that entries that one explains need none of the next.
    The first knows the entries alone, the second their sizes for two other incoming gradients, and the last for one
    more, and how the gradient changes when the point moves by a unit of rounding.

    An entry's size for other incoming gradients is that in low precision, which costs least: a wrong rule widens its
    own bound by a few hundredths of its error at most.

    Vectors are long: few are held at a time, and those that are made here are written over.
    """
    yield _rounding_of(subject, abs(truth)), False  # infinite where the truth is
    squares = truth * truth
    for number in range(FEW):
        other = product(subject, random_operand(wide, seed + 2 + number))
        squares += other * other
        del other
        if number == 1:  # hardly an entry is small for three incoming gradients
            known = subject.arrays.where(squares < math.inf, squares, 0.0)
            yield _rounding_of(subject, known**0.5), False
            del known
    squares /= 1 + FEW
    yield _last_allowance(subject, wide, operand, truth, squares, seed), True


def _rounding_of(subject: Subject, sizes: Array) -> Array:
    """Return the rounding of entries, given the root of the sum of what is known of their squares."""
    numbers = subject.numbers
    sizes *= ROUNDINGS * numbers.precision / math.sqrt(1 + FEW)
    if numbers.tiny:
        sizes += ROUNDINGS * numbers.tiny
    return sizes


def _last_allowance(subject: Subject, wide: Subject, operand: Array, truth: Array, squares: Array, seed: int) -> Array:
    """Return the largest change of each entry of this mean square that rounding alone explains."""
    xp, unit, reverse = subject.arrays, subject.numbers.precision, subject.mode == "reverse"
    size = squares
    size **= 0.5
    size = xp.where(xp.isfinite(size), size, abs(truth))
    nudge = wide.direction(seed + 1, Step(unit))
    moved = product(wide, operand, nudge) - truth
    moved = abs(xp.where(xp.isfinite(moved), moved, 0.0))
    nudge, values = abs(nudge), _finite_sizes(wide)
    row = [values.sum(), values.max(), size.max(), xp.where(nudge > 0, nudge, math.inf).min()]
    del values
    (total,), (largest,), (most,), (shortest,) = columns(xp, [row])
    steepest = unit / shortest if reverse else 1.0
    # everything cancels, and only rounding errors are left; not if each entry has a small share in sums of many
    vanishing = most < TRACE * largest * steepest
    if vanishing and reverse:
        vanishing = float(size @ nudge) < TRACE * unit * total
    tiny = subject.numbers.tiny  # values and gradients this small are rounded alike
    natural = (unit * largest if vanishing else 0.0) + tiny
    size *= unit
    size += moved
    del moved
    if natural:
        size += tiny
        size += natural * (unit / xp.where(nudge > 0, nudge, math.inf) if reverse else 1.0)
    size *= ROUNDINGS
    return size


def _finite_sizes(subject: Subject) -> Array:
    """Return the absolute values, and zero for those that are not finite."""
    xp, values = subject.arrays, abs(subject.centre)
    if not subject.scale.finite:
        values = xp.where(xp.isfinite(values), values, 0.0)
    return values
