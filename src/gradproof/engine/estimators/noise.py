"""The noise of values and of claims, measured where it can be and never less than a rounding in the last place.

Values and claims are taken a few units in the last place apart, where the function is a polynomial of low degree. What
differences leave of them is noise (Moré and Wild, "Estimating computational noise", 2011).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradproof.engine.contraction import CLAIM_ACCURACY
from gradproof.engine.estimators.problem import Problem, claimed_parts, cotangent_of, direction_of, value_at
from gradproof.engine.estimators.rounding import precision_shown
from gradproof.engine.pieces import columns, mapped, piece_of, slices
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CLEARLY, FEW, MANY, SAMPLE

QUANTUM = 12**-0.5  # standard deviation of a rounding error, in units in the last place
SINGLE = 2.0**-23  # the spacing of single-precision numbers near one

FIVE = (-2.0, -1.0, 0.0, 1.0, 2.0)  # places; their cubic and quartic differences vanish for a parabola
CUBIC, QUARTIC = (-1.0, 2.0, 0.0, -2.0, 1.0), (1.0, -4.0, 6.0, -4.0, 1.0)  # differences; squares add up to 10 and 70


def difference(values: Sequence[Array], weights: Sequence[float]) -> Array:
    """Add up weighted values at equispaced places."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def scatter_around(problem: Problem, seed: int) -> Array:
    """Estimate the variance of the noise of every value, from values a few units in the last place from the point.

    Of five equispaced values the cubic and the quartic differences are noise: the function itself is quadratic there.
    """
    subject = problem.subject
    still = subject.arrays.zeros_like(subject.point)
    times = 1 + int(FEW / effective_count(value_at(subject, cotangent_of(subject, seed), still)))
    scatter = subject.arrays.zeros_like(subject.centre)
    for number in range(times):
        width = (1 + number) * CLEARLY * subject.numbers.precision
        step, cotangent = direction_of(problem, seed + number, width), cotangent_of(subject, seed)
        values = [value_at(subject, cotangent, t * step) for t in FIVE]
        scatter = scatter + mapped(subject.arrays, _noise_of, *values)
    return subject.arrays.where(subject.arrays.isfinite(scatter), scatter / times, 0.0)


def contracted_scatter(subject: Subject, cotangent: Array, place: Array, step: Array) -> float:
    """Estimate the variance of the contracted value in the same way: errors of the outputs may be alike."""
    values = [float(cotangent @ value_at(subject, cotangent, place + t * step)) for t in FIVE]
    scatter = float(_noise_of(*values))
    return scatter if math.isfinite(scatter) else 0.0


def _noise_of(*values: Array) -> Array:
    """Return the variance that the cubic and the quartic difference of five values suggest."""
    return (difference(values, CUBIC) ** 2 / 10 + difference(values, QUARTIC) ** 2 / 70) / 2


def noise_of_claims(problem: Problem, seed: int) -> float:
    """Estimate the standard deviation of a claim by the rule's own rounding, relative to its contributions.

    The operand, a cotangent or a direction, is varied by a few units in the last place. The rule is linear in it, so
    that a second difference is noise. The noise of an entry is at least the rounding in its last place.
    """
    subject = problem.subject
    step, cotangent = direction_of(problem, seed, 1.0), cotangent_of(subject, seed)
    asked = step if subject.mode == "forward" else cotangent
    beside = asked * (1 + CLEARLY * subject.numbers.precision)
    frame = subject.inputs if subject.mode == "forward" else subject.outputs
    rounded = frame.rounded(beside)
    both = [rounded, 2 * asked - rounded]
    pairs = [(cotangent, each) if subject.mode == "forward" else (each, step) for each in (*both, asked)]
    before, after, here = (claimed_parts(subject, u, 0 * step, v) for u, v in pairs)
    second, size = after - 2 * here + before, float(here @ here)
    noise = math.sqrt(float(second @ second) / 6 / size) if size else 0.0
    unit = subject.numbers.precision
    least = QUANTUM * unit + min(unit, SINGLE) + CLAIM_ACCURACY
    return max(least, noise if math.isfinite(noise) else 0.0)


def bias_of_claims(subject: Subject) -> float:
    """Return the relative error that all claims, or the sums that they are of, may have in common.

    It is half a spacing of the lowest precision that shows: a rule may round all its entries one way, and a function
    may round the operands that its rule does not. In single precision inside, a sum in pairs errs by half a spacing
    for each time that it halves its terms.
    """
    xp, units = subject.arrays, [subject.numbers.precision]
    for start, stop in subject.outputs.spans:
        units.append(precision_shown(xp, [subject.centre[start : stop : max(1, (stop - start) // SAMPLE)]]))
    return max(*units, SINGLE * math.log2(2 + subject.inputs.size + subject.outputs.size)) / 2


def effective_count(values: Array) -> float:
    """Return how many values of equal size would vary as much: 1 where one is far larger than all others."""
    largest = float(abs(values).max())
    squares = (values / largest) ** 2 if largest else values + 1
    return float(squares.sum() ** 2 / (squares @ squares))


def deviations(problem: Problem, value: Array) -> Array:
    """Return the standard deviation of the rounding of every output: in its last place, or as its scatter shows."""
    return problem.subject.arrays.maximum(last_places(problem.subject, value), problem.scatter**0.5)


def variance_of(problem: Problem, value: Array, cotangent: Array) -> float:
    """Return the variance of ⟨u, f⟩ by the last places of the values, or by their scatter where that is more."""
    xp, rows = problem.subject.arrays, []
    for spacing, piece in _spacings(problem.subject, value):
        squares = cotangent[piece] ** 2
        rows.append((spacing**2 @ squares, problem.scatter[piece] @ squares))
    last, scatter = columns(xp, rows)
    return max(QUANTUM**2 * math.fsum(last), math.fsum(scatter))


def last_places(subject: Subject, value: Array) -> Array:
    """Return the standard deviation of a rounding of every output, in the precision that its tensor's values show."""
    deviations = subject.arrays.zeros_like(value)
    for spacing, piece in _spacings(subject, value):
        deviations[piece] = QUANTUM * spacing
    return deviations


def _spacings(subject: Subject, value: Array) -> Iterator[tuple[Array, slice]]:
    """Yield the spacing of the outputs' numbers, piece by piece."""
    xp = subject.arrays
    for start, stop in subject.outputs.spans:
        every = slice(start, stop, max(1, (stop - start) // SAMPLE))
        unit = precision_shown(xp, [value[every]]) or subject.numbers.precision
        for piece in slices(start, stop, piece_of(value)):
            yield unit * binades(xp, value[piece]) + subject.numbers.tiny, piece


def binades(xp: Array, value: Array) -> Array:
    """Return the powers of two that the values begin at: numbers as large are spaced by that times the precision."""
    mantissa = abs(xp.frexp(value)[0])
    return 0.5 * xp.where(mantissa > 0, abs(value) / xp.where(mantissa > 0, mantissa, 1.0), 0.0)


def on_a_grid(xp: Array, values: Array) -> bool | None:
    """Return True if the values are multiples of one number, as counts are: small ones have no digits of their own.

    Numbers that were cast to a float format have: there small values are multiples of a smaller number. None says that
    there are too few small values to tell.
    """
    every = abs(values[:: max(1, values.shape[0] // SAMPLE)])
    if bool((every == xp.round(every)).all()):
        return True
    mantissa, exponent = xp.frexp(every)
    digits = next((n for n in range(53) if bool((mantissa * 2.0**n == xp.round(mantissa * 2.0**n)).all())), 53)
    multiples = every * 2.0 ** (digits + FEW - int(exponent.max()))  # a large value may end in some zeros by chance
    if int((multiples != xp.round(multiples)).sum()) >= FEW:
        return False
    return True if int(((every > 0) & (multiples < 2.0 ** (digits - FEW))).sum()) >= MANY else None
