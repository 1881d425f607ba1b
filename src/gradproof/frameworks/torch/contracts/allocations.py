"""Intercept the tensors that a function allocates, in its forward and in its backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from gradproof.frameworks.torch.internals import is_transformed
from gradproof.frameworks.torch.storage import memory_of

_aten = torch.ops.aten
EMPTY = frozenset(
    {
        _aten.empty,
        _aten.empty_like,
        _aten.empty_permuted,
        _aten.empty_strided,
        _aten.new_empty,
        _aten.new_empty_strided,
    }
)
FILLED = frozenset(
    {
        _aten.full,
        _aten.full_like,
        _aten.new_full,
        _aten.new_ones,
        _aten.new_zeros,
        _aten.ones,
        _aten.ones_like,
        _aten.zeros,
        _aten.zeros_like,
    }
)


class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """A mode under which `change` receives every tensor that certain operators allocate, and may return another.

    Autograd sets the mode in the threads in which it runs backwards, as it does with all modes. `resized` holds the
    addresses of the storages in which torch may have given a tensor another size.
    """

    def __init__(self, operators: frozenset[Any], change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self._operators, self._change = operators, change
        self.resized: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operator, and pass on what it allocates."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if "out" in kwargs or func.overloadpacket is _aten.resize_:
            self.resized |= memory_of([each for each in (kwargs.get("out"), *args[:1]) if _has_memory(each)])
        elif func.overloadpacket in self._operators and _has_memory(result):
            return self._change(result)
        return result


def _has_memory(result: Any) -> bool:
    """Return True for an ordinary strided tensor with entries. One without is often resized later."""
    return (
        type(result) is Tensor
        and result.layout == torch.strided
        and not result.is_meta
        and not result.is_quantized
        and not is_transformed(result)
        and bool(result.numel())
    )
