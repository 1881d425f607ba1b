"""Heat maps: the error of a Jacobian in blocks of outputs by inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise

from gradproof.engine.results import HeatMap, Place
from gradproof.report.axes import Label, Line, Tick, short

LETTER = 6.6  # pixels across
LINE = 12  # pixels down
GAP = 6  # pixels between labels
BESIDE, BELOW = 30, 20  # pixels for ticks
NARROW = 9  # pixels: lines that are closer hide what is between them
LEVELS = 5  # shades
SHADE = 10**0.5  # ratio of the errors of neighbouring shades


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatPicture:
    """The error of a Jacobian in blocks, each with a shade. Ticks are indices along the first dimension of tensors."""

    left = 76
    top: int
    width: int
    height: int
    across: float
    down: float
    shades: list[str]
    legend: str
    columns: list[Label]
    rows: list[Label]
    column_ticks: list[Tick]
    row_ticks: list[Tick]
    edges: list[Line]
    grid: str
    exact: bool
    mode: str
    says: str

    @property
    def right(self) -> int:
        """Where the columns end."""
        return self.width - BESIDE

    @property
    def bottom(self) -> int:
        """Where the rows end."""
        return self.height - BELOW


def heat(found: HeatMap) -> HeatPicture | None:
    """Return the blocks of a Jacobian with shades, the darkest for the largest error."""
    rows, columns = len(found.rows), len(found.columns)
    errors = [[error if math.isfinite(error) else math.inf for error in row] for row in found.errors]
    finite = [error for row in errors for error in row if 0 < error < math.inf]
    largest = max(finite, default=1.0)
    across, down = (round(min(22.0, max(3.0, 272 / size)), 2) for size in (columns, rows))
    shades = [""] * LEVELS
    for number, row in enumerate(errors):
        at = 0
        for level, run in groupby(row, key=lambda error: _level(error, largest)):
            length = len(list(run))
            if level is not None:
                shades[level] += f"M{at} {number}h{length}v1h-{length}z"
            at += length
    labels = _labels(found.columns, across, room=LETTER, lanes=2)
    top = 22 + LINE * max(label.lane for label in labels)
    wrong = sum(1 for row in errors for error in row if error)
    return HeatPicture(
        width=round(76 + columns * across + BESIDE),
        height=round(top + rows * down + BELOW),
        top=top,
        across=across,
        down=down,
        shades=shades,
        legend=f"up to {largest:.2g}",
        columns=labels,
        rows=_labels(found.rows, down, room=0),
        column_ticks=_ticks(found.columns, across, room=LETTER),
        row_ticks=_ticks(found.rows, down, room=0),
        edges=[
            *(Line(at, 0, at, rows) for at in _edges(found.columns)),
            *(Line(0, at, columns, at) for at in _edges(found.rows)),
        ],
        grid="".join(f"M{at} 0v{rows}" for at in _slices(found.columns, across))
        + "".join(f"M0 {at}h{columns}" for at in _slices(found.rows, down)),
        exact=found.exact,
        mode=found.mode,
        says=f"{wrong} of {rows * columns} {'entries' if found.exact else 'blocks of entries'} are wrong.",
    )


def _level(error: float, largest: float) -> int | None:
    if not error:
        return None
    if error >= largest:
        return LEVELS - 1
    return max(0, LEVELS - 1 - math.floor(math.log(min(largest / error, 1e300), SHADE)))


def _labels(places: Iterable[Place], pace: float, *, room: float, lanes: int = 1) -> list[Label]:
    """Return the name of each tensor in the middle of its blocks, in the first lane where there is room.

    `room` is what a letter takes; nothing, for labels below each other, which take a line.
    """
    labels: list[Label] = []
    ends, at = [-math.inf] * lanes, 0
    for path, run in groupby(places, key=lambda place: place.path):
        length, text = len(list(run)), short(path, 12)
        middle, half = (at + length / 2) * pace, max(LINE, room * len(text)) / 2
        lane = next((number for number, end in enumerate(ends) if middle - half >= end), None)
        if lane is not None:
            labels.append(Label(at=round(middle, 1), text=text, lane=lane))
            ends[lane] = middle + half + (GAP if room else 0)
        at += length
    return labels


def _ticks(places: tuple[Place, ...], pace: float, *, room: float) -> list[Tick]:
    """Return the index of the first block of every slice of a tensor, where there is room for it."""
    ticks: list[Tick] = []
    end = -math.inf
    for at in sorted([0, *_edges(places), *_slices(places, math.inf)]):
        label = str(*places[at].index[:1])
        middle, half = (at + 0.5) * pace, max(LINE, room * len(label)) / 2
        if label and middle - half >= end:
            ticks.append(Tick(round(middle, 1), label))
            end = middle + half + (GAP if room else 0)
    return ticks


def _slices(places: tuple[Place, ...], pace: float) -> list[int]:
    """Return where slices along the first dimension of tensors begin, but for the first; none if they are narrow."""
    starts = [
        at
        for at, (before, after) in enumerate(pairwise(places), 1)
        if before.path == after.path and before.index[:1] != after.index[:1]
    ]
    return starts if pace * len(places) >= NARROW * len(starts) else []


def _edges(places: tuple[Place, ...]) -> list[int]:
    return [at for at, (before, after) in enumerate(pairwise(places), 1) if before.path != after.path]
