"""The sparse samples of PyTorch's operator database, one layout at a time.

Few operators have samples of sparse tensors. Those that only say that they support a layout give their dense samples,
half of whose entries are dropped before they are converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from benchmarks.operators import op_db

LAYOUTS = {
    "COO": torch.sparse_coo,
    "CSR": torch.sparse_csr,
    "CSC": torch.sparse_csc,
    "BSR": torch.sparse_bsr,
    "BSC": torch.sparse_bsc,
}
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)


@dataclass(frozen=True)
class Sample:
    """One sample of one operator, with a sparse tensor among its inputs."""

    name: str
    number: int
    function: Callable[..., Any]
    inputs: tuple[Any, ...]


def samples(layout: torch.layout, dtype: torch.dtype, converted: int, pattern: str = "") -> Iterator[Sample]:
    """All sparse samples of every differentiable operator, or so many of its dense ones in this layout."""
    for op in op_db:
        if not op.supports_autograd or dtype not in op.supported_backward_dtypes("cpu"):
            continue
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if pattern not in name:
            continue
        torch.manual_seed(0)
        for number, sample in enumerate(_raw(op, layout, dtype, converted)):
            yield _sample(op, sample, name, number)


def _raw(op: Any, layout: torch.layout, dtype: torch.dtype, converted: int) -> Iterator[Any]:
    """The operator's sparse samples; those among its ordinary samples that are sparse; or its dense ones, converted."""
    if not op.supports_sparse_layout(layout):
        if op.name.startswith("sparse."):
            ordinary = op.sample_inputs("cpu", dtype, requires_grad=True)
            yield from (sample for sample in ordinary if layout in _layouts(sample))
        return
    try:
        yield from op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=True)
    except NotImplementedError:
        ordinary = op.sample_inputs("cpu", dtype, requires_grad=True)
        least = 1 if layout == torch.sparse_coo else 2
        fitting = (sample for sample in ordinary if isinstance(sample.input, Tensor) and sample.input.dim() >= least)
        for sample in islice(fitting, converted):
            sample.input = thinned(sample.input.detach(), layout).requires_grad_()
            yield sample


def thinned(dense: Tensor, layout: torch.layout) -> Tensor:
    """Every other entry of a dense tensor, in some layout; a batched one has the same pattern in every batch."""
    generator = torch.Generator().manual_seed(dense.numel())
    kept = torch.rand(dense.shape[-2:], generator=generator) < 0.5
    thin = torch.where(kept, dense, 0)
    if layout == torch.sparse_coo:
        return thin.to_sparse()
    if layout in BLOCKED:
        sizes = [next(size for size in (2, 5, 3, 1) if length % size == 0) for length in dense.shape[-2:]]
        return thin.to_sparse(layout=layout, blocksize=(sizes[0], sizes[1]))
    return thin.to_sparse(layout=layout)


def _layouts(sample: Any) -> set[torch.layout]:
    values = (sample.input, *sample.args, *sample.kwargs.values())
    return {value.layout for value in values if isinstance(value, Tensor)}


def _sample(op: Any, sample: Any, name: str, number: int) -> Sample:
    inputs = (sample.input, *sample.args, *sample.kwargs.values())
    if not any(isinstance(value, Tensor) and value.requires_grad for value in inputs):
        sample.input.requires_grad_()  # what the database converts by itself has lost it

    def function(*values: Any) -> Any:
        args = values[1 : 1 + len(sample.args)]
        kwargs = dict(zip(sample.kwargs, values[1 + len(sample.args) :], strict=True))
        return sample.output_process_fn_grad(op.gradcheck_wrapper(op.get_op(), values[0], *args, **kwargs))

    return Sample(name, number, function, inputs)
