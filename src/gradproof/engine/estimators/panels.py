"""One segment through the point: the change in value, the claimed change, and the errors of both.

The segment has four panels. The values at their five ends give the change in every panel, and their fourth difference
shows how rough the function is. Two Gauss nodes in each panel integrate the claim; what no cubic explains of the claims
at all eight is their scatter, by noise, kinks and truncation alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gradproof.engine.slopes import precision_shown
from gradproof.engine.subject import Array, Subject
from gradproof.engine.weighing import CLAIM_ACCURACY, SPREAD, restricted

DEVIATIONS = 4.0  # standard deviations of all errors together in a bar: one alarm in 16,000 if they were Gaussian
QUANTUM = 12**-0.5  # standard deviation of a rounding error, in units in the last place
TINY = (
    4.0  # units in the last place, of a number of the point's scale, between the points that show the noise of values
)
SAMPLE = 1 << 12  # outputs that stand for all when a cast is looked for

PANEL_ENDS = (-1.0, -0.5, 0.0, 0.5, 1.0)
NODES = tuple(middle + side * 0.25 / math.sqrt(3) for middle in (-0.75, -0.25, 0.25, 0.75) for side in (-1, 1))
CUBIC, QUARTIC = (-1.0, 2.0, 0.0, -2.0, 1.0), (1.0, -4.0, 6.0, -4.0, 1.0)  # differences; squares add up to 10 and 70
ONE_JUMP = 5.0  # mean square of the fourth difference of a unit jump in one of the four panels: (1 + 9 + 9 + 1) / 4
KINK = (
    0.86 / ONE_JUMP
)  # a kink anywhere leaves 0.86 of the scatter of the claims in the square of the fourth difference


def _orthonormal(nodes: Sequence[float]) -> list[list[float]]:
    """Return the polynomials of degree 0, 1, 2, … at the nodes, orthonormal under the plain sum over the nodes."""
    basis: list[list[float]] = []
    for degree in range(len(nodes)):
        vector = [node**degree for node in nodes]
        for other in basis * 2:  # twice is enough (Kahan)
            along = math.fsum(map(float.__mul__, vector, other))
            vector = [mine - along * its for mine, its in zip(vector, other, strict=True)]
        length = math.sqrt(math.fsum(entry**2 for entry in vector))
        basis.append([entry / length for entry in vector])
    return basis


# Degrees four to seven. The composite rule and the interpolatory rule on all eight nodes differ by 0.002 of the fourth
# coefficient and 0.06 of the sixth, far less than the scatter, which is made of them, adds to the bar.
UNEXPLAINED = _orthonormal(NODES)[4:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A function, the coordinates that move, the tolerated errors, and the variance of the noise of every value."""

    subject: Subject
    low: int
    high: int
    rtol: float
    atol: float
    scatter: Array = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """The function at the panels' ends.

    `panels` are the changes of ⟨u, f⟩ in each panel, `size` is the root of the sum of squares of the outputs' changes
    over all of them, `noise` the variance of the change by rounding, `rough` the variance by jumps or kinks that their
    fourth differences suggest. `ends` are the values themselves.
    """

    width: float
    step: Array
    cotangent: Array
    ends: tuple[Array, ...]
    panels: tuple[float, ...]
    size: float
    noise: float
    rough: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The values along a segment beside the claims at its nodes.

    `nodes` are the changes over the segment that are claimed at each node, `scatter` the variance of one of them,
    `size` the root of the sum of squares of the entries' contributions, `rounding` the standard deviation of the claim
    by rounding of the entries, and `shortest` the shortest displacement of a coordinate between the ends.
    """

    values: Values
    nodes: tuple[float, ...]
    scatter: float
    size: float
    rounding: float
    tolerated: float
    largest_contribution: float
    largest_entry: float
    shortest: float

    @property
    def claimed(self) -> float:
        """The integral of the claims."""
        return math.fsum(self.nodes) / len(NODES)

    @property
    def measured(self) -> float:
        """The change in value."""
        return math.fsum(self.values.panels)

    @property
    def smooth_part(self) -> float:
        """The part of the bar that a shorter segment makes smaller: jumps that no kink explains, and quadrature."""
        jumps = max(0.0, self.values.rough - KINK * self.scatter)
        return DEVIATIONS * math.sqrt(jumps + self.scatter / len(NODES))

    @property
    def rounded_part(self) -> float:
        """The part of the bar that a shorter segment does not make smaller."""
        return DEVIATIONS * math.sqrt(self.values.noise + self.rounding**2)

    @property
    def bar(self) -> float:
        """How far measuring and rounding may set the claimed and the measured change apart."""
        return math.hypot(self.smooth_part, self.rounded_part)

    @property
    def residual(self) -> float:
        """How far they lie apart."""
        return abs(self.measured - self.claimed)

    @property
    def excess(self) -> float:
        """The same in bars."""
        allowed = self.bar + self.tolerated
        return self.residual / allowed if allowed else math.inf * (self.residual > 0)

    @property
    def parts(self) -> list[float]:
        """The residual of each panel."""
        claims = [first + second for first, second in zip(self.nodes[::2], self.nodes[1::2], strict=True)]
        return [change - claim / len(NODES) for change, claim in zip(self.values.panels, claims, strict=True)]


def values_along(question: Question, seed: int, width: float) -> Values | None:
    """Evaluate the function along a random segment of this half-width; None where it is undefined."""
    subject = question.subject
    step, cotangent = _direction(question, seed, width), _cotangent(subject, seed)
    ends = tuple(value_at(subject, cotangent, t * step) for t in PANEL_ENDS)
    if not all(bool(subject.arrays.isfinite(value).all()) for value in ends):
        return None
    fourth, change = cotangent * _difference(ends, QUARTIC), cotangent * (ends[-1] - ends[0])
    square = float(change @ change)
    noise = _variance(question, ends[0], cotangent) + _variance(question, ends[-1], cotangent)
    jumps = float(fourth @ fourth) - 70 * noise / 2 - _unevenness(subject, step) * square
    return Values(
        width=width,
        step=step,
        cotangent=cotangent,
        ends=ends,
        panels=tuple(float(cotangent @ (after - before)) for before, after in pairwise(ends)),
        size=math.sqrt(square),
        noise=noise,
        rough=max(0.0, jumps) / ONE_JUMP,
    )


def claims_along(question: Question, values: Values) -> Segment | None:
    """Ask for the claims at the nodes of a segment; None where one is not finite."""
    subject = question.subject
    across = place_of(subject, values.step) - place_of(subject, -values.step)
    claims = [claim_at(subject, values.cotangent, t * values.step, across) for t in NODES]
    nodes = tuple(claim.change for claim in claims)
    if not all(map(math.isfinite, nodes)):
        return None
    size = math.sqrt(math.fsum(claim.square for claim in claims) / len(claims))
    coefficients = [math.fsum(map(float.__mul__, polynomial, nodes)) for polynomial in UNEXPLAINED]
    return Segment(
        values=values,
        nodes=nodes,
        scatter=math.fsum(coefficient**2 for coefficient in coefficients) / len(coefficients),
        size=size,
        rounding=(QUANTUM * subject.gradient_precision + CLAIM_ACCURACY) * size,
        tolerated=SPREAD * (question.rtol * size + question.atol * math.sqrt(float(across @ across))),
        largest_contribution=max(claim.largest_contribution for claim in claims),
        largest_entry=max(claim.largest_entry for claim in claims),
        shortest=_shortest(subject, across),
    )


def scatter_nearby(question: Question, seed: int) -> Array:
    """Estimate the variance of the noise of every value, from values a few units in the last place from the point.

    Of five equispaced values the cubic and the quartic differences are noise: the function itself is quadratic there.
    """
    subject = question.subject
    step, cotangent = _direction(question, seed, TINY * subject.precision), _cotangent(subject, seed)
    values = [value_at(subject, cotangent, 2 * t * step) for t in PANEL_ENDS]
    scatter = (_difference(values, CUBIC) ** 2 / 10 + _difference(values, QUARTIC) ** 2 / 70) / 2
    return subject.arrays.where(subject.arrays.isfinite(scatter), scatter, 0.0)


def deviations(question: Question, value: Array) -> Array:
    """Return the standard deviation of the rounding of every output: in its last place, or as its scatter shows."""
    rounding = QUANTUM * _spacing(question.subject, value)
    return question.subject.arrays.maximum(rounding, question.scatter**0.5)


def _variance(question: Question, value: Array, cotangent: Array) -> float:
    """Return the variance of ⟨u, f⟩ by the last places of the values, or by their scatter where that is more."""
    rounding, squares = QUANTUM * _spacing(question.subject, value), cotangent**2
    return max(float(rounding**2 @ squares), float(question.scatter @ squares))


def _spacing(subject: Subject, value: Array) -> Array:
    """Return the unit in the last place of every output, in the precision that the values of its tensor show."""
    xp = subject.arrays
    mantissa = abs(xp.frexp(value)[0])
    binade = 0.5 * xp.where(mantissa > 0, abs(value) / xp.where(mantissa > 0, mantissa, 1.0), 0.0)
    spacing = xp.zeros_like(value)
    for start, stop in subject.outputs.spans:
        every = slice(start, stop, max(1, (stop - start) // SAMPLE))
        unit = precision_shown(xp, [value[every]]) or subject.precision
        spacing[start:stop] = unit * binade[start:stop] + subject.tiny
    return spacing


def _unevenness(subject: Subject, step: Array) -> float:
    """Return the square that rounding of the panels' ends leaves in a fourth difference, relative to the change's."""
    places = [place_of(subject, t * step) for t in PANEL_ENDS]
    middle, across = (places[0] + places[-1]) / 2, places[-1] - places[0]
    off = [place - middle - t / 2 * across for place, t in zip(places, PANEL_ENDS, strict=True)]
    squares = [weight**2 * float(each @ each) for weight, each in zip(QUARTIC, off, strict=True)]
    length = float(across @ across)
    return math.fsum(squares) / length if length else 0.0


def _difference(values: Sequence[Array], weights: Sequence[float]) -> Array:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _shortest(subject: Subject, across: Array) -> float:
    distance = abs(across)
    return float(subject.arrays.where(distance > 0, distance, math.inf).min())


# What is asked of a subject, all of it below.


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The change along a displacement that is claimed at one place: the sum, its squared parts, the largest parts."""

    change: float
    square: float
    largest_contribution: float
    largest_entry: float


def _direction(question: Question, seed: int, width: float) -> Array:
    return restricted(question.subject, question.subject.direction(seed, width, False), question.low, question.high)


def _cotangent(subject: Subject, seed: int) -> Array:
    """Draw a cotangent; in reverse mode one that the outputs' precision holds, since the pullback rounds it."""
    cotangent = subject.cotangent(seed)
    return cotangent if subject.mode == "forward" else subject.rounded(cotangent)


def place_of(subject: Subject, step: Array) -> Array:
    """Return the displacement at which the function is evaluated if `step` is asked for, rounded as both are."""
    asked, point = subject.rounded_direction(step), subject.point
    return subject.arrays.where(asked == 0, 0.0, subject.rounded_direction(point + asked) - point)


def value_at(subject: Subject, cotangent: Array, step: Array) -> Array:
    """Evaluate at the point plus `step`; zero for the outputs that have no weight."""
    value = subject.evaluate(subject.rounded_direction(step), 1.0) if bool((step != 0).any()) else subject.centre
    return subject.arrays.where(cotangent == 0, 0.0, value)


def claim_at(subject: Subject, cotangent: Array, step: Array, across: Array) -> Claim:
    """Ask at the point plus `step` for the change along `across`."""
    place, per_entry = subject.rounded_direction(step), 1.0
    if subject.mode == "forward":
        claimed, weights = subject.pushforward_at(place, subject.rounded_direction(across)), cotangent
        per_entry = 1 / _shortest(subject, across)
    else:
        claimed, weights = subject.pullback_at(place, cotangent), across
    claimed = subject.arrays.where(weights == 0, 0.0, claimed)
    parts = weights * claimed
    return Claim(
        change=float(parts.sum()),
        square=float(parts @ parts),
        largest_contribution=float(abs(parts).max()),
        largest_entry=float(abs(claimed).max()) * per_entry,
    )
