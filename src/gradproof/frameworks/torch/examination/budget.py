"""A limit on the time of a check: when it is spent, the work under way ends, and the report says what was left out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from gradproof.engine.results import Obstacle, Reason, Verdict
from gradproof.engine.verdict import Judgement

T = TypeVar("T")
LONGER = "Give a larger budget=, or ask for less: fewer inputs with wrt=, or contracts=()."


class OutOfTimeError(BaseException):
    """The budget is spent. No `Exception`, since whatever the function raises is part of the evidence."""


class Budget:
    """The seconds that a check may take, by the clock; without a number it may take as long as it needs."""

    def __init__(self, seconds: float | None, *, began: float) -> None:
        self.seconds = seconds
        self._deadline = math.inf if seconds is None else began + seconds
        self._unchecked: list[str] = []
        self._unexplained: list[str] = []

    def check(self) -> None:
        """Raise `OutOfTimeError` if the budget is spent. This is called before every call of the user's code."""
        if time.perf_counter() > self._deadline:
            raise OutOfTimeError

    def checking(self, what: str, work: Callable[[], T], otherwise: T) -> T:
        """Return the result of work that the verdict needs, or `otherwise` if the budget ends it."""
        return self._within(self._unchecked, what, work, otherwise)

    def explaining(self, what: str, work: Callable[[], T], otherwise: T) -> T:
        """Return the result of work that only adds to a finding, or `otherwise` if the budget ends it."""
        return self._within(self._unexplained, what, work, otherwise)

    def concluded(self, found: Judgement) -> Judgement:
        """Return a judgement that says what the budget left out: a pass of a part is inconclusive, a failure stands."""
        if not self._unchecked and not self._unexplained:
            return found
        notes = found.notes
        if self._unexplained or (self._unchecked and found.verdict is not Verdict.PASS):
            left = ", ".join(dict.fromkeys([*self._unchecked, *self._unexplained]))
            notes = (*notes, f"The budget of {self.seconds:g} s was spent before the end. Unfinished: {left}.")
        obstacle = found.obstacle
        if self._unchecked and obstacle is None:
            left = ", ".join(dict.fromkeys(self._unchecked))
            agrees = " What was compared until then agrees." if math.isfinite(found.resolution.absolute) else ""
            message = f"The budget of {self.seconds:g} s was spent before the end. Unfinished: {left}.{agrees}"
            obstacle = Obstacle(Reason.BUDGET, message, LONGER)
        return replace(found, notes=notes, obstacle=obstacle)

    @staticmethod
    def _within(left: list[str], what: str, work: Callable[[], T], otherwise: T) -> T:
        try:
            return work()
        except OutOfTimeError:
            left.append(what)
            return otherwise
