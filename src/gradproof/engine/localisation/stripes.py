"""Stripes: a random factor for every index along a dimension, so that one segment tests them all.

The errors of all entries at one index add up along a segment with these factors, while what all indices have in common,
as the bias of a rounding, nearly cancels.
"""

from __future__ import annotations

from gradproof.engine.parts import Axis, Part, evenly_spread
from gradproof.engine.subject import Array, Step, Subject
from gradproof.engine.thresholds import FEW


def striped(subject: Subject, part: Part, axis: Axis, seed: int = 0) -> Array:
    """Return a factor of size ½ to 1 for the coordinates at every index of a dimension, and zero for other tensors.

    The sizes differ, so that the errors of two indices do not cancel.
    """
    xp, weights = subject.arrays, subject.arrays.zeros_like(subject.point)
    drawn = axis.split(part.of(subject.direction(seed, Step(1.0))))[0, :, 0]
    indices = xp.arange(0, axis.length, device=subject.point.device)
    sizes = 0.5 + 0.5 * evenly_spread(indices + seed / FEW)
    factors = xp.where(drawn < 0, -1.0, 1.0) * sizes
    weights[part.start : part.stop] = factors[axis.indices(xp, part.size, subject.point)]
    return weights
