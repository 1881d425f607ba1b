"""One segment through the point: the change in value, the claimed change, and the errors of both.

The segment has four panels. The values at their five ends give the change in every panel, and their fourth difference
shows how rough the function is. Two Gauss nodes in each panel integrate the claim; what no cubic explains of the claims
at all eight is their scatter, by noise, kinks and truncation alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import or_

from gradproof.engine.contraction import SPREAD
from gradproof.engine.estimators.noise import QUANTUM, QUARTIC, difference, last_places, variance_of
from gradproof.engine.estimators.problem import Alignment, Chord, Problem, place_of, shortest
from gradproof.engine.pieces import columns, mapped, piece_of, slices
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CLEARLY, GROSS

PANEL_ENDS = (-1.0, -0.5, 0.0, 0.5, 1.0)  # of four panels; their five values show a fourth difference
# of Gauss's rule of two nodes in every panel, which is exact for cubic claims
NODES = tuple(middle + side * 0.25 / math.sqrt(3) for middle in (-0.75, -0.25, 0.25, 0.75) for side in (-1, 1))
ONE_JUMP = 5.0  # mean square of the fourth difference of a unit jump in one of the four panels: (1 + 9 + 9 + 1) / 4
KINK = 0.86 / ONE_JUMP  # the square of a kink's fourth difference is 0.86 of the scatter that it leaves in the claims


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
class SegmentValues:
    """The function at the panels' ends.

    `panels` are the changes of ⟨u, f⟩ in each panel, `size` is the root of the sum of squares of the outputs' changes
    over all of them, `noise` the variance of the change by rounding, `uneven` that of a value by rounding of its place,
    `rough` the variance of the change by jumps or kinks that fourth differences suggest. `ends` are the values, and
    `affected` is the cotangent without the outputs that do not move.
    """

    width: float
    chord: Chord
    ends: tuple[Array, ...]
    panels: tuple[float, ...]
    size: float
    noise: float
    uneven: float
    rough: float
    affected: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The values along a segment beside the claims at its nodes.

    `nodes` are the changes over the segment that are claimed at each node, `scatter` the variance of one of them,
    `size` the root of the sum of squares of the entries' contributions, `rounding` the standard deviation of the claim
    by rounding of the entries, and `shortest` the shortest displacement of a coordinate between the ends. `unseen` is
    what is claimed of outputs that do not move, as far as their rounding hides it. A segment that is not `beyond_doubt`
    cannot disagree.
    """

    values: SegmentValues
    nodes: tuple[float, ...]
    scatter: float
    size: float
    rounding: float
    tolerated: float
    largest_contribution: float
    largest_entry: float
    shortest: float
    unseen: float = 0.0
    beyond_doubt: bool = True

    @property
    def claimed(self) -> float:
        """The integral of the claims."""
        return math.fsum(self.nodes) / len(NODES)

    @property
    def measured(self) -> float:
        """The change in value."""
        return math.fsum(self.values.panels)

    @property
    def together(self) -> float:
        """The size of the claims that add up: what their scatter is relative to."""
        return max(self.size, abs(self.claimed))

    @property
    def smooth_part(self) -> float:
        """The part of the bar that a shorter segment makes smaller: jumps that no kink explains, and quadrature."""
        jumps = max(0.0, self.values.rough - KINK * self.scatter)
        return CLEARLY * math.sqrt(jumps + self.scatter / len(NODES))

    @property
    def rounded_part(self) -> float:
        """The part of the bar that a shorter segment does not make smaller."""
        return CLEARLY * math.sqrt(self.values.noise + self.rounding**2)

    @property
    def bar(self) -> float:
        """The largest difference of claimed and measured change that noise and rounding explain."""
        return math.hypot(self.smooth_part, self.rounded_part) + self.unseen

    @property
    def residual(self) -> float:
        """The difference of claimed and measured change."""
        return abs(self.measured - self.claimed)

    @property
    def excess(self) -> float:
        """The same in bars."""
        allowed = self.bar + self.tolerated
        return self.residual / allowed if allowed else math.inf * (self.residual > 0)

    @property
    def parts(self) -> list[float]:
        """The residuals of the panels."""
        claims = [first + second for first, second in zip(self.nodes[::2], self.nodes[1::2], strict=True)]
        return [change - claim / len(NODES) for change, claim in zip(self.values.panels, claims, strict=True)]

    @property
    def unsteadiness(self) -> float:
        """The variance of the residual, were each panel's drawn at random about a trend; noise is taken off.

        Of the residuals of four panels the quadratic and the cubic part are left, orthonormal. For a unit of noise in
        every value they have variances of 5/2 and 7/2.
        """
        first, second, third, fourth = self.parts
        square = ((first - second - third + fourth) / 2) ** 2 + (fourth - 3 * third + 3 * second - first) ** 2 / 20
        return 4 * (square / 2 - 3 * (self.values.noise / 2 + self.values.uneven))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsmooth:
    """The part of a bar that truncation and roughness make, relative to claims that add up and to others.

    The first is a share of the sum, the second one of the root of the sum of squares.
    """

    together: float = 0.0
    apart: float = 0.0

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Unsmooth:
        """Return the largest shares on some segments; where they are all of one kind, it stands for both."""
        shares: dict[bool, float] = {}
        for each in segments:
            share = each.smooth_part / (each.together or 1.0)
            adds_up = abs(each.claimed) > CLEARLY * each.size
            shares[adds_up] = max(share, shares.get(adds_up, 0.0))
        largest = max(shares.values())
        return cls(together=shares.get(True, largest), apart=shares.get(False, largest))

    def part(self, size: float, claimed: float) -> float:
        """Return the part of a bar, for the root of the sum of squares of contributions and for their sum."""
        return math.hypot(self.apart * size, self.together * claimed)


SMOOTH = Unsmooth()


def values_along(
    problem: Problem, seed: int, width: float, alignment: Alignment = Alignment.RANDOM
) -> SegmentValues | None:
    """Evaluate the function along a random segment of this half-width; None where it is undefined."""
    subject = problem.subject
    chord = Chord.drawn(problem, seed, width).aligned(alignment, problem.moving)
    cotangent, ends = chord.cotangent, tuple(map(chord.value, PANEL_ENDS))
    if not all(bool(subject.arrays.isfinite(value).all()) for value in ends):
        return None
    square, fourths, *panels = _sums(subject.arrays, cotangent, ends)
    affected = affected_by(subject, ends, cotangent) if problem.moving is not None else cotangent
    noise = variance_of(problem, ends[0], affected) + variance_of(problem, ends[-1], affected)
    uneven = unevenness(chord) * square
    jumps = fourths - 70 * (noise / 2 + uneven)
    return SegmentValues(
        width=width,
        chord=chord,
        ends=ends,
        panels=tuple(panels),
        size=math.sqrt(square),
        noise=noise,
        uneven=uneven,
        rough=max(0.0, jumps) / ONE_JUMP,
        affected=affected,
    )


def _sums(xp: Array, cotangent: Array, ends: Sequence[Array]) -> list[float]:
    """Return the sums of squares of the outputs' changes and of their fourth differences, and the panels' changes."""
    rows = []
    for piece in slices(0, cotangent.shape[0], piece_of(cotangent)):
        weights, values = cotangent[piece], [end[piece] for end in ends]
        change, fourth = weights * (values[-1] - values[0]), weights * difference(values, QUARTIC)
        panels = (weights @ (after - before) for before, after in pairwise(values))
        rows.append((change @ change, fourth @ fourth, *panels))
    return [math.fsum(column) for column in columns(xp, rows)]


def affected_by(subject: Subject, ends: tuple[Array, ...], cotangent: Array) -> Array:
    """Set a cotangent to zero for the outputs that the moved coordinates do not influence.

    Such outputs are constant. An output that changes by less than a rounding looks constant too; so nothing is left
    out where many outputs change by a rounding or two, or where none changes. What is claimed of single ones is looked
    at where a segment disagrees (`hidden_by_rounding`).
    """
    xp, change = subject.arrays, abs(ends[-1] - ends[0])
    moved = reduce(or_, (end != ends[0] for end in ends[1:]))
    if bool(moved.all()):
        return cotangent
    slightly = moved & (change <= 2 * last_places(subject, ends[2]) / QUANTUM)
    if CLEARLY * float(slightly.sum()) >= float(moved.sum()):
        return cotangent
    return xp.where(moved, cotangent, 0.0)


def hidden_by_rounding(problem: Problem, chord: Chord, affected: Array, value: Array) -> float:
    """Return the change that is claimed of the outputs that are not affected, or less if their rounding hides less."""
    hidden = chord.subject.arrays.where(affected == 0, chord.cotangent, 0.0)
    if not bool((hidden != 0).any()):
        return 0.0
    claimed = float(chord.with_cotangent(hidden).claimed_parts(0.0, chord.across).sum())
    return min(abs(claimed), CLEARLY * math.sqrt(2 * variance_of(problem, value, hidden)))


def claims_along(problem: Problem, values: SegmentValues) -> Segment | None:
    """Compute the claims at the nodes of a segment; return None where one, or its square, is not finite."""
    subject, chord = problem.subject, values.chord
    across = chord.across
    claims = [chord.claimed_parts(t, across) for t in NODES]
    nodes = tuple(float(parts.sum()) for parts in claims)
    size = math.sqrt(sum(float(parts @ parts) for parts in claims) / len(claims))  # fsum raises where it overflows
    if not all(map(math.isfinite, nodes)) or not math.isfinite(GROSS * size * size):
        return None
    coefficients = [math.fsum(map(float.__mul__, polynomial, nodes)) for polynomial in UNEXPLAINED]
    contributions = mapped(subject.arrays, lambda *parts: abs(sum(parts) / len(parts)), *claims)
    claimed = abs(math.fsum(nodes)) / len(nodes)
    together = claimed / (float(contributions.sum()) or 1.0)  # one, where all contributions have one sign
    bias = problem.bias * claimed / CLEARLY
    least, weights = shortest(subject, across), abs(across if subject.mode == "reverse" else chord.cotangent)
    entries = mapped(subject.arrays, lambda c, w: c / subject.arrays.where(w > 0, w, math.inf), contributions, weights)
    segment = Segment(
        values=values,
        nodes=nodes,
        scatter=math.fsum(coefficient**2 for coefficient in coefficients) / len(coefficients),
        size=size,
        rounding=math.hypot(problem.claim_noise * size, bias),
        tolerated=problem.rtol * max(SPREAD * size, claimed)
        + problem.atol * max(SPREAD * math.sqrt(float(across @ across)), together * float(abs(across).sum())),
        largest_contribution=float(contributions.max()),
        largest_entry=float(entries.max()) / (1.0 if subject.mode == "reverse" else least),
        shortest=least,
    )
    if segment.excess <= 1:
        return segment
    return replace(segment, unseen=hidden_by_rounding(problem, chord, values.affected, values.ends[2]))


def unevenness(chord: Chord) -> float:
    """Return the variance of a value by rounding of the panels' ends, relative to the square of the change."""
    first, last = chord.ends
    inner = (place_of(chord.subject, t * chord.step) for t in PANEL_ENDS[1:-1])
    places, squares = (first, *inner, last), []
    for piece in slices(0, first.shape[0], piece_of(first)):
        middle, across = (first[piece] + last[piece]) / 2, chord.across[piece]
        off = [place[piece] - middle - t / 2 * across for place, t in zip(places, PANEL_ENDS, strict=True)]
        squares.append(
            (across @ across, *(weight**2 * (each @ each) for weight, each in zip(QUARTIC, off, strict=True)))
        )
    length, *rest = map(math.fsum, columns(chord.subject.arrays, squares))
    return math.fsum(rest) / (70 * length) if length else 0.0
