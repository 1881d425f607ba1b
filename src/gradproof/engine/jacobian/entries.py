"""Wrong entries of a Jacobian as comparisons, to be explained like any other disagreement."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from gradproof.engine.contraction import Claim, Contraction
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.explanations.comparison import Comparison, Kind
from gradproof.engine.jacobian.row_block import Discrepancy, RowBlock
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import ROUNDINGS, SAMPLE, SLIGHT
from gradproof.engine.views import HeldInputs


@dataclass(slots=True)
class Entries:
    """A block of rows of the Jacobian, claimed, and what screening found of its columns.

    `held` are columns that no direction moves: those without a finite claim.
    """

    block: RowBlock
    claimed: Array
    doubts: dict[int, Discrepancy]
    direction: Array
    seed: int
    options: Probing
    held: list[int] = field(default_factory=list)
    _additive: Array = None

    def comparison(
        self, column: int, off: Discrepancy | None, entry: Entry, sampled: Ladder | None = None
    ) -> Comparison:
        """Return one entry of a column, claimed beside measured; `sampled` are values along the column, if known."""
        ladder = Ladder(self._without_jumps(), self.direction if sampled is None else sampled.direction)
        ladder.samples = [] if sampled is None else sampled.samples
        row, step = self._row(off, entry), float(ladder.direction[column])
        unit, claimed = self.block.unit(row), self.claimed[row]
        missing, slope = (entry.numerical - entry.claimed) * step, float(claimed[column]) * step
        noise = float(self.block.noise[row])
        rounding = noise / ROUNDINGS
        probe = Probe(
            seed=self.seed,
            ladder=ladder,
            cotangent=unit,
            claimed=claimed,
            contraction=Contraction(slope + missing, noise, rounding, abs(slope + missing)),
            claim=Claim(slope, 0.0, 0.0, self.block.largest, 0.0),
        )
        return Comparison(
            kind=Kind.ENTRY,
            probe=probe,
            options=self.options,
            coordinate=column,
            entry=entry,
            adds_up=None if off is None else self.adds_up(column, off),
        )

    def _row(self, off: Discrepancy | None, entry: Entry) -> int:
        """Return the row of the entry's output, or the worst row if the entry belongs to no single output."""
        outputs, first = self.block.subject.outputs, self.block.rows.start
        rows = [*(off.rows.tolist() if off else ()), *range(min(int(self.block.noise.shape[0]), SAMPLE))]
        worst = self.block.worst(off)[0] if off else 0
        return next((row for row in rows if outputs.locate(first + row) == entry.output), worst)

    def adds_up(self, column: int, off: Discrepancy) -> bool:
        """Return True if a column's worst output passes the additivity test, within the column's group and with all."""
        if self._additive is None:
            self._additive = self.block.additive(self.claimed, self.doubts.values(), self.direction)
        return self.block.same_in_group(off, self.doubts.get(column, off)) and bool(
            self._additive[self.block.worst(off)[0]]
        )

    def _without_jumps(self) -> Subject:
        """Return the subject with the columns that jump held constant, since a jump hides what others do."""
        jumping = [
            column
            for column, off in self.doubts.items()
            if off.alone and not bool((SLIGHT * abs(off.second_differences) <= self.block.largest).all())
        ]
        held = [*self.held, *jumping]
        return cast(Subject, HeldInputs(self.block.subject, held)) if held else self.block.subject
