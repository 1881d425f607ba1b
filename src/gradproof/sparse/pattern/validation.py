"""Faults in the indices of a sparse tensor, found before anything relies on them.

A tensor whose indices contradict each other can end the process when it is converted or printed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.sparse.pattern.grid import is_increasing, ravel, unravel
from gradproof.sparse.pattern.layouts import BLOCKED, BY_ROW, SPARSE, index_tensors, name_of, split_shape, stored_values

INDEX_DTYPES = (torch.int32, torch.int64)


class MalformedTensorError(InputError):
    """The indices of a sparse tensor contradict each other, its values or its shape."""


def require_well_formed(tensor: Tensor, what: str = "a") -> None:
    """Raise if the indices of a sparse tensor are malformed."""
    if fault := fault_of(tensor):
        raise MalformedTensorError(f"{what} {name_of(tensor.layout)} tensor is malformed: {fault}")


def fault_of(tensor: Tensor) -> str | None:
    """Describe what is wrong with a sparse tensor; None if nothing is.

    >>> fault_of(torch.eye(3).to_sparse_csr()) is None
    True
    >>> broken = torch.sparse_csr_tensor([0, 1, 3], [0, 1], [1.0, 2.0], (2, 2), check_invariants=False)
    >>> fault_of(broken)
    'its CSR indices end at 3, and 2 entries are stored'
    """
    if tensor.layout == torch.strided:
        return None
    indices, values = index_tensors(tensor), stored_values(tensor)
    shape, dense, block = split_shape(tensor)
    stored = tuple(indices[-1].shape[tensor.layout == torch.sparse_coo :])
    if tuple(values.shape[: len(stored)]) != stored:
        return f"it has indices for {stored} entries and values for {tuple(values.shape[: len(stored)])}"
    if tuple(values.shape[len(stored) + len(block) :]) != dense:
        return f"it has values of shape {tuple(values.shape[len(stored) :])} where {block + dense} belongs"
    fault = index_fault(tensor.layout, shape, indices, block)
    if (
        fault is None
        and tensor.layout == torch.sparse_coo
        and tensor.is_coalesced()
        and not is_increasing(ravel(indices[0], shape))
    ):
        return "it claims to be coalesced, and its indices are not in order or occur twice"
    return fault


def require_valid(
    layout: torch.layout,
    shape: tuple[int, ...],
    indices: tuple[Tensor, ...],
    blocksize: tuple[int, ...] | None,
    *,
    distinct: bool = True,
) -> None:
    """Raise unless the indices are those of a sparse tensor of this layout and shape, with distinct entries if asked.

    Indices without memory, on the meta device, are not looked at.
    """
    require_shape(shape)
    if layout not in SPARSE:
        raise InputError(f"{layout} is not a sparse layout. Pass one of {', '.join(map(str, SPARSE))}.")
    if any(index.is_meta for index in indices):
        return
    fault = index_fault(layout, shape, indices, blocksize or ())
    if fault is None and distinct and layout is torch.sparse_coo and not is_increasing(ravel(indices[0], shape)):
        fault = _duplicate(indices[0], shape)
    if fault:
        raise InputError(f"The indices make no {name_of(layout)} pattern of shape {list(shape)}: {fault}.")


def require_shape(shape: object) -> None:
    """Raise unless this is a shape: integers, none of them negative."""
    if not isinstance(shape, tuple) or not all(isinstance(size, int) and size >= 0 for size in shape):
        raise InputError(f"The shape is {shape!r}: pass integers that are not negative, such as (3, 4).")


def index_fault(
    layout: torch.layout, shape: tuple[int, ...], indices: tuple[Tensor, ...], block: tuple[int, ...]
) -> str | None:
    """Describe what is wrong with index tensors, given the shape without dense dimensions; allow duplicates of COO."""
    if len(indices) != (1 if layout is torch.sparse_coo else 2):
        return f"it has {len(indices)} index tensors, where COO needs one and the other layouts need two"
    if any(index.dtype not in INDEX_DTYPES for index in indices) or indices[0].dtype != indices[-1].dtype:
        return f"its indices have dtype {' and '.join(str(k.dtype) for k in indices)}, and need one integer dtype"
    if layout is not torch.sparse_coo:
        return _compressed_fault(layout, shape, indices, block)
    coordinates = indices[0]
    if coordinates.dim() != 2 or coordinates.shape[0] != len(shape):
        return f"it has indices of shape {list(coordinates.shape)}, and needs one row of indices for each dimension"
    found = (_out_of_range(*line, f"dimension {k}") for k, line in enumerate(zip(coordinates, shape, strict=True)))
    return next(filter(None, found), None)


def _compressed_fault(
    layout: torch.layout, shape: tuple[int, ...], indices: tuple[Tensor, ...], block: tuple[int, ...]
) -> str | None:
    compressed, plain = indices
    *batch, rows, columns = shape
    if layout in BLOCKED:
        if len(block) < 2 or 0 in block or rows % block[0] or columns % block[1]:
            return f"it has blocks of {list(block)}, which do not tile {rows} × {columns}"
        rows, columns = rows // block[0], columns // block[1]
    lines, length = (rows, columns) if layout in BY_ROW else (columns, rows)
    if list(compressed.shape[:-1]) != batch or list(plain.shape[:-1]) != batch or not plain.dim():
        return f"its indices have shapes {list(compressed.shape)} and {list(plain.shape)}"
    if compressed.shape[-1] != lines + 1:
        return f"it has {compressed.shape[-1]} compressed indices, and needs {lines + 1}"
    if not compressed.numel():
        return None
    line, along = ("row", "columns") if layout in BY_ROW else ("column", "rows")
    return (
        _misplaced_line(compressed, plain.shape[-1], name_of(layout))
        or _out_of_range(plain, length, f"the {along}")
        or _unsorted_line(compressed, plain, line)
    )


def _misplaced_line(compressed: Tensor, stored: int, name: str) -> str | None:
    """Describe compressed indices that do not lead from zero to the number of stored entries."""
    for end, number, verb, right in (
        (0, 0, "begin", "not at 0"),
        (-1, stored, "end", f"{stored} entries are stored"),
    ):
        wrong = compressed[..., end].reshape(-1)
        wrong = wrong[wrong != number]
        if len(wrong):
            return f"its {name} indices {verb} at {int(wrong[0])}, and {right}"
    return f"its {name} indices decrease" if bool((compressed.diff(dim=-1) < 0).any()) else None


def _out_of_range(coordinates: Tensor, length: int, what: str) -> str | None:
    if not coordinates.numel():
        return None
    low, high = (int(k) for k in torch.aminmax(coordinates))
    if low >= 0 and high < length:
        return None
    wrong = low if low < 0 else high
    first = int((coordinates.reshape(-1) == wrong).nonzero()[0])
    return f"index {wrong} (entry {first}) is out of range in {what}, of size {length}"


def _unsorted_line(compressed: Tensor, plain: Tensor, line: str) -> str | None:
    """Describe the first plain index that is not larger than the one before it in the same row or column."""
    stored, flat = plain.shape[-1], plain.reshape(-1)
    increases = flat[1:] > flat[:-1]
    batches = torch.arange(compressed[..., 0].numel(), device=plain.device).reshape(*compressed.shape[:-1], 1)
    first = (compressed[..., :-1].long() + batches * stored).reshape(-1)
    increases[first[(first > 0) & (first < len(flat))] - 1] = True
    if bool(increases.all()):
        return None
    wrong = int((~increases).nonzero()[0]) + 1
    return f"entry {wrong} is not in order within its {line}, or occurs twice; sort the indices and sum duplicates"


def _duplicate(indices: Tensor, shape: tuple[int, ...]) -> str | None:
    ordered = ravel(indices, shape).sort().values
    twice = (ordered[1:] == ordered[:-1]).nonzero()
    if not twice.numel():
        return None
    number = ordered[twice[0]]
    return (
        f"the position {unravel(int(number), shape)} is stored {int((ordered == number).sum())} times; sum duplicates "
        "first, for example with tensor.coalesce()"
    )
