"""How the entries of one tensor become coordinates. Layouts, masks and complex numbers are handled here only.

A chart reads the coordinates of a tensor, builds a tensor from coordinates, and moves a point. The coordinates are

- of a strided tensor, all entries;
- of a sparse input, the entries that its template stores;
- of a sparse output, the entries that it stores at the point or right beside it, and one number for all others;
- of a masked tensor, the entries that are not masked out.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.masked import MaskedTensor
from torch.nn import Parameter
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from gradproof.errors import InputError
from gradproof.frameworks.torch.charts.chart import Chart, Semantics, added, alike
from gradproof.frameworks.torch.charts.masked import Unmasked
from gradproof.frameworks.torch.charts.sparse import Observed, Stored
from gradproof.frameworks.torch.charts.strided import Strided, densified
from gradproof.frameworks.torch.internals import intercepts_operations, is_fake
from gradproof.frameworks.torch.storage import data_and_mask, is_sparse
from gradproof.sparse.pattern.layouts import SPARSE, name_of, zeros_template
from gradproof.sparse.pattern.templates import extended, union
from gradproof.sparse.pattern.validation import fault_of

__all__ = [
    "Chart",
    "Observed",
    "Semantics",
    "Stored",
    "Strided",
    "added",
    "chart_of",
    "densified",
    "observed",
    "refuse_malformed",
    "refuse_unreadable",
    "united",
]

READABLE = (Tensor, Parameter, MaskedTensor)  # the types whose numbers can be read without another look


def chart_of(point: Tensor, semantics: Semantics) -> Chart:
    """Return the chart of an input."""
    if isinstance(point, MaskedTensor):
        data, mask = data_and_mask(point)
        return Unmasked(chart_of(data, Semantics(masked=True)), mask, data)
    if not is_sparse(point):
        return Strided(point)
    if semantics.masked:
        return Stored(point)
    return Stored(point, *extended(point, complete=semantics.complete, seed=semantics.seed))


def observed(value: Tensor, pattern: Tensor | None, *, everywhere: bool) -> Chart:
    """Return the chart of an output, given its value at the point.

    `pattern` holds the positions at which a sparse output is observed. With `everywhere`, entries that it stores
    elsewhere are observed too, as one number.
    """
    if isinstance(value, MaskedTensor):
        data, mask = data_and_mask(value)
        return Unmasked(Stored(data) if is_sparse(data) else Strided(data), mask, data)
    return Strided(value) if pattern is None else Observed(pattern, everywhere=everywhere)


def united(path: str, pattern: Tensor | None, value: Tensor) -> Tensor:
    """Return the union of a pattern and the pattern of a sparse value, without memory for values."""
    refuse_malformed(path, value)
    if pattern is None:
        return zeros_template(union([value]))
    return zeros_template(union([pattern, value])) if alike(value, pattern) else pattern


def refuse_unreadable(path: str, tensor: Tensor) -> None:
    """Raise for a tensor whose numbers cannot be read: nested, meta, of another layout, or a wrapper."""
    if tensor.is_nested:
        raise InputError(f"{path} is a nested tensor, whose rows differ in length. Check its parts, or padded ones.")
    if tensor.is_meta:
        raise InputError(f"{path} is on the meta device, which holds no numbers. Check on a device that does.")
    if is_fake(tensor):
        raise InputError(f"{path} is a fake tensor, which holds no numbers. Check outside of the FakeTensorMode.")
    if tensor.layout != torch.strided and tensor.layout not in SPARSE:
        raise InputError(f"{path} has the layout {tensor.layout}, which cannot be read. Return its to_dense().")
    if type(tensor) not in READABLE and (is_traceable_wrapper_subclass(tensor) or intercepts_operations(tensor)):
        raise InputError(
            f"{path} is a {type(tensor).__name__}, which wraps other tensors and has no memory of its own. Check a "
            "function of the inner tensors that builds it."
        )


def refuse_malformed(path: str, tensor: Tensor) -> None:
    """Raise for a tensor whose indices are inconsistent, before anything reads them."""
    if isinstance(tensor, MaskedTensor):
        tensor = data_and_mask(tensor)[0]
    if fault := fault_of(tensor):
        raise InputError(
            f"{path} is a malformed {name_of(tensor.layout)} tensor: {fault}. Make it with check_invariants=True to "
            "see where that happens."
        )
