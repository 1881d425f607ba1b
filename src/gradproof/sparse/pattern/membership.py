"""Sets of cells as increasing keys: membership by searchsorted, and unions."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Merged:
    """The increasing union of two sets of keys; `own` marks those of the first set."""

    keys: Tensor
    own: Tensor


def merge(keys: Tensor, others: Tensor) -> Merged:
    """Unite two sets of increasing keys without sorting the first, which may be far larger."""
    slot, found = look_up(others, keys)
    others, slot = others[~found], slot[~found]
    own = torch.ones(len(keys) + len(others), dtype=torch.bool, device=keys.device)
    own[slot + torch.arange(len(others), device=keys.device)] = False
    union = torch.empty(len(own), dtype=keys.dtype, device=keys.device)
    union[own], union[~own] = keys, others
    return Merged(union, own)
