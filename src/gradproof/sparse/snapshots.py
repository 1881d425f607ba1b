"""Parameters as they were: their values, and for sparse ones their indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradproof.errors import InputError
from gradproof.frameworks.torch.layouts import index_tensors, stored_values
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.sparse.layouts import require_sparse
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.reading import read_at


def named(parameters: Any) -> dict[str, Tensor]:
    """The parameters that require grad, by name, of a module, a mapping, one tensor, or several."""
    found: dict[str, Tensor]
    if isinstance(parameters, nn.Module):
        found = dict(parameters.named_parameters())
    elif isinstance(parameters, Mapping):
        found = dict(parameters)
    elif isinstance(parameters, Tensor):
        found = {"parameter": parameters}
    elif isinstance(parameters, Iterable):
        found = {f"parameters[{k}]": parameter for k, parameter in enumerate(parameters)}
    else:
        raise InputError(f"A {type(parameters).__name__} holds no parameters: pass a module, a mapping or tensors.")
    chosen = {name: tensor for name, tensor in found.items() if tensor.requires_grad and tensor.is_leaf}
    if not chosen:
        raise InputError("None of the parameters is a leaf that requires grad, so that no step can be checked.")
    for name, tensor in chosen.items():
        if is_sparse(tensor):
            require_sparse(tensor, name)
    return chosen


def memory(tensor: Tensor) -> Tensor:
    """The memory that a step writes to."""
    return stored_values(tensor) if is_sparse(tensor) else tensor.detach()


def write(tensor: Tensor, values: Tensor) -> None:
    """Put values into a parameter."""
    memory(tensor).copy_(values)
    if is_sparse(tensor):
        Pattern.kept(tensor)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One parameter at one time."""

    values: Tensor
    indices: tuple[Tensor, ...]
    layout: torch.layout
    shape: torch.Size

    @classmethod
    def of(cls, tensor: Tensor) -> Snapshot:
        """A copy that does not change with the parameter."""
        indices = index_tensors(tensor) if is_sparse(tensor) else ()
        return cls(memory(tensor).clone(), tuple(index.clone() for index in indices), tensor.layout, tensor.shape)

    def same_pattern(self, other: Snapshot) -> bool:
        """Whether the same entries are stored."""
        return (
            self.layout is other.layout
            and self.shape == other.shape
            and self.values.shape == other.values.shape
            and all(torch.equal(mine, its) for mine, its in zip(self.indices, other.indices, strict=True))
        )


def gradient_values(tensor: Tensor) -> Tensor:
    """A parameter's gradient where the parameter has values; zeros where it has none."""
    if tensor.grad is None:
        return torch.zeros_like(memory(tensor))
    if not is_sparse(tensor):
        return (tensor.grad.to_dense() if is_sparse(tensor.grad) else tensor.grad).detach().clone()
    return read_at(Pattern.of(tensor), tensor.grad, on_mismatch="project").detach().clone()


def inner(left: Tensor, right: Tensor) -> float:
    """The real inner product, in double precision."""
    if left.is_complex():
        left, right = torch.view_as_real(left.resolve_conj()), torch.view_as_real(right.resolve_conj())
    return float(left.reshape(-1).double() @ right.reshape(-1).double())
