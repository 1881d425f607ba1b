"""Groups of connected rows and columns of a matrix, and what is left of them without an outer product."""

from __future__ import annotations

from gradproof.engine.subject import Array
from gradproof.engine.thresholds import FEW


def groups(pattern: Array) -> list[tuple[list[int], list[int]]]:
    """Return the connected components of a sparsity pattern, each as its rows and its columns."""
    by_row = [{number for number, entry in enumerate(row) if entry} for row in pattern.tolist()]
    found: list[tuple[list[int], set[int]]] = []
    for number, columns in enumerate(by_row):
        if not columns:
            continue
        rows, joined, apart = [number], set(columns), []
        for group in found:
            if group[1] & joined:
                rows, joined = [*group[0], *rows], joined | group[1]
            else:
                apart.append(group)
        found = [*apart, (sorted(rows), joined)]
    return [(rows, sorted(columns)) for rows, columns in found]


def factors_out(matrix: Array, slack: Array) -> bool:
    """Return True if a matrix is an outer product in each of its groups of connected rows and columns."""
    pieces = (matrix[rows][:, columns] for rows, columns in groups(abs(matrix) > slack))
    return all(bool((abs(piece - crossed(piece)) <= FEW * slack.max()).all()) for piece in pieces)


def crossed(piece: Array) -> Array:
    """Return the outer product that equals a matrix in the row and the column of its largest entry."""
    row, column = divmod(int(abs(piece).argmax()), int(piece.shape[1]))
    if not float(abs(piece[row, column])) > 0:
        return piece
    return piece[:, column][:, None] * piece[row][None] / piece[row, column]
