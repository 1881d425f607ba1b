"""Full coverage: every entry of the Jacobian, claimed beside measured.

The claimed Jacobian comes by rows, from pullbacks, or by columns, from pushforwards. Columns that share no row in it
are moved together, each by a step of its own, so that a claimed zero that is none shows as well. A first look takes one
step to either side. Columns in which something lies outside its allowance, or bends, are looked at once more if they
are few, each by itself. What is then left is judged with all care: as a subject (`Columns`) whose outputs are the
entries themselves.
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
from gradproof.engine.subject import Array, DerivativeError, Subject
from gradproof.engine.weighing import CLAIM_ACCURACY, Probing

HELD = 1 << 25  # entries of the claimed Jacobian at a time
WORST = 12  # columns judged with all care first: more than are shown, and if they are wrong, it is enough
CAREFULLY = 64  # columns judged together with all care
FIRST_LOOK = 3e-8  # of the largest slope in a column: an error below it is not looked for
NOISY = 8.0  # times the rounding of values, granted at first look
BLIND = 0.05  # of the largest slope in a column: noise above it hides the column, which is then judged with care
BENT = 1e-3  # of the largest slope in a column: a bend above it is looked at
KINK = "kink"  # the first word where one is in the way
Progress = Callable[[int, int], None]


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
        step = options.step or first_step(subject.precision)
        self.direction = subject.direction(seed, step, options.step is not None)
        self.steps = subject.arrays.where(self.direction == 0, math.inf, abs(self.direction))
        self.rows, self.columns = subject.outputs.size, subject.inputs.size

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
                    in_groups |= dict.fromkeys(self._involved(claimed, group, off.rows, band), off)
            self.progress(count + stop, 2 * count)
        if 0 < len(in_groups) <= CAREFULLY:
            in_groups = self._alone(claimed, list(in_groups), band)
        doubts = sorted((alone | in_groups).items(), key=lambda pair: -pair[1].excess)
        suspects = list(dict.fromkeys([*unknown, *(column for column, _ in doubts)]))
        relative = band.coarsest / largest if largest else math.inf
        return suspects, Resolution(absolute=band.coarsest, relative=relative), largest, band.largest

    def _alone(self, claimed: Array, columns: list[int], band: _Band) -> dict[int, _Off]:
        """Which of some columns are off, each moved by itself: together they may do what none does alone."""
        directions = directions_of(self.subject.arrays, self.direction, [[column] for column in columns])
        predicted = (claimed[:, columns] * self.direction[columns]).T
        found = band.compare(directions, self.steps[columns][:, None], predicted)
        return {columns[off.number]: off for off in found}

    def _involved(self, claimed: Array, group: list[int], rows: Array, band: _Band) -> list[int]:
        """The columns of a group with an entry in some rows, if alone they change these rows as the group does.

        If not, a column changes them that is not said to, and that may be any of the group.
        """
        xp = self.subject.arrays
        entries = (claimed[rows][:, group] != 0).any(0).tolist()
        involved = [column for column, has_entry in zip(group, entries, strict=True) if has_entry]
        if not involved or len(involved) == len(group):
            return group
        slopes = band.slopes(directions_of(xp, self.direction, [involved, group]))[0][:, rows]
        return involved if bool((abs(slopes[0] - slopes[1]) <= 0.5 * band.noise[rows]).all()) else group


class _Off(NamedTuple):
    """A direction, by its number, along which something is not as claimed: how far off, and in which rows."""

    number: int
    excess: float
    rows: Array


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

    def compare(self, directions: Array, steps: Array, predicted: Array) -> list[_Off]:
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
        allowed += FIRST_LOOK * peak
        if options.rtol or options.atol:
            allowed += options.rtol * abs(slopes) + options.atol * steps
        error = abs(slopes - predicted)
        fine = (error <= allowed) & (bends <= BENT * peak + 4 * self.noise) & ~hidden
        seen = allowed / steps
        seen[hidden] = 0.0
        self.coarsest = max(self.coarsest, float(seen.max()))
        if bool(fine.all()):
            return []
        found = []
        for number in xp.where(~fine.all(1))[0].tolist():
            excess = float((error[number] / allowed[number]).max())
            rows = xp.where(~fine[number])[0]
            found.append(_Off(number, excess if math.isfinite(excess) else math.inf, rows))
        return found


def _along(xp: Array, vector: Array, low: int, high: int) -> Array:
    """The vector's coordinates in a range, each in a row of its own."""
    places = xp.arange(vector.shape[0], device=vector.device)
    return xp.where(places[low:high, None] == places, vector, 0.0)


def _largest(entries: Array) -> float:
    """The size of the largest entry; not finite where an entry is not."""
    return max(float(entries.max()), -float(entries.min()))
