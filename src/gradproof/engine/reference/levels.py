"""How many times the expected error an implementation's errors are: over all entries, and over those of one kind.

Another algorithm may err several times as much as the plain reference where numbers cancel, and no more elsewhere.
Entries are therefore divided by their amplification, the expected error in units of rounding of the entry itself, and
the errors of each class say how wide its bars are. They are never wider than the errors of all entries make them.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradproof.engine.reference.quantiles import largest_of, quantile
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW

TAIL = (0.5, 0.75, 0.9, 0.95, 0.98)  # of the entries: where the errors of the implementation are held against expected
BEYOND = 8  # entries beyond a quantile: fewer may be wrong ones, and do not widen any bar
CLASSES = 4  # quarters by amplification: entries that cancel are a minor part of most tensors
LEAST = 80  # entries in a class: enough for the quantile of nine tenths with eight entries beyond it


def levels_of(ratios: Array, draws: int) -> list[float]:
    """Return how many times a normal number's the quantiles of some ratios are; `ratios` are largest ones of draws."""
    size = ratios.shape[0]
    return [quantile(ratios, share) / largest_of(draws, share) for share in TAIL if size * (1 - share) >= BEYOND]


def levels_by_class(xp: Array, ratios: Array, amplification: Array, draws: int, *, most: float) -> Array:
    """Return for each entry how many times the expected error the entries of its class err: from one to `most`.

    Few entries are too few for the outer quantiles. The third largest error of a small class stands for these, so that
    two wrong entries do not widen its bars, and a tail does.
    """
    levels = xp.zeros_like(ratios) + most
    if ratios.shape[0] < CLASSES * LEAST:
        return levels
    for inside in _classes(xp, amplification):
        own = ratios[inside]
        found = levels_of(own, draws)
        if own.shape[0] >= LEAST:
            if len(found) < len(TAIL):
                share = 1 - FEW / own.shape[0]
                found.append(quantile(own, share) / largest_of(draws, share))
            levels[inside] = min(max(*found, 1.0), most)
    return levels


def _classes(xp: Array, amplification: Array) -> Iterator[Array]:
    borders = [quantile(amplification, number / CLASSES) for number in range(1, CLASSES)]
    number = sum(1 * (amplification >= border) for border in borders)
    return (number == each for each in range(CLASSES))
