"""Columns of a Jacobian as a subject of their own, of which every output is one entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.sample import Sample
from gradproof.engine.results import Place
from gradproof.engine.subject import Array, Frame, Scale, Step, Subject
from gradproof.engine.thresholds import LARGE
from gradproof.engine.views import View


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest entry of a claimed Jacobian, and the largest change of an output that it predicts on a first step."""

    entry: float
    change: float


class Columns(View):
    """Some columns of a Jacobian as a subject in forward mode.

    Its inputs are the steps of the columns, its outputs are all outputs of the function along each column. Directions
    are stacked: each row moves one column.
    """

    mode, gathered = "forward", False

    def __init__(self, whole: Subject, columns: list[int], claimed: Array, first: int, largest: Largest) -> None:
        """Take the claimed columns, for the outputs from `first` on, and the largest entry of the whole Jacobian."""
        super().__init__(whole)
        self.columns, self._claimed, self._first = columns, claimed, first
        self.inputs = _Steps(whole.inputs, columns)
        self._rows = int(claimed.shape[0])
        self._centre = whole.centre[first : first + self._rows]
        self.centre = whole.arrays.concatenate([self._centre] * len(columns))
        finite = whole.scale.finite or bool(whole.arrays.isfinite(self.centre).all())
        self.scale = Scale(finite=finite, value=whole.scale.value, entry=largest.entry, change=largest.change)
        self.size = int(self.centre.shape[0])
        self.spans = [(0, self.size)]
        self._seen: dict[tuple[int, float], Array] = {}

    @property
    def outputs(self) -> Frame:
        """The view is its own frame."""
        return self

    def locate(self, coordinate: int) -> Place:
        """Return the output that an entry belongs to."""
        return self.whole.outputs.locate(self._first + coordinate % self._rows)

    def rounded(self, vector: Array) -> Array:
        """Return a vector as it is: entries of a Jacobian are held in double precision."""
        return vector

    def along(self, ladder: Ladder, number: int) -> Ladder | None:
        """Return the ladder of one column out of a ladder of all columns; None if it has only some of the outputs."""
        if ladder.subject is not self or self._rows != self.whole.outputs.size:
            return None
        alone, rows = (
            Ladder(self.whole, ladder.direction[number]),
            slice(number * self._rows, (number + 1) * self._rows),
        )
        alone.samples = [Sample(each.t, each.minus[rows], each.plus[rows]) for each in ladder.samples]
        return alone

    def column_of(self, coordinate: int) -> int:
        """Return the number of the column that an entry belongs to."""
        return coordinate // self._rows

    def direction(self, seed: int, step: Step) -> Array:
        """Draw for every column a direction that moves it alone, by its part of a random direction."""
        return directions_of(self.arrays, self.whole.direction(seed, step), [[k] for k in self.columns])

    def cotangent(self, seed: int) -> Array:
        """Draw random incoming gradients, one for every column."""
        rows = slice(self._first, self._first + self._rows)
        return self.arrays.concatenate([self.whole.cotangent(seed + k)[rows] for k in range(len(self.columns))])

    def evaluate(self, direction: Array, t: float) -> Array:
        """Return the values along each direction; a direction of zeros gives the values at the point."""
        return self.evaluate_along(direction, [t])[0]

    def evaluate_along(self, direction: Array, steps: Sequence[float]) -> list[Array]:
        """Return the values at several steps, in one batch. Values are cached, except those of a step of zero."""
        moves = direction.sum(1).tolist()  # each moves one column
        wanted = [[(number, t * move) for number, move in enumerate(moves)] for t in steps]
        moving = dict.fromkeys(step for row in wanted for step in row if moves[step[0]])
        self._evaluate_steps([step for step in moving if not step[1] or step not in self._seen], direction[0])
        return [
            self.arrays.concatenate([self._seen[step] if moves[step[0]] else self._centre for step in row])
            for row in wanted
        ]

    def _evaluate_steps(self, steps: list[tuple[int, float]], like: Array) -> None:
        """Evaluate steps of single columns, as vectors like the given one, and cache the values."""
        xp, rows = self.arrays, slice(self._first, self._first + self._rows)
        for start, stop in batches(0, len(steps), max(self.whole.inputs.size, self.whole.outputs.size)):
            few = steps[start:stop]
            directions = xp.zeros_like(xp.stack([like] * len(few)))
            lengths = xp.asarray([step for _, step in few], dtype=directions.dtype, device=directions.device)
            directions[list(range(len(few))), [self.columns[number] for number, _ in few]] = lengths
            values = self.whole.evaluate_many(directions, 1.0)
            self._seen.update(zip(few, values[:, rows], strict=True))

    def pushforward(self, direction: Array, at: Array | None = None) -> Array:
        """Return the claimed slopes along each direction; a direction of zeros has slopes of zero."""
        del at  # claims are known at the point only
        steps = direction.sum(1)[:, None]  # each moves one column
        return self.arrays.where(steps == 0, 0.0, self._claimed.T * steps).reshape(-1)

    def whole_columns(self, entries: Array) -> Array:
        """Flag all entries of the columns in which an entry is flagged."""
        chosen = entries.reshape(len(self.columns), self._rows)
        return (chosen | chosen.any(1)[:, None]).reshape(-1)

    def in_rows(self, outputs: Array) -> Array:
        """Flag all entries in the rows of the flagged outputs of the function."""
        return self.arrays.concatenate([outputs[self._first : self._first + self._rows]] * len(self.columns))


@dataclass(frozen=True, slots=True)
class _Steps:
    """The frame of a view of columns: one coordinate, the step, for each column."""

    of: Frame
    columns: list[int]

    @property
    def size(self) -> int:
        return len(self.columns)

    @property
    def spans(self) -> list[tuple[int, int]]:
        return [(0, self.size)]

    @property
    def gathered(self) -> bool:
        return self.of.gathered

    def locate(self, coordinate: int) -> Place:
        return self.of.locate(self.columns[coordinate])

    def rounded(self, vector: Array) -> Array:
        return vector


def batches(low: int, high: int, width: int) -> Iterator[tuple[int, int]]:
    """Cut a range of vectors of this width into batches that fit into memory."""
    many = max(1, 4 * LARGE // width)
    return ((start, min(start + many, high)) for start in range(low, high, many))


def directions_of(xp: Array, direction: Array, groups: list[list[int]]) -> Array:
    """Return a direction for each group of columns that moves only these, stacked."""
    block = xp.zeros_like(xp.stack([direction] * len(groups)))
    where = [number for number, group in enumerate(groups) for _ in group]
    columns = [column for group in groups for column in group]
    block[where, columns] = direction[columns]
    return block


def along(xp: Array, vector: Array, where: slice | list[int]) -> Array:
    """Return a matrix with a row for each of some coordinates of a vector: that coordinate, and zero elsewhere."""
    places = xp.arange(vector.shape[0], device=vector.device)
    return xp.where(places[where][:, None] == places, vector, 0.0)
