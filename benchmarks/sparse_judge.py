"""A judge of sparse gradients that shares no code with gradproof: plain central differences, entry by entry.

The function is reduced to one number by random weights over its outputs. Each entry of an input is moved by itself: a
stored one among the values, another by storing it too. Whatever is read is checked by torch's own invariants first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

BY_ROW = (torch.sparse_csr, torch.sparse_bsr)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
STEPS = (1e-3, 1e-4, 1e-5)
AGREES = 1e-6  # of the larger of one and the slope: the error that a difference at the best of the steps may have
DIFFERS = 1e-4  # an error beyond this is wrong, where all differences say so
LARGE = 1 << 18  # entries of an input times the entries of it that are looked at: moving one takes a dense copy

Index = tuple[int, ...]


@dataclass(frozen=True)
class Opinion:
    """How many entries were looked at, how many of them are wrong, how many cannot be told, and the worst of them."""

    entries: int
    wrong: int
    unclear: int
    worst: str = ""

    def __str__(self) -> str:
        return f"{self.wrong} of {self.entries} entries wrong, {self.unclear} unclear" + (
            f": {self.worst}" if self.worst else ""
        )


@dataclass(frozen=True)
class Moved:
    """One entry of one input."""

    number: int
    index: Index
    part: complex


def opinion(function: Callable[..., Any], inputs: Sequence[Any], *, masked: bool, most: int) -> Opinion:
    """Whether torch's gradient is that of the function, at some stored entries of every input, and at some others."""
    generator = torch.Generator().manual_seed(0)
    contracted, gradients = _reduced(function, inputs, generator)
    wrong, unclear, count, worst, gap = 0, 0, 0, "", 0.0
    still = contracted(inputs)
    for moved in _moves(inputs, masked, most, generator):
        claimed = _claim(gradients[moved.number], moved)
        slopes, leaps = _slopes(contracted, inputs, moved, still)
        count += 1
        size = max(1.0, abs(claimed), *map(abs, slopes))
        errors = [abs(slope - claimed) for slope in slopes]
        if min(errors) <= AGREES * size:
            continue
        consistent = max(slopes) - min(slopes) <= 0.1 * min(errors) and not leaps
        if not consistent or min(errors) <= DIFFERS * size:
            unclear += 1
            continue
        wrong += 1
        if min(errors) > gap:
            gap = min(errors)
            listed = " ".join(f"{slope:.8g}" for slope in slopes)
            worst = f"inputs[{moved.number}]{list(moved.index)} claimed {claimed:.8g}, differences {listed}"
    return Opinion(count, wrong, unclear, worst)


def malformed(tensor: Tensor) -> str:
    """What torch's own invariants say against a sparse tensor; nothing where they hold."""
    try:
        if tensor.layout == torch.sparse_coo:
            torch._validate_sparse_coo_tensor_args(
                tensor._indices(), tensor._values(), tensor.shape, tensor.is_coalesced()
            )
        elif tensor.layout != torch.strided:
            compressed, plain = _indices(tensor)
            torch._validate_sparse_compressed_tensor_args(
                compressed, plain, tensor.values(), tensor.shape, tensor.layout
            )
    except RuntimeError as error:
        return str(error).split("\n")[0]
    return ""


def gradients_of(function: Callable[..., Any], inputs: Sequence[Any], weights: Sequence[Tensor]) -> list[Tensor | None]:
    """Torch's gradients of the weighted outputs, one for each input, as they come."""
    leaves = [value.detach().requires_grad_() if _wanted(value) else value for value in inputs]
    outputs = _outputs(function, leaves)
    pairs = [pair for pair in zip(outputs, weights, strict=True) if pair[0].requires_grad]
    wanted = [leaf for leaf in leaves if _wanted(leaf)]
    if not pairs:
        return [None] * len(inputs)
    found = iter(
        torch.autograd.grad(
            [output for output, _ in pairs], wanted, [_laid_out(*pair) for pair in pairs], allow_unused=True
        )
    )
    return [next(found) if _wanted(leaf) else None for leaf in leaves]


def _reduced(
    function: Callable[..., Any], inputs: Sequence[Any], generator: torch.Generator
) -> tuple[Callable[[Sequence[Any]], float], list[Tensor | None]]:
    """The weighted sum of the outputs as a function, and torch's gradients of it, dense.

    A backward may take incoming gradients only where its output stores something: the others then have no weight.
    """
    outputs = [output.detach() for output in _outputs(function, inputs)]
    weights = [torch.randn(out.shape, dtype=out.dtype, generator=generator) for out in outputs]
    try:
        found = gradients_of(function, inputs, weights)
    except RuntimeError:
        weights = [weight * _stored(out) for weight, out in zip(weights, outputs, strict=True)]
        found = gradients_of(function, inputs, weights)

    def contracted(values: Sequence[Any]) -> float:
        with torch.no_grad():
            pairs = zip(_outputs(function, values), weights, strict=True)
            return sum(float((_dense(output).conj() * weight).real.sum()) for output, weight in pairs)

    return contracted, [None if gradient is None else _dense(gradient) for gradient in found]


def _outputs(function: Callable[..., Any], values: Sequence[Any]) -> list[Tensor]:
    found = tree_leaves(function(*values))
    return [leaf for leaf in found if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())]


def _wanted(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _moves(inputs: Sequence[Any], masked: bool, most: int, generator: torch.Generator) -> list[Moved]:
    chosen = []
    for number, value in enumerate(inputs):
        if not _wanted(value):
            continue
        stored = _stored(value.detach())
        for which in [stored] if masked else [stored, ~stored]:
            positions = which.nonzero()
            fewer = max(2, min(most, LARGE // max(1, value.numel())))
            positions = positions[torch.randperm(len(positions), generator=generator)[:fewer]]
            parts = (1.0, 1j) if value.is_complex() else (1.0,)
            chosen += [Moved(number, tuple(place), part) for place in positions.tolist() for part in parts]
    return chosen


def _claim(gradient: Tensor | None, moved: Moved) -> float:
    if gradient is None:
        return 0.0
    entry = complex(gradient[moved.index])
    return entry.imag if moved.part == 1j else entry.real


def _slopes(
    contracted: Callable[[Sequence[Any]], float], inputs: Sequence[Any], moved: Moved, still: float
) -> tuple[list[float], bool]:
    """Three central differences, and whether the value at the point is not what the moved ones tend to."""
    slopes, middle = [], still
    for step in STEPS:
        above, below = (contracted(_displaced(inputs, moved, sign * step)) for sign in (1, -1))
        slopes.append((above - below) / (2 * step))
        middle = (above + below) / 2
    return slopes, abs(middle - still) > 1e-3 * max(1.0, abs(still))


def _displaced(inputs: Sequence[Any], moved: Moved, step: float) -> list[Any]:
    values = list(inputs)
    values[moved.number] = _nudged(values[moved.number].detach(), moved.index, step * moved.part)
    return values


def _nudged(tensor: Tensor, index: Index, step: complex) -> Tensor:
    """A tensor with one entry moved, which is stored from then on."""
    step = step if tensor.is_complex() else step.real
    if tensor.layout == torch.strided:
        copy = tensor.clone()
        copy[index] += step
        return copy
    if tensor.layout == torch.sparse_coo:
        return _nudged_coordinates(tensor, index, step)
    whole, cells = _dense(tensor), _cells(tensor)
    whole[index] += step
    leading, block = _batch_dim(tensor), _blocksize(tensor)
    cell = [*index[:leading], *(place // size for place, size in zip(index[leading : leading + 2], block, strict=True))]
    cells[tuple(cell)] = True
    return _compressed(whole, cells, tensor)


def _nudged_coordinates(tensor: Tensor, index: Index, step: complex) -> Tensor:
    positions = torch.tensor(index[: tensor.sparse_dim()]).reshape(-1, 1)
    payload = torch.zeros((1, *tensor.shape[tensor.sparse_dim() :]), dtype=tensor.dtype)
    payload[(0, *index[tensor.sparse_dim() :])] = step
    indices, values = torch.cat([tensor._indices(), positions], 1), torch.cat([tensor._values(), payload])
    longer = torch.sparse_coo_tensor(indices, values, tensor.shape)
    return longer.coalesce() if tensor.is_coalesced() else longer


def _compressed(whole: Tensor, cells: Tensor, like: Tensor) -> Tensor:
    """The entries of a dense tensor in some cells, in the layout of another; every batch stores as many."""
    by_row, leading, (height, width) = like.layout in BY_ROW, _batch_dim(like), _blocksize(like)
    batch = like.shape[:leading]
    blocks = (
        whole.unflatten(leading + 1, (-1, width)).unflatten(leading, (-1, height)).movedim(leading + 2, leading + 1)
    )
    grids = _evened(cells.reshape(batch.numel(), *cells.shape[-2:]))
    pages = blocks.reshape(batch.numel(), *blocks.shape[leading:])
    if not by_row:
        grids, pages = grids.transpose(1, 2), pages.transpose(1, 2)
    if like.layout not in BLOCKED:
        pages = pages[:, :, :, 0, 0]
    counts = grids.sum(2)
    pointers = torch.cat([counts.new_zeros(len(counts), 1), counts.cumsum(1)], 1)
    plain, values = grids.nonzero()[:, 2], pages[grids]
    stored = len(plain) // max(1, len(grids))
    kind = _indices(like)[0].dtype
    return torch.sparse_compressed_tensor(
        pointers.reshape(*batch, -1).to(kind),
        plain.reshape(*batch, stored).to(kind),
        values.reshape(*batch, stored, *values.shape[1:]),
        like.shape,
        layout=like.layout,
        check_invariants=True,
    )


def _evened(grids: Tensor) -> Tensor:
    """Cells added to some batches, so that each stores as many."""
    grids = grids.clone()
    most = int(grids.sum((1, 2)).max()) if len(grids) else 0
    for grid in grids:
        for row, column in (~grid).nonzero()[: most - int(grid.sum())].tolist():
            grid[row, column] = True
    return grids


def _laid_out(output: Tensor, weight: Tensor) -> Tensor:
    """Weights as an incoming gradient in the output's layout: wherever they are not zero."""
    if output.layout == torch.strided:
        return weight
    if output.layout == torch.sparse_coo:
        return weight.to_sparse(output.sparse_dim())
    leading, (height, width) = _batch_dim(output), _blocksize(output)
    flat = (weight != 0).flatten(leading + 2).any(-1) if weight.dim() > leading + 2 else weight != 0
    cells = flat.unflatten(leading + 1, (-1, width)).unflatten(leading, (-1, height)).any(leading + 3).any(leading + 1)
    return _compressed(weight, cells, output)


def _dense(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.layout == torch.strided:
        return tensor.clone()
    if fault := malformed(tensor):
        raise ValueError(f"malformed: {fault}")
    return tensor.to_dense()


def _stored(tensor: Tensor) -> Tensor:
    """Where a tensor stores something, as a dense mask."""
    if tensor.layout == torch.strided:
        return torch.ones(tensor.shape, dtype=torch.bool)
    if tensor.layout == torch.sparse_coo:
        ones = torch.ones(tensor._values().shape, dtype=torch.float64)
        return torch.sparse_coo_tensor(tensor._indices(), ones, tensor.shape).to_dense() != 0
    ones = torch.ones(tensor.values().shape, dtype=torch.float64)
    made = torch.sparse_compressed_tensor(*_indices(tensor), ones, tensor.shape, layout=tensor.layout)
    return made.to_dense() != 0


def _cells(tensor: Tensor) -> Tensor:
    """Which cells of a compressed tensor are stored: of blocks one for each."""
    leading, (height, width) = _batch_dim(tensor), _blocksize(tensor)
    mask = _stored(tensor)
    corner = (slice(None),) * leading + (slice(None, None, height), slice(None, None, width))
    return mask[corner + (0,) * (mask.dim() - leading - 2)].clone()


def _indices(tensor: Tensor) -> tuple[Tensor, Tensor]:
    if tensor.layout in BY_ROW:
        return tensor.crow_indices(), tensor.col_indices()
    return tensor.ccol_indices(), tensor.row_indices()


def _batch_dim(tensor: Tensor) -> int:
    return _indices(tensor)[0].dim() - 1


def _blocksize(tensor: Tensor) -> tuple[int, int]:
    if tensor.layout not in BLOCKED:
        return 1, 1
    height, width = tensor.values().shape[_batch_dim(tensor) + 1 : _batch_dim(tensor) + 3]
    return height, width
