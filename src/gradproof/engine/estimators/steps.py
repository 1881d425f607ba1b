"""The one schedule of step sizes: t = …, ¼, 1, 4, 16, … along a direction whose first step is near the best one."""

from __future__ import annotations

import functools
import math

RATIO = 4.0  # between neighbouring steps: Richardson's extrapolation then gains a digit for each pair of steps
BOTTOM = (0, 1)  # exponents of the two steps that every ladder begins with
FINEST = -9  # exponent of the finest step: 4⁻⁹ of the first one is about 16 units of rounding of the point
LONGEST = 0.5  # of the point's own scale: longer steps lead to points that are unlike it
# times a step: curvature then changes a slope 64 times less, and a kink as much as before
SHORT = RATIO**-3


@functools.cache
def first_step(precision: float) -> float:
    """Return the first step relative to the point's scale: near the cube root of the precision.

    There truncation and noise are about equal for a function of order one, so that the bar, which takes truncation at
    its full unextrapolated size, is near its smallest.

    >>> f"{first_step(2.2e-16):.1e}", f"{first_step(1.2e-7):.1e}"
    ('3.6e-06', '2.9e-03')
    """
    return min(math.cbrt(precision) / 1.7, LONGEST / RATIO)
