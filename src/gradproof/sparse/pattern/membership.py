"""Sets of cells as increasing keys: membership by searchsorted, and unions."""

from __future__ import annotations

import torch
from torch import Tensor


def look_up(wanted: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Return where each wanted key is, or would be inserted, among increasing keys, and whether it is there.

    >>> look_up(torch.tensor([3, 4]), torch.tensor([1, 3, 5]))
    (tensor([1, 2]), tensor([ True, False]))
    """
    slot = torch.searchsorted(keys, wanted)
    if not len(keys):
        return slot, torch.zeros_like(wanted, dtype=torch.bool)
    return slot, keys[slot.clamp(max=len(keys) - 1)] == wanted


def merge(keys: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Unite two sets of increasing keys, and mark those of the first, which may be far larger and is not sorted again.

    >>> merge(torch.tensor([1, 5]), torch.tensor([3, 5]))
    (tensor([1, 3, 5]), tensor([ True, False,  True]))
    """
    slot, found = look_up(others, keys)
    others, slot = others[~found], slot[~found]
    own = torch.ones(len(keys) + len(others), dtype=torch.bool, device=keys.device)
    own[slot + torch.arange(len(others), device=keys.device)] = False
    union = torch.empty(len(own), dtype=keys.dtype, device=keys.device)
    union[own], union[~own] = keys, others
    return union, own
