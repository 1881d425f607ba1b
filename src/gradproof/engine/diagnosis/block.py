"""A piece of the Jacobian, claimed beside measured: all of it where it is small, else a few rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof.engine.diagnosis.bench import units
from gradproof.engine.diagnosis.case import NOTHING, SMALL, Case
from gradproof.engine.diagnosis.parts import spread
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY

SOME = 16  # of what there may be many, so many are looked at: columns, rows of each, tensors, places


@dataclass(frozen=True, slots=True)
class Block:
    """Rows are outputs, columns inputs. `slack` is how far an entry may be off.

    `complete` says of each column whether all outputs that it moves are among the rows; `answers` are what is claimed
    and what is right of the columns for the case's questions, in reverse mode.
    """

    claimed: Array
    right: Array
    slack: Array
    complete: list[bool]
    answers: list[tuple[Array, Array]]

    @property
    def wrong(self) -> Array:
        """Which entries are wrong."""
        return abs(self.claimed - self.right) > self.slack

    @property
    def dropped(self) -> Array:
        """Which are claimed to be zero and are not."""
        return self.wrong & (abs(self.claimed) <= self.slack)


def block_of(case: Case) -> Block | None:
    """The piece of the Jacobian that a case is about, around its worst entries."""
    xp, bench = case.xp, case.bench
    if case.sample is not None:
        return _of_sample(case)
    if bench.large:
        return None
    columns = _columns(case)
    slopes, bars = (case.slopes, case.bars) if case.reverse and case.full else bench.columns(columns)
    low, high = (case.output.start, case.output.stop) if case.output else (0, bench.subject.outputs.size)
    rows = _rows(case, columns, slopes[:, low:high]) + low
    largest = float(xp.where(xp.isfinite(slopes), abs(slopes), 0.0 * slopes).max())
    moving = abs(slopes) > CLEARLY * bars + NOTHING * largest
    complete = (moving[:, low:high].sum(1) == moving[:, rows].sum(1)).tolist()
    answers = []
    if case.reverse:
        pairs = zip(case.whole_claims, case.questions, strict=True)
        answers = [(claim[columns], slopes @ question) for claim, question in pairs]
    right, bars = slopes[:, rows].T, bars[:, rows].T
    claimed = _claimed(case, rows, columns)
    unknown = ~xp.isfinite(bars)
    slack = CLEARLY * xp.where(unknown, xp.zeros_like(bars), bars) + NOTHING * largest
    right = xp.where(unknown, claimed, right)
    return Block(claimed, right, xp.where(unknown, slack + largest, slack), complete, answers)


def _of_sample(case: Case) -> Block:
    """For a sample of the inputs: a row is what is claimed and right for a question, which is all that is known."""
    xp = case.xp
    claimed, right = xp.stack(case.claimed), xp.stack(case.right_values)
    slack = CLEARLY * xp.stack([known.bar for known in case.known]) + NOTHING * float(abs(right).max())
    answers = list(zip(case.claimed, case.right_values, strict=True))
    return Block(claimed, right, slack, [False] * int(case.sample.shape[0]), answers)


def _columns(case: Case) -> Array:
    """All inputs, or the worst, their neighbours, which often meet in the same outputs, and some others."""
    xp, part, like = case.xp, case.input, case.questions[0]
    places = xp.arange(0, part.stop, device=like.device)
    if case.full and part.size <= SMALL:
        return places[part.start :]
    first = case.worst[0] if case.worst else part.start
    start = max(part.start, min(first - SOME // 4, part.stop - SOME // 2))
    near = range(start, min(start + SOME // 2, part.stop))
    others = (part.start + place for place in spread(part.size, SOME))
    return places[sorted(list(dict.fromkeys([*case.worst[: SOME // 4], *near, *others]))[:SOME])]


def _rows(case: Case, columns: Array, slopes: Array) -> Array:
    """All outputs, or those that the columns move most, the worst columns' first."""
    xp, size = case.xp, int(slopes.shape[1])
    if size <= SMALL:
        return xp.arange(0, size, device=slopes.device)
    known = xp.where(xp.isfinite(slopes), abs(slopes), 0.0 * slopes)
    least = NOTHING * float(known.max())
    chosen: dict[int, None] = {}
    for _, column in sorted((coordinate not in case.worst, k) for k, coordinate in enumerate(columns.tolist())):
        for row in xp.argsort(known[column])[-SOME:].tolist():
            if len(chosen) < SMALL and float(known[column, row]) > least:
                chosen[row] = None
    return xp.arange(0, size, device=slopes.device)[sorted(chosen) or [0]]


def _claimed(case: Case, rows: Array, columns: Array) -> Array:
    xp, subject = case.xp, case.bench.subject
    if case.reverse:
        return subject.pullback_many(units(xp, subject.centre, rows))[:, columns]
    return subject.pushforward_many(units(xp, subject.point, columns))[:, rows].T
