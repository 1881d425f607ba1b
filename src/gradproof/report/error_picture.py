"""Pictures of a comparison with a reference: the errors of a tensor by position."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from gradproof.engine.results import ErrorMap
from gradproof.report.axes import Tick

WIDTH, HEIGHT = 276.0, 176.0  # pixels of the blocks together, at most
LARGEST = 22.0  # pixels of a block
BARS = (0.25, 0.5, 1.0, 4.0, 32.0)  # shades end here; the last is open
TIMES = (0.25, 0.5, 1.0, 2.0, 8.0)  # likewise, for multiples of the plain error
SHADES = ("in0", "in1", "in2", "s1", "s3", "s4")
LEVELS = "▁▂▃▅▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorPicture:
    """Blocks of rows by columns, each with the shade of its error."""

    left = 64
    top = 22
    title: str
    width: int
    height: int
    across: float
    down: float
    shades: list[tuple[str, str]]
    legend: list[tuple[str, str]]
    x: list[Tick]
    y: list[Tick]
    caption: str
    says: str


def error_pictures(found: ErrorMap) -> list[ErrorPicture]:
    """Return where errors lie in error bars, and how large they are beside the plain reference's."""
    worst = max(max(row) for row in found.bars)
    wrong = sum(value > 1 for row in found.bars for value in row)
    total = len(found.bars) * len(found.bars[0])
    summary = f"The largest error is {worst:.2g} bars. " + (
        f"{wrong:,} of {total:,} blocks hold wrong entries." if wrong else "No entry is beyond its bar."
    )
    pictures = [_picture(found, found.bars, BARS, f"{found.name}: error in bars", summary)]
    if found.ratios:
        known = sorted(value for row in found.ratios for value in row)
        summary = f"Half of the blocks are below {known[len(known) // 2]:.2g}, the largest is {known[-1]:.2g}."
        title = f"{found.name}: error over the plain reference’s"
        pictures.append(_picture(found, found.ratios, TIMES, title, summary))
    return pictures


def sparkline(found: ErrorMap) -> str:
    """Return the errors by column and by row in a line of text, the highest for the most bars.

    >>> bars = ((0.1, 0.2, 0.1), (0.3, 0.1, 90.0))
    >>> sparkline(ErrorMap(name="output", rows=2, columns=3, down=1, across=1, bars=bars))
    'columns 0 ▂▁█ 2, rows 0 ▁█ 1'
    """
    across = [max(row[number] for row in found.bars) for number in range(len(found.bars[0]))]
    lines = [
        f"{name} 0 {''.join(LEVELS[bisect_left(BARS, value)] for value in values)} {length - 1}"
        for name, values, length in (("columns", across, found.columns), ("rows", [*map(max, found.bars)], found.rows))
        if length > 1
    ]
    return ", ".join(lines)


def _picture(
    found: ErrorMap, values: Sequence[Sequence[float]], ends: Sequence[float], title: str, summary: str
) -> ErrorPicture:
    rows, columns = len(values), len(values[0])
    across, down = round(min(LARGEST, WIDTH / columns), 2), round(min(LARGEST, HEIGHT / rows), 2)
    paths = dict.fromkeys(SHADES, "")
    for number, row in enumerate(values):
        at = 0
        for level, run in groupby(row, key=lambda value: bisect_left(ends, value)):
            length = len([*run])
            paths[SHADES[level]] += f"M{at} {number}h{length}v1h-{length}z"
            at += length
    labels = [*(f"≤ {end:g}" for end in ends), f"> {ends[-1]:g}"]
    blocks = "" if found.down == found.across == 1 else f" A block has {found.down} × {found.across} entries."
    return ErrorPicture(
        title=title,
        width=round(64 + columns * across + 20),
        height=round(22 + rows * down + 10),
        across=across,
        down=down,
        shades=[(shade, path) for shade, path in paths.items() if path],
        legend=[*zip(SHADES, labels, strict=True)],
        x=_ticks(found.columns, found.across, across),
        y=_ticks(found.rows, found.down, down),
        caption=f"Rows by columns; all dimensions but the last are rows.{blocks}",
        says=summary,
    )


def _ticks(length: int, pace: int, pixels: float) -> list[Tick]:
    """Label the first entry, the middle and the last block."""
    blocks = math.ceil(length / pace)
    chosen = sorted({0, blocks // 2, blocks - 1} if blocks * pixels > 90 else {0, blocks - 1})
    return [Tick(round((block + 0.5) * pixels, 1), str(block * pace)) for block in chosen]
