"""Passes over long vectors beside random ones, in plain torch; by kernels on a GPU where Triton is."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from types import ModuleType

import torch
from torch import Tensor

from gradproof.engine.pieces import LAUNCHED, is_on_cpu
from gradproof.frameworks.torch.passes.drawn import BLOCK, Drawn


def displaced(point: Tensor, direction: Drawn, out: Tensor) -> Tensor:
    """Write a point plus a direction to `out`, in double precision; all three are vectors."""
    if kernels := _kernels(out):
        kernels.displace(point, direction.outer, direction.inner, out)
        return out
    for low, high, where in _pieces(point):
        torch.add(direction.blocks(low, high), point[where], out=out[where])
    return out


def change(values: Tensor, centre: Tensor, weights: Drawn) -> Tensor:
    """Return the sum of weights times changes of values, as a 0-d tensor."""
    if kernels := _kernels(centre):
        total: Tensor = kernels.change(values, centre, weights.outer, weights.inner)
        return total
    parts = [
        weights.blocks(low, high) @ (values[where].to(torch.float64) - centre[where].to(torch.float64))
        for low, high, where in _pieces(centre)
    ]
    return torch.stack(parts).sum()


def apart(one: Tensor, other: Tensor) -> Tensor:
    """Return the largest distance of the entries of two vectors, as a 0-d tensor; NaN where one is NaN."""
    if kernels := _kernels(one):
        distance: Tensor = kernels.apart(one, other)
        return distance
    return torch.stack([_gap(one[where], other[where]).max() for _, _, where in _pieces(one)]).max()


def beside(
    truth: Tensor, claimed: Tensor, sizes: Tensor | None, direction: Drawn, share: float, least: float
) -> Tensor:
    """Sum over a true gradient g along a direction v and beside a claimed one, and return six numbers.

    They are ⟨g, v⟩, the sum of squares of its parts, how many entries differ by more than is allowed, the largest part,
    the largest entry of g, and the largest distance plus what is allowed. Allowed is `share` of an entry's size, plus
    `least`; `sizes` are the roots of the sums of squares that entries have for other incoming gradients.
    """
    if kernels := _kernels(truth):
        numbers: Tensor = kernels.beside(truth, claimed, sizes, direction.outer, direction.inner, share, least)
        return numbers
    rows = []
    for low, high, where in _pieces(truth):
        allowed = _allowed(truth, sizes, where, share, least)
        rows.append(_row(truth[where], claimed[where], allowed, direction.blocks(low, high)))
    return joined(rows)


def outside(
    truth: Tensor, claimed: Tensor, sizes: Tensor | None, share: float, least: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the places of the entries that differ by more than is allowed, their distances, and what is allowed."""
    found = []
    for low, _, where in _pieces(truth):
        gap, allowed = _gap(truth[where], claimed[where]), _allowed(truth, sizes, where, share, least)
        at = torch.where(~(gap <= allowed))[0]
        found.append((at + low * BLOCK, gap[at], allowed[at]))
    places, gaps, bounds = (torch.cat(column) for column in zip(*found, strict=True))
    return places, gaps, bounds


def _allowed(truth: Tensor, sizes: Tensor | None, where: slice, share: float, least: float) -> Tensor:
    whole = truth[where].abs() if sizes is None else torch.hypot(truth[where], sizes[where].to(torch.float64))
    return (whole * share).add_(least)


def enlarged(sizes: Tensor | None, vector: Tensor) -> Tensor:
    """Return the roots of the sums of squares of sizes and a vector, in the memory of the sizes, in single precision.

    A number that single precision cannot hold makes the size infinite.
    """
    entries = vector.to(torch.float32)
    return entries.abs() if sizes is None else torch.hypot(sizes, entries, out=sizes)


def joined(rows: Sequence[Tensor]) -> Tensor:
    """Return the six numbers for all of several pieces or tensors."""
    table = torch.stack(list(rows))
    return torch.cat([table[:, :3].sum(0), table[:, 3:].amax(0)])


def _row(truth: Tensor, claimed: Tensor, allowed: Tensor, direction: Tensor) -> Tensor:
    part = direction.mul_(truth)
    gap = _gap(truth, claimed)
    beyond = (~(gap <= allowed)).sum().to(torch.float64)
    largest, entry = part.abs().max(), truth.abs().max()
    return torch.stack([part.sum(), part @ part, beyond, largest, entry, allowed.add_(gap).max()])


def _gap(one: Tensor, other: Tensor) -> Tensor:
    return (one.to(torch.float64) - other.to(torch.float64)).abs_()


def _pieces(vector: Tensor) -> Iterator[tuple[int, int, slice]]:
    """Cut a vector into pieces: yield the numbers of the first and last block of each, and its slice."""
    many = 1 if is_on_cpu(vector) else LAUNCHED // BLOCK
    size = len(vector)
    for low in range(0, -(-size // BLOCK), many):
        high = min(low + many, -(-size // BLOCK))
        yield low, high, slice(low * BLOCK, min(high * BLOCK, size))


def _kernels(vector: Tensor) -> ModuleType | None:
    return None if is_on_cpu(vector) else _triton_kernels()


@functools.cache
def _triton_kernels() -> ModuleType | None:
    """Return the module of kernels, or None where Triton is not installed."""
    try:
        from gradproof.frameworks.torch.passes import kernels
    except ImportError:
        return None
    return kernels
