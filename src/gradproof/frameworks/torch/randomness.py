"""The global random generators, held still: every evaluation draws the same numbers, and the caller's draws go on."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


class HeldGenerators:
    """The states of the global generators of Python, NumPy and torch as they were when this was made."""

    def __init__(self) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]  # torch's own
        self._python = random.getstate()
        self._numpy_module: Any = getattr(sys.modules.get("numpy"), "random", None)
        self._numpy = self._numpy_module.get_state() if self._numpy_module else None

    def moved(self) -> bool:
        """Whether anything has been drawn since. A draw moves a Mersenne twister's position or renews its key."""
        now = random.getstate()
        if self.moved_in_torch() or (now[1][-1], now[1][0], now[2]) != (
            self._python[1][-1],
            self._python[1][0],
            self._python[2],
        ):
            return True
        if self._cuda and any(
            not torch.equal(held, now) for held, now in zip(self._cuda, torch.cuda.get_rng_state_all(), strict=True)
        ):
            return True
        if self._numpy is None:
            return False
        drawn = self._numpy_module.get_state()
        return bool(drawn[1][0] != self._numpy[1][0] or drawn[2:] != self._numpy[2:])

    def moved_in_torch(self) -> bool:
        """Whether torch's own generator has moved since: a check that costs next to nothing."""
        return not torch.equal(self._torch, torch.get_rng_state())

    def restore(self) -> None:
        """Put every generator back."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        random.setstate(self._python)
        if self._numpy is not None:
            self._numpy_module.set_state(self._numpy)
