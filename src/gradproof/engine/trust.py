"""How far a function in double precision is trusted as the reference for the same in a lower precision.

It is trusted as far as rounding in the lower precision does not explain what differs. That is asked three times, of
what the reference consists of:

- its values: those of a function that chooses its way by a rounded number, or that rounds inside whatever it is given,
  are no reference (`distrusted_values`), and the function is judged in its own precision;
- its own judgement: errors smaller than the rounding are passed over, and bars need be no narrower than it
  (`trusted_judgement`);
- its gradient: a small entry beside large ones of its tensor says nothing by itself (`below_rounding`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from gradproof.engine.estimators.rounding import precision_shown
from gradproof.engine.estimators.steps import first_step
from gradproof.engine.options import Probing
from gradproof.engine.pieces import on_host
from gradproof.engine.results import Entry, Verdict
from gradproof.engine.subject import Array, Frame, Step, Subject
from gradproof.engine.thresholds import ALIKE, CLEARLY, ENOUGH, FEW, MANY, ROUNDINGS, SAMPLE, TINY, TWO_DIGITS
from gradproof.engine.verdict import Judgement

HIDDEN = "In double precision the gradient is off by {error:.1g} of an entry; rounding in this precision hides that."


def distrusted_values(wide: Subject, low: Subject, distance: float) -> str:
    """Return why a function's values in double precision are not those of the lower one; nothing where they are.

    `distance` is the largest difference of the values, and not finite where one of them is not.
    """
    xp, precision, scale = wide.arrays, low.numbers.precision, wide.scale.value
    if not distance <= ROUNDINGS * precision * scale:  # else no value exceeds its own bound
        difference = wide.centre - low.centre
        rounding = abs(wide.centre)
        rounding += scale or float(xp.where(xp.isfinite(rounding), rounding, 0.0).max()) or TINY
        rounding *= precision
        apart = abs(difference) / rounding
        if not low.scale.finite:
            apart = xp.where(xp.isfinite(low.centre), apart, 0.0)
        most = float(apart.max())
        if not most <= TWO_DIGITS:
            return "its values are others there"
        if most > ROUNDINGS and _takes_another_way(wide, apart, rounding, precision):
            return "single values are others there"
    return "" if _computes_in_double(wide) else "its values show a lower precision inside"


def _takes_another_way(wide: Subject, apart: Array, rounding: Array, precision: float) -> bool:
    """Return True if some values differ by many roundings, though most by none and conditioning explains none.

    Such values come through another window, index or branch, which the function chooses by a rounded number. Where it
    is ill-conditioned, its values move about as much when the point moves by a rounding.
    """
    if 2 * int((apart > 1).sum()) > apart.shape[0]:
        return False
    steps = [wide.direction(seed, Step(precision)) for seed in range(2)]
    moved = wide.arrays.maximum(*(abs(wide.evaluate(step, 1.0) - wide.centre) for step in steps))
    return bool(((apart > ROUNDINGS) & ~(apart * rounding <= MANY * moved)).any())


def _computes_in_double(wide: Subject) -> bool:
    """Return True if the values have the digits of double precision: a cast inside leaves fewer.

    At a point with few digits exact results have few digits too; then values beside it decide.
    """
    return not _shows_a_cast(wide, wide.centre) or not _shows_a_cast(
        wide, wide.evaluate(wide.direction(0, Step(first_step(wide.numbers.precision))), 1.0)
    )


def _shows_a_cast(wide: Subject, values: Array) -> bool:
    every = on_host(values[:: max(1, values.shape[0] // SAMPLE)])
    return precision_shown(wide.arrays, [every]) > wide.numbers.precision


def enough_beside(precision: float) -> float:
    """Return the relative bar that needs no refinement where low precision hides errors of a rounding."""
    return max(ENOUGH, precision / ROUNDINGS)


def trusted_judgement(
    wide: Subject,
    precision: float,
    judged: Callable[..., Judgement],
    *,
    probes: int,
    seed: int,
    options: Probing,
) -> Judgement:
    """Judge a function in double precision, no further than rounding in a lower `precision` shows it.

    Its bars are to be narrower than that rounding. A finding without entries may come of bars so narrow, as beside a
    pole, and is judged again at the usual ones.
    """
    finer = replace(options, enough=enough_beside(precision))
    judgement = judged(wide, probes=probes, seed=seed, options=finer)
    if judgement.verdict is Verdict.FAIL and not judgement.entries:
        judgement = judged(wide, probes=probes, seed=seed, options=options)
    if judgement.verdict is not Verdict.FAIL or not _within_rounding(judgement, precision):
        return judgement
    note = HIDDEN.format(error=max(abs(_relative(entry)) for entry in judgement.entries))
    lenient = replace(finer, rtol=options.rtol + ROUNDINGS * precision)
    judgement = judged(wide, probes=probes, seed=seed, options=lenient)
    return replace(judgement, notes=(*judgement.notes, note))


def _within_rounding(judgement: Judgement, precision: float) -> bool:
    """Return True if rounding in low precision is larger than every error found in double precision.

    Several equal relative errors that are larger than the rounding of a constant are a wrong factor. Rounding does
    not cause that.
    """
    errors = [_relative(entry) for entry in judgement.entries]
    if not errors or not max(map(abs, errors)) <= ROUNDINGS * precision:
        return False
    least, most = min(errors), max(errors)
    alike = len(errors) >= FEW and most - least <= ALIKE * max(abs(least), abs(most))
    return not (alike and min(map(abs, errors)) > CLEARLY * precision)


def _relative(entry: Entry) -> float:
    """Return the relative error of an entry."""
    off = entry.claimed - entry.numerical
    return off / abs(entry.numerical) if entry.numerical else math.inf if off else 0.0


def below_rounding(allowed: Array, frame: Frame, precision: float) -> Array:
    """Flag the entries of a derivative that are below the rounding of the largest one of their tensor.

    They may be what is left of contributions of that size, such as the tangent of a softmax near one. `allowed` is what
    rounding explains of each entry, whatever the operand.
    """
    least = 0 * allowed
    for low, high in frame.spans:
        if low < high:
            least[low:high] = ROUNDINGS * precision * allowed[low:high].max()
    return allowed < least
