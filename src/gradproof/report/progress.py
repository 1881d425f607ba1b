"""A progress bar for long checks."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

PATIENCE = 2.0  # seconds, before which nothing is shown


class Bar:
    """A progress bar: a context manager that is called with how much is done, and of how much.

    It appears after two seconds. If `wanted` is None, it appears only if standard error is a terminal. `enter` begins a
    stage of unknown length; `pulse` shows that the check still runs.
    """

    def __init__(self, title: str, *, wanted: bool | None) -> None:
        self._title = title
        self._stage = ""
        self._wanted = sys.stderr.isatty() if wanted is None else wanted
        self._began = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def enter(self, stage: str) -> None:
        """Begin a stage."""
        self._stage = stage
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None

    def pulse(self) -> None:
        """Show that the work goes on."""
        if self._wanted:
            self._shown()

    def __call__(self, done: int, of: int) -> None:
        """Show how much is done, once the check has taken long enough."""
        if self._shown():
            self._bar.update(self._task, completed=done, total=of)

    def _shown(self) -> bool:
        """Return True if there is a bar, which is made when the check has taken long enough."""
        if self._task is None and self._is_due():
            if self._bar is None:
                self._bar = _bar()
                self._bar.start()
            title = f"{self._title}: {self._stage}" if self._stage else self._title
            self._task = self._bar.add_task(title, total=None)
        return self._task is not None

    def _is_due(self) -> bool:
        return self._wanted and time.monotonic() - self._began >= PATIENCE

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar() -> Any:
    """Make rich's bar. Importing rich draws a random number, so Python's generator is restored."""
    state = random.getstate()
    try:
        from rich.console import Console
        from rich.progress import Progress
    finally:
        random.setstate(state)
    return Progress(console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False)
