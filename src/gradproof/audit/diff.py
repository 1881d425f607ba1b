"""What changed between two journals, such as those of two releases."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from gradproof.audit.case import UNDECIDED, Outcome, Result
from gradproof.audit.journal import Journal

SLOWER = 2.0  # times the seconds before: less is what a busy machine does
WORTH = 0.5  # seconds: smaller differences are not worth a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A case that differs; `old` or `new` is None if one journal does not have it."""

    change: Change
    old: Result | None
    new: Result | None

    def __str__(self) -> str:
        sides = [f"{each.outcome.value} {each.reason}".strip() if each else "absent" for each in (self.old, self.new)]
        if self.change is Change.SLOWER and self.old and self.new:
            sides = [f"{each.seconds:.2f} s" for each in (self.old, self.new)]
        found = self.new or self.old
        return f"{self.change.value}: {found.name if found else ''} ({sides[0]} → {sides[1]})"


class Change(enum.StrEnum):
    """How a case differs between two journals, the worst first."""

    NEWLY_FAILING = "newly failing"
    LOST = "no verdict any more"
    NEWLY_PASSING = "newly passing"
    OTHERWISE = "ended otherwise"
    SLOWER = "slower"
    MISSING = "missing in the new journal"
    ADDED = "new"


def differences(old: Journal, new: Journal) -> Iterator[Difference]:
    """Return the cases that differ, by name; both journals are read side by side and neither is held in memory."""
    for before, after in _paired((row.result for row in old.rows()), (row.result for row in new.rows())):
        change = _change(before, after)
        if change:
            yield Difference(change=change, old=before, new=after)


def _paired(old: Iterator[Result], new: Iterator[Result]) -> Iterator[tuple[Result | None, Result | None]]:
    before, after = next(old, None), next(new, None)
    while before or after:
        if after is None or (before is not None and before.name.encode() < after.name.encode()):
            yield before, None
            before = next(old, None)
        elif before is None or after.name.encode() < before.name.encode():
            yield None, after
            after = next(new, None)
        else:
            yield before, after
            before, after = next(old, None), next(new, None)


def _change(old: Result | None, new: Result | None) -> Change | None:
    if old is None or new is None:
        return Change.ADDED if old is None else Change.MISSING
    if old.outcome is not new.outcome:
        if new.outcome is Outcome.FAIL:
            return Change.NEWLY_FAILING
        if new.outcome is Outcome.PASS:
            return Change.NEWLY_PASSING
        return Change.LOST if new.outcome in UNDECIDED and old.outcome is Outcome.PASS else Change.OTHERWISE
    slower = new.seconds > SLOWER * old.seconds and new.seconds - old.seconds > WORTH
    return Change.SLOWER if slower else None
