"""Full coverage: every entry of the Jacobian, claimed beside measured.

The claimed Jacobian comes by rows, from pullbacks, or by columns, from pushforwards. Columns that share no row in it
are moved together, each by a step of its own, so that a claimed zero that is none shows as well. A first look takes one
step to either side. Columns in which something lies outside its allowance, or bends, are looked at once more if they
are few, each by itself; those that are off by little, as where the curvature has a kink, on far finer steps too. What
is then left is judged with all care: as a subject (`Columns`) whose outputs are the entries themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

from gradproof.engine.colouring import groups_of
from gradproof.engine.columns import Columns, batches, directions_of
from gradproof.engine.judgement import EMPTY, Judgement, judge, raised, together
from gradproof.engine.ladder import ROUNDING, first_step
from gradproof.engine.localisation import ARGUMENTS
from gradproof.engine.obstacles import all_undefined
from gradproof.engine.results import Resolution, Verdict
from gradproof.engine.slopes import RATIO
from gradproof.engine.subject import Array, DerivativeError, Subject
from gradproof.engine.weighing import CLAIM_ACCURACY, Probing

HELD = 1 << 25  # entries of the claimed Jacobian at a time
WORST = 12  # columns judged with all care first: more than are shown, and if they are wrong, it is enough
CAREFULLY = 64  # columns judged together with all care
NOISY = 8.0  # times the rounding of values, granted at first look
BLIND = 0.05  # of the largest slope in a column: noise above it hides the column, which is then judged with care
LITTLE = 1e-3  # of the largest slope in a column: what is off by more is judged with care
CLOSER = (RATIO**-4, RATIO**-5)  # times the first step, for columns that are off by little
BEYOND = 1.25  # times what a column was off by
DISTINCT = 4.0  # times what far finer steps can tell: an error below it is not left to them
KINK = "kink"  # the first word where one is in the way
Progress = Callable[[int, int], None]


class _Look(NamedTuple):
    """What of the largest slope in a column an error has to be to be looked for, and what a bend."""

    error: float
    bend: float


FIRST = _Look(error=3e-8, bend=1e-3)
CLOSE = _Look(error=1e-7, bend=1e-6)


def judge_fully(
    subject: Subject, *, probes: int, seed: int, options: Probing, progress: Progress | None = None
) -> Judgement:
    """Judge every entry of the Jacobian. `probes` is for those that are judged with all care."""
    if not subject.inputs.size or not subject.outputs.size:
        return EMPTY
    if undefined := all_undefined(subject):
        return Judgement(verdict=Verdict.INCONCLUSIVE, reason=undefined.reason, advice=undefined.advice)
    try:
        return together(list(_Coverage(subject, probes, seed, options, progress).judgements()))
    except DerivativeError as error:
        finding = raised(subject, error)
        return Judgement(verdict=Verdict.FAIL, reason=finding.message, findings=(finding,))


class _Coverage:
    """The Jacobian in bands of rows, as many as memory takes."""

    def __init__(
        self, subject: Subject, probes: int, seed: int, options: Probing, progress: Progress | None = None
    ) -> None:
        self.subject, self.probes, self.seed, self.options = subject, probes, seed, options
        self.progress = progress or (lambda done, of: None)
        self.direction = self._direction(1.0)
        self.steps = subject.arrays.where(self.direction == 0, math.inf, abs(self.direction))
        self.rows, self.columns = subject.outputs.size, subject.inputs.size

    def _direction(self, t: float) -> Array:
        step = t * (self.options.step or first_step(self.subject.precision))
        return self.subject.direction(self.seed, step, self.options.step is not None)

    def judgements(self) -> Iterator[Judgement]:
        """What the first look says, and then what care says of the suspicious columns.

        Where one is wrong, the others of its argument are let be.
        """
        band = max(1, HELD // self.columns)
        for first in range(0, self.rows, band):
            claimed = self._claimed(first, min(first + band, self.rows))
            suspects, resolution, size, change = self._first_look(claimed, first)
            many, named = WORST, set[str | None]()
            yield Judgement(verdict=Verdict.PASS, resolution=resolution)
            while suspects:
                few, suspects, many = suspects[:many], suspects[many:], CAREFULLY
                columns = Columns(self.subject, few, claimed[:, few], first, size, change)
                judgement = judge(
                    cast(Subject, columns), probes=self.probes, seed=self.seed, options=self.options, exhaustive=True
                )
                if judgement.verdict is Verdict.FAIL and (tied := self._tied(judgement)):
                    judgement = tied
                yield judgement
                if judgement.verdict is Verdict.FAIL:
                    named |= {finding.argument for finding in judgement.findings}
                    unnamed = [column for column in few + suspects if self._argument(column) not in named]
                    if len(unnamed) == len(few) + len(suspects) or len(named) > ARGUMENTS:
                        return
                    suspects, many = unnamed, WORST

    def _tied(self, judgement: Judgement) -> Judgement | None:
        """What is said of all inputs together, where that is a kink, and each wrong one alone moves nothing.

        Where inputs tie, one of them is claimed to move the output, and it is moved by all of them together alone.
        """
        if not judgement.entries or any(entry.numerical for entry in judgement.entries):
            return None
        whole = judge(self.subject, probes=self.probes, seed=self.seed, options=self.options)
        return whole if whole.verdict is Verdict.INCONCLUSIVE and whole.reason.startswith(KINK) else None

    def _argument(self, column: int) -> str:
        return self.subject.inputs.locate(column).path

    def _claimed(self, low: int, high: int) -> Array:
        """The claimed rows in a range, from pullbacks; or their part of all columns, from pushforwards."""
        xp, subject = self.subject.arrays, self.subject
        blocks = []
        if subject.mode == "reverse":
            for start, stop in batches(low, high, max(self.rows, self.columns)):
                blocks.append(subject.pullback_many(_along(xp, xp.ones_like(subject.centre), start, stop)))
                self.progress(stop, 2 * self.rows)
            return xp.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        unit = xp.ones_like(self.direction)
        for start, stop in batches(0, self.columns, max(self.rows, self.columns)):
            blocks.append(subject.pushforward_many(_along(xp, unit, start, stop))[:, low:high])
            self.progress(stop, 2 * self.columns)
        return (xp.concatenate(blocks) if len(blocks) > 1 else blocks[0]).T

    def _first_look(self, claimed: Array, first: int) -> tuple[list[int], Resolution, float, float]:
        """The columns to look at with more care, worst first, the smallest error looked for, and the largest claims.

        These are the largest entry, and the largest change that one makes within a step.
        """
        xp = self.subject.arrays
        alone: dict[int, _Off] = {}
        in_groups: dict[int, _Off] = {}
        unknown: list[int] = []
        largest = _largest(claimed)
        if not math.isfinite(largest):
            known = xp.isfinite(claimed)
            unknown = xp.where(~known.all(0))[0].tolist()
            claimed = xp.where(known, claimed, 0.0)
            largest = _largest(claimed)
        band = _Band(self.subject, self.options, first, int(claimed.shape[0]))
        groups = groups_of(xp, claimed, self.direction)
        count = self.columns if groups is None else len(groups)
        for start, stop in batches(0, count, 2 * max(self.rows, self.columns)):  # to either side
            if groups is None:
                directions = _along(xp, self.direction, start, stop)
                steps = self.steps[start:stop]
                predicted = (claimed[:, start:stop] * self.direction[start:stop]).T
            else:
                directions = directions_of(xp, self.direction, groups[start:stop])
                steps = xp.stack([self.steps[group].min() for group in groups[start:stop]])
                predicted = directions @ claimed.T
            for off in band.compare(directions, steps[:, None], predicted):
                group = [start + off.number] if groups is None else groups[start + off.number]
                if len(group) == 1:
                    alone[group[0]] = off
                else:
                    in_groups |= dict.fromkeys(self._involved(claimed, group, off, band), off)
            self.progress(count + stop, 2 * count)
        if 0 < len(in_groups) <= CAREFULLY:
            in_groups = self._alone(claimed, list(in_groups), band)
        suspects = unknown
        if doubts := alone | in_groups:
            doubts = self._looked_closer(claimed, doubts, band)
            worst_first = sorted(doubts, key=lambda column: -doubts[column].excess)
            suspects = list(dict.fromkeys([*unknown, *worst_first]))
        relative = band.coarsest / largest if largest else math.inf
        return suspects, Resolution(absolute=band.coarsest, relative=relative), largest, band.largest

    def _alone(self, claimed: Array, columns: list[int], band: _Band) -> dict[int, _Off]:
        """Which of some columns are off, each moved by itself: together they may do what none does alone."""
        return self._seen(claimed, columns, band, self.direction, FIRST)

    def _looked_closer(self, claimed: Array, doubts: dict[int, _Off], band: _Band) -> dict[int, _Off]:
        """Without the columns that were off by little, and are right on far finer steps, as two of them say.

        An error larger than what they were off by would have been left to all care. One just as large may look right.
        """
        slightly = [column for column, off in doubts.items() if off.slight]
        if not 0 < len(slightly) <= CAREFULLY or self.options.step is not None:
            return doubts
        wrong = {column for t in CLOSER for column in self._seen(claimed, slightly, band, self._direction(t), CLOSE)}
        right = [doubts[column] for column in slightly if column not in wrong]
        band.coarsest = max([band.coarsest, *(BEYOND * off.error for off in right)])
        return {column: off for column, off in doubts.items() if not off.slight or column in wrong}

    def _seen(self, claimed: Array, columns: list[int], band: _Band, direction: Array, look: _Look) -> dict[int, _Off]:
        """Which of some columns are off, each moved by itself by its coordinate of a direction."""
        directions = directions_of(self.subject.arrays, direction, [[column] for column in columns])
        moves = direction[columns]
        found = band.compare(directions, abs(moves)[:, None], (claimed[:, columns] * moves).T, look)
        return {columns[off.number]: off for off in found}

    def _involved(self, claimed: Array, group: list[int], off: _Off, band: _Band) -> list[int]:
        """The columns of a group with an entry in the rows that are off, if alone they change these as the group does.

        If not, a column changes them that is not said to, and that may be any of the group.
        """
        entries = (claimed[off.rows][:, group] != 0).any(0).tolist()
        involved = [column for column, has_entry in zip(group, entries, strict=True) if has_entry]
        if not involved or len(involved) == len(group):
            return group
        slopes = band.slopes(directions_of(self.subject.arrays, self.direction, [involved]))[0][0, off.rows]
        return involved if bool((abs(slopes - off.slopes) <= 0.5 * band.noise[off.rows]).all()) else group


class _Off(NamedTuple):
    """A direction, by its number, along which something is not as claimed: how far off, in which rows, of what slopes.

    `excess` is the error over what is allowed. `slight` says that it is off by little; what bends or is hidden is not.
    """

    number: int
    error: float
    excess: float
    rows: Array
    slopes: Array
    slight: bool


class _Band:
    """A range of outputs, at first look."""

    def __init__(self, subject: Subject, options: Probing, first: int, rows: int) -> None:
        self.subject, self.options = subject, options
        self.rows = slice(first, first + rows)
        values = subject.centre[self.rows]
        if not subject.finite:
            values = subject.arrays.where(subject.arrays.isfinite(values), values, 0.0)
        usual = math.sqrt(float(values @ values) / rows)
        self.noise = abs(values)
        self.noise += usual + subject.tiny / (ROUNDING * subject.precision)
        self.noise *= NOISY * ROUNDING * subject.precision
        self.murky = 2 * NOISY * ROUNDING * subject.precision > BLIND * first_step(subject.precision)
        self.coarsest = self.largest = 0.0

    def slopes(self, directions: Array) -> tuple[Array, Array]:
        """How the outputs change along each direction, as seen from both sides, and how far the two sides differ."""
        both = self.subject.arrays.concatenate([directions, -directions])
        changes = self.subject.evaluate_many(both, 1.0)[:, self.rows] - self.subject.centre[self.rows]
        ahead, behind = changes[: directions.shape[0]], changes[directions.shape[0] :]
        bends = abs(ahead + behind)
        ahead -= behind
        ahead *= 0.5
        return ahead, bends

    def compare(self, directions: Array, steps: Array, predicted: Array, look: _Look = FIRST) -> list[_Off]:
        """The directions along which something is off, bent or hidden.

        `steps` are the shortest along each direction, of those that are taken.
        """
        xp, options = self.subject.arrays, self.options
        slopes, bends = self.slopes(directions)
        size = abs(predicted)
        peak = xp.amax(size, 1)[:, None]
        self.largest = max(self.largest, float(peak.max()))
        hidden = self.noise > BLIND * peak
        if not self.murky:  # then what is claimed to be zero would show if it were not
            hidden &= size > 0
        size *= CLAIM_ACCURACY
        allowed = size + self.noise
        allowed += look.error * peak
        if options.rtol or options.atol:
            allowed += options.rtol * abs(slopes) + options.atol * steps
        error = abs(slopes - predicted)
        visible = (bends <= look.bend * peak + 4 * self.noise) & ~hidden
        fine = (error <= allowed) & visible
        seen = allowed / steps
        seen[hidden] = 0.0
        self.coarsest = max(self.coarsest, float(seen.max()))
        if bool(fine.all()):
            return []
        told_closer = DISTINCT * (CLOSE.error * peak + self.noise / CLOSER[-1])
        little = (error >= told_closer) & (error <= LITTLE * peak)
        slight = (visible & ((error <= allowed) | little)).all(1).tolist()
        excess = xp.nan_to_num(xp.amax(error / allowed, 1), nan=math.inf, posinf=math.inf).tolist()
        worst = xp.amax(error / steps, 1).tolist()
        found = []
        for number in xp.where(~fine.all(1))[0].tolist():
            rows = xp.where(~fine[number])[0]
            found.append(_Off(number, worst[number], excess[number], rows, slopes[number][rows], slight[number]))
        return found


def _along(xp: Array, vector: Array, low: int, high: int) -> Array:
    """The vector's coordinates in a range, each in a row of its own."""
    places = xp.arange(vector.shape[0], device=vector.device)
    return xp.where(places[low:high, None] == places, vector, 0.0)


def _largest(entries: Array) -> float:
    """The size of the largest entry; not finite where an entry is not."""
    return max(float(entries.max()), -float(entries.min()))
