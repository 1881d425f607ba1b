"""The options of a check, validated once."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, TypedDict

from gradproof.engine.options import Probing
from gradproof.errors import InputError

MODES = ("reverse", "forward")
NUMBERS = ("rtol", "atol", "nondet_tol", "step", "min_resolution", "budget")  # NumPy scalars and one-entry tensors too
Mode = Literal["reverse", "forward"]
Order = Literal[1, 2]
Coverage = Literal["probe", "full"]
ContractLiteral = Literal[
    "linear", "repeatable", "undefined", "attributes", "no-mutation", "contiguity", "detached", "batched",
    "undefined-forward", "no-mutation-forward", "batched-forward",
    "kernel", "bounds", "initialised", "alignment", "streams",
]  # fmt: skip
ContractNames = Sequence[ContractLiteral]
Modes = Mode | Sequence[Mode] | None
Contracts = ContractLiteral | ContractNames | None


class ContractName(enum.StrEnum):
    """The laws that a derivative obeys whatever its values, as `contracts=` names them."""

    LINEAR = "linear"
    REPEATABLE = "repeatable"
    UNDEFINED = "undefined"
    ATTRIBUTES = "attributes"
    NO_MUTATION = "no-mutation"
    CONTIGUITY = "contiguity"
    DETACHED = "detached"
    BATCHED = "batched"
    UNDEFINED_FORWARD = "undefined-forward"
    NO_MUTATION_FORWARD = "no-mutation-forward"
    BATCHED_FORWARD = "batched-forward"
    BOUNDS = "bounds"
    INITIALISED = "initialised"
    ALIGNMENT = "alignment"
    STREAMS = "streams"


BY_REQUEST = frozenset({ContractName.BOUNDS, ContractName.INITIALISED, ContractName.ALIGNMENT, ContractName.STREAMS})
CONTRACT_GROUPS = {"kernel": frozenset({*BY_REQUEST, ContractName.REPEATABLE})}
_CONTRACTS = frozenset({*ContractName, *CONTRACT_GROUPS})


class CheckOptions(TypedDict, total=False):
    """The keywords of `gradproof.check`, for functions that pass them on."""

    wrt: int | str | Sequence[int | str] | None
    modes: Modes
    order: Order
    coverage: Coverage
    masked: bool
    contracts: Contracts
    rtol: float
    atol: float
    nondet_tol: float
    probes: int
    seed: int | None
    explain: bool
    min_resolution: float | None
    budget: float | None
    progress: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The validated options of one check; some are set by the drop-ins of torch's gradcheck alone."""

    modes: tuple[str, ...] | None = None
    order: int = 1
    nestings: tuple[tuple[str, str], ...] | None = None
    coverage: str = "probe"
    masked: bool = False
    contracts: str | Sequence[str] | None = None
    rtol: float = 0.0
    atol: float = 0.0
    nondet_tol: float = 0.0
    probes: int = 1
    seed: int | None = None
    explain: bool = True
    min_resolution: float | None = None
    budget: float | None = None
    progress: bool | None = None
    step: float | None = None
    dtypes: bool = True
    layouts: bool = False

    def __post_init__(self) -> None:
        self._check_choices()
        for name in NUMBERS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, float | int) and hasattr(value, "__float__"):
                object.__setattr__(self, name, _as_number(value))
        for name, value in (("rtol", self.rtol), ("atol", self.atol), ("nondet_tol", self.nondet_tol)):
            if not _is_number(value) or not 0 <= value < math.inf:
                raise InputError(f"{name}={value!r}: pass a finite number that is not negative.")
        if self.step is not None and not (_is_number(self.step) and 0 < self.step < math.inf):
            raise InputError(f"eps={self.step!r}: pass a positive step, or leave it out to have it chosen.")
        if self.min_resolution is not None and not (_is_number(self.min_resolution) and self.min_resolution > 0):
            raise InputError(
                f"min_resolution={self.min_resolution!r}: pass the largest relative error that a pass may leave "
                "undetected, such as 1e-3."
            )
        if self.budget is not None and not (_is_number(self.budget) and 0 < self.budget < math.inf):
            raise InputError(f"budget={self.budget!r}: pass a positive number of seconds, or leave it out.")
        if isinstance(self.probes, bool) or not isinstance(self.probes, int) or not 1 <= self.probes <= 10_000:
            raise InputError(f"probes={self.probes!r}: pass a whole number from 1 to 10,000.")
        if self.seed is not None and (
            isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or not 0 <= self.seed < 2**32
        ):
            raise InputError(f"seed={self.seed!r}: pass a whole number from 0 to 2**32 − 1, such as a report's seed.")

    def _check_choices(self) -> None:
        if self.order not in (1, 2) or isinstance(self.order, bool):
            raise InputError(f"order={self.order!r}: the order is 1 or 2.")
        if self.coverage not in ("probe", "full"):
            raise InputError(f"coverage={self.coverage!r}: choose 'probe' or 'full'.")
        if self.masked not in (True, False):
            raise InputError(f"masked={self.masked!r}: choose True or False.")
        contracts = self.named_contracts
        if not isinstance(contracts, (list, tuple, set, frozenset)) or not set(contracts) <= _CONTRACTS:
            known = ", ".join(repr(str(name)) for name in (*ContractName, *CONTRACT_GROUPS))
            raise InputError(f"contracts={self.contracts!r}: choose from {known}, () for none, or None for the usual.")
        if self.explain not in (True, False):
            raise InputError(f"explain={self.explain!r}: choose True or False.")
        if self.progress not in (None, True, False):
            raise InputError(f"progress={self.progress!r}: choose True, False or None.")

    @property
    def named_contracts(self) -> Sequence[str]:
        """The contracts and the groups that were asked for by name."""
        if self.contracts is None:
            return ()
        return (self.contracts,) if isinstance(self.contracts, str) else self.contracts

    def asks_for(self, contract: ContractName) -> bool:
        """Return True if a contract is to be tested: it is named, its group is, or it is among the defaults."""
        if self.contracts is None:
            return contract not in BY_REQUEST
        named = self.named_contracts
        return contract in named or any(contract in CONTRACT_GROUPS.get(name, ()) for name in named)

    @property
    def probing(self) -> Probing:
        """The options that the engine reads."""
        return Probing(rtol=self.rtol, atol=self.atol, nondet_tol=self.nondet_tol, step=self.step)


def modes_of(modes: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the given modes, each once, in the order "reverse", "forward"."""
    if modes is None:
        return None
    wanted = [modes] if isinstance(modes, str) else modes
    if not isinstance(wanted, (list, tuple, set, frozenset)) or not wanted or not set(wanted) <= set(MODES):
        raise InputError(f"modes={modes!r}: choose from 'reverse' and 'forward'.")
    return tuple(mode for mode in MODES if mode in wanted)


def _as_number(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return value


def _is_number(value: object) -> bool:
    return value.__class__ is float or (isinstance(value, (int, float)) and not isinstance(value, bool))
