"""Columns that share no row, found in a Jacobian's pattern, so that they can be evaluated together."""

from __future__ import annotations

from gradproof.engine.subject import Array

WORTH_IT = 4  # columns to a group, on average, below which grouping is not worth its while


def groups_of(xp: Array, jacobian: Array) -> list[list[int]] | None:
    """Groups of columns of which no two have an entry in one row (Curtis, Powell and Reid, 1974), first come first.

    None where they would be too small.

    >>> import numpy
    >>> groups_of(numpy, numpy.eye(6))
    [[0, 1, 2, 3, 4, 5]]
    >>> groups_of(numpy, numpy.ones((2, 6))) is None
    True
    """
    columns = int(jacobian.shape[1])
    most = columns // WORTH_IT
    if not most or bool((jacobian[0] != 0).sum() > most):
        return None
    pattern = jacobian != 0
    if int(pattern.sum(1).max()) > most:
        return None
    rows_of: list[list[int]] = [[] for _ in range(columns)]
    for row, column in zip(*(index.tolist() for index in xp.where(pattern)), strict=True):
        rows_of[column].append(row)
    groups: list[list[int]] = []
    taken: list[set[int]] = []
    for column, rows in enumerate(rows_of):
        place = next((number for number, occupied in enumerate(taken) if occupied.isdisjoint(rows)), None)
        if place is None:
            if len(groups) == most:
                return None
            place = len(groups)
            groups.append([])
            taken.append(set())
        groups[place].append(column)
        taken[place].update(rows)
    return groups
