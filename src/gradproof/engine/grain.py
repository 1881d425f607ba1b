"""Inputs that are rounded to a lower precision inside, where they are zero: no ladder shows it.

A step from zero is rounded by a share of its own length, which is the same at four times the length. So the slopes on
all rungs agree, and are off; on steps of other lengths they are off by another share.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gradproof.engine.contraction import best_exponent
from gradproof.engine.ladder import Ladder
from gradproof.engine.localisation import Located
from gradproof.engine.obstacles import Obstacle
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry
from gradproof.engine.weighing import combine, restricted

LENGTHS = tuple(2.0 ** (k * 0.6180339887 % 1) for k in range(7))  # no two of them in a ratio of small numbers
ABOUT = 3.0  # times the width of what is seen, within which a claim lies about it
SLIGHT = 2.0**-4  # of the slope: no half precision, with its eight digits, rounds by more
LESS = 2.0**-3  # of the share by which the worst entry is off
FIRST = 3  # lengths, after which slopes that agree are taken for one

GRAIN = Obstacle(
    "grain: steps of other lengths show other slopes, which lie about what is claimed, as where inputs that are zero "
    "are rounded to a lower precision inside",
    "Check the function without the rounding, or pass inputs of the lower precision, or ones that are not zero.",
)


def without_grain(probe: Probe, located: Located) -> Located | Obstacle:
    """The wrong entries without those that grain explains; or that, where it explains all of them.

    Where the worst is wrong, only those are asked about that are off by far less.
    """
    if not located.entries:
        return located
    (first, worst), *others = located.entries
    clear = [] if _is_grainy(probe, first, worst) else [(first, worst)]
    for coordinate, entry in others:
        alike = bool(clear) and _share(entry) > LESS * _share(worst)
        if alike or not _is_grainy(probe, coordinate, entry):
            clear.append((coordinate, entry))
    return replace(located, entries=tuple(clear)) if clear else GRAIN


def _share(entry: Entry) -> float:
    """How far an entry is off, relative to the slope."""
    return abs(entry.claimed - entry.numerical) / abs(entry.numerical) if entry.numerical else math.inf


def _is_grainy(probe: Probe, coordinate: int, entry: Entry) -> bool:
    """Whether slopes along one coordinate differ by the length of the step, and lie about what is claimed of it.

    What is claimed may be rounded as coarsely, output by output.
    """
    if _share(entry) > SLIGHT:
        return False
    subject, exponent = probe.ladder.subject, best_exponent(probe)
    piece = restricted(subject, probe.ladder.direction, coordinate, coordinate + 1)
    lows, highs, slopes = list[float](), list[float](), list[float]()
    size = 0.0
    for length in LENGTHS:
        ladder = Ladder(subject, length * piece)
        ladder.add(exponent, exponent + 1)
        sums = combine(ladder, probe.cotangent)
        size = max(size, sums.size / length)
        slopes.append(sums.slope / length)
        lows.append((sums.slope - sums.bar) / length)
        highs.append((sums.slope + sums.bar) / length)
        if len(slopes) == FIRST and max(lows) <= min(highs):  # one slope would do for all
            return False
    width = max(slopes) - min(slopes)
    off = max(min(slopes) - probe.predicted(piece), probe.predicted(piece) - max(slopes))
    return max(lows) > min(highs) and off * max(map(abs, slopes)) <= ABOUT * width * size
