"""A few inputs of very many, each moved by itself: what is right of a long answer there, whatever is asked.

The answer to a question u at input j is ⟨u, ∂f/∂xⱼ⟩. So one column of the Jacobian, from two evaluations, gives it for
every question; and of a column only the outputs that move are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradproof.engine.contraction import SPREAD
from gradproof.engine.diagnosis.bench import BUDGET, Bench
from gradproof.engine.diagnosis.parts import Part, spread
from gradproof.engine.localisation.partial_slopes import Piece
from gradproof.engine.subject import Array


@dataclass(frozen=True, slots=True)
class Column:
    """The outputs that one input moves, their slopes along it, and the bars of these."""

    outputs: Array
    slopes: Array
    bars: Array

    def answer(self, question: Array) -> tuple[float, float]:
        """What is right for a question, and its bar; that is infinite where nothing is known."""
        asked = question[self.outputs]
        bar = abs(asked) * self.bars
        return float(asked @ self.slopes), SPREAD * float(bar @ bar) ** 0.5


def chosen(xp: Array, part: Part, unclaimed: Array, worst: Sequence[int]) -> list[int]:
    """The inputs to look at, counted from the part's first: as many as half of the budget allows, or all.

    A third of them are known to be wrong, and a third claimed to have no influence, if some are and others are not.
    """
    count = BUDGET // 4
    if part.size <= count:
        return list(range(part.size))
    third = count // 3
    places = [coordinate - part.start for coordinate in worst[:third]]
    if 0 < int(unclaimed.sum()) < part.size:
        for group, number in ((unclaimed, third), (~unclaimed, count)):
            members = xp.where(group)[0]
            places += [int(members[k]) for k in spread(int(members.shape[0]), number)]
    places += spread(part.size, count)
    return list(dict.fromkeys(places))[:count]


def columns(bench: Bench, part: Part, places: Sequence[int]) -> list[Column]:
    """The columns of some inputs, from two evaluations each."""
    xp, direction = bench.xp, bench.direction(0)
    coordinates = [part.start + place for place in places]
    for coordinate in coordinates:
        if not bool(direction[coordinate] != 0):
            direction[coordinate] = bench.step
    piece, found = Piece(bench.subject, direction), []
    for coordinate in coordinates:
        slopes, bars = bench.quick_slopes(piece.of(slice(coordinate, coordinate + 1)))
        step = float(direction[coordinate])
        moving = xp.where((slopes != 0) | ~xp.isfinite(bars))[0]
        found.append(Column(moving, slopes[moving] / step, bars[moving] / abs(step)))
    return found
