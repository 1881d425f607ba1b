"""A gradient, sparse or dense, read at the entries of a pattern."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.errors import InputError
from gradproof.frameworks.torch.layouts import index_tensors, name_of, stored_values
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.sparse.coordinates import positions
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.recollection import Recollection

POLICIES = ("error", "project")
_COMPARED = Recollection[Pattern]()  # gradients, and the patterns that they were found to have


def require_policy(on_mismatch: str) -> None:
    """Raise unless it is known what to do with entries that the pattern does not store."""
    if on_mismatch not in POLICIES:
        raise InputError(f"on_mismatch={on_mismatch!r} is not known. Choose one of {', '.join(POLICIES)}.")


def read_at(pattern: Pattern, gradient: Tensor, *, on_mismatch: str = "error") -> Tensor:
    """The gradient's values at the pattern's entries, in its order of storage.

    A strided gradient is read where entries are stored. A sparse one has to store the same positions, or, with
    `on_mismatch="project"`, is read as zero where it stores nothing, and what it stores elsewhere is left out. Where
    the order of storage is the same, the result is the gradient's own memory.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.eye(2, dtype=torch.bool))
    >>> read_at(pattern, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    require_policy(on_mismatch)
    lead = len(pattern.shape)
    if tuple(gradient.shape[:lead]) != pattern.shape:
        raise InputError(
            f"The gradient has shape {list(gradient.shape)} and the pattern {list(pattern.shape)}: a gradient has the "
            "shape of what it belongs to."
        )
    pattern.require_device(gradient, "The gradient's entries")
    if not is_sparse(gradient):
        read = gradient.detach()[tuple(pattern.coordinates)]
        return read.reshape(*pattern.values_shape, *gradient.shape[lead:])
    if _in_this_order(pattern, gradient):
        return stored_values(gradient).reshape(*pattern.values_shape, *gradient.shape[lead:])
    if gradient.layout is torch.sparse_coo and not gradient.is_coalesced():
        gradient = gradient.detach().coalesce()
    theirs = Pattern.of(gradient)
    if theirs.shape != pattern.shape:
        raise InputError(
            f"The gradient is a {name_of(gradient.layout)} tensor with {gradient.dense_dim()} dense dimensions, and "
            f"the pattern's positions are {list(pattern.shape)}: their sparse dimensions have to be the same."
        )
    if theirs == pattern:
        return stored_values(gradient)
    return _elsewhere(pattern, theirs, stored_values(gradient), on_mismatch)


def lies_within(pattern: Pattern, gradient: Tensor) -> bool:
    """Whether a sparse gradient, which may have duplicates, stores nothing but entries of a pattern.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.eye(2, dtype=torch.bool))
    >>> lies_within(pattern, torch.eye(2).to_sparse()), lies_within(pattern, torch.ones(2, 2).to_sparse())
    (True, False)
    """
    if _in_this_order(pattern, gradient):
        return True
    if gradient.ndim - gradient.dense_dim() != len(pattern.shape):
        return False
    is_coo = gradient.layout is torch.sparse_coo
    given = positions(gradient._indices() if is_coo else Pattern.of(gradient).coordinates, pattern.shape)
    return bool(torch.isin(given, positions(pattern.coordinates, pattern.shape)).all())


def _in_this_order(pattern: Pattern, gradient: Tensor) -> bool:
    """Whether a gradient has this pattern's own indices, or its coordinates: the same memory, or the same numbers.

    To compare the numbers takes up to as long as a step of an optimiser, so that it is done once a gradient: where a
    backward brings it, and not again in the step.
    """
    if _COMPARED.of(gradient) is pattern:
        return True
    mine, its = pattern.indices, index_tensors(gradient)
    if gradient.layout is not pattern.layout:
        mine = (pattern.coordinates,)
    elif stored_values(gradient).shape[: len(pattern.values_shape)] != pattern.values_shape:  # blocks of another size
        return False
    if len(mine) != len(its) or not all(map(_same, mine, its)):
        return False
    _COMPARED.remember(gradient, pattern)
    return True


def _same(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.data_ptr() == other.data_ptr() or torch.equal(one, other)


def _elsewhere(pattern: Pattern, theirs: Pattern, values: Tensor, on_mismatch: str) -> Tensor:
    """Values of another pattern, looked up position by position."""
    dense = values.shape[len(theirs.values_shape) :]
    flat = values.reshape(theirs.entries, *dense)
    wanted = positions(pattern.coordinates, pattern.shape)
    given, order = positions(theirs.coordinates, theirs.shape).sort()
    slot = torch.searchsorted(given, wanted).clamp_(max=max(0, given.numel() - 1))
    found = given[slot] == wanted if given.numel() else torch.zeros_like(wanted, dtype=torch.bool)
    if on_mismatch == "error" and (not bool(found.all()) or given.numel() != wanted.numel()):
        extra = given.numel() - int(found.sum())
        raise InputError(
            f"The gradient's pattern is another: it lacks {int((~found).sum())} of the {wanted.numel()} stored entries "
            f"and stores {extra} that the tensor does not. With on_mismatch='project' the gradient is read as zero "
            "where it lacks entries, and the others are left out."
        )
    result = flat.new_zeros(wanted.numel(), *dense)
    result[found] = flat[order[slot[found]]]
    return result.reshape(*pattern.values_shape, *dense)
