"""What is wrong with the indices of a sparse tensor: looked at before anything relies on them.

A tensor whose indices contradict each other can end the process when it is converted or printed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.frameworks.torch.layouts import BLOCKED, BY_ROW, index_tensors, name_of


def fault_of(tensor: Tensor) -> str | None:
    """What is wrong with a sparse tensor, in a few words; None where nothing is.

    >>> fault_of(torch.eye(3).to_sparse_csr()) is None
    True
    >>> broken = torch.sparse_csr_tensor([0, 1, 3], [0, 1], [1.0, 2.0], (2, 2), check_invariants=False)
    >>> fault_of(broken)
    'its CSR indices end at 3, and 2 entries are stored'
    """
    if tensor.layout == torch.strided:
        return None
    return _coordinates(tensor) if tensor.layout == torch.sparse_coo else _compressed(tensor)


def _coordinates(tensor: Tensor) -> str | None:
    indices, values = tensor._indices(), tensor._values()
    shape = tuple(tensor.shape)
    if indices.dim() != 2 or indices.shape[0] != tensor.sparse_dim():
        return f"it has indices of shape {tuple(indices.shape)} for {tensor.sparse_dim()} sparse dimensions"
    if values.shape[0] != indices.shape[1]:
        return f"it has {indices.shape[1]} indices and {values.shape[0]} values"
    if tuple(values.shape[1:]) != shape[tensor.sparse_dim() :]:
        return f"it has values of shape {tuple(values.shape[1:])} where {shape[tensor.sparse_dim() :]} belongs"
    for dimension, positions in enumerate(indices):
        if fault := _out_of_bounds(positions, shape[dimension]):
            return fault
    if tensor.is_coalesced() and not _rising(indices):
        return "it says that it is coalesced, and its indices are not in order or come twice"
    return None


def _compressed(tensor: Tensor) -> str | None:
    name = name_of(tensor.layout)
    compressed, plain = index_tensors(tensor)
    values = tensor.detach().values()
    if compressed.dtype != plain.dtype:
        return f"its indices are of {compressed.dtype} and of {plain.dtype}"
    if compressed.dim() != plain.dim() or compressed.shape[:-1] != plain.shape[:-1]:
        return f"its indices are of shapes {tuple(compressed.shape)} and {tuple(plain.shape)}"
    leading = plain.dim()
    if tuple(values.shape[:leading]) != tuple(plain.shape):
        return f"it has indices for {tuple(plain.shape)} entries and values for {tuple(values.shape[:leading])}"
    rows, columns = tensor.shape[leading - 1 : leading + 1]
    payload, dense = tuple(values.shape[leading:]), tuple(tensor.shape[leading + 1 :])
    if tensor.layout in BLOCKED:
        block, payload = payload[:2], payload[2:]
        if len(block) < 2 or 0 in block or rows % block[0] or columns % block[1]:
            return f"it has blocks of {block}, which do not tile {rows} × {columns}"
        rows, columns = rows // block[0], columns // block[1]
    if payload != dense:
        return f"it has values of shape {payload} where {dense} belongs"
    lines, length = (rows, columns) if tensor.layout in BY_ROW else (columns, rows)
    if compressed.shape[-1] != lines + 1:
        return f"it has {compressed.shape[-1]} compressed indices, where {lines + 1} belong"
    if not compressed.numel():
        return None
    if bool((compressed[..., 0] != 0).any()):
        return f"its {name} indices begin at {int(compressed[..., 0].reshape(-1)[0])} and not at 0"
    if bool((compressed[..., -1] != plain.shape[-1]).any()):
        ends = compressed[..., -1].reshape(-1)
        wrong = int(ends[ends != plain.shape[-1]][0])
        return f"its {name} indices end at {wrong}, and {plain.shape[-1]} entries are stored"
    counts = compressed.diff(dim=-1)
    if bool((counts < 0).any()):
        return f"its {name} indices fall where they should rise"
    if fault := _out_of_bounds(plain, length):
        return fault
    if not _rising_in_lines(compressed, plain):
        return f"its {name} indices are not in order within a line, or come twice"
    return None


def _out_of_bounds(positions: Tensor, length: int) -> str | None:
    if not positions.numel():
        return None
    least, most = int(positions.min()), int(positions.max())
    if least >= 0 and most < length:
        return None
    return f"it has an index of {least if least < 0 else most} in a dimension of {length}"


def _rising_in_lines(compressed: Tensor, plain: Tensor) -> bool:
    """Whether the plain indices of every line come in order, none twice."""
    stored, flat = plain.shape[-1], plain.reshape(-1)
    rises = flat[1:] > flat[:-1]
    batches = torch.arange(compressed[..., 0].numel(), device=plain.device).reshape(*compressed.shape[:-1], 1)
    starts = (compressed[..., :-1].long() + batches * stored).reshape(-1)
    rises[starts[(starts > 0) & (starts < len(flat))] - 1] = True
    return bool(rises.all())


def _rising(indices: Tensor) -> bool:
    """Whether columns of indices come in order, none twice."""
    if indices.shape[1] < 2 or not indices.shape[0]:
        return indices.shape[1] < 2
    rises = torch.zeros(indices.shape[1] - 1, dtype=torch.bool, device=indices.device)
    equal = ~rises
    for positions in indices:
        before, after = positions[:-1], positions[1:]
        rises |= equal & (before < after)
        equal &= before == after
    return bool(rises.all())
