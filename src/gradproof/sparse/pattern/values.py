"""Between a sparse tensor and its stored values, both ways, differentiable to any order.

The gradient of a sparse tensor has entries where the tensor was read. A leaf gets it in its own layout;
`torch.autograd.grad` returns it as COO for layouts that torch cannot add (see `accumulation`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from gradproof.errors import InputError
from gradproof.sparse.pattern.accumulation import Accumulator, accumulator_of, collect_gradients
from gradproof.sparse.pattern.arguments import require_choice
from gradproof.sparse.pattern.cache import facts_of
from gradproof.sparse.pattern.grid import cells_of, grid_of, on_cells
from gradproof.sparse.pattern.layouts import (
    index_tensors,
    is_addable,
    is_distinct,
    is_sparse,
    name_of,
    same_indices,
    sparse_tensor,
    stored_values,
)
from gradproof.sparse.pattern.membership import merge
from gradproof.sparse.pattern.pattern import Pattern
from gradproof.sparse.pattern.reading import EntryReader, Match, increasing_keys
from gradproof.sparse.pattern.validation import require_well_formed

POLICIES = ("error", "project")


def read(tensor: Tensor, pattern: Pattern) -> Tensor:
    """Read a tensor's values at a pattern, in torch's order of entries; zero where the tensor stores nothing."""
    if tensor.layout is torch.strided:
        values = tensor[tuple(pattern.coordinates)]
        return values.reshape(*pattern.values_shape, *values.shape[1:])
    _require_converted(tensor)
    result: Tensor = _Read.apply(tensor, pattern)  # type: ignore[no-untyped-call]  # torch's own
    return accumulated(tensor, result)


def _require_converted(tensor: Tensor) -> None:
    """Raise if torch has converted a compressed tensor in name alone, as it does in `module.to(dtype)`."""
    values = stored_values(tensor)
    if values.dtype != tensor.dtype or values.device != tensor.device:
        raise InputError(
            f"A {name_of(tensor.layout)} tensor says {tensor.dtype} on {tensor.device}, and stores values of "
            f"{values.dtype} on {values.device}: module.to() and tensor.data = ... convert such parameters in name "
            "alone. Convert it before it becomes a parameter: nn.Parameter(weight.detach().to(dtype)); or train the "
            "values, as SparseLinear does."
        )


def build(values: Tensor, pattern: Pattern, *, layout: torch.layout | None = None) -> Tensor:
    """Build the sparse tensor with these values; with `layout=torch.sparse_coo`, an uncoalesced COO tensor.

    The pattern's entries have to be in torch's order.
    """
    result: Tensor = _Build.apply(values, pattern, layout or pattern.layout)  # type: ignore[no-untyped-call]  # torch's own
    return result


def to_strided(tensor: Tensor) -> Tensor:
    """Convert a sparse tensor to a strided one, whose gradient is strided."""
    if is_addable(tensor):
        return accumulated(tensor, tensor.to_dense(masked_grad=False))
    result: Tensor = _ToStrided.apply(tensor)  # type: ignore[no-untyped-call]  # torch's own
    return accumulated(tensor, result)


def total(pattern: Pattern, *gradients: Tensor) -> Tensor:
    """Add sparse gradients of a leaf with this pattern, in its layout.

    The sum stores what the leaf stores, and other entries only where a gradient does.

    >>> import torch
    >>> pattern = Pattern.of(torch.eye(2).to_sparse_csc())
    >>> total(pattern, torch.tensor([[0.0, 3.0], [0.0, 0.0]]).to_sparse()).values()
    tensor([0., 3., 0.])
    """
    others = [gradient.detach() for gradient in gradients if not has_order(gradient, pattern)]
    if others:
        pattern = _widened(pattern, others)
    first, *rest = (read(gradient, pattern) for gradient in gradients)
    return build(sum(rest, first), pattern)


def _widened(pattern: Pattern, tensors: list[Tensor]) -> Pattern:
    """Return the pattern with the cells around all entries that some tensors store."""
    template = pattern.template(tuple(tensors[0].shape[len(pattern.shape) :]))
    own = keys = increasing_keys(template)
    for tensor in tensors:
        require_well_formed(tensor, "The gradient, a")
        keys, _ = merge(keys, torch.unique(cells_of(tensor, grid_of(template))))
    return pattern if len(keys) == len(own) else Pattern.of(on_cells(template, keys))


def accumulated(tensor: Tensor, result: Tensor) -> Tensor:
    """Return the result, computed from the tensor alone; gradients of a sparse leaf are added up in its layout.

    A leaf with duplicates is left to torch, which adds its gradients as they are.
    """
    if result.requires_grad and tensor.is_leaf and result is not tensor and is_sparse(tensor) and is_distinct(tensor):
        collect_gradients(tensor, result, _add)
    return result


def accumulator(leaf: Tensor) -> Accumulator:
    """Return the object that adds up the gradients of a sparse leaf."""
    return accumulator_of(leaf, _add)


def _add(leaf: Tensor, held: Tensor | None, gradient: Tensor) -> Tensor:
    """Add a gradient to the sparse one that a leaf holds."""
    if held is None:
        return total(Pattern.of(leaf), gradient)
    return total(Pattern.of(leaf), held, gradient) if is_sparse(gradient) else gradient + to_strided(held)


def read_at(pattern: Pattern, gradient: Tensor, *, on_mismatch: str = "error") -> Tensor:
    """Read a gradient's values at the pattern's entries, in storage order, without a history.

    A sparse gradient has to store the same positions. With `on_mismatch="project"` it is read as zero where it stores
    nothing, and what it stores elsewhere is ignored. If the order is the same, the result is the gradient's own memory.

    >>> import torch
    >>> pattern = Pattern.from_mask(torch.eye(2, dtype=torch.bool))
    >>> read_at(pattern, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    tensor([1., 4.])
    """
    require_choice(on_mismatch, "on_mismatch", POLICIES)
    pattern.require_device(gradient, "The gradient's entries")
    dense = tuple(gradient.shape[len(pattern.shape) :])
    shape = (*pattern.values_shape, *dense)
    if not is_sparse(gradient):
        return gradient.detach()[tuple(pattern.coordinates)].reshape(shape)
    if has_order(gradient, pattern):
        return stored_values(gradient).reshape(shape)
    require_well_formed(gradient, "The gradient, a")
    gradient = gradient.detach()
    if not is_distinct(gradient):
        gradient = gradient.coalesce()
    match = Match(gradient, EntryReader(pattern.template(dense)))
    if on_mismatch == "error" and (match.missing or match.elsewhere):
        raise InputError(
            f"The gradient has another pattern than the tensor: {match.missing} of the tensor's stored cells are "
            f"missing, and {match.elsewhere} cells are stored that the tensor does not store. With "
            "on_mismatch='project' missing cells are read as zero, and the others are ignored."
        )
    return match.read(gradient).reshape(shape)


def has_order(tensor: Tensor, pattern: Pattern) -> bool:
    """Return True if a sparse tensor stores the entries of a pattern in the same order.

    Comparing indices can take as long as a step of an optimizer, so the result is cached for each tensor.
    """
    facts = facts_of(tensor)
    if facts.equal_to is pattern:
        return True
    indices = pattern.indices
    if tensor.layout is not pattern.layout:
        indices = (pattern.coordinates,) if tensor.layout is torch.sparse_coo else ()
    elif stored_values(tensor).shape[: len(pattern.values_shape)] != pattern.values_shape:  # blocks of another size
        return False
    if not same_indices(indices, index_tensors(tensor)):
        return False
    facts.equal_to = pattern
    return True


def with_signature(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Store the signature of a Function's forward, which torch would inspect at every call for longer than it runs."""
    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]  # read by inspect.signature
    return forward


class _Read(Function):
    @staticmethod
    @with_signature
    def forward(tensor: Tensor, pattern: Pattern) -> Tensor:
        return read_at(pattern, tensor, on_mismatch="project").data  # no view of the tensor: steps write to its memory

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        tensor, ctx.pattern = inputs
        ctx.save_for_backward(tensor)
        ctx.set_materialize_grads(False)  # torch has no zeros in every layout

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None]:
        (gradient,), pattern = incoming, ctx.pattern
        (tensor,) = ctx.saved_tensors  # values are its memory: torch raises here if a step was taken meanwhile
        if gradient is None:
            return None, None
        if not is_addable(tensor) or tensor.layout is torch.sparse_coo:
            return build(gradient, pattern, layout=torch.sparse_coo), None
        if tensor.layout is not pattern.layout:
            wide = Pattern.of(on_cells(tensor.detach(), cells_of(pattern.template(), grid_of(tensor))))
            gradient, pattern = read(build(gradient, pattern, layout=torch.sparse_coo), wide), wide
        return build(gradient, pattern), None


class _Build(Function):
    @staticmethod
    @with_signature
    def forward(values: Tensor, pattern: Pattern, layout: torch.layout) -> Tensor:
        values = values.resolve_conj().contiguous()  # only such values does torch add entry by entry
        lead = len(pattern.values_shape)
        shape = (*pattern.shape, *values.shape[lead:])
        if layout is pattern.layout:
            return sparse_tensor(layout, pattern.indices, values, shape, coalesced=not pattern.parallel)
        return sparse_tensor(layout, (pattern.coordinates,), values.flatten(0, lead - 1), shape, coalesced=False)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        _, ctx.pattern, _ = inputs
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, None, None]:
        (gradient,) = incoming
        return None if gradient is None else read(gradient, ctx.pattern), None, None


class _ToStrided(Function):
    """Conversion of a layout that torch cannot add, with a strided gradient.

    Torch would make the gradient sparse, and fail if one matrix of a batch then stored more entries than the next.
    """

    @staticmethod
    def forward(tensor: Tensor) -> Tensor:
        return tensor.to_dense()

    @staticmethod
    def setup_context(ctx: Any, _inputs: tuple[Tensor], _output: Tensor) -> None:
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(_ctx: Any, *incoming: Tensor | None) -> Tensor | None:
        return incoming[0]
