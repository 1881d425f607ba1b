"""The rounding and the noise of values: those of their type, and those that the values show."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from gradproof.engine.estimators.sample import Sample
from gradproof.engine.estimators.steps import RATIO, first_step
from gradproof.engine.pieces import columns
from gradproof.engine.subject import Array, Numbers
from gradproof.engine.thresholds import CLEARLY, COARSEST, FEW

ROUNDING = 0.75  # units of rounding in the slope from correctly rounded values: 0.54 measured, and a margin
FOURTH = 37.6  # standard deviation of the even fourth difference, if that of a value is one: √(2·16² + 2·1² + 30²)
MEDIAN = 0.67  # standard deviations: the median of a Gaussian variable's absolute value
BACKGROUND = 2.5  # medians of the even fourth differences, allowed for every output
CASTS = (8, 11, 24)  # binary digits of bfloat16, float16 and float32


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of the values, estimated from all outputs.

    One output shows its noise in one number for each pair of samples, which may be small by accident; the median over
    the outputs is not.

    `rounding` is the rounding of the values' type and `shown` the rounding that the values show, both relative.
    `tiny` is the spacing of the smallest numbers. `step_rounding` is the rounding of a step below t = 1, relative to
    the step t = 1. `background` is the median even fourth difference, for each pair of samples. A step of
    `survives_cast` or more is too long for a half precision to round it away. `share` is the rounding of cast values
    relative to their change, which is their size where they are zero at the point.
    """

    rounding: float
    shown: float
    tiny: float
    step_rounding: float
    background: tuple[float, ...] = ()
    survives_cast: float = math.inf
    share: float = 0.0

    @classmethod
    def of_type(cls, numbers: Numbers, cast: float = 0.0) -> Noise:
        """Return the rounding of values of a type, or of a lower precision to which they were `cast`."""
        unit, rounding = numbers.precision, ROUNDING * max(numbers.precision, cast)
        return cls(
            rounding=rounding,
            shown=rounding,
            tiny=numbers.tiny,
            step_rounding=4 * unit / first_step(unit),
            survives_cast=math.inf if cast > unit else COARSEST / first_step(unit),
            share=rounding if cast > unit else 0.0,
        )


def noise_around(xp: Array, centre: Array, samples: list[Sample], least: Noise) -> Noise:
    """Estimate the noise of some outputs by medians over those that change."""
    sizes, evens = abs(centre), [sample.split(centre)[1] for sample in samples]
    fourths = [abs(RATIO**2 * lower - upper) for lower, upper in pairwise(evens)]
    known = (sizes > 0) & (fourths[0] >= 0)
    shown = CLEARLY * _median(xp, fourths[0][known] / sizes[known]) / (MEDIAN * FOURTH)
    shown = max(least.shown, min(shown, COARSEST))
    return replace(least, shown=shown, background=tuple(_background(xp, fourth) for fourth in fourths))


def precision_shown(xp: Array, values: list[Array]) -> float:
    """Return the unit of the lowest precision into which all values fit, and no lower one; zero if there is none.

    The last operation of a function may be a cast to a lower precision. Values that fit into fewer digits still are
    counts, or entries of a table, and show no cast.
    """
    if not values:
        return 0.0
    parts = xp.frexp(xp.concatenate(values))[0]
    lengths = (*CASTS, *(digits - FEW for digits in CASTS))
    misfits = [(parts * 2.0**digits != xp.round(parts * 2.0**digits)).any() for digits in lengths]
    fits = {digits: not misfit[0] for digits, misfit in zip(lengths, columns(xp, [misfits]), strict=True)}
    lowest = next((digits for digits in CASTS if fits[digits]), None)
    return 2.0 ** (1 - lowest) if lowest and not fits[lowest - FEW] else 0.0


def _background(xp: Array, fourths: Array) -> float:
    changing, count = fourths[fourths > 0], fourths.shape[0]
    if 2 * changing.shape[0] < count or count < 2:  # most are constant
        return 0.0
    return BACKGROUND * _median(xp, changing)


def _median(xp: Array, values: Array) -> float:
    """Return the median of some values; zero for none."""
    if not values.shape[0]:
        return 0.0
    ordered = xp.sort(values)
    ordered = getattr(ordered, "values", ordered)  # torch returns their places too
    return float(ordered[values.shape[0] // 2])
