"""Confirm gross errors and kinks of single columns on a dozen steps, from very short to very long ones.

A slope that is the same on all short steps and from both sides, and that no long step takes back, is the slope; where
it is far from what is claimed, the claim is wrong. Two sides with a slope each, the same on all short steps, are a
kink. Whatever is less clear is left to probes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.engine.contraction import CLAIM_ROUNDING
from gradproof.engine.estimators.differences import precision_shown
from gradproof.engine.estimators.directional import Measured
from gradproof.engine.estimators.steps import FINEST, RATIO
from gradproof.engine.explanations import unexplained
from gradproof.engine.explanations.comparison import Comparison
from gradproof.engine.explanations.conditioning import is_cancelled
from gradproof.engine.explanations.nondifferentiable import kink_at
from gradproof.engine.explanations.quantisation import LENGTHS
from gradproof.engine.findings import entry_findings
from gradproof.engine.jacobian.columns import batches
from gradproof.engine.jacobian.entries import Entries
from gradproof.engine.jacobian.screen import FIRST, Discrepancy
from gradproof.engine.localisation.locate import SHOWN
from gradproof.engine.localisation.suspect import OUTPUTS_SHOWN
from gradproof.engine.probing import repeats
from gradproof.engine.results import Entry, Reading, Resolution, TaylorPoint
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, CLEARLY, COARSEST, FEW, GROSS, SAMPLE, SLIGHT, STEADY, TRACE
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import whole_of

LONG = tuple(length * RATIO**k for length, k in zip(LENGTHS[2:4], (5, 8), strict=True))


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What is said at second sight, and of which columns; the others are left to care."""

    judgement: Judgement
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Columns, each moved to both sides by a step of its own: of all outputs the slope, and how its sides differ.

    `halves` are half of the slope after the point less the one before it; `noise` is what rounding may make of either.
    """

    steps: Array
    slopes: Array
    halves: Array
    noise: Array

    def some(self, numbers: list[int]) -> _Seen:
        """The same for some of the columns."""
        return _Seen(self.steps[numbers], self.slopes[numbers], self.halves[numbers], self.noise[numbers])


@dataclass(frozen=True, slots=True)
class _Proof:
    """A column that is plainly wrong: in which outputs, and what was seen of it on which steps."""

    number: int
    rows: Array
    seen: list[_Seen]


class Confirmation:
    """Some columns that are off, seen once more."""

    def __init__(self, entries: Entries, offs: dict[int, Discrepancy]) -> None:
        """`offs` is what is off of some columns, each measured by itself."""
        self.entries, self.block, self.subject = entries, entries.block, entries.block.subject
        self.seed, self.options, self.doubts, self.direction = (
            entries.seed,
            entries.options,
            entries.doubts,
            entries.direction,
        )
        self.xp, self.jacobian = self.subject.arrays, entries.claimed
        self.offs, self.columns = list(offs.values()), list(offs)
        self.claimed = self.jacobian[:, self.columns].T
        self.steps = abs(self.direction[self.columns])
        (self.again,) = self._seen(list(range(len(self.columns))), [[LENGTHS[1]] * len(self.columns)])
        first = 1.0 * self.claimed
        for number, off in enumerate(self.offs):
            first[number, off.rows] = off.slopes / self.direction[self.columns[number]]
        drops = first - self.again.slopes
        self.slopes = first + drops / (LENGTHS[1] ** 2 - 1)
        self.bars = abs(drops) + LENGTHS[1] * self.again.noise
        self.bars = self.bars + CLAIM_ROUNDING * self.subject.numbers.precision * abs(self.slopes)
        self.gaps = abs(self.claimed - self.slopes)
        self._finite = self.xp.isfinite(self.subject.centre[self.block.rows])

    def confirmed(self) -> Confirmed | None:
        """Return what is wrong, or else a kink, where either is beyond doubt."""
        return self._wrong() or self._kinked()

    def _wrong(self) -> Confirmed | None:
        """The worst columns, and of every argument the worst, as far as they are plainly wrong."""
        tolerated = self.options.atol + self.options.rtol * abs(self.slopes)
        smooth = abs(self.again.halves) <= ALIKE * self.xp.maximum(abs(self.slopes), self.gaps) + self.again.noise
        clear = self._finite & (self.gaps > COARSEST * self.xp.maximum(abs(self.claimed), abs(self.slopes)))
        off = clear & smooth & (self.gaps > CLEARLY * self.bars + tolerated)
        sizes = (self.xp.amax(self.xp.where(off, self.gaps, 0.0), 1) * self.steps).tolist()
        ranked = sorted((number for number, size in enumerate(sizes) if size), key=lambda number: -sizes[number])
        worst = {self._argument(number): number for number in reversed(ranked)}.values()
        proofs = self._standing(self._proofs(list(dict.fromkeys([*ranked[:SHOWN], *worst])), tolerated))
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
            resolution=self._resolution(CLEARLY * float(self.xp.amax(self.bars[[proof.number for proof in proofs]]))),
            measured=self._measured(),
        )
        return Confirmed(judgement, tuple(self.columns[proof.number] for proof in proofs))

    def _compared(self, proof: _Proof) -> Comparison:
        """A column that is wrong, as a comparison that other explanations are tried on."""
        return self.entries.comparison(self.columns[proof.number], self.offs[proof.number], self._entry(proof))

    def _proofs(self, numbers: list[int], tolerated: Array) -> list[_Proof]:
        """Of columns, those of which an output has one slope on all steps, and another one claimed."""
        depths = {number: depth for number in numbers if (depth := self._depth(number)) >= FEW}
        if not depths:
            return []
        numbers, xp = list(depths), self.xp
        lengths = [[RATIO ** (-part * depth) for depth in depths.values()] for part in (0.5, 1.0)]
        near, nearest, *far = self._seen(numbers, [*lengths, *([length] * len(numbers) for length in LONG)])
        again = self.again.some(numbers)
        claimed, slopes, gaps = self.claimed[numbers], near.slopes, abs(self.claimed[numbers] - near.slopes)
        size, close = xp.maximum(abs(claimed), abs(slopes)), ALIKE * xp.minimum(abs(slopes), gaps)
        wrong = (
            self._finite
            & (gaps > COARSEST * size)
            & (gaps > TRACE * xp.amax(size, 1)[:, None])
            & (gaps > 2 * tolerated[numbers])
        )
        for seen in (again, near, nearest):
            wrong &= (abs(seen.slopes - slopes) <= close + seen.noise) & (abs(seen.halves) <= close + seen.noise)
            wrong &= GROSS * seen.noise <= gaps
        still = abs(near.slopes) <= near.noise
        for seen in far:
            wrong &= ~(abs(seen.slopes - claimed) < gaps / 2)  # also where the function is not defined so far away
            wrong &= ~still | ((abs(seen.slopes) <= seen.noise) & (abs(seen.halves) <= seen.noise))
        found = []
        for place, number in enumerate(numbers):
            rows = xp.where(wrong[place])[0]
            standing = xp.where(wrong[place] & still[place])[0]
            if rows.shape[0] and not (standing.shape[0] and self._leaps(number, standing)):
                found.append(_Proof(number, rows, [seen.some([place]) for seen in (nearest, near, again, *far)]))
                self._correct(number, *(seen.some([place]) for seen in (near, nearest)))
        return found

    def _correct(self, number: int, near: _Seen, nearest: _Seen) -> None:
        """Take the slopes of a column on shorter steps where they are others, as where a kink lies beside the point."""
        others = abs(self.slopes[number] - near.slopes[0]) > self.bars[number] + near.noise[0]
        bars = abs(near.slopes[0] - nearest.slopes[0]) + near.noise[0] + nearest.noise[0]
        self.slopes[number] = self.xp.where(others, near.slopes[0], self.slopes[number])
        self.bars[number] = self.xp.where(others, bars, self.bars[number])

    def _leaps(self, number: int, rows: Array) -> bool:
        """Whether outputs that stand still, as on a tread, do not when they would be taken off a half precision's."""
        claimed, values = abs(self.claimed[number][rows]), abs(self.subject.centre[self.block.rows][rows])
        long = COARSEST * float((values / claimed).max()) / float(self.steps[number])
        if not 0 < long < math.inf:
            return False
        leaps = self._seen([number], [[long], [long / RATIO]])
        return any(bool(((seen.slopes[0] != 0) | (seen.halves[0] != 0))[rows].any()) for seen in leaps)

    def _standing(self, proofs: list[_Proof]) -> list[_Proof]:
        """Those that nothing else explains: chance, a cast, numbers that cancel, inputs that tie."""
        proofs = [proof for proof in proofs if not self._is_cast(proof)]
        if not proofs or not repeats(self.subject, self.direction, self.options.nondet_tol):
            return []
        if any(map(self._may_be_debris, proofs)) and is_cancelled(whole_of(self.subject), self.seed):
            return []
        return [proof for proof in proofs if self.entries.adds_up(self.columns[proof.number], self.offs[proof.number])]

    def _is_cast(self, proof: _Proof) -> bool:
        """Whether all values of a tensor in which something is wrong are numbers of a lower precision."""
        centre, rows = self.subject.centre, (proof.rows + self.block.rows.start).tolist()
        spans = [(low, high) for low, high in self.subject.outputs.spans if any(low <= row < high for row in rows)]
        return any(
            precision_shown(self.xp, [centre[low:high][:SAMPLE]]) > self.subject.numbers.precision
            for low, high in spans
        )

    def _may_be_debris(self, proof: _Proof) -> bool:
        """Whether less is true than is claimed, of values that are nothing, or move by their own size."""
        number, rows = proof.number, proof.rows
        centre, moved = self.subject.centre[self.block.rows], abs(self.again.slopes[number] * self.again.steps[number])
        less = abs(self.claimed[number][rows]) >= abs(self.slopes[number][rows])
        return bool(less.any()) and (bool((moved > ALIKE * abs(centre)).any()) or not bool(centre.any()))

    def _kinked(self) -> Confirmed | None:
        """The columns of which all that is off is a kink, with what is claimed between its sides."""
        least = SLIGHT * self.block.largest
        again = abs(self.again.halves)
        likely = [
            number
            for number, off in enumerate(self.offs)
            if bool((again[number][off.rows] * self.steps[number] > least).all())
        ]
        if not likely:
            return None
        lengths = [RATIO ** (-part * FEW) for part in (0.5, 1.0)]
        near, nearest = self._seen(likely, [[length] * len(likely) for length in lengths])
        half = abs(near.halves)
        kinks = (GROSS * nearest.noise <= STEADY * half) & (
            abs(self.claimed[likely] - near.slopes) <= (1 + STEADY) * half
        )
        for seen in (self.again.some(likely), nearest):
            kinks &= abs(seen.halves - near.halves) <= STEADY * half
            kinks &= abs(seen.slopes - near.slopes) <= STEADY * half
        places = [place for place, number in enumerate(likely) if bool(kinks[place][self.offs[number].rows].all())]
        if not places:
            return None
        first = places[0]
        row = int(self.offs[likely[first]].rows[0])
        slope, side = float(near.slopes[first][row]), float(near.halves[first][row])
        by = kink_at(
            self.subject.inputs.locate(self.columns[likely[first]]),
            self.subject.outputs.locate(self.block.rows.start + row),
            (slope - side, slope + side),
            float(self.claimed[likely[first]][row]),
        )
        widest = 2 * max(float(half[place][self.offs[likely[place]].rows].max()) for place in places)
        resolution = self._resolution(widest)
        judgement = Judgement(obstacle=by, resolution=resolution)
        return Confirmed(judgement, tuple(self.columns[likely[place]] for place in places))

    def _entry(self, proof: _Proof) -> Entry:
        """The entry of a column that is most wrong, and what else is wrong in it."""
        number = proof.number
        worst = sorted(proof.rows.tolist(), key=lambda row: -float(self.gaps[number][row]))[:OUTPUTS_SHOWN]
        place = self.subject.inputs.locate(self.columns[number])
        output, *also = (self.subject.outputs.locate(self.block.rows.start + row) for row in worst)
        return Entry(
            index=place.index,
            part=place.part,
            stored=place.stored,
            claimed=float(self.claimed[number][worst[0]]),
            numerical=float(self.slopes[number][worst[0]]),
            bar=float(self.bars[number][worst[0]]),
            output=output,
            also=tuple(also),
        )

    def _resolution(self, absolute: float) -> Resolution:
        """The smallest error that would have been found, beside the largest claim."""
        largest = float(self.xp.amax(abs(self.claimed)))
        return Resolution(absolute=absolute, relative=absolute / largest if largest else math.inf)

    def _reading(self, proof: _Proof) -> Reading:
        """The worst output of a column beside what is claimed of it."""
        gaps = self.gaps[proof.number]
        row = max(proof.rows.tolist(), key=lambda row: float(gaps[row]))
        step, claim = float(self.steps[proof.number]), float(self.claimed[proof.number][row])
        taylor = []
        for seen in proof.seen:
            length, slope = float(seen.steps[0]), float(seen.slopes[0][row]) + float(seen.halves[0][row])
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

    def _measured(self) -> Measured | None:
        """The whole Jacobian from values, if all of it was seen, each column by itself."""
        if (
            not all(off.alone for off in self.doubts.values())
            or self.claimed.shape[1] != self.subject.outputs.size
            or not bool(self._finite.all())
        ):
            return None
        steps = abs(self.direction)
        peaks = self.xp.amax(abs(self.jacobian), 0)
        slopes, bars = 1.0 * self.jacobian, self.block.noise[:, None] / steps + FIRST.error * peaks
        for column, off in self.doubts.items():
            slopes[off.rows, column] = off.slopes / self.direction[column]
        slopes[:, self.columns], bars[:, self.columns] = self.slopes.T, self.bars.T
        return Measured(slopes, bars)

    def _argument(self, number: int) -> str:
        return self.subject.inputs.locate(self.columns[number]).path

    def _depth(self, number: int) -> float:
        """How many samples down the error of a column still stands out from the noise."""
        off = self.offs[number]
        noise = GROSS * float(self.block.noise[off.rows].max())
        room = off.error * float(self.steps[number]) / noise if noise else math.inf
        return min(math.log(room, RATIO) if 0 < room < math.inf else 0.0, -FINEST)

    def _seen(self, numbers: list[int], lengths: list[list[float]]) -> list[_Seen]:
        """Some columns at steps of several lengths, as multiples of their first ones, in one batch."""
        xp, columns = self.xp, [self.columns[number] for number in numbers]
        like = self.direction[columns]
        steps = xp.concatenate([like * xp.asarray(each, dtype=like.dtype, device=like.device) for each in lengths])
        moved, seen = columns * len(lengths), []
        for start, stop in batches(0, len(moved), 2 * max(self.subject.inputs.size, self.subject.outputs.size)):
            directions = xp.zeros_like(xp.stack([self.direction] * (stop - start)))
            directions[list(range(stop - start)), moved[start:stop]] = steps[start:stop]
            seen.append(self.block.slopes(directions))
        changes, bends = map(xp.concatenate, zip(*seen, strict=True))
        lengths_taken = abs(steps)[:, None]
        slopes, halves, noise = changes / steps[:, None], bends / (2 * lengths_taken), self.block.noise / lengths_taken
        cuts = [slice(k * len(columns), (k + 1) * len(columns)) for k in range(len(lengths))]
        return [_Seen(abs(steps)[cut], slopes[cut], halves[cut], noise[cut]) for cut in cuts]
