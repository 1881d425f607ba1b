"""New patterns from old ones: joined, stacked, cut and merged, with the position of every entry's value.

All results are COO patterns. Where values move, the second result says which entry of the old pattern each new one
comes from, or the new entry that each old one goes to.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern.grid import ravel
from gradproof.sparse.pattern.membership import look_up
from gradproof.sparse.pattern.pattern import Pattern, require_pattern

Chosen = slice | Tensor | Sequence[int]


def united(patterns: Sequence[Pattern]) -> tuple[Pattern, list[Tensor]]:
    """Return the pattern of all positions that some patterns store, and the new entry of each old one.

    >>> diagonal, corner = (Pattern.from_indices(torch.tensor(k), (2, 2)) for k in ([[0, 1], [0, 1]], [[0], [1]]))
    >>> united([diagonal, corner])
    (Pattern(COO, shape=[2, 2], entries=3), [tensor([0, 2]), tensor([1])])
    """
    shape = _same_shape(patterns)
    keys = [ravel(pattern.coordinates, shape) for pattern in patterns]
    distinct, slots = torch.unique(torch.cat(keys), return_inverse=True)
    found = Pattern.from_indices(torch.stack(torch.unravel_index(distinct, shape)), shape)
    return found, list(slots.split([len(some) for some in keys]))


def common(left: Pattern, right: Pattern) -> tuple[Pattern, Tensor, Tensor]:
    """Return the positions that both patterns store, and the entry of each one there."""
    shape = _same_shape([left, right])
    for pattern in (left, right):
        if pattern.parallel:
            raise InputError(f"{pattern!r} may store a position several times. Call merged(sparse) first.")
    ordered, order = torch.sort(ravel(right.coordinates, shape))
    keys = ravel(left.coordinates, shape)
    slot, found = look_up(keys, ordered)
    coordinates = left.coordinates[:, found]
    return Pattern.from_indices(coordinates, shape), found.nonzero().reshape(-1), order[slot[found]]


def block_diagonal(patterns: Sequence[Pattern]) -> Pattern:
    """Return one matrix with the given ones on its diagonal, their entries one after the other."""
    _require_matrices(patterns)
    shapes = torch.tensor([(0, 0), *(pattern.shape for pattern in patterns)])
    starts = shapes.cumsum(0)
    moved = [
        pattern.coordinates + start.to(pattern.device).unsqueeze(1)
        for pattern, start in zip(patterns, starts, strict=False)
    ]
    rows, columns = starts[-1].tolist()
    return _joined(patterns, moved, (rows, columns))


def concatenated(patterns: Sequence[Pattern], dim: int) -> Pattern:
    """Return matrices one below the other (0) or side by side (1), their entries one after the other."""
    _require_matrices(patterns)
    if type(dim) is not int or dim not in (0, 1):
        raise InputError(f"dim={dim}: pass 0 to put matrices one below the other, or 1 for side by side.")
    if len({pattern.shape[1 - dim] for pattern in patterns}) > 1:
        raise InputError(
            f"The matrices have shapes {[list(pattern.shape) for pattern in patterns]}: they may differ along "
            f"dimension {dim} alone."
        )
    moved, start = [], 0
    for pattern in patterns:
        step = torch.tensor([[start], [0]] if dim == 0 else [[0], [start]], device=pattern.device)
        moved.append(pattern.coordinates + step)
        start += pattern.shape[dim]
    other = patterns[0].shape[1 - dim]
    return _joined(patterns, moved, (start, other) if dim == 0 else (other, start))


def submatrix(pattern: Pattern, rows: Chosen, columns: Chosen) -> tuple[Pattern, Tensor]:
    """Return the matrix of some rows and columns, in the order given, and the old entry of each new one."""
    _require_matrices([pattern])
    kept, index = torch.ones(pattern.entries, dtype=torch.bool, device=pattern.device), []
    lengths = []
    for dim, chosen in enumerate((rows, columns)):
        lines = _line_numbers(chosen, pattern.shape[dim], pattern.device)
        position = torch.full((pattern.shape[dim],), -1, device=pattern.device)
        position[lines] = torch.arange(len(lines), device=pattern.device)
        index.append(position[pattern.coordinates[dim]])
        kept &= index[-1] >= 0
        lengths.append(len(lines))
    found = Pattern.from_indices(torch.stack(index)[:, kept], (lengths[0], lengths[1]), parallel=pattern.parallel)
    return found, kept.nonzero().reshape(-1)


def _line_numbers(chosen: Chosen, length: int, device: torch.device) -> Tensor:
    if isinstance(chosen, slice):
        return torch.arange(length, device=device)[chosen]
    try:
        lines = torch.as_tensor(chosen, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"The lines chosen are {chosen!r}: pass a slice, a mask or a list of indices.") from error
    if lines.dtype is torch.bool and lines.shape == (length,):
        return lines.nonzero().reshape(-1)
    if lines.ndim != 1 or (lines.numel() and (lines.is_floating_point() or lines.dtype is torch.bool)):
        raise InputError(f"The lines chosen are {chosen!r}: pass a slice, a mask of {length}, or a list of indices.")
    lines = lines.long()
    wrong = lines[(lines < 0) | (lines >= length)]
    distinct: Tensor = torch.unique(lines)
    if len(wrong) or len(distinct) < len(lines):
        reason = f"index {int(wrong[0])} is out of range, of size {length}" if len(wrong) else "an index occurs twice"
        raise InputError(f"The lines cannot be chosen: {reason}. Pass distinct indices from 0 to {length - 1}.")
    return lines


def _joined(patterns: Sequence[Pattern], coordinates: list[Tensor], shape: tuple[int, int]) -> Pattern:
    parallel = any(pattern.parallel for pattern in patterns)
    return Pattern.from_indices(torch.cat(coordinates, 1), shape, parallel=parallel)


def _same_shape(patterns: Sequence[Pattern]) -> tuple[int, ...]:
    _require_some(patterns)
    shapes = {pattern.shape for pattern in patterns}
    if len(shapes) > 1:
        raise InputError(f"The shapes differ: {' and '.join(str(list(shape)) for shape in sorted(shapes))}.")
    return patterns[0].shape


def _require_matrices(patterns: Sequence[Pattern]) -> None:
    _require_some(patterns)
    for pattern in patterns:
        if len(require_pattern(pattern).shape) != 2:
            raise InputError(f"{pattern!r} is not a single matrix: pass matrices without batch dimensions.")


def _require_some(patterns: Sequence[Pattern]) -> None:
    if not patterns:
        raise InputError("There is nothing to join: pass one sparse matrix at least.")
    for pattern in patterns:
        if require_pattern(pattern).device != patterns[0].device:
            raise InputError(f"Patterns are on {patterns[0].device} and {pattern.device}: move them to one device.")
