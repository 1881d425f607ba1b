"""The errors of a tensor by position: how many bars they are, and how many times the plain reference's."""

from __future__ import annotations

import math
from typing import Any

from gradproof.engine.reference.errors import Allowance, ErrorStatistics
from gradproof.engine.results import ErrorMap
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import MANY


def error_map(name: str, shape: tuple[int, ...], statistics: ErrorStatistics, allowance: Allowance) -> ErrorMap:
    """Return the errors of a tensor in blocks of rows by columns; all dimensions but the last are rows."""
    xp = statistics.arrays
    columns = shape[-1] if shape else 1
    rows = statistics.size // columns
    down, across = _pace(rows), _pace(columns)

    def blocks(values: Array) -> Array:
        grid = _filled(_filled(values.reshape(rows, columns), 0, down, xp), 1, across, xp)
        return grid.reshape(grid.shape[0] // down, down, grid.shape[1] // across, across)

    bars = xp.amax(blocks((statistics.worst + statistics.storage(statistics.numerical)) / allowance.bar), (1, 3))
    own, plain = (
        blocks(each).sum((1, 3)).tolist() for each in (statistics.squares.value, statistics.plain_squares.value)
    )
    pairs = zip(own, plain, strict=True) if statistics.has_plain else ()
    return ErrorMap(
        name=name,
        rows=rows,
        columns=columns,
        down=down,
        across=across,
        bars=tuple(map(tuple, bars.tolist())),
        ratios=tuple(tuple(map(_ratio, mine, theirs)) for mine, theirs in pairs),
    )


def _filled(grid: Array, dimension: int, pace: int, arrays: Any) -> Array:
    """Return a matrix with zeros behind it, up to a multiple of the size of blocks."""
    lack = -grid.shape[dimension] % pace
    if not lack:
        return grid
    part = grid[(*(slice(None),) * dimension, slice(lack))]
    return arrays.concat([grid, arrays.zeros_like(part)], dimension)


def _pace(length: int) -> int:
    """Return the least power of two that makes 32 blocks of a length at most."""
    return 1 << max(0, math.ceil(math.log2(max(length, 1) / (2 * MANY))))


def _ratio(own: float, plain: float) -> float:
    if plain:
        return math.sqrt(own / plain)
    return math.inf if own else 1.0
