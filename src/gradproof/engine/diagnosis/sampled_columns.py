"""A few columns of a large Jacobian, from which a long gradient is known in a few coordinates for every operand.

The gradient for an operand u at input j is ⟨u, ∂f/∂xⱼ⟩. A column ∂f/∂xⱼ takes two evaluations and serves all operands.
Only its nonzero entries are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradproof.engine.contraction import SPREAD
from gradproof.engine.diagnosis.measurements import BUDGET, Measurements
from gradproof.engine.localisation.partial_slopes import Piece
from gradproof.engine.parts import Part, quasirandom_indices
from gradproof.engine.subject import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The nonzero entries of one column: the outputs they belong to, their slopes, and the bars of the slopes."""

    outputs: Array
    slopes: Array
    bars: Array

    def product(self, operand: Array) -> tuple[float, float]:
        """Return the inner product with an operand and its bar, which is infinite if an entry is unknown."""
        operand_part = operand[self.outputs]
        bar = abs(operand_part) * self.bars
        return float(operand_part @ self.slopes), SPREAD * float(bar @ bar) ** 0.5


def chosen(xp: Array, part: Part, claimed_zero: Array, worst: Sequence[int]) -> list[int]:
    """Choose inputs to sample, counted from the part's first: as many as half of the budget allows, or all.

    A third of them are known to be wrong. If some inputs are claimed to have no influence, a third are such inputs.
    """
    count = BUDGET // 4
    if part.size <= count:
        return list(range(part.size))
    third = count // 3
    places = [coordinate - part.start for coordinate in worst[:third]]
    if 0 < int(claimed_zero.sum()) < part.size:
        for group, number in ((claimed_zero, third), (~claimed_zero, count)):
            members = xp.where(group)[0]
            places += [int(members[k]) for k in quasirandom_indices(int(members.shape[0]), number)]
    places += quasirandom_indices(part.size, count)
    return list(dict.fromkeys(places))[:count]


def columns(measurements: Measurements, part: Part, places: Sequence[int]) -> list[Column]:
    """Measure the columns of some inputs, with two evaluations each."""
    direction = measurements.direction(0)
    coordinates = [part.start + place for place in places]
    for coordinate in coordinates:
        if not bool(direction[coordinate] != 0):
            direction[coordinate] = measurements.step
    piece, found = Piece(measurements.subject, direction), []
    for coordinate in coordinates:
        moving, slopes, bars = measurements.quick_column(piece.of(slice(coordinate, coordinate + 1)))
        step = float(direction[coordinate])
        found.append(Column(outputs=moving, slopes=slopes / step, bars=bars / abs(step)))
    return found
