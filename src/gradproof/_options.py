"""The options of a check: validated once, and what is not built yet is named."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from gradproof.engine.weighing import Probing
from gradproof.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that a caller may choose, beside the function and its inputs."""

    modes: Sequence[str] = ("reverse",)
    order: int = 1
    coverage: str = "probe"
    masked: bool | None = None
    contracts: Sequence[str] | None = ()
    rtol: float = 0.0
    atol: float = 0.0
    nondet_tol: float = 0.0
    probes: int = 1
    seed: int | None = None
    progress: bool | None = None
    step: float | None = None

    def __post_init__(self) -> None:
        self._check_choices()
        for name in ("rtol", "atol", "nondet_tol"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value < math.inf:
                raise InputError(f"{name}={value!r}: pass a finite number that is not negative.")
        if self.step is not None and not (_is_number(self.step) and 0 < self.step < math.inf):
            raise InputError(f"eps={self.step!r}: pass a positive step, or leave it out to have it chosen.")
        if isinstance(self.probes, bool) or not isinstance(self.probes, int) or not 1 <= self.probes <= 10_000:
            raise InputError(f"probes={self.probes!r}: pass a whole number from 1 to 10,000.")
        if self.seed is not None and (
            isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**32
        ):
            raise InputError(f"seed={self.seed!r}: pass a whole number from 0 to 2**32 − 1, such as a report's seed.")

    def _check_choices(self) -> None:
        modes = [self.modes] if isinstance(self.modes, str) else self.modes
        if (
            not isinstance(modes, (list, tuple, set, frozenset))
            or not modes
            or not set(modes) <= {"reverse", "forward"}
        ):
            raise InputError(f"modes={self.modes!r}: choose from 'reverse' and 'forward'.")
        if "forward" in modes:
            raise NotImplementedError("modes='forward' is not built yet. Leave modes at ('reverse',).")
        if self.order not in (1, 2) or isinstance(self.order, bool):
            raise InputError(f"order={self.order!r}: the order is 1 or 2.")
        if self.order == 2:
            raise NotImplementedError("order=2 is not built yet. Leave order at 1.")
        if self.coverage not in ("probe", "full"):
            raise InputError(f"coverage={self.coverage!r}: choose 'probe' or 'full'.")
        if self.coverage == "full":
            raise NotImplementedError("coverage='full' is not built yet. Leave coverage at 'probe'.")
        if self.masked not in (None, True, False):
            raise InputError(f"masked={self.masked!r}: choose True, False or None.")
        if self.contracts is None or self.contracts:
            raise NotImplementedError(f"contracts={self.contracts!r} are not built yet. Leave contracts at ().")
        if self.progress not in (None, False):
            raise NotImplementedError(f"progress={self.progress!r} is not built yet. Leave progress out.")

    @property
    def probing(self) -> Probing:
        """What the engine needs to know."""
        return Probing(rtol=self.rtol, atol=self.atol, nondet_tol=self.nondet_tol, step=self.step)

    def chosen_seed(self) -> int:
        """The seed given, or a fresh one: a miss by bad luck is not repeated for ever, and a report names its seed."""
        return secrets.randbits(32) if self.seed is None else self.seed


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
