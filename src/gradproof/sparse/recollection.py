"""What was found in the indices of tensors: remembered for as long as a tensor lives, and nobody writes to it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Generic, TypeVar

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from gradproof.frameworks.torch.layouts import index_tensors

Finding = TypeVar("Finding")


class Recollection(Generic[Finding]):
    """Findings about the indices of sparse tensors.

    >>> import torch
    >>> lengths = Recollection[int]()
    >>> tensor = torch.eye(3).to_sparse_csr()
    >>> lengths.remember(tensor, 3)
    >>> lengths.of(tensor)
    3
    >>> _ = tensor.col_indices().add_(1)
    >>> lengths.of(tensor) is None
    True
    """

    def __init__(self) -> None:
        self._known: MutableMapping[Tensor, tuple[Finding, tuple[Any, ...]]] = WeakIdKeyDictionary()

    def of(self, tensor: Tensor) -> Finding | None:
        """What was found, if the indices are still those that were looked at."""
        if tensor not in self._known:
            return None
        finding, seen = self._known[tensor]
        return finding if seen == _state_of(tensor) else None

    def remember(self, tensor: Tensor, finding: Finding) -> None:
        """Say what was found in the indices as they are now."""
        if not tensor.is_inference():  # torch does not count the writes to such a tensor
            self._known[tensor] = finding, _state_of(tensor)

    def keep(self, tensor: Tensor) -> None:
        """Say that values were written to and indices were not: to torch the two have one version."""
        if tensor in self._known:
            self.remember(tensor, self._known[tensor][0])


def _state_of(tensor: Tensor) -> tuple[Any, ...]:
    """What tells that a tensor's indices are still those that were looked at, without reading them."""
    return tuple((index.data_ptr(), index.shape, index._version) for index in index_tensors(tensor))
