"""The parameters of a training step: their names, their stored entries, and their values before and after the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gradproof.errors import InputError
from gradproof.frameworks.torch.charts import Semantics, chart_of, refuse_malformed, refuse_unreadable
from gradproof.frameworks.torch.storage import is_sparse, replica
from gradproof.frameworks.torch.subject.spaces import Space
from gradproof.sparse.pattern.cache import facts_of, keep_facts
from gradproof.sparse.pattern.layouts import stored_values
from gradproof.sparse.pattern.reading import same_pattern


def named_parameters(parameters: Any) -> dict[str, Tensor]:
    """Return the leaves that require grad, by name, of a module, a mapping, one tensor or several.

    >>> list(named_parameters(nn.Linear(2, 1)))
    ['weight', 'bias']
    """
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
        _refuse_unsuitable(name, tensor)
    return chosen


def _refuse_unsuitable(name: str, tensor: Tensor) -> None:
    refuse_unreadable(name, tensor)
    refuse_malformed(name, tensor)
    if tensor.layout is torch.sparse_coo and not tensor.is_coalesced():
        raise InputError(
            f"{name} is an uncoalesced COO tensor: it may store one entry several times, and a step changes each of "
            f"them. Pass {name}.coalesce()."
        )


def values_of(tensor: Tensor) -> Tensor:
    """Return the memory that a step writes to: the stored values of a sparse tensor, or the tensor itself."""
    return stored_values(tensor) if is_sparse(tensor) else tensor.detach()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A private copy of some parameters, which does not change with them."""

    tensors: tuple[Tensor, ...]

    @classmethod
    def of(cls, parameters: Iterable[Tensor]) -> Snapshot:
        """Copy the parameters as they are now."""
        return cls(tuple(replica(parameter) for parameter in parameters))

    def write_to(self, parameters: Iterable[Tensor]) -> None:
        """Give the parameters the values of this snapshot; both store the same entries."""
        write(self.tensors, parameters)


def write(values: Iterable[Tensor], parameters: Iterable[Tensor]) -> None:
    """Copy the values of some tensors into parameters that store the same entries."""
    with torch.no_grad():
        for source, parameter in zip(values, parameters, strict=True):
            if is_sparse(parameter):
                facts_of(parameter)  # drops what was known of indices that somebody else has written to
            values_of(parameter).copy_(values_of(source))
            if is_sparse(parameter):
                keep_facts(parameter)


def same_entries(before: Tensor, after: Tensor) -> bool:
    """Return True if two tensors have the same layout and shape, and store the same entries."""
    if before.layout is not after.layout or before.shape != after.shape:
        return False
    return not is_sparse(before) or same_pattern(before, after)


def space_of(names: Sequence[str], snapshot: Snapshot) -> Space:
    """Return the space whose coordinates are the stored entries of the parameters."""
    charts = [chart_of(tensor, Semantics(masked=True)) for tensor in snapshot.tensors]
    return Space(list(names), list(snapshot.tensors), charts)
