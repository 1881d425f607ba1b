"""Custom operators for the graphs of `torch.compile`, which get index tensors and look up the pattern when they run.

The compiler cannot compare versions of memory: a pattern that is read while compiling would still be used after its
indices were written to. It cannot trace the sorting of entries either, nor an autograd Function with a jvp, as the one
in `bilinear` is. `contract` is the contraction of `bilinear` with the same reverse mode and no jvp.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from gradproof.sparse.autograd import kernels
from gradproof.sparse.autograd.kernels import Slot
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.layouts import LAYOUT_OF_NAME, NAME_OF_LAYOUT

PATTERN_SCHEMA = "Tensor indices, Tensor? plain, str layout, SymInt[] shape, SymInt[] blocks, bool parallel"
Stored = tuple[Tensor, Tensor | None, str, list[int], list[int], bool]


def contract(first: Tensor, second: Tensor, pattern: Pattern, missing: Slot) -> Tensor:
    """Contract two of values, rows and columns, in this order; `missing` names the third."""
    result: Tensor = _contract(first, second, *_stored(pattern), missing)
    return result


def lines(pattern: Pattern, dimension: int) -> Tensor:
    """Return the row (-2) or the column (-1) of every entry, numbered on over a batch."""
    result: Tensor = _lines(*_stored(pattern), dimension)
    return result


def coordinates(pattern: Pattern) -> Tensor:
    """Return the index of every entry, one row for each dimension."""
    result: Tensor = _coordinates(*_stored(pattern))
    return result


def _stored(pattern: Pattern) -> Stored:
    indices = pattern.indices
    plain = indices[1] if len(indices) > 1 else None
    name, blocks = NAME_OF_LAYOUT[pattern.layout], list(pattern.blocksize or ())
    return indices[0], plain, name, list(pattern.shape), blocks, pattern.parallel


def _pattern_at(
    indices: Tensor, plain: Tensor | None, layout: str, shape: list[int], blocks: list[int], parallel: bool
) -> Pattern:
    given = (indices,) if plain is None else (indices, plain)
    return Pattern.at(LAYOUT_OF_NAME[layout], tuple(shape), given, blocksize=tuple(blocks) or None, parallel=parallel)


def _entries(indices: Tensor, plain: Tensor | None, blocks: list[int]) -> int:
    return indices.shape[1] if plain is None else plain.numel() * math.prod(blocks)


@torch.library.custom_op(
    "gradproof::contract",
    mutates_args=(),
    schema=f"(Tensor first, Tensor second, {PATTERN_SCHEMA}, str missing) -> Tensor",
)
def _contract(first: Tensor, second: Tensor, *arguments: Any) -> Tensor:
    *stored, missing = arguments
    return kernels.contract(_pattern_at(*stored), first, second, missing)


@_contract.register_fake
def _(first: Tensor, second: Tensor, *arguments: Any) -> Tensor:
    indices, plain, _layout, shape, blocks, _parallel, missing = arguments
    if missing == "values":
        return first.new_empty(_entries(indices, plain, blocks), *first.shape[1:-1])
    lines = math.prod(shape[:-2]) * shape[-2 if missing == "rows" else -1]
    return second.new_empty(lines, *second.shape[1:])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    first, second, indices, plain, *ctx.stored, ctx.missing = inputs
    ctx.save_for_backward(first, second, indices, plain)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    first, second, *indices = ctx.saved_tensors

    def contracted(one: Tensor, other: Tensor, missing: Slot) -> Tensor:
        result: Tensor = _contract(one, other, *indices, *ctx.stored, missing)
        return result

    found = kernels.pullback(contracted, (first, second), gradient, ctx.missing, ctx.needs_input_grad)
    return *found, *[None] * (len(indices) + len(ctx.stored) + 1)


_contract.register_autograd(_backward, setup_context=_save)


@torch.library.custom_op("gradproof::lines", mutates_args=(), schema=f"({PATTERN_SCHEMA}, int dimension) -> Tensor")
def _lines(*arguments: Any) -> Tensor:
    *stored, dimension = arguments
    pattern = _pattern_at(*stored)
    found: Tensor = pattern.row_of_entry if dimension == -2 else pattern.column_of_entry
    return found.clone()


@_lines.register_fake
def _(*arguments: Any) -> Tensor:
    indices, plain, _layout, _shape, blocks, *_ = arguments
    return torch.empty(_entries(indices, plain, blocks), dtype=torch.int64, device=indices.device)


@torch.library.custom_op("gradproof::coordinates", mutates_args=(), schema=f"({PATTERN_SCHEMA}) -> Tensor")
def _coordinates(*stored: Any) -> Tensor:
    return _pattern_at(*stored).coordinates.clone()


@_coordinates.register_fake
def _(*stored: Any) -> Tensor:
    indices, plain, _layout, shape, blocks, _parallel = stored
    return torch.empty(len(shape), _entries(indices, plain, blocks), dtype=torch.int64, device=indices.device)
