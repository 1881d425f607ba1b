"""A version-checked cache of what was found in the indices of sparse tensors.

An entry lives as long as its tensor, and is valid until somebody writes to the tensor's indices.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from gradproof.sparse.pattern.layouts import index_tensors


@dataclass(slots=True)
class Facts:
    """What is known of a tensor's indices: its own pattern, and an equal one of another tensor."""

    versions: tuple[Any, ...]
    pattern: Any = None
    equal_to: Any = None


def facts_of(tensor: Tensor) -> Facts:
    """Return what is known of a tensor's indices as they are now; the caller may add to it.

    >>> import torch
    >>> tensor = torch.eye(3).to_sparse_csr()
    >>> facts_of(tensor).pattern = "diagonal"
    >>> facts_of(tensor).pattern
    'diagonal'
    >>> _ = tensor.col_indices().add_(1)
    >>> facts_of(tensor).pattern is None
    True
    """
    if tensor.is_inference():  # torch does not count the writes to such a tensor
        return Facts(())
    return _current(tensor, _versions(index_tensors(tensor)))


def facts_at(indices: tuple[Tensor, ...]) -> Facts:
    """Return what is known of index tensors as they are now, cached for the last of them; the caller may add to it."""
    return _current(indices[-1], _versions(indices))


def hold_same(indices: tuple[Tensor, ...], copies: tuple[Tensor, ...]) -> bool:
    """Return False if index tensors are seen to hold other numbers than their copies.

    Some writes count no version: `.data`, and the broadcasts of DistributedDataParallel. On the CPU comparing takes
    little beside a product. Elsewhere it waits for the device, so it is done in distributed training alone.
    """
    distributed = torch.distributed
    if copies[0].device.type != "cpu" and not (distributed.is_available() and distributed.is_initialized()):
        return True
    return all(map(torch.equal, indices, copies))


def keep_facts(tensor: Tensor) -> None:
    """Declare that the values were written to and the indices were not: torch has one version counter for both."""
    known = _FACTS.get(tensor)
    if known is not None:
        known.versions = _versions(index_tensors(tensor))


def _current(key: Tensor, versions: tuple[Any, ...]) -> Facts:
    """Return the facts that are known under a key, new ones unless the versions are the same."""
    known = _FACTS.get(key)
    if known is None or known.versions != versions:
        _FACTS[key] = known = Facts(versions)
    return known


def _versions(indices: tuple[Tensor, ...]) -> tuple[Any, ...]:
    """Return what changes with every write to the indices, without reading them."""
    return tuple((index.data_ptr(), index.shape, index._version) for index in indices)


_FACTS: MutableMapping[Tensor, Facts] = WeakIdKeyDictionary()  # by sparse tensor, or by the last of some index tensors
