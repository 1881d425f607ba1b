"""What holds for all checks while a test run lasts: a seed, and who hears of every report."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from gradproof._report import Report


@dataclass(slots=True)
class Session:
    """Nothing, until a test run sets it."""

    seed: int | None = None
    listeners: list[Callable[[Report], None]] = field(default_factory=list)

    def chosen_seed(self, given: int | None) -> int:
        """The seed given, to a check or to this run, or a fresh one, so that bad luck is not repeated for ever."""
        if given is None:
            given = self.seed
        return secrets.randbits(32) if given is None else given

    def tell(self, report: Report) -> Report:
        """Let everyone who listens hear of a report."""
        for listener in self.listeners:
            listener(report)
        return report


session = Session()
