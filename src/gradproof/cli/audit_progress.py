"""The progress of an audit: a display that is redrawn on a terminal, and a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from gradproof.cli.output import tell

if TYPE_CHECKING:
    from gradproof.audit import Case, Result, Selection
    from gradproof.audit.executors import Executor

LINE_INTERVAL = 30.0  # seconds between two lines, where the output is no terminal
REDRAW_INTERVAL = 0.25  # seconds
NAME_WIDTH = 60  # characters of a case's name
NAMES = 4  # of running cases that are shown
COUNTED_AFTER = 10.0  # seconds: whoever waits no longer needs no forecast
YIELDING = 10  # of the priority that a process has: counting is to delay no case


class Counting:
    """A process that counts the selected cases of a source, which does not know its length before its end."""

    def __init__(self, source: str, selection: Selection) -> None:
        self._command = [sys.executable, "-m", "gradproof", "audit", "count", source, *_options(selection)]
        self._process: subprocess.Popen[bytes] | None = None
        self._total: int | None = None

    def total(self) -> int | None:
        """Return the number of cases, or None until it is known."""
        if self._process is None:
            quiet = subprocess.DEVNULL
            self._process = subprocess.Popen(self._command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet)
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, YIELDING)
        if self._total is None and self._process.poll() == 0 and self._process.stdout:
            last = re.search(rb"([\d,]+) cases\s*$", self._process.stdout.read())
            self._total = int(last[1].replace(b",", b"")) if last else 0
        return self._total

    def close(self) -> None:
        """End the process."""
        if self._process and self._process.stdout:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


class Progress:
    """The counts of this run, its rate, the time left, and what runs now, on standard error."""

    def __init__(self, executor: Executor, counting: Counting | None = None) -> None:
        self._executor, self._counting = executor, counting
        self._drawn = 0
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
        if self._counting:
            self._counting.close()

    def counted(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Return the cases, and note how far the sweep is."""
        for case in cases:
            self._drawn += 1
            yield case

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
        rate = total / max(seconds, 1e-3)
        parts = ", ".join(f"{count:,} {outcome}" for outcome, count in self._counts.most_common())
        return f"{total:,} cases in {duration(seconds)} ({rate:.1f} a second){self._left(rate, seconds)}: {parts}"

    def _left(self, rate: float, seconds: float) -> str:
        total = self._counting.total() if self._counting and seconds > COUNTED_AFTER else None
        if total is None or total < self._drawn or not rate:
            return ""
        left = total - self._drawn + len(self._executor.running())
        return f", {left:,} more in about {duration(left / rate)}"

    def note(self, text: str) -> None:
        """Print a sentence."""
        tell(text)


def duration(seconds: float) -> str:
    """Return a time in one unit or two.

    >>> duration(59), duration(61), duration(7300)
    ('59 s', '1 min 1 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _options(selection: Selection) -> list[str]:
    """Return a selection as options of the command line."""
    number, count = selection.shard
    return [
        *(f"--tag={tag}" for tag in selection.tags),
        *(f"--only={glob}" for glob in selection.globs),
        f"--sample={selection.sample!r}",
        f"--seed={selection.seed}",
        f"--shard={number}/{count}",
    ]
