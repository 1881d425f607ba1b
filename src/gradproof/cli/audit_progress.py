"""The progress of an audit: a display that is redrawn on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gradproof.audit.case import Result
from gradproof.audit.executors import Executor
from gradproof.cli.output import tell

LINE_INTERVAL = 30.0  # seconds between two lines, where the output is no terminal
REDRAW_INTERVAL = 0.25  # seconds
NAME_WIDTH = 60  # characters of a case's name
NAMES = 4  # of running cases that are shown


class Progress:
    """The counts of this run, its rate, and what runs now, on standard error."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._counts: Counter[str] = Counter()
        self._began = self._shown = time.monotonic()
        console = Console(stderr=True)
        drawn = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True) if drawn else None

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live:
            self._live.stop()

    def show(self, result: Result | None) -> None:
        """Count a result, and show the progress if the interval has passed."""
        if result:
            self._counts[result.outcome.value] += 1
        now = time.monotonic()
        if now - self._shown < (REDRAW_INTERVAL if self._live else LINE_INTERVAL):
            return
        self._shown = now
        if self._live:
            lines = [self.line(), *(f"  {name[:NAME_WIDTH]}" for name in self._executor.running()[:NAMES])]
            self._live.update(Text("\n".join(lines)), refresh=True)
        else:
            tell(self.line())

    def line(self) -> str:
        """Return the progress in one line."""
        total, seconds = self._counts.total(), time.monotonic() - self._began
        parts = ", ".join(f"{count:,} {outcome}" for outcome, count in self._counts.most_common())
        return f"{total:,} cases in {seconds:,.0f} s ({total / max(seconds, 1e-3):.1f} a second): {parts}"

    def note(self, text: str) -> None:
        """Print a sentence."""
        tell(text)
