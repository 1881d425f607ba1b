"""A few inputs of very many, each moved by itself: what is right of a long answer there, whatever is asked.

The answer to a question u at input j is ⟨u, ∂f/∂xⱼ⟩. So one column of the Jacobian, from two evaluations, gives it for
every question; and of a column only the outputs that move are held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradproof.engine.contraction import SPREAD
from gradproof.engine.diagnosis.bench import Bench
from gradproof.engine.diagnosis.parts import Part
from gradproof.engine.localisation.partial_slopes import Piece
from gradproof.engine.subject import Array

SAMPLE = 6  # inputs: 12 evaluations of the budget of a diagnosis
WRONG = 2  # of them known to be wrong
ZERO = 2  # and claimed to have no influence, if some inputs are and others are not
GOLDEN = 0.6180339887  # fractions of a range at multiples of it, modulo one, are spread evenly


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


def chosen(xp: Array, part: Part, claims: Sequence[Array], worst: Sequence[int]) -> list[int]:
    """The inputs to look at, counted from the part's first: some known to be wrong, some claimed idle, and others."""
    zero = claims[0] == 0
    for claim in claims[1:]:
        zero = zero & (claim == 0)
    idle = int(zero.sum())
    places = [coordinate - part.start for coordinate in worst[:WRONG]]
    if 0 < idle < part.size:
        places += _spread(xp.where(zero)[0], ZERO)
        places += _spread(xp.where(~zero)[0], SAMPLE)
    else:
        places += [int(GOLDEN * k % 1 * part.size) for k in range(1, SAMPLE + 1)]
    return list(dict.fromkeys(places))[:SAMPLE]


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


def _spread(places: Array, count: int) -> list[int]:
    """Some of the places, evenly spread."""
    size = int(places.shape[0])
    return [int(places[int(GOLDEN * k % 1 * size)]) for k in range(1, count + 1)]
