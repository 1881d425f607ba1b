"""Columns that share no row, found in a Jacobian's pattern, so that they can be evaluated together."""

from __future__ import annotations

import math

from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW


def coloring(xp: Array, jacobian: Array, steps: Array) -> list[list[int]] | None:
    """Return groups of columns of which no two have an entry in one row (greedy; Curtis, Powell and Reid, 1974).

    Columns of one group take steps of about the same size. The result is None if the groups would be too small.

    >>> import numpy
    >>> coloring(numpy, numpy.eye(8), numpy.array([1, 1, 1, 1, -1, 1e6, 1, 1]))
    [[0, 1, 2, 3, 4, 6, 7], [5]]
    >>> coloring(numpy, numpy.ones((2, 6)), numpy.ones(6)) is None
    True
    """
    columns = int(jacobian.shape[1])
    most = columns // FEW
    if not most or bool((jacobian[0] != 0).sum() > most):
        return None
    pattern = jacobian != 0
    if int(pattern.sum(1).max()) > most:
        return None
    rows_of: list[list[int]] = [[] for _ in range(columns)]
    for row, column in zip(*(index.tolist() for index in xp.where(pattern)), strict=True):
        rows_of[column].append(row)
    powers = [math.frexp(step)[1] if step else None for step in steps.tolist()]
    longest = max((power for power in powers if power is not None), default=0)
    sizes = [None if power is None else (longest - power) // FEW for power in powers]
    groups: list[list[int]] = []
    taken: list[tuple[int | None, set[int]]] = []
    for column, rows in enumerate(rows_of):
        size = sizes[column]
        places = (number for number, (like, used) in enumerate(taken) if like == size and used.isdisjoint(rows))
        place = next(places, None)
        if place is None:
            if len(groups) == most:
                return None
            place = len(groups)
            groups.append([])
            taken.append((size, set()))
        groups[place].append(column)
        taken[place][1].update(rows)
    return groups
