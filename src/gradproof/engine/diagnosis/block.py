"""A block of the Jacobian, claimed and measured: all of it if it is small, else a few rows and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradproof.engine.diagnosis.case import SMALL, ZERO, Case
from gradproof.engine.diagnosis.measurements import units
from gradproof.engine.parts import quasirandom_indices
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import CLEARLY, MANY, SLIGHT


@dataclass(frozen=True, slots=True)
class Block:
    """Claimed and measured entries of the Jacobian. Rows are outputs, columns are inputs.

    `rows` and `columns` are their coordinates; `rows` is None if they are products with operands. `slack` is how
    far an entry may be off. `complete` says for each column whether the rows include every output that it influences.
    `products` are the claimed and the measured gradients in these columns for each operand of the case, in reverse
    mode.
    """

    claimed: Array
    right: Array
    slack: Array
    rows: Array
    columns: Array
    complete: list[bool]
    products: list[tuple[Array, Array]]

    @property
    def wrong(self) -> Array:
        """A mask of the wrong entries."""
        return abs(self.claimed - self.right) > self.slack

    @property
    def dropped(self) -> Array:
        """A mask of the entries that are claimed to be zero and are not."""
        return self.wrong & (abs(self.claimed) <= self.slack)

    def holds_the_errors(self, operands: Sequence[Array]) -> bool:
        """Return False if a column is wrong in outputs that it does not influence, which are not among the rows."""
        inside = self.right - self.claimed
        for operand, (claimed, right) in zip(operands, self.products, strict=False):
            left = abs(right - claimed - operand[self.rows] @ inside)
            allowed = SLIGHT * float(abs(right - claimed).max())
            if any(whole and off > allowed for whole, off in zip(self.complete, left.tolist(), strict=True)):
                return False
        return True


def block_of(case: Case) -> Block | None:
    """Return the block of the Jacobian around the worst entries of a case; None for a large function."""
    xp, measurements = case.xp, case.measurements
    if case.sample is not None:
        return _of_sample(case)
    if measurements.large:
        return None
    columns = _columns(case)
    slopes, bars = (case.slopes, case.bars) if case.reverse and case.full else measurements.columns(columns)
    low, high = (case.output.start, case.output.stop) if case.output else (0, measurements.subject.outputs.size)
    rows = _rows(case, columns, slopes[:, low:high]) + low
    largest = float(xp.where(xp.isfinite(slopes), abs(slopes), 0.0 * slopes).max())
    moving = abs(slopes) > CLEARLY * bars + ZERO * largest
    complete = (moving[:, low:high].sum(1) == moving[:, rows].sum(1)).tolist()
    products = []
    if case.reverse:
        pairs = zip(case.full_claims, case.operands, strict=True)
        products = [(claim[columns], slopes @ operand) for claim, operand in pairs]
    right, bars = slopes[:, rows].T, bars[:, rows].T
    claimed = _claimed(case, rows, columns)
    unknown = ~xp.isfinite(bars)
    slack = CLEARLY * xp.where(unknown, xp.zeros_like(bars), bars) + ZERO * largest
    right = xp.where(unknown, claimed, right)
    slack = xp.where(unknown, slack + largest, slack)
    return Block(claimed, right, slack, rows, columns, complete, products)


def _of_sample(case: Case) -> Block:
    """Return a block for sampled inputs. Its rows are products with the operands; single outputs are not known."""
    xp = case.xp
    claimed, right = xp.stack(case.claimed), xp.stack(case.right_values)
    slack = CLEARLY * xp.stack([known.bar for known in case.known]) + ZERO * float(abs(right).max())
    products = list(zip(case.claimed, case.right_values, strict=True))
    columns = case.input.start + case.sample
    return Block(claimed, right, slack, None, columns, [False] * int(case.sample.shape[0]), products)


def _columns(case: Case) -> Array:
    """Choose columns: all, or the worst ones, their neighbours (which often share outputs) and some others."""
    xp, part, like = case.xp, case.input, case.operands[0]
    places = xp.arange(0, part.stop, device=like.device)
    if case.full and part.size <= SMALL:
        return places[part.start :]
    first = case.worst[0] if case.worst else part.start
    start = max(part.start, min(first - MANY // 4, part.stop - MANY // 2))
    near = range(start, min(start + MANY // 2, part.stop))
    others = (part.start + place for place in quasirandom_indices(part.size, MANY))
    return places[sorted(list(dict.fromkeys([*case.worst[: MANY // 4], *near, *others]))[:MANY])]


def _rows(case: Case, columns: Array, slopes: Array) -> Array:
    """Choose rows: all, or the outputs that depend most on the columns, beginning with the worst columns."""
    xp, size = case.xp, int(slopes.shape[1])
    if size <= SMALL:
        return xp.arange(0, size, device=slopes.device)
    known = xp.where(xp.isfinite(slopes), abs(slopes), 0.0 * slopes)
    least = ZERO * float(known.max())
    chosen: dict[int, None] = {}
    for _, column in sorted((coordinate not in case.worst, k) for k, coordinate in enumerate(columns.tolist())):
        for row in xp.argsort(known[column])[-MANY:].tolist():
            if len(chosen) < SMALL and float(known[column, row]) > least:
                chosen[row] = None
    return xp.arange(0, size, device=slopes.device)[sorted(chosen) or [0]]


def _claimed(case: Case, rows: Array, columns: Array) -> Array:
    xp, subject = case.xp, case.measurements.subject
    if case.reverse:
        return subject.pullback_many(units(xp, subject.centre, rows))[:, columns]
    return subject.pushforward_many(units(xp, subject.point, columns))[:, rows].T
