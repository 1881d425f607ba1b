"""Test whether a function is rough where a segment disagrees: then the rule may be right."""

from __future__ import annotations

import math
from dataclasses import replace

from gradproof.engine.estimators.noise import contracted_scatter, deviations, last_places
from gradproof.engine.estimators.panels import Segment
from gradproof.engine.estimators.problem import Problem, direction_of
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, CLEARLY, COARSEST, ROUNDINGS, TWO_DIGITS


def is_rough_at_the_ends(problem: Problem, segment: Segment) -> bool:
    """Return True if roughness on scales between rounding and the segment's width may explain the residual.

    A cast of the inputs makes such roughness. It may be the same in all outputs, so the scatter of the contracted
    values is measured, at both ends and on two scales.
    """
    worst = 0.0
    for share in (COARSEST, COARSEST**2):
        found = []
        for number, side in enumerate((1.0, -1.0) * 2):
            beside = direction_of(problem, number, share * segment.values.width)
            found.append(
                contracted_scatter(
                    problem.subject, segment.values.chord.cotangent, side * segment.values.chord.step, beside
                )
            )
        worst = max(worst, math.fsum(found) / len(found))
    return segment.residual <= CLEARLY * math.sqrt(2 * worst)


def holds_on_fine_steps(problem: Problem, segment: Segment) -> bool:
    """Return True if the function is rough on the finest steps that show a slope, and the claim is right on them.

    A staircase, a sawtooth or an oscillation has one slope almost everywhere and another one on coarse steps. Outputs
    that jump on the fine step are left out; the others follow the slope almost everywhere.
    """
    subject, chord, cotangent = problem.subject, segment.values.chord, segment.values.chord.cotangent
    xp, ends = subject.arrays, segment.values.ends
    change, noise = ends[-1] - ends[0], deviations(problem, ends[2])
    finest = sorted((TWO_DIGITS * noise / abs(change))[abs(change) > 0].tolist())
    t = (
        max(2 * finest[len(finest) // 8], ROUNDINGS * subject.numbers.precision / segment.values.width)
        if finest
        else 1.0
    )
    if not t < 0.25:  # there is no finer step; noise of unknown origin may be structure
        return float(abs(cotangent) @ noise) > CLEARLY * float(abs(cotangent) @ last_places(subject, ends[2]))
    fine = chord.value(t) - chord.value(-t)
    seen = t * abs(change) >= TWO_DIGITS * noise
    apart = (abs(fine - t * change) > ALIKE * t * abs(change))[seen]
    if 2 * int(apart.sum()) <= apart.shape[0]:  # the function is as smooth as it looks
        return False
    steady = seen & (abs(fine) <= 2 * t * abs(change))
    rest: Array = xp.where(steady, cotangent, 0.0)
    claimed = float(replace(chord, cotangent=rest).claimed_parts(0.0, chord.shorter(t).across).sum())
    bar = CLEARLY * math.sqrt(2 * float((rest * noise) @ (rest * noise)))
    near, far = abs(float(rest @ fine) - claimed), abs(t * float(rest @ change) - claimed)
    return bool(near <= max(far / 2, bar))
