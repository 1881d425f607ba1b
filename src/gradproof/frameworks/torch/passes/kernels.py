"""The passes as Triton kernels: one launch each, and a reduction of what the programs leave."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gradproof.frameworks.torch.passes.drawn import BLOCK

WIDE = 1024  # entries that a program handles at a time
TURNS = 8  # times that it does so: 8,192 entries, which lie in one block of a drawn vector
TABLE = tl.constexpr(BLOCK)


@triton.jit
def _drawn(factor, inner, at, mask):
    return factor * tl.load(inner + at % TABLE, mask, 0.0).to(tl.float64)


@triton.jit
def _displace(point, outer, inner, out, size, wide: tl.constexpr, turns: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * wide * turns
    factor = tl.load(outer + first // TABLE)
    for turn in range(turns):
        at = first + turn * wide + tl.arange(0, wide)
        mask = at < size
        x = tl.load(point + at, mask, 0.0).to(tl.float64)
        tl.store(out + at, x + _drawn(factor, inner, at, mask), mask)


@triton.jit
def _change(values, centre, outer, inner, out, size, wide: tl.constexpr, turns: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * wide * turns
    factor = tl.load(outer + first // TABLE)
    total = tl.zeros((wide,), tl.float64)
    for turn in range(turns):
        at = first + turn * wide + tl.arange(0, wide)
        mask = at < size
        y = tl.load(values + at, mask, 0.0).to(tl.float64)
        c = tl.load(centre + at, mask, 0.0).to(tl.float64)
        total += _drawn(factor, inner, at, mask) * (y - c)
    tl.store(out + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def _apart(one, other, out, size, wide: tl.constexpr, turns: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * wide * turns
    far = tl.zeros((wide,), tl.float64)
    unknown = tl.zeros((wide,), tl.float64)
    for turn in range(turns):
        at = first + turn * wide + tl.arange(0, wide)
        mask = at < size
        gap = tl.abs(tl.load(one + at, mask, 0.0).to(tl.float64) - tl.load(other + at, mask, 0.0).to(tl.float64))
        far = tl.where(gap > far, gap, far)
        unknown += tl.where(gap == gap, 0.0, gap)
    tl.store(out + tl.program_id(0), tl.max(far, 0) + tl.sum(unknown, 0))


@triton.jit
def _beside(
    truth,
    claimed,
    sizes,
    outer,
    inner,
    allowance,
    out,
    size,
    sized: tl.constexpr,
    wide: tl.constexpr,
    turns: tl.constexpr,
):
    first = tl.program_id(0).to(tl.int64) * wide * turns
    factor = tl.load(outer + first // TABLE)
    share, least = tl.load(allowance), tl.load(allowance + 1)
    slope = tl.zeros((wide,), tl.float64)
    squares = tl.zeros((wide,), tl.float64)
    outside = tl.zeros((wide,), tl.float64)
    contribution = tl.zeros((wide,), tl.float64)
    entry = tl.zeros((wide,), tl.float64)
    hidden = tl.zeros((wide,), tl.float64)
    for turn in range(turns):
        at = first + turn * wide + tl.arange(0, wide)
        mask = at < size
        g = tl.load(truth + at, mask, 0.0).to(tl.float64)
        gap = tl.abs(tl.load(claimed + at, mask, 0.0).to(tl.float64) - g)
        whole = tl.abs(g)
        if sized:
            other = tl.load(sizes + at, mask, 0.0).to(tl.float64)
            larger, smaller = tl.maximum(whole, other), tl.minimum(whole, other)
            ratio = tl.where(larger > 0, smaller / larger, 0.0)
            whole = larger * tl.sqrt(1 + ratio * ratio)
        allowed = share * whole + least
        part = g * _drawn(factor, inner, at, mask)
        slope += part
        squares += part * part
        outside += tl.where((gap <= allowed) | (at >= size), 0.0, 1.0)
        contribution = tl.maximum(contribution, tl.abs(part))
        entry = tl.maximum(entry, tl.abs(g))
        hidden = tl.maximum(hidden, tl.where(mask, allowed + gap, 0.0))
    at = out + tl.program_id(0) * 6
    tl.store(at, tl.sum(slope, 0))
    tl.store(at + 1, tl.sum(squares, 0))
    tl.store(at + 2, tl.sum(outside, 0))
    tl.store(at + 3, tl.max(contribution, 0))
    tl.store(at + 4, tl.max(entry, 0))
    tl.store(at + 5, tl.max(hidden, 0))


def displace(point: Tensor, outer: Tensor, inner: Tensor, out: Tensor) -> None:
    """Write the point plus the direction of these tables to `out`."""
    _launch(_displace, point, outer, inner, out, len(point))


def change(values: Tensor, centre: Tensor, outer: Tensor, inner: Tensor) -> Tensor:
    """Return the sum of the weights of these tables times the change of values."""
    partial = _partial(values)
    _launch(_change, values, centre, outer, inner, partial, len(values))
    return partial.sum()


def apart(one: Tensor, other: Tensor) -> Tensor:
    """Return the largest distance of entries; not finite where one is not."""
    partial = _partial(one)
    _launch(_apart, one, other, partial, len(one))
    return partial.max()


def beside(
    truth: Tensor, claimed: Tensor, sizes: Tensor | None, outer: Tensor, inner: Tensor, share: float, least: float
) -> Tensor:
    """Return the sums of `passes.beside`."""
    allowance = torch.tensor([share, least], dtype=torch.float64, device=truth.device)
    partial = _partial(truth, 6)
    known = claimed if sizes is None else sizes
    arguments = truth, claimed, known, outer, inner, allowance, partial, len(truth)
    _launch(_beside, *arguments, sized=sizes is not None)
    return torch.cat([partial[:, :3].sum(0), partial[:, 3:].amax(0)])


def _partial(vector: Tensor, *columns: int) -> Tensor:
    return torch.empty(_programs(len(vector)), *columns, dtype=torch.float64, device=vector.device)


def _programs(size: int) -> int:
    return -(-size // (WIDE * TURNS))


def _launch(kernel: Any, *arguments: Any, **options: Any) -> None:
    """Run a kernel, whose last argument is the number of entries, on the device of the first one."""
    with torch.cuda.device(arguments[0].device):
        kernel[(_programs(arguments[-1]),)](*arguments, **options, wide=WIDE, turns=TURNS)
