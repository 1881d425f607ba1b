"""The slope of a loss at the start of a step, from its values along the step, with a bar.

A step is no small thing: a network has kinks all along it, each too small to be told, which together bend the loss as
curvature would and then differ from it. So a coarse pair of slopes is believed only as far as the finer pairs were
steady: its bar holds all the drift that was seen on the way up, beyond what noise makes of it. A step may also be too
small a thing: where its values drown in rounding, multiples of it are looked at, which go the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

RATIO = 4.0  # between neighbouring fractions of the step
FINEST = -7  # the exponent of the smallest fraction, where the step is all but straight
CLOSER = -11  # the same on doubt: kinks are hundreds of times rarer there
BEYOND = range(1, 11)  # multiples of a step that is too short to show in values of the loss
PATIENCE = 3  # multiples in a row that say nothing new end the search
ENOUGH = 0.01  # of the slope: with a bar below this no longer step is looked at
VALUES = 4.0  # roundings granted to a value of the loss
NOISY = 1.25  # times the noise of a slope, for the difference to the slope on the next larger fraction
USUAL = 0.3  # of the noise granted is what a slope usually shows of it
WANDER = 1.5  # times the drop from a fraction to the next, for what may be left below
WITNESS = 2  # rungs below the best one is that which has to confirm it
KINK = 0.6  # of a bend is left on a quarter of the fraction; of a smooth function a quarter is


@dataclass(frozen=True, slots=True)
class Slope:
    """A slope and its bar, and the slopes on the two sides where they differ at the start itself."""

    value: float
    bar: float
    sides: tuple[float, float] | None = None

    def contains(self, claim: float) -> bool:
        """Whether the claim lies within the bar."""
        return abs(claim - self.value) <= self.bar

    def between(self, claim: float) -> bool:
        """Whether there is a kink at the start, and the claim lies between the slopes on its sides."""
        return self.sides is not None and min(self.sides) - self.bar <= claim <= max(self.sides) + self.bar


@dataclass(frozen=True, slots=True)
class _Rung:
    t: float
    left: float
    right: float

    @property
    def slope(self) -> float:
        return (self.left + self.right) / 2

    @property
    def bend(self) -> float:
        return self.right - self.left


def slope_at_start(loss: Callable[[float], float], *, start: float, precision: float, finest: int = FINEST) -> Slope:
    """The slope at t = 0 of a function whose value there is `start`, and whose values are rounded to `precision`.

    >>> found = slope_at_start(lambda t: math.exp(t), start=1.0, precision=2.2e-16)
    >>> found.contains(1.0), found.contains(1.00001), found.bar < 1e-6
    (True, False, True)
    """
    rungs = [_rung(loss, start, RATIO**exponent) for exponent in range(finest, 1)]
    known = [rung for rung in rungs if math.isfinite(rung.slope)]
    if len(known) < 2:
        return Slope(math.nan, math.inf)
    noise = _noise(known, start, precision)
    found, idle = _best(known, noise), 0
    for exponent in BEYOND:
        if found.bar <= ENOUGH * abs(found.value) or idle == PATIENCE:
            break
        known.append(_rung(loss, start, RATIO**exponent))
        if not math.isfinite(known[-1].slope):
            break
        farther = _best(known, noise)
        idle = 0 if farther.bar < found.bar else idle + 1
        found = farther
    return found


def _rung(loss: Callable[[float], float], start: float, t: float) -> _Rung:
    below, above = loss(-t), loss(t)
    return _Rung(t, (start - below) / t, (above - start) / t)


def _noise(rungs: list[_Rung], start: float, precision: float) -> float:
    """Of one value: what its type allows, or more where the finest slopes show it."""
    finest, next_finest = rungs[:2]
    shown = finest.t * abs(finest.slope - next_finest.slope)
    return max(VALUES * precision * abs(start), shown)


def _best(rungs: list[_Rung], noise: float) -> Slope:
    found, drift = [], 0.0
    drops = [abs(fine.slope - coarse.slope) for fine, coarse in pairwise(rungs)]
    for k, (fine, coarse) in enumerate(pairwise(rungs)):
        # Kinks at random make slopes wander by the root of the fraction, a factor of two a rung. One drop is small by
        # accident now and then; three in a row are not.
        wander = max(drop / 2.0**beyond for beyond, drop in enumerate(drops[k : k + 3]))
        value = fine.slope + (fine.slope - coarse.slope) / (RATIO**2 - 1)
        sides = _sides(fine, coarse, noise)
        bar = drift + WANDER * wander + NOISY * noise / fine.t + (0.0 if sides else _hidden(fine, coarse, noise))
        found.append(Slope(value, bar, sides))
        drift += max(0.0, drops[k] - USUAL * noise / fine.t)
    confirmed = (_confirmed(slope, found[max(0, k - WITNESS)]) for k, slope in enumerate(found))
    return min(confirmed, key=lambda slope: slope.bar)


def _confirmed(best: Slope, finer: Slope) -> Slope:
    """The best slope, believed as far as one from much smaller fractions goes, which meets fewer kinks."""
    return replace(best, bar=max(best.bar, abs(best.value - finer.value) + finer.bar))


def _hidden(fine: _Rung, coarse: _Rung, noise: float) -> float:
    """How far off a kink near the start puts a slope, where curvature hides it: half the bend that does not shrink."""
    lasting = (RATIO * fine.bend - coarse.bend) / (RATIO - 1)
    return max(0.0, abs(lasting) / 2 - NOISY * noise / fine.t)


def _sides(fine: _Rung, coarse: _Rung, noise: float) -> tuple[float, float] | None:
    clear = abs(fine.bend) > 4 * noise / fine.t
    if not clear or abs(fine.bend) <= KINK * abs(coarse.bend):
        return None
    left, right = (
        (RATIO * near - far) / (RATIO - 1) for near, far in ((fine.left, coarse.left), (fine.right, coarse.right))
    )
    return left, right
