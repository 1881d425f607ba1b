"""The segment test of every group of coordinates at once, along one segment.

The groups are separate (see `groups`), so that each has a change in value and a claimed change of its own. The bar of a
group is made as that of a whole segment. Its variances are estimates from a few numbers: a group's are never less than
its share of those of all groups together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gradproof.engine.estimators.groups import Groups
from gradproof.engine.estimators.noise import QUARTIC, difference, last_places
from gradproof.engine.estimators.panels import KINK, NODES, ONE_JUMP, PANEL_ENDS, UNEXPLAINED, unevenness
from gradproof.engine.estimators.problem import Alignment, Chord, Problem, shortest
from gradproof.engine.results import least_error
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY, MARGIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Residuals:
    """What every group's claimed change is off by, its bar, and the shortest displacement of a coordinate.

    `like` is a vector of the inputs.
    """

    groups: Groups
    like: Array
    residual: Array
    bar: Array
    shortest: float

    @property
    def excess(self) -> Array:
        """The residuals in bars; of a group without a bar, which no error could move, zero."""
        return abs(self.residual) * (self.bar > 0) / (self.bar + (self.bar == 0))

    def worst(self, most: int) -> Iterator[Array]:
        """Yield one for the coordinates of every group outside its bar, at most so many, worst first."""
        excess = 1.0 * self.excess
        for _ in range(most):
            number = int(excess.argmax())
            if not excess[number] > 1:
                return
            alone = 0 * excess
            alone[number], excess[number] = 1.0, 0.0
            yield self.groups.inputs.spread(self.like, alone)

    @property
    def outside(self) -> Array:
        """One for the coordinates of all groups outside their bars."""
        return self.groups.inputs.spread(self.like, 1.0 * (self.excess > 1))

    @property
    def error_needed(self) -> float:
        """The error in one entry that would have been clearly outside in any group."""
        return float(least_error(MARGIN * self.bar, abs(self.residual), self.shortest).max())


def residuals_along(
    problem: Problem, groups: Groups, seed: int, width: float, alignment: Alignment
) -> Residuals | None:
    """Hold every group's claimed change against its change in value; None where either is not finite."""
    subject, xp = problem.subject, problem.subject.arrays
    inside = 1.0 * (groups.inputs.spread(xp.zeros_like(subject.point), 1.0 + 0 * groups.separate) > 0)
    chord = Chord.drawn(replace(problem, moving=inside), seed, width)
    weights = chord.cotangent * groups.outputs.spread(problem.scatter, groups.separate)
    chord = replace(chord, cotangent=weights).aligned(alignment)
    cotangent, ends = chord.cotangent, [chord.value(t) for t in PANEL_ENDS]
    sums = groups.outputs.sums
    measured = sums(cotangent * (ends[-1] - ends[0]))
    size = sums((cotangent * (ends[-1] - ends[0])) ** 2)
    last = [sums((cotangent * last_places(subject, end)) ** 2) for end in (ends[0], ends[-1])]
    scatter = sums(problem.scatter * cotangent**2)
    noise = sum(xp.maximum(_shared(xp, scatter, each), each) for each in last)
    rounded = 70 * (noise / 2 + unevenness(chord) * size)
    rough = xp.maximum(sums((cotangent * difference(ends, QUARTIC)) ** 2) - rounded, 0 * size) / ONE_JUMP
    del ends
    across = chord.across
    over = (groups.outputs if subject.mode == "forward" else groups.inputs).sums
    claimed, squares, unexplained = 0 * size, 0 * size, [0 * size for _ in UNEXPLAINED]
    for number, t in enumerate(NODES):
        parts = chord.claimed_parts(t, across)
        node = over(parts)
        claimed, squares = claimed + node / len(NODES), squares + over(parts * parts) / len(NODES)
        unexplained = [sum_ + row[number] * node for sum_, row in zip(unexplained, UNEXPLAINED, strict=True)]
    if not bool(xp.isfinite(claimed + measured).all()):
        return None
    scattered = _shared(xp, sum(each**2 for each in unexplained) / len(UNEXPLAINED), squares)
    jumps = xp.maximum(_shared(xp, rough, size) - KINK * scattered, 0 * size)
    rounding = problem.claim_noise**2 * squares + (problem.bias * claimed / CLEARLY) ** 2
    chance = math.hypot(CLEARLY, math.sqrt(2 * math.log(groups.inputs.count)))  # the largest of so many deviates
    bar = chance * (jumps + scattered / len(NODES) + noise + rounding) ** 0.5
    return Residuals(
        groups=groups,
        like=across,
        residual=measured - claimed,
        bar=bar,
        shortest=shortest(subject, across),
    )


def _shared(xp: Array, variances: Array, squares: Array) -> Array:
    """Return variances that are at least the share of all of them together that the groups' squares have."""
    total = float(squares.sum())
    return xp.maximum(variances, float(variances.sum()) / total * squares) if total else variances
