"""Full coverage: every entry of the Jacobian, claimed beside measured.

The claimed Jacobian comes by rows, from pullbacks, or by columns, from pushforwards. Columns that share no row in it
are moved together, each by a step of its own, so that a wrongly claimed zero shows as well. Screening takes one step to
either side. Columns with an error beyond what is allowed, or with a kink, are measured again by themselves if they are
few; those with small errors, as where the curvature has a kink, on far finer steps too. Large errors are confirmed on a
few more steps (`Confirmation`), and the rest is judged by probes, as a subject (`Columns`) whose outputs are the
entries themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

from gradproof.engine.explanations.comparison import Comparison
from gradproof.engine.explanations.domain import all_undefined, some_undefined
from gradproof.engine.explanations.quantisation import cast_of
from gradproof.engine.findings import raised
from gradproof.engine.jacobian.coloring import coloring
from gradproof.engine.jacobian.columns import Columns, Largest, batches, directions_of
from gradproof.engine.jacobian.confirm import Confirmation, Confirmed
from gradproof.engine.jacobian.entries import Entries
from gradproof.engine.jacobian.screen import (
    FINE_STEPS,
    Discrepancy,
    RowBlock,
)
from gradproof.engine.jacobian.zeros import unverified_zeros
from gradproof.engine.judging import Evidence, judge
from gradproof.engine.localisation.locate import WrongEntries
from gradproof.engine.options import Probing
from gradproof.engine.results import Entry, Resolution, Verdict
from gradproof.engine.second_opinion import with_second_opinion
from gradproof.engine.subject import Array, DerivativeError, Subject
from gradproof.engine.thresholds import ENOUGH, FEW, HANDFUL, MARGIN, NEGLIGIBLE, SHOWN, TRACE, WORK
from gradproof.engine.verdict import EMPTY, Judgement, together
from gradproof.engine.views import subset

Progress = Callable[[int, int], None]


def judge_fully(
    subject: Subject, *, probes: int, seed: int, options: Probing, progress: Progress | None = None
) -> Judgement:
    """Judge every entry of the Jacobian. `probes` is for the columns that are judged by probes in the end."""
    if not subject.inputs.size or not subject.outputs.size:
        return EMPTY
    if undefined := all_undefined(subject):
        return Judgement(obstacle=undefined)
    judgements = []
    if some := some_undefined(subject):
        judgements.append(Judgement(obstacle=some))
        subject = subset(subject, subject.arrays.where(~subject.arrays.isnan(subject.centre))[0])
    try:
        coverage = _Coverage(subject, probes, seed, options, progress)
        whole = together([*judgements, *coverage.judgements(beside_undefined=bool(some))])
        return with_second_opinion(whole, subject, seed, options)
    except DerivativeError as error:
        return Judgement(findings=(raised(subject, error),))


@dataclass(frozen=True, slots=True)
class _Screened:
    """The result of screening a block of rows.

    `suspects` are the columns to examine, worst first. `doubts` has their discrepancies, except for columns whose
    claims are not finite or that noise hides. `resolution` is that of all other columns, `largest` the largest claim.
    """

    block: RowBlock
    suspects: list[int]
    doubts: dict[int, Discrepancy]
    resolution: Resolution
    largest: float


class _Coverage:
    """The Jacobian in blocks of rows, each as large as memory allows."""

    def __init__(
        self, subject: Subject, probes: int, seed: int, options: Probing, progress: Progress | None = None
    ) -> None:
        self.subject, self.probes, self.seed, self.options = subject, probes, seed, options
        self.progress = progress or _no_progress
        self.direction = self._direction(1.0)
        self.steps = subject.arrays.where(self.direction == 0, math.inf, abs(self.direction))
        self.rows, self.columns = subject.outputs.size, subject.inputs.size

    def _direction(self, t: float) -> Array:
        return self.subject.direction(self.seed, self.options.first(self.subject).times(t))

    def judgements(self, *, beside_undefined: bool = False) -> Iterator[Judgement]:
        """Yield for each block of rows the judgements of the suspects, and then that of screening.

        If some outputs are undefined (`beside_undefined`), claims that are not finite are ignored: the incoming
        gradient of an undefined output is zero, and zero times NaN is NaN.
        """
        block = max(1, WORK // self.columns)
        largest, agrees = 0.0, True
        for first in range(0, self.rows, block):
            claimed = self._claimed(first, min(first + block, self.rows))
            screened = self._screened(claimed, first)
            suspects = screened.suspects
            if beside_undefined:
                finite = self.subject.arrays.isfinite(claimed).all(0).tolist()
                suspects = [column for column in suspects if finite[column]]
            largest, agrees = max(largest, screened.largest), agrees and not suspects
            found = list(self._of_suspects(screened, claimed, suspects))
            zeros = None
            if not any(each.findings for each in found):
                zeros = unverified_zeros(screened.block, claimed, screened.doubts.values(), self.direction)
            yield from (*found, Judgement(obstacle=zeros, resolution=screened.resolution))
        if agrees and not largest and cast_of(self.subject):  # zeros agree wherever values are constant
            yield judge(self.subject, probes=1, seed=self.seed, options=self.options)

    def _of_suspects(self, screened: _Screened, claimed: Array, suspects: list[int]) -> Iterator[Judgement]:
        """Yield the judgements of suspects: by confirmation, for as long as it succeeds, and by probes for the rest.

        Where a column is wrong, the other columns of its argument are not examined.
        """
        many, named, more_may_be = SHOWN, set[str | None](), True
        while suspects:
            few, suspects, many = suspects[:many], suspects[many:], HANDFUL
            seen = self._confirmed(screened, claimed, few) if more_may_be else None
            more_may_be = seen is not None
            judgements = [seen.judgement] if seen else []
            if not seen or seen.judgement.verdict is not Verdict.FAIL:
                unclear = [column for column in few if not seen or column not in seen.columns]
                judgements += [self._by_probes(screened, claimed, unclear)] if unclear else []
            yield from judgements
            wrong = {finding.argument for judgement in judgements for finding in judgement.findings}
            if wrong:
                named |= wrong
                unnamed = [column for column in few + suspects if self._argument(column) not in named]
                if len(unnamed) == len(few) + len(suspects) or len(named) > SHOWN:
                    return
                suspects, many = unnamed, SHOWN

    def _confirmed(self, screened: _Screened, claimed: Array, few: list[int]) -> Confirmed | None:
        """Confirm some suspects on a few more steps; None in low precision, or if claims are not finite."""
        coarse = self.options.step is not None or self.subject.numbers.precision > ENOUGH
        if coarse or not all(map(screened.doubts.get, few)):
            return None
        discrepancies = {column: screened.doubts[column] for column in few}
        if not all(off.alone for off in discrepancies.values()):
            discrepancies = self._alone(claimed, few, screened.block)
        if not discrepancies:
            return None
        entries = Entries(screened.block, claimed, screened.doubts, self.direction, self.seed, self.options)
        return Confirmation(entries, discrepancies).confirmed()

    def _by_probes(self, screened: _Screened, claimed: Array, few: list[int]) -> Judgement:
        """Judge some columns by probes, each entry of them by itself."""
        largest = Largest(screened.largest, screened.block.largest)
        columns = Columns(self.subject, few, claimed[:, few], screened.block.rows.start, largest)
        known = self.subject.arrays.isfinite(claimed)
        entries = Entries(
            screened.block,
            self.subject.arrays.where(known, claimed, 0.0),
            screened.doubts,
            self.direction,
            self.seed,
            self.options,
            held=self.subject.arrays.where(~known.all(0))[0].tolist(),
        )

        def compared(disagreement: Comparison, coordinate: int, entry: Entry, _located: WrongEntries) -> Comparison:
            column, sampled = few[coordinate], columns.along(disagreement.probe.ladder, coordinate)
            off = self._alone(entries.claimed, [column], screened.block).get(column)
            return entries.comparison(column, off, entry, sampled)

        evidence = Evidence(cast(Subject, columns), self.options, self.seed, compared=compared)
        try:
            return evidence.judgement(self.probes)
        except DerivativeError as error:
            return evidence.failed((raised(self.subject, error),))

    def _argument(self, column: int) -> str:
        return self.subject.inputs.locate(column).path

    def _claimed(self, low: int, high: int) -> Array:
        """Return the claimed rows in a range: from pullbacks, or cut out of all columns from pushforwards."""
        xp, subject = self.subject.arrays, self.subject
        blocks = []
        if subject.mode == "reverse":
            for start, stop in batches(low, high, max(self.rows, self.columns)):
                blocks.append(subject.pullback_many(_along(xp, xp.ones_like(subject.centre), slice(start, stop))))
                self.progress(stop, 2 * self.rows)
            return xp.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        unit = xp.ones_like(self.direction)
        for start, stop in batches(0, self.columns, max(self.rows, self.columns)):
            blocks.append(subject.pushforward_many(_along(xp, unit, slice(start, stop)))[:, low:high])
            self.progress(stop, 2 * self.columns)
        return (xp.concatenate(blocks) if len(blocks) > 1 else blocks[0]).T

    def _screened(self, claimed: Array, first: int) -> _Screened:
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
            doubts = self._alone(claimed, sorted(set(range(self.columns)) - set(hidden)), block)
        else:
            doubts = self._alone(claimed, range(self.columns), block)
        if doubts:
            doubts = self._without_false_alarms(claimed, doubts, block)
        worst_first = sorted(doubts, key=lambda column: -doubts[column].excess)
        suspects = list(dict.fromkeys([*unknown, *worst_first, *hidden]))
        for column in unknown:
            doubts.pop(column, None)
        if not bool((self.direction != 0).any()):
            block.resolution = math.inf  # nothing was moved, as where all inputs are infinite
        return _Screened(block, suspects, doubts, Resolution.of(block.resolution, largest), largest)

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
            together = self._alone(claimed, list(together), block)
        return alone | together

    def _alone(self, claimed: Array, columns: Sequence[int], block: RowBlock) -> dict[int, Discrepancy]:
        """Return the discrepancies of some columns, each moved by itself, since in a group another may cause them."""
        return self._screen(claimed, columns, block, self.direction)

    def _without_false_alarms(
        self, claimed: Array, doubts: dict[int, Discrepancy], block: RowBlock
    ) -> dict[int, Discrepancy]:
        """Return the discrepancies without the small ones that two far finer steps do not show.

        The resolution of the block becomes that of the errors removed: a true error of that size may have been missed.
        """
        slightly = [column for column, off in doubts.items() if off.slight]
        if not 0 < len(slightly) <= HANDFUL or self.options.step is not None:
            return doubts
        wrong = {
            column
            for t in FINE_STEPS
            for column in self._screen(claimed, slightly, block, self._direction(t), NEGLIGIBLE)
        }
        right = [doubts[column] for column in slightly if column not in wrong]
        block.resolution = max([block.resolution, *(MARGIN * off.error for off in right)])
        return {column: off for column, off in doubts.items() if not off.slight or column in wrong}

    def _screen(
        self, claimed: Array, columns: Sequence[int], block: RowBlock, direction: Array, curvature: float = TRACE
    ) -> dict[int, Discrepancy]:
        """Return the discrepancies of some columns, each moved by itself by its coordinate of a direction."""
        found, count = {}, len(columns)
        for start, stop in batches(0, count, 2 * max(self.rows, self.columns)):  # to either side
            few = columns[start:stop]
            where = slice(few.start, few.stop) if isinstance(few, range) else list(few)
            moves = direction[where]
            steps = self.subject.arrays.where(moves == 0, math.inf, abs(moves))
            predicted = (claimed[:, where] * moves).T
            for off in block.compare(
                _along(self.subject.arrays, direction, where), steps[:, None], predicted, curvature
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


def _no_progress(_done: int, _of: int) -> None:
    """Report nothing."""


def _along(xp: Array, vector: Array, where: slice | list[int]) -> Array:
    """Return a matrix with a row for each of some coordinates of a vector: that coordinate, and zero elsewhere."""
    places = xp.arange(vector.shape[0], device=vector.device)
    return xp.where(places[where][:, None] == places, vector, 0.0)


def _largest(entries: Array) -> float:
    """Return the absolute value of the largest entry; not finite where an entry is not."""
    return max(float(entries.max()), -float(entries.min()))
