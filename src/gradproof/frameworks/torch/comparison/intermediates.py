"""Move every intermediate number of a computation by a unit in the last place of single precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from gradproof.frameworks.torch.comparison.perturbation import moved
from gradproof.frameworks.torch.storage import is_strided

ACCUMULATOR = torch.float32  # kernels for lower precisions compute in it, too
WIDE = {torch.float64: ACCUMULATOR, torch.complex128: torch.complex64}


class MovedIntermediates(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """While it is active, operations in double precision return what single precision might have returned.

    Every result is rounded and moved by a unit in the last place, up or down at random. An operation whose results need
    no rounding, such as a copy, a mask or a change of sign, is left alone.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self._seed, self._count = seed, 0

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        aliases = [each.alias_info for each in func._schema.returns if each.alias_info is not None]  # type: ignore[attr-defined]  # torch
        if any(not alias.is_write for alias in aliases):
            return result  # a view
        change = self._written if aliases else self._moved
        return tree_map_only(Tensor, change, result)

    def _written(self, tensor: Tensor) -> Tensor:
        changed = self._moved(tensor)
        return tensor if changed is tensor else tensor.copy_(changed)

    def _moved(self, tensor: Tensor) -> Tensor:
        """Return the tensor itself if single precision holds it."""
        narrow = WIDE.get(tensor.dtype)
        if narrow is None or not is_strided(tensor):
            return tensor
        rounded = tensor.to(narrow)
        if torch.equal(rounded.to(tensor.dtype), tensor):
            return tensor
        self._count += 1
        (result,) = moved([rounded], self._seed + 15_485_863 * self._count)
        # numbers beyond the range of single precision stay: another algorithm scales them
        known = torch.isfinite(rounded) & (rounded.abs() >= torch.finfo(ACCUMULATOR).smallest_normal)
        return torch.where(known, result.to(tensor.dtype), tensor)
