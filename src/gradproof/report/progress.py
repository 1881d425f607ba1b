"""A progress bar for long checks."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

PATIENCE = 2.0  # seconds, before which nothing is shown


class Bar:
    """A progress bar: a context manager that is called with how much is done, and of how much.

    It appears after two seconds. If `wanted` is None, it appears only if standard error is a terminal.
    """

    def __init__(self, title: str, *, wanted: bool | None) -> None:
        self._title = title
        self._wanted = wanted
        self._began = time.monotonic()
        self._bar: Any = None

    def __call__(self, done: int, of: int) -> None:
        """Update the bar, once the check has taken long enough."""
        if time.monotonic() - self._began < PATIENCE:
            return
        if self._wanted is None:
            self._wanted = sys.stderr.isatty()
        if not self._wanted:
            return
        if self._bar is None:
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=of)
        self._bar.update(self._task, completed=done, total=of)

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
