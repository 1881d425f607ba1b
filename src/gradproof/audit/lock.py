"""Hold a journal for one driver. The kernel releases the lock when the driver ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class HeldElsewhereError(Exception):
    """Another process holds the lock; the message is what it wrote about itself."""


def acquire(path: Path, words: str) -> int:
    """Lock a file of its own beside the journal, write who holds it, and return its descriptor."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(descriptor, 1000).decode(errors="replace")
        os.close(descriptor)
        raise HeldElsewhereError(holder) from None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, words.encode(), 0)
    return descriptor


def release(descriptor: int) -> None:
    """Give the lock back. The file stays, since removing it would let two drivers lock two files of one name."""
    os.close(descriptor)
