"""Sparse tensors as strided values and back, masked onto patterns, from layout to layout: all of it differentiable.

Gradients have an entry wherever one was read, stored or not. A leaf has them in its layout; `torch.autograd.grad` hands
them out as COO for layouts that torch cannot add.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch.charts import Semantics
from gradproof.frameworks.torch.charts.sampling import extended
from gradproof.frameworks.torch.faults import fault_of
from gradproof.frameworks.torch.layouts import (
    BLOCKED,
    BY_COLUMN,
    COMPRESSED,
    SPARSE,
    Grid,
    grid_of,
    name_of,
    stored_values,
    with_values,
)
from gradproof.sparse.layouts import require_tensor
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.transfer import converted, put, read, spread


@dataclass(frozen=True, slots=True)
class Form:
    """What values are put back into: where the entries are, and under which semantics they were taken out."""

    template: Tensor
    masked: bool


def unpack(tensor: Tensor, *, masked: bool, seed: int = 0) -> tuple[Tensor, Form]:
    """The entries of a sparse tensor as strided values, and the form that `repack` puts them back into.

    With `masked=True` these are the stored entries. With `masked=False` there are zeros among them, for places where
    nothing is stored: all of these where there are up to some thousands, else a sample, drawn from `seed`, that visits
    every row and column where it can. Duplicates are summed.

    >>> import torch
    >>> values, form = unpack(torch.eye(3).to_sparse_csr(), masked=True)
    >>> values
    tensor([1., 1., 1.])
    >>> repack(2 * values, form).to_dense().sum()
    tensor(6.)
    """
    _refuse_strided(tensor, "unpack")
    if tensor.layout == torch.sparse_coo and not tensor.is_coalesced():
        tensor = tensor.coalesce()
    template = tensor.detach()
    if not masked:
        template, _ = extended(template, Semantics(seed=seed))
    return read(tensor, template), Form(template, masked)


def repack(values: Tensor, form: Form) -> Tensor:
    """The sparse tensor with these values, in the form that `unpack` gave."""
    if not isinstance(form, Form):
        raise InputError(f"form is a {type(form).__name__}: pass the one that unpack() gave.")
    wanted = tuple(stored_values(form.template).shape)
    if tuple(require_tensor(values, "values").shape) != wanted:
        raise InputError(
            f"values have the shape {tuple(values.shape)}, and the form stores {wanted}: pass as many as unpack() gave."
        )
    _refuse_other_device("values", values, form.template)
    return put(values, form.template)


def mask(tensor: Tensor, pattern: Tensor | Pattern) -> Tensor:
    """The entries of a tensor, of any layout, where a pattern or a sparse tensor stores some; in the layout of that.

    >>> import torch
    >>> mask(torch.arange(9.0).reshape(3, 3), torch.eye(3).to_sparse_csr()).values()
    tensor([0., 4., 8.])
    """
    require_tensor(tensor, "The tensor")
    if isinstance(pattern, Pattern):
        pattern = pattern.tensor(torch.zeros(pattern.values_shape, dtype=tensor.dtype, device=pattern.device))
    _refuse_strided(pattern, "mask", "pattern")
    if tensor.shape != pattern.shape:
        raise InputError(
            f"The tensor has the shape {tuple(tensor.shape)} and the pattern {tuple(pattern.shape)}: masking keeps the "
            "shape, so pass a pattern of the tensor's."
        )
    _refuse_other_device("the tensor", tensor, pattern)
    _refuse_malformed(tensor, "tensor")
    template = pattern.detach()
    if template.layout == torch.sparse_coo and not template.is_coalesced():
        template = template.coalesce()
    template = with_values(template, torch.zeros_like(stored_values(template), dtype=tensor.dtype))
    return put(read(tensor, template), template)


def convert(tensor: Tensor, layout: torch.layout, *, blocksize: tuple[int, int] | None = None) -> Tensor:
    """The same tensor in another layout. Of a strided tensor the entries that are not zero are stored.

    >>> import torch
    >>> convert(torch.eye(4).to_sparse(), torch.sparse_bsr, blocksize=(2, 2)).values().shape
    torch.Size([2, 2, 2])
    """
    _refuse_malformed(tensor, "tensor")
    if layout == torch.strided:
        return tensor if tensor.layout == torch.strided else spread(tensor)
    return converted(tensor, layout, _grid(tensor, layout, blocksize))


def _grid(tensor: Tensor, layout: torch.layout, blocksize: tuple[int, int] | None) -> Grid:
    """The grid that a tensor has in a layout; clear errors where it has none."""
    if layout not in SPARSE:
        raise InputError(f"layout={layout}: choose torch.strided or one of {', '.join(map(str, SPARSE))}.")
    if (layout in BLOCKED) != (blocksize is not None):
        needs = "needs a blocksize=, such as (2, 2)" if layout in BLOCKED else "has no blocks: leave blocksize= out"
        raise InputError(f"{name_of(layout)} {needs}.")
    if blocksize is not None and not _is_pair(blocksize):
        raise InputError(f"blocksize={blocksize!r}: pass the height and the width of a block, such as (2, 2).")
    dense = 0 if tensor.layout == torch.strided else len(grid_of(tensor).dense)
    shape = tuple(tensor.shape)
    leading, trailing = shape[: len(shape) - dense], shape[len(shape) - dense :]
    if layout not in COMPRESSED:
        return Grid((), leading, (), trailing)
    if len(leading) < 2:
        raise InputError(
            f"A {name_of(layout)} tensor has two sparse dimensions, and this one, of shape {shape}, has "
            f"{len(leading)}. Choose torch.sparse_coo, or reshape it."
        )
    batch, sparse = leading[:-2], leading[-2:]
    if blocksize is None:
        return Grid(batch, sparse, (), trailing, layout in BY_COLUMN)
    if any(size < 1 or length % size for length, size in zip(sparse, blocksize, strict=True)):
        raise InputError(f"Blocks of {blocksize} do not tile the {sparse} of this tensor: choose divisors.")
    tiles = tuple(length // size for length, size in zip(sparse, blocksize, strict=True))
    return Grid(batch, tiles, tuple(blocksize), trailing, layout in BY_COLUMN)


def _is_pair(blocksize: object) -> bool:
    return isinstance(blocksize, (tuple, list)) and [type(size) for size in blocksize] == [int, int]


def _refuse_strided(tensor: Tensor, action: str, role: str = "tensor") -> None:
    if require_tensor(tensor, f"The {role}").layout not in SPARSE:
        raise InputError(
            f"{action}() got a {name_of(tensor.layout)} {role}, which has no pattern. Pass a sparse one; "
            "gradproof.sparse.convert makes one of a strided tensor."
        )
    _refuse_malformed(tensor, role)


def _refuse_malformed(tensor: Tensor, role: str) -> None:
    if fault := fault_of(require_tensor(tensor, f"The {role}")):
        raise InputError(f"The {role} is a malformed {name_of(tensor.layout)} tensor: {fault}.")


def _refuse_other_device(what: str, tensor: Tensor, other: Tensor) -> None:
    if tensor.device != other.device:
        raise InputError(f"{what} is on {tensor.device} and the pattern on {other.device}: move one of them.")
