"""Confirm large errors and kinks of single columns on a dozen steps, from very short to very long ones.

A claim is wrong if the slope is the same on all short steps and on both sides, if no long step shows the claimed slope,
and if the two are far apart. A kink has two sides, each with the same slope on all short steps. Whatever is less clear
is left to probes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gradproof.engine.estimators.rounding import precision_shown
from gradproof.engine.estimators.steps import RATIO
from gradproof.engine.explanations import unexplained
from gradproof.engine.explanations.comparison import Comparison
from gradproof.engine.explanations.conditioning import is_cancelled
from gradproof.engine.explanations.nondifferentiable import kink_at
from gradproof.engine.explanations.quantisation import LENGTHS
from gradproof.engine.findings import entry_findings
from gradproof.engine.jacobian.remeasured import RemeasuredColumns, StepSlopes
from gradproof.engine.localisation.suspect import OUTPUTS_SHOWN
from gradproof.engine.probing import repeats
from gradproof.engine.results import Entry, Reading, TaylorPoint
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import (
    ALIKE,
    CLEARLY,
    COARSEST,
    FEW,
    GROSS,
    SAMPLE,
    SHOWN,
    SLIGHT,
    STEADY,
    TRACE,
)
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import whole_of


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The judgement of the columns in which an error or a kink is confirmed; other columns are left to probes."""

    judgement: Judgement
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Proof:
    """A column with a confirmed error: the wrong outputs, and the slopes on all steps."""

    number: int
    rows: Array
    seen: list[StepSlopes]


class Confirmation(RemeasuredColumns):
    """Some columns with discrepancies, in which an error or a kink is confirmed on a few more steps."""

    def confirmed(self) -> Confirmed | None:
        """Return the confirmed errors, or else a confirmed kink, or None."""
        return self._wrong() or self._kinked()

    def _wrong(self) -> Confirmed | None:
        """Return the findings of the worst columns, and of the worst column of every argument, if confirmed."""
        tolerated = self.options.atol + self.options.rtol * abs(self.slopes)
        smooth = abs(self.longer.half_jumps) <= ALIKE * self.xp.maximum(abs(self.slopes), self.gaps) + self.longer.noise
        clear = self.finite & (self.gaps > COARSEST * self.xp.maximum(abs(self.claimed), abs(self.slopes)))
        off = clear & smooth & (self.gaps > CLEARLY * self.bars + tolerated)
        sizes = (self.xp.amax(self.xp.where(off, self.gaps, 0.0), 1) * self.steps).tolist()
        ranked = sorted((number for number, size in enumerate(sizes) if size), key=lambda number: -sizes[number])
        worst = {self.argument(number): number for number in reversed(ranked)}.values()
        proofs = self._beyond_doubt(self._proofs(list(dict.fromkeys([*ranked[:SHOWN], *worst])), tolerated))
        if not proofs:
            return None
        found = [self._compared(proof) for proof in proofs]
        found.sort(key=lambda each: -abs(each.entry.claimed - each.entry.numerical) if each.entry else 0.0)
        wrong, _ = unexplained(found)
        if not wrong:
            return None
        kept = [(each.coordinate, each.entry) for each in wrong if each.coordinate is not None and each.entry]
        judgement = Judgement(
            findings=tuple(entry_findings(self.subject, kept, more=len(self.doubts) > len(kept))),
            readings=tuple(map(self._reading, proofs[:1])),
            resolution=self.resolution(CLEARLY * float(self.xp.amax(self.bars[[proof.number for proof in proofs]]))),
            measured=self.whole_jacobian(),
        )
        return Confirmed(judgement, tuple(self.columns[proof.number] for proof in proofs))

    def _compared(self, proof: _Proof) -> Comparison:
        """Return a confirmed column as a comparison, for the explanations to run on."""
        return self.entries.comparison(self.columns[proof.number], self.discrepancies[proof.number], self._entry(proof))

    def _proofs(self, numbers: list[int], tolerated: Array) -> list[_Proof]:
        """Return the columns in which an output has one slope on all steps, far from the claimed one."""
        depths = {number: depth for number in numbers if (depth := self.depth(number)) >= FEW}
        if not depths:
            return []
        numbers, xp = list(depths), self.xp
        lengths = [[RATIO ** (-part * depth) for depth in depths.values()] for part in (0.5, 1.0)]
        long = (LENGTHS[2] * RATIO**5, LENGTHS[3] * RATIO**8)
        near, nearest, *far = self.measure(numbers, [*lengths, *([length] * len(numbers) for length in long)])
        longer = self.longer.some(numbers)
        claimed, slopes, gaps = self.claimed[numbers], near.slopes, abs(self.claimed[numbers] - near.slopes)
        size, close = xp.maximum(abs(claimed), abs(slopes)), ALIKE * xp.minimum(abs(slopes), gaps)
        wrong = (
            self.finite
            & (gaps > COARSEST * size)
            & (gaps > TRACE * xp.amax(size, 1)[:, None])
            & (gaps > 2 * tolerated[numbers])
        )
        for seen in (longer, near, nearest):
            wrong &= (abs(seen.slopes - slopes) <= close + seen.noise) & (abs(seen.half_jumps) <= close + seen.noise)
            wrong &= GROSS * seen.noise <= gaps
        constant = abs(near.slopes) <= near.noise
        for seen in far:
            wrong &= ~(abs(seen.slopes - claimed) < gaps / 2)  # also where the function is not defined so far away
            wrong &= ~constant | ((abs(seen.slopes) <= seen.noise) & (abs(seen.half_jumps) <= seen.noise))
        found = []
        for place, number in enumerate(numbers):
            rows = xp.where(wrong[place])[0]
            flat = xp.where(wrong[place] & constant[place])[0]
            if rows.shape[0] and not (flat.shape[0] and self._changes_on_long_steps(number, flat)):
                found.append(_Proof(number, rows, [seen.some([place]) for seen in (nearest, near, longer, *far)]))
                self._correct(number, *(seen.some([place]) for seen in (near, nearest)))
        return found

    def _correct(self, number: int, near: StepSlopes, nearest: StepSlopes) -> None:
        """Replace the slopes of a column by those on shorter steps where they differ, as beside a kink."""
        others = abs(self.slopes[number] - near.slopes[0]) > self.bars[number] + near.noise[0]
        bars = abs(near.slopes[0] - nearest.slopes[0]) + near.noise[0] + nearest.noise[0]
        self.slopes[number] = self.xp.where(others, near.slopes[0], self.slopes[number])
        self.bars[number] = self.xp.where(others, bars, self.bars[number])

    def _changes_on_long_steps(self, number: int, rows: Array) -> bool:
        """Return True if constant outputs change on steps longer than any plateau of a half precision."""
        claimed, values = abs(self.claimed[number][rows]), abs(self.subject.centre[self.block.rows][rows])
        long = COARSEST * float((values / claimed).max()) / float(self.steps[number])
        if not 0 < long < math.inf:
            return False
        longer = self.measure([number], [[long], [long / RATIO]])
        return any(bool(((seen.slopes[0] != 0) | (seen.half_jumps[0] != 0))[rows].any()) for seen in longer)

    def _beyond_doubt(self, proofs: list[_Proof]) -> list[_Proof]:
        """Return the proofs that nothing costly to rule out may explain; the others are left to probes.

        Such are nondeterminism, a cast, cancellation, and inputs that tie.
        """
        proofs = [proof for proof in proofs if not self._is_cast(proof)]
        if not proofs or not repeats(self.subject, self.direction, self.options.nondet_tol):
            return []
        if any(map(self._may_cancel, proofs)) and is_cancelled(whole_of(self.subject), self.seed):
            return []
        return [
            proof
            for proof in proofs
            if self.entries.adds_up(self.columns[proof.number], self.discrepancies[proof.number])
        ]

    def _is_cast(self, proof: _Proof) -> bool:
        """Return True if all values of a tensor with a wrong output are numbers of a lower precision."""
        centre, rows = self.subject.centre, (proof.rows + self.block.rows.start).tolist()
        spans = [(low, high) for low, high in self.subject.outputs.spans if any(low <= row < high for row in rows)]
        return any(
            precision_shown(self.xp, [centre[low:high][:SAMPLE]]) > self.subject.numbers.precision
            for low, high in spans
        )

    def _may_cancel(self, proof: _Proof) -> bool:
        """Return True if the slope is below the claim, and values are zero or change by their own size."""
        number, rows = proof.number, proof.rows
        centre, moved = (
            self.subject.centre[self.block.rows],
            abs(self.longer.slopes[number] * self.longer.steps[number]),
        )
        less = abs(self.claimed[number][rows]) >= abs(self.slopes[number][rows])
        return bool(less.any()) and (bool((moved > ALIKE * abs(centre)).any()) or not bool(centre.any()))

    def _kinked(self) -> Confirmed | None:
        """Return the columns whose only discrepancy is a kink, with the claim between the slopes of its sides."""
        least = SLIGHT * self.block.largest
        longer = abs(self.longer.half_jumps)
        likely = [
            number
            for number, off in enumerate(self.discrepancies)
            if bool((longer[number][off.rows] * self.steps[number] > least).all())
        ]
        if not likely:
            return None
        lengths = [RATIO ** (-part * FEW) for part in (0.5, 1.0)]
        near, nearest = self.measure(likely, [[length] * len(likely) for length in lengths])
        half = abs(near.half_jumps)
        kinks = (GROSS * nearest.noise <= STEADY * half) & (
            abs(self.claimed[likely] - near.slopes) <= (1 + STEADY) * half
        )
        for seen in (self.longer.some(likely), nearest):
            kinks &= abs(seen.half_jumps - near.half_jumps) <= STEADY * half
            kinks &= abs(seen.slopes - near.slopes) <= STEADY * half
        places = [
            place for place, number in enumerate(likely) if bool(kinks[place][self.discrepancies[number].rows].all())
        ]
        if not places:
            return None
        first = places[0]
        row = int(self.discrepancies[likely[first]].rows[0])
        slope, side = float(near.slopes[first][row]), float(near.half_jumps[first][row])
        by = kink_at(
            self.subject.inputs.locate(self.columns[likely[first]]),
            self.subject.outputs.locate(self.block.rows.start + row),
            (slope - side, slope + side),
            float(self.claimed[likely[first]][row]),
        )
        widest = 2 * max(float(half[place][self.discrepancies[likely[place]].rows].max()) for place in places)
        resolution = self.resolution(widest)
        judgement = Judgement(obstacle=by, resolution=resolution)
        return Confirmed(judgement, tuple(self.columns[likely[place]] for place in places))

    def _entry(self, proof: _Proof) -> Entry:
        """Return the worst entry of a column, with the names of the other wrong outputs."""
        number = proof.number
        worst = sorted(proof.rows.tolist(), key=lambda row: -float(self.gaps[number][row]))[:OUTPUTS_SHOWN]
        place = self.subject.inputs.locate(self.columns[number])
        output, *also = (self.subject.outputs.locate(self.block.rows.start + row) for row in worst)
        claimed, numerical, bar = (float(each[number][worst[0]]) for each in (self.claimed, self.slopes, self.bars))
        entry = Entry.at(place, claimed=claimed, numerical=numerical, bar=bar, output=output)
        return replace(entry, also=tuple(also))

    def _reading(self, proof: _Proof) -> Reading:
        """Return the claimed and the measured slope of a column's worst output, as a probe's reading."""
        gaps = self.gaps[proof.number]
        row = max(proof.rows.tolist(), key=lambda row: float(gaps[row]))
        step, claim = float(self.steps[proof.number]), float(self.claimed[proof.number][row])
        taylor = []
        for seen in proof.seen:
            length, slope = float(seen.steps[0]), float(seen.slopes[0][row]) + float(seen.half_jumps[0][row])
            if math.isfinite(slope):
                taylor.append(TaylorPoint(step=length, remainder=length * abs(slope - claim)))
        return Reading(
            seed=self.seed,
            claimed=claim * step,
            numerical=float(self.slopes[proof.number][row]) * step,
            bar=float(self.bars[proof.number][row]) * step,
            steps=tuple(taylor),
            rounding=float(self.block.noise[row]),
        )
