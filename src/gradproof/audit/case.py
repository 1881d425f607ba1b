"""A case, which is one check with a name, and the result that an audit records of it."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, get_args

from gradproof.errors import InputError


class Skip(Exception):  # noqa: N818  # no error
    """There is nothing to check, for the reason given; a factory of a case raises it."""


class Outcome(enum.StrEnum):
    """How a case ended: with one of the three verdicts, or without a verdict."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASH = "crash"


Entry = Literal["check", "compare", "report"]
UNDECIDED = frozenset({Outcome.INCONCLUSIVE, Outcome.ERROR, Outcome.TIMEOUT, Outcome.MEMORY, Outcome.CRASH})


@dataclass(frozen=True)  # without slots, which take a dataclass five times as long to pickle
class Case:
    """One check, by name. `make()` is called in a worker and returns the function and its inputs.

    With `entry="compare"` it returns the function, its reference and the inputs, and with `entry="report"` it checks by
    itself and returns the report. `make` is sent to another process, so it is a function at the top level of a module,
    or a `functools.partial` of one. `options` are the keywords of
    `gradproof.check` or `gradproof.compare`. Tags such as "dtype=float64" select and group cases.

    >>> Case("cube", make=int, tags=("op=pow",)).seed
    821998008
    """

    name: str
    _: KW_ONLY
    make: Callable[[], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    entry: Entry = "check"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError(f"A case has the name {self.name!r}: pass a text that is not empty.")
        if not callable(self.make):
            raise InputError(f"make={self.make!r} of the case {self.name!r} is not callable: pass a function.")
        if self.entry not in get_args(Entry):
            chosen = ", ".join(map(repr, get_args(Entry)))
            raise InputError(f"entry={self.entry!r} of the case {self.name!r}: choose one of {chosen}.")
        object.__setattr__(self, "tags", tuple(self.tags))

    @property
    def seed(self) -> int:
        """The seed of the check: the one in the options, or one of the name, whichever other cases there are."""
        given = self.options.get("seed")
        return zlib.crc32(self.name.encode()) if given is None else int(given)


@dataclass(frozen=True, kw_only=True)  # without slots, as above
class Result:
    """How a case ended. `report` is JSON, empty without a verdict; `output` is what a failed process printed."""

    name: str
    outcome: Outcome
    reason: str = ""
    message: str = ""
    report: str = ""
    output: str = ""
    seconds: float = 0.0
    seed: int = 0
    host: str = ""
