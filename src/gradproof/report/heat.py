"""A Jacobian's error as a picture: blocks of outputs by inputs, in shades."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, pairwise

from gradproof.engine.results import HeatMap, Place
from gradproof.report.axes import Line, Tick, short

LEVELS = 5  # shades
SHADE = 10**0.5  # between neighbouring shades


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatPicture:
    """A Jacobian's error in blocks, in shades."""

    left = 76
    top = 22
    width: int
    height: int
    across: float
    down: float
    shades: list[str]
    legend: str
    columns: list[Tick]
    rows: list[Tick]
    edges: list[Line]
    exact: bool
    mode: str
    says: str


def heat(found: HeatMap) -> HeatPicture | None:
    """The blocks of a Jacobian in shades, the darkest for the largest error."""
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
    wrong = sum(1 for row in errors for error in row if error)
    return HeatPicture(
        width=round(76 + columns * across + 8),
        height=round(22 + rows * down + 8),
        across=across,
        down=down,
        shades=shades,
        legend=f"up to {largest:.2g}",
        columns=_labels(found.columns, across),
        rows=_labels(found.rows, down),
        edges=[
            *(Line(at, 0, at, rows) for at in _edges(found.columns)),
            *(Line(0, at, columns, at) for at in _edges(found.rows)),
        ],
        exact=found.exact,
        mode=found.mode,
        says=f"{wrong} of {rows * columns} {'entries' if found.exact else 'blocks of entries'} are wrong.",
    )


def _level(error: float, largest: float) -> int | None:
    if not error:
        return None
    if error >= largest:
        return LEVELS - 1
    return max(0, LEVELS - 1 - math.floor(math.log(largest / error, SHADE)))


def _labels(places: Iterable[Place], pace: float) -> list[Tick]:
    """The name of each tensor, in the middle of its blocks, where there is room for it."""
    labels, at = [], 0
    for path, run in groupby(places, key=lambda place: place.path):
        length = len(list(run))
        if length * pace >= 11:
            labels.append(Tick(round((at + length / 2) * pace, 1), short(path, 12)))
        at += length
    return labels


def _edges(places: tuple[Place, ...]) -> list[int]:
    return [at for at, (before, after) in enumerate(pairwise(places), 1) if before.path != after.path]
