"""What a check spends in the user's code: calls, time, and random numbers, which are the same in every call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gradproof.frameworks.torch.exclusion import PROCESS, Exclusion
from gradproof.frameworks.torch.subject.memory import stop_if_memory_ran_out
from gradproof.frameworks.torch.subject.random_state import HeldGenerators


@dataclass(slots=True)
class Tally:
    """The calls and the time that a check has spent so far. `before_each` is called before every call."""

    evaluations: int = 0
    pullbacks: int = 0
    pushforwards: int = 0
    inside: float = 0.0
    before_each: Callable[[], None] = lambda: None


class Timed:
    """A context around the user's code: it adds up the time spent there, and ends the check if memory runs out."""

    __slots__ = ("_began", "_tally")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._tally.inside += time.perf_counter() - self._began
        if error is not None:
            stop_if_memory_ran_out(error)


class Drawing(Timed):
    """A timed context for code that draws random numbers: it sets the generators at the start and restores them."""

    __slots__ = ("_alone", "_before", "_start")

    def __init__(self, tally: Tally, start: HeldGenerators, before: HeldGenerators) -> None:
        super().__init__(tally)
        self._start, self._before, self._alone = start, before, Exclusion([PROCESS])

    def __enter__(self) -> None:
        self._alone.__enter__()
        try:
            self._start.restore()
            super().__enter__()
        except BaseException:
            self._alone.__exit__()
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._before.moved()  # so that it knows which to restore
            self._before.restore()
        finally:
            self._alone.__exit__()
            super().__exit__(kind, error, traceback)
