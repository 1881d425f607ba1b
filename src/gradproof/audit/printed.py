"""What a worker prints: a file without a name, which the driver can read after the worker is gone.

Nothing is left in the file system, however driver and worker end.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from multiprocessing import reduction
from typing import Any

KEPT = 4000  # bytes of what a process printed last


class Output:
    """A file that both processes have open; it can be an argument of a process that starts."""

    def __init__(self, file: int | None = None) -> None:
        if file is None:
            with tempfile.TemporaryFile() as made:
                file = os.dup(made.fileno())
        self._file = file

    def __reduce__(self) -> tuple[Callable[..., Output], tuple[Any, ...]]:
        return _received, (reduction.DupFd(self._file),)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._file

    def text(self) -> str:
        """Return the end of what was printed."""
        size = os.fstat(self._file).st_size
        return os.pread(self._file, KEPT, max(0, size - KEPT)).decode(errors="backslashreplace")

    def clear(self) -> None:
        """Forget what was printed, for the process that prints."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)

    def close(self) -> None:
        """Close it in this process."""
        os.close(self._file)


def _received(duplicate: Any) -> Output:
    return Output(duplicate.detach())
