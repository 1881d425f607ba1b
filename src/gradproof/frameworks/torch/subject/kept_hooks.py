"""Hooks that a call registers and a module keeps: they serve the backward of that call alone.

Implicit layers hook a tensor in forward, keep the handle, and remove the hook in their backward, which evaluates the
layer again. After another call the handle is that of another hook, and the backward of the first call never ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn
from torch.utils.hooks import RemovableHandle


def hooks_so_far() -> int:
    """Return a number that is larger than those of all hooks so far."""
    return RemovableHandle.next_id


def keeps_hooks_since(number: int, modules: Iterable[nn.Module]) -> bool:
    """Return True if a module holds the handle of a hook that was registered since `hooks_so_far` gave a number."""
    if hooks_so_far() == number:
        return False
    held = (value for module in modules for value in vars(module).values())
    return any(isinstance(value, RemovableHandle) and value.id >= number for value in held)
