"""How the entries of one tensor become coordinates. Layout, masks and complexness are met here, and nowhere after.

A chart reads a tensor's coordinates, makes a tensor of given coordinates, and moves a point. A strided tensor has all
its entries for coordinates; a sparse input those that its template stores; a sparse output those that it stores at the
point and right beside it, and one number for all that appears elsewhere; a masked tensor those not masked out.
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
from gradproof.frameworks.torch.charts.strided import Strided, spread
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
    "observed",
    "refuse_malformed",
    "refuse_unreadable",
    "spread",
    "widened",
]

PLAIN = (Tensor, Parameter)  # types that are no wrappers, which most tensors are of


def chart_of(point: Tensor, semantics: Semantics) -> Chart:
    """The chart of an input."""
    if isinstance(point, MaskedTensor):
        data, mask = data_and_mask(point)
        return Unmasked(chart_of(data, Semantics(masked=True)), mask, data)
    if not is_sparse(point):
        return Strided(point)
    if semantics.masked:
        return Stored(point)
    return Stored(point, *extended(point, complete=semantics.complete, seed=semantics.seed))


def observed(value: Tensor, pattern: Tensor | None, *, everywhere: bool) -> Chart:
    """The chart of an output, from its value at the point and, of a sparse one, the pattern where it is observed.

    `everywhere` says to look at what a sparse one stores elsewhere too.
    """
    if isinstance(value, MaskedTensor):
        data, mask = data_and_mask(value)
        return Unmasked(Stored(data) if is_sparse(data) else Strided(data), mask, data)
    return Strided(value) if pattern is None else Observed(pattern, everywhere=everywhere)


def widened(path: str, pattern: Tensor | None, value: Tensor) -> Tensor:
    """A pattern that stores, in no memory but its indices', what a pattern does and what a sparse value does."""
    refuse_malformed(path, value)
    if pattern is None:
        return zeros_template(union([value]))
    return zeros_template(union([pattern, value])) if alike(value, pattern) else pattern


def refuse_unreadable(path: str, tensor: Tensor) -> None:
    """Refuse a tensor that is no grid of numbers in memory."""
    if tensor.is_nested:
        raise InputError(f"{path} is a nested tensor, whose rows differ in length. Check its parts, or padded ones.")
    if tensor.is_meta:
        raise InputError(f"{path} is on the meta device, which holds no numbers. Check on a device that does.")
    if tensor.layout != torch.strided and tensor.layout not in SPARSE:
        raise InputError(f"{path} has the layout {tensor.layout}, which cannot be read. Return its to_dense().")
    if type(tensor) not in PLAIN and is_traceable_wrapper_subclass(tensor):
        raise InputError(
            f"{path} is a {type(tensor).__name__}, which wraps other tensors and has no memory of its own. Check a "
            "function of the tensors inside, which makes it of them."
        )


def refuse_malformed(path: str, tensor: Tensor) -> None:
    """Refuse a tensor whose indices contradict each other, before anything is done with it."""
    if isinstance(tensor, MaskedTensor):
        tensor = data_and_mask(tensor)[0]
    if fault := fault_of(tensor):
        raise InputError(
            f"{path} is a malformed {name_of(tensor.layout)} tensor: {fault}. Make it with check_invariants=True to "
            "see where that happens."
        )
