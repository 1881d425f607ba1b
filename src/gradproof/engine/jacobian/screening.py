"""Screening of a block of the claimed Jacobian: which columns differ from the values, in groups and by themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradproof.engine.jacobian.coloring import coloring
from gradproof.engine.jacobian.columns import along, batches, directions_of
from gradproof.engine.jacobian.row_block import FINE_STEPS, Discrepancy, RowBlock
from gradproof.engine.options import Probing
from gradproof.engine.results import Resolution
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import FEW, HANDFUL, MARGIN

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Screened:
    """The result of screening a block of rows.

    `suspects` are the columns to examine, worst first. `doubts` has their discrepancies, except for columns whose
    claims are not finite or that noise hides. `resolution` is that of all other columns, `largest` the largest claim.
    """

    block: RowBlock
    suspects: list[int]
    doubts: dict[int, Discrepancy]
    resolution: Resolution
    largest: float


class Screening:
    """One step to either side of the point, along groups of columns and along single ones."""

    def __init__(self, subject: Subject, seed: int, options: Probing, progress: Progress) -> None:
        self.subject, self.seed, self.options, self.progress = subject, seed, options, progress
        self.direction = self._direction(1.0)
        self.steps = subject.arrays.where(self.direction == 0, math.inf, abs(self.direction))
        self.rows, self.columns = subject.outputs.size, subject.inputs.size

    def screened(self, claimed: Array, first: int) -> Screened:
        """Compare a block of claimed rows, which begins with a given output, with one step along every column."""
        xp = self.subject.arrays
        unknown: list[int] = []
        largest = _largest(claimed)
        if not math.isfinite(largest):
            known = xp.isfinite(claimed)
            unknown = xp.where(~known.all(0))[0].tolist()
            claimed = xp.where(known, claimed, 0.0)
            largest = _largest(claimed)
        block = RowBlock(self.subject, self.options, first, int(claimed.shape[0]))
        hidden: list[int] = []
        if (groups := coloring(xp, claimed, self.direction)) is not None:
            doubts = self._in_groups(claimed, groups, block)
        elif self.columns > FEW and (hidden := block.hidden_columns(claimed, self.direction)):
            doubts = self.alone(claimed, sorted(set(range(self.columns)) - set(hidden)), block)
        else:
            doubts = self.alone(claimed, range(self.columns), block)
        if doubts:
            doubts = self._without_false_alarms(claimed, doubts, block)
        worst_first = sorted(doubts, key=lambda column: -doubts[column].excess)
        suspects = list(dict.fromkeys([*unknown, *worst_first, *hidden]))
        for column in unknown:
            doubts.pop(column, None)
        if not bool((self.direction != 0).any()):
            block.resolution = math.inf  # nothing was moved, as where all inputs are infinite
        return Screened(block, suspects, doubts, Resolution.of(block.resolution, largest), largest)

    def _in_groups(self, claimed: Array, groups: list[list[int]], block: RowBlock) -> dict[int, Discrepancy]:
        """Return the columns with discrepancies, moved in groups; the columns of few groups again by themselves."""
        xp, count = self.subject.arrays, len(groups)
        alone: dict[int, Discrepancy] = {}
        together: dict[int, Discrepancy] = {}
        for start, stop in batches(0, count, 2 * max(self.rows, self.columns)):  # to either side
            directions = directions_of(xp, self.direction, groups[start:stop])
            steps = xp.stack([self.steps[group].min() for group in groups[start:stop]])
            for off in block.compare(directions, steps[:, None], directions @ claimed.T):
                group = groups[start + off.number]
                if len(group) == 1:
                    alone[group[0]] = off
                else:
                    together |= dict.fromkeys(self._involved(claimed, group, off, block), off._replace(alone=False))
            self.progress(count + stop, 2 * count)
        if 0 < len(together) <= HANDFUL:
            together = self.alone(claimed, list(together), block)
        return alone | together

    def alone(self, claimed: Array, columns: Sequence[int], block: RowBlock) -> dict[int, Discrepancy]:
        """Return the discrepancies of some columns, each moved by itself, since in a group another may cause them."""
        return self._screen(claimed, columns, block)

    def _without_false_alarms(
        self, claimed: Array, doubts: dict[int, Discrepancy], block: RowBlock
    ) -> dict[int, Discrepancy]:
        """Return the discrepancies without the small ones that two far finer steps do not show.

        The resolution of the block becomes that of the errors removed: a true error of that size may have been missed.
        """
        slightly = [column for column, off in doubts.items() if off.slight]
        if not 0 < len(slightly) <= HANDFUL or self.options.step is not None:
            return doubts
        wrong = {column for t in FINE_STEPS for column in self._screen(claimed, slightly, block, t)}
        right = [doubts[column] for column in slightly if column not in wrong]
        block.resolution = max([block.resolution, *(MARGIN * off.error for off in right)])
        return {column: off for column, off in doubts.items() if not off.slight or column in wrong}

    def _screen(
        self, claimed: Array, columns: Sequence[int], block: RowBlock, t: float = 1.0
    ) -> dict[int, Discrepancy]:
        """Return the discrepancies of some columns, each moved by itself by `t` times its first step."""
        found, count, direction = {}, len(columns), self.direction if t == 1 else self._direction(t)
        for start, stop in batches(0, count, 2 * max(self.rows, self.columns)):  # to either side
            few = columns[start:stop]
            where = slice(few.start, few.stop) if isinstance(few, range) else list(few)
            moves = direction[where]
            steps = self.subject.arrays.where(moves == 0, math.inf, abs(moves))
            predicted = (claimed[:, where] * moves).T
            for off in block.compare(
                along(self.subject.arrays, direction, where), steps[:, None], predicted, on_fine_steps=t < 1
            ):
                found[few[off.number]] = off
            self.progress(count + stop, 2 * count)
        return found

    def _involved(self, claimed: Array, group: list[int], off: Discrepancy, block: RowBlock) -> list[int]:
        """Return the columns of a group that may cause a discrepancy.

        These are the columns with claimed entries in the rows that differ, if without the others they change these rows
        as the group does. If not, a column with a wrongly claimed zero changes them, and that may be any of the group.
        """
        entries = (claimed[off.rows][:, group] != 0).any(0).tolist()
        involved = [column for column, has_entry in zip(group, entries, strict=True) if has_entry]
        if not involved or len(involved) == len(group):
            return group
        slopes = block.slopes(directions_of(self.subject.arrays, self.direction, [involved]))[0][0, off.rows]
        return involved if bool((abs(slopes - off.slopes) <= 0.5 * block.noise[off.rows]).all()) else group

    def _direction(self, t: float) -> Array:
        return self.subject.direction(self.seed, self.options.first(self.subject).times(t))


def _largest(entries: Array) -> float:
    """Return the absolute value of the largest entry; not finite where an entry is not."""
    return max(float(entries.max()), -float(entries.min()))
