"""Full coverage: every entry of the Jacobian, claimed beside measured.

The claimed Jacobian comes by rows, from pullbacks, or by columns, from pushforwards. Columns that share no row in it
are moved together, each by a step of its own, so that a claimed zero that is none shows as well. A first look takes one
step to either side. Columns in which something lies outside its allowance, or bends, are then judged with all care: as
a subject (`Columns`) whose outputs are the entries themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from gradproof.engine.colouring import groups_of
from gradproof.engine.judgement import EMPTY, Judgement, judge, raised, together
from gradproof.engine.ladder import ROUNDING, first_step
from gradproof.engine.obstacles import all_undefined
from gradproof.engine.results import Place, Resolution, Verdict
from gradproof.engine.subject import Array, DerivativeError, Subject
from gradproof.engine.weighing import CLAIM_ACCURACY, Probing

HELD = 1 << 25  # entries of the claimed Jacobian at a time
AT_ONCE = 1 << 22  # numbers in one batch of calls
CAREFULLY = 64  # columns judged together with all care
FIRST_LOOK = 3e-8  # of the largest slope in a column: an error below it is not looked for
NOISY = 8.0  # times the rounding of values, granted at first look
BENT = 1e-3  # of the largest slope in a column: a bend above it is looked at
Progress = Callable[[int, int], None]


class Columns:
    """Some columns at once: its inputs are their steps, its outputs all outputs along each, one after the other.

    It is a subject as far as the judge of a pushforward asks.
    """

    mode = "forward"

    def __init__(self, whole: Subject, columns: list[int], claimed: Array, first: int) -> None:
        """`claimed` holds what is claimed of the columns, for the outputs from `first` on."""
        self.whole, self.columns, self._claimed, self._first = whole, columns, claimed, first
        self.rule, self.arrays, self.inputs, self.outputs = whole.rule, whole.arrays, _Steps(self), self
        self.precision, self.gradient_precision = whole.precision, whole.gradient_precision
        self.largest, self.tiny = whole.largest, whole.tiny
        self._rows = int(claimed.shape[0])
        self._centre = whole.centre[first : first + self._rows]
        self.centre = self.arrays.concatenate([self._centre] * len(columns))
        self.finite = bool(self.arrays.isfinite(self.centre).all())
        self.size = int(self.centre.shape[0])
        self.spans = [(0, self.size)]

    @property
    def trouble(self) -> str:
        """As of the whole."""
        return self.whole.trouble

    def locate(self, coordinate: int) -> Place:
        """The output that an entry belongs to."""
        return self.whole.outputs.locate(self._first + coordinate % self._rows)

    def direction(self, seed: int, step: float, absolute: bool) -> Array:
        """For every column a direction that moves it alone, by its part of a random direction."""
        return _directions(self.arrays, self.whole.direction(seed, step, absolute), [[k] for k in self.columns])

    def cotangent(self, seed: int) -> Array:
        """Random incoming gradients, of every column its own."""
        rows = slice(self._first, self._first + self._rows)
        return self.arrays.concatenate([self.whole.cotangent(seed + k)[rows] for k in range(len(self.columns))])

    def evaluate(self, direction: Array, t: float) -> Array:
        """The values along each direction; those of a direction that was taken out stand still."""
        xp = self.arrays
        active = xp.where((direction != 0).any(1))[0]
        values = xp.stack([self._centre] * len(self.columns))
        if active.shape[0]:
            rows = slice(self._first, self._first + self._rows)
            values[active] = self.whole.evaluate_many(direction[active], t)[:, rows]
        return values.reshape(-1)

    def pushforward(self, direction: Array) -> Array:
        """What is claimed along each direction."""
        steps = direction.sum(1)  # each moves one column
        return (self._claimed.T * steps[:, None]).reshape(-1)


@dataclass(frozen=True, slots=True)
class _Steps:
    """The columns' steps, as coordinates."""

    of: Columns

    @property
    def size(self) -> int:
        return len(self.of.columns)

    @property
    def spans(self) -> list[tuple[int, int]]:
        return [(0, self.size)]

    def locate(self, coordinate: int) -> Place:
        return self.of.whole.inputs.locate(self.of.columns[coordinate])


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
        self.rows, self.columns = subject.outputs.size, subject.inputs.size

    def judgements(self) -> Iterator[Judgement]:
        """What the first look says, and then what care says of the suspicious columns, until one of them is wrong."""
        band = max(1, HELD // self.columns)
        for first in range(0, self.rows, band):
            claimed = self._claimed(first, min(first + band, self.rows))
            suspects, resolution = self._first_look(claimed, first)
            yield Judgement(verdict=Verdict.PASS, resolution=resolution)
            for start in range(0, len(suspects), CAREFULLY):
                few = suspects[start : start + CAREFULLY]
                columns = Columns(self.subject, few, claimed[:, few], first)
                judgement = judge(cast(Subject, columns), probes=self.probes, seed=self.seed, options=self.options)
                yield judgement
                if judgement.verdict is Verdict.FAIL:
                    return

    def _claimed(self, low: int, high: int) -> Array:
        """The claimed rows in a range, from pullbacks; or their part of all columns, from pushforwards."""
        xp, subject = self.subject.arrays, self.subject
        blocks = []
        if subject.mode == "reverse":
            for start, stop in _batches(low, high, max(self.rows, self.columns)):
                blocks.append(subject.pullback_many(_units(xp, subject.centre, start, stop)))
                self.progress(stop, 2 * self.rows)
            return xp.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        for start, stop in _batches(0, self.columns, max(self.rows, self.columns)):
            blocks.append(subject.pushforward_many(_units(xp, self.direction, start, stop))[:, low:high])
            self.progress(stop, 2 * self.columns)
        return (xp.concatenate(blocks) if len(blocks) > 1 else blocks[0]).T

    def _first_look(self, claimed: Array, first: int) -> tuple[list[int], Resolution]:
        """The columns to look at with more care, worst first, and the smallest error that was looked for."""
        xp, subject, options = self.subject.arrays, self.subject, self.options
        centre = subject.centre[first : first + int(claimed.shape[0])]
        known = xp.where(xp.isfinite(centre), centre, 0.0)
        usual = math.sqrt(float(known @ known) / centre.shape[0])
        noise = NOISY * ((ROUNDING * subject.precision) * (abs(known) + usual) + subject.tiny)
        groups = groups_of(xp, claimed != 0)
        singly = groups is None
        groups = [[column] for column in range(self.columns)] if groups is None else groups
        suspects: list[tuple[float, int]] = []
        coarsest = 0.0
        for start, stop in _batches(0, len(groups), max(self.rows, self.columns)):
            directions = _directions(xp, self.direction, groups[start:stop])
            predicted = (claimed[:, start:stop] * self.direction[start:stop]).T if singly else directions @ claimed.T
            ahead, behind = (self._change(directions, t, centre, first) for t in (1.0, -1.0))
            peak = xp.amax(abs(predicted), 1)[:, None]
            steps = xp.amax(abs(directions), 1)[:, None]
            allowed = noise + FIRST_LOOK * peak + (CLAIM_ACCURACY + options.rtol) * abs(predicted)
            allowed = allowed + options.atol * 0.5 * steps
            error = abs((ahead - behind) * 0.5 - predicted)
            bent = abs(ahead + behind) > BENT * peak + 4 * noise
            bad = ~(error <= allowed) | bent
            coarsest = max(coarsest, float(xp.amax(allowed / (0.5 * steps))))
            for number in xp.where(bad.any(1))[0].tolist():
                excess = float(xp.amax(error[number] / allowed[number]))
                rank = excess if math.isfinite(excess) else math.inf
                suspects += [(-rank, column) for column in groups[start + number]]
            self.progress(len(groups) + stop, 2 * len(groups))
        largest = float(abs(claimed).max())
        relative = coarsest / largest if largest else math.inf
        return [column for _, column in sorted(suspects)], Resolution(absolute=coarsest, relative=relative)

    def _change(self, directions: Array, t: float, centre: Array, first: int) -> Array:
        values = self.subject.evaluate_many(directions, t)
        return values[:, first : first + centre.shape[0]] - centre


def _batches(low: int, high: int, width: int) -> Iterator[tuple[int, int]]:
    many = max(1, AT_ONCE // width)
    return ((start, min(start + many, high)) for start in range(low, high, many))


def _units(xp: Array, like: Array, low: int, high: int) -> Array:
    """The unit vectors from one coordinate to another, stacked."""
    block = xp.zeros_like(xp.stack([like] * (high - low)))
    block[xp.arange(high - low), xp.arange(low, high)] = 1.0
    return block


def _directions(xp: Array, direction: Array, groups: list[list[int]]) -> Array:
    """For each group of columns a direction that moves these alone, stacked."""
    block = xp.zeros_like(xp.stack([direction] * len(groups)))
    where = [number for number, group in enumerate(groups) for _ in group]
    columns = [column for group in groups for column in group]
    block[where, columns] = direction[columns]
    return block
