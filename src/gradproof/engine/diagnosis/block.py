"""A piece of the Jacobian, claimed beside measured: all of it where it is small, else a few rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof.engine.diagnosis.case import Case
from gradproof.engine.subject import Array

ROWS = 96  # outputs up to which all of them are looked at
SOME_ROWS = 40
A_COLUMN = 8  # rows that one column brings in
SOME_COLUMNS = 20
WINDOW = 10  # neighbouring columns, which often meet in the same outputs
NEGLIGIBLE = 3e-9  # of the largest entry


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
    if case.input is None or (bench.large and case.sample is None):
        return None
    if case.sample is not None:
        return _of_sample(case)
    columns = _columns(case)
    slopes, bars = _measured(case, columns)
    low, high = (case.output.start, case.output.stop) if case.output else (0, bench.subject.outputs.size)
    rows = _rows(case, columns, slopes[:, low:high]) + low
    largest = float(xp.where(xp.isfinite(slopes), abs(slopes), 0.0 * slopes).max())
    moving = abs(slopes) > 3 * bars + NEGLIGIBLE * largest
    complete = (moving[:, low:high].sum(1) == moving[:, rows].sum(1)).tolist()
    answers = []
    if case.reverse:
        pairs = zip(case.whole_claims, case.questions, strict=True)
        answers = [(claim[columns], slopes @ question) for claim, question in pairs]
    right, bars = slopes[:, rows].T, bars[:, rows].T
    claimed = _claimed(case, rows, columns)
    unknown = ~xp.isfinite(bars)
    slack = 3 * xp.where(unknown, 0.0 * bars, bars) + NEGLIGIBLE * largest
    right = xp.where(unknown, claimed, right)
    return Block(claimed, right, xp.where(unknown, slack + largest, slack), complete, answers)


def _of_sample(case: Case) -> Block:
    """For a sample of the inputs: a row is what is claimed and right for a question, which is all that is known."""
    xp = case.xp
    claimed, right = xp.stack(case.claimed), xp.stack(case.right_values)
    bars = xp.stack([known.bar for known in case.known])
    slack = 3 * bars + NEGLIGIBLE * float(abs(right).max())
    answers = list(zip(case.claimed, case.right_values, strict=True))
    return Block(claimed, right, slack, [False] * int(case.sample.shape[0]), answers)


def _columns(case: Case) -> Array:
    """All inputs, or the worst, their neighbours, and some others."""
    xp, part, like = case.xp, case.input, case.questions[0]
    assert part is not None
    if case.full and part.size <= ROWS:
        return xp.arange(part.start, part.stop, device=like.device)
    first = case.worst[0] if case.worst else part.start
    start = max(part.start, min(first - WINDOW // 2, part.stop - WINDOW))
    near = range(start, min(start + WINDOW, part.stop))
    spread = (part.start + (k * 7919 + 13) % part.size for k in range(SOME_COLUMNS))
    chosen = sorted(list(dict.fromkeys([*case.worst[:6], *near, *spread]))[:SOME_COLUMNS])
    return xp.arange(0, part.stop, device=like.device)[chosen]


def _measured(case: Case, columns: Array) -> tuple[Array, Array]:
    xp, bench = case.xp, case.bench
    if case.reverse and case.full:
        return case.columns
    direction = bench.direction(1)
    steps = direction[columns]
    steps = xp.where(steps == 0, 0 * steps + bench.step, steps)
    directions = xp.zeros_like(xp.stack([direction] * columns.shape[0]))
    directions[xp.arange(0, columns.shape[0], device=direction.device), columns] = steps
    slopes, bars = bench.slopes(directions)
    return slopes / steps[:, None], bars / abs(steps)[:, None]


def _rows(case: Case, columns: Array, slopes: Array) -> Array:
    """All outputs, or those that the columns move most, the worst columns' first."""
    xp, size = case.xp, int(slopes.shape[1])
    if size <= ROWS:
        return xp.arange(0, size, device=slopes.device)
    known = xp.where(xp.isfinite(slopes), abs(slopes), 0.0 * slopes)
    least = NEGLIGIBLE * float(known.max())
    chosen: dict[int, None] = {}
    for _, column in sorted((coordinate not in case.worst, k) for k, coordinate in enumerate(columns.tolist())):
        for row in xp.argsort(known[column])[-A_COLUMN:].tolist():
            if len(chosen) < SOME_ROWS and float(known[column, row]) > least:
                chosen[row] = None
    return xp.arange(0, size, device=slopes.device)[sorted(chosen) or [0]]


def _claimed(case: Case, rows: Array, columns: Array) -> Array:
    xp, subject = case.xp, case.bench.subject
    if case.reverse:
        units = xp.zeros_like(xp.stack([subject.centre] * rows.shape[0]))
        units[xp.arange(0, rows.shape[0], device=units.device), rows] = 1.0
        return subject.pullback_many(units)[:, columns]
    units = xp.zeros_like(xp.stack([subject.point] * columns.shape[0]))
    units[xp.arange(0, columns.shape[0], device=units.device), columns] = 1.0
    return subject.pushforward_many(units)[:, rows].T
