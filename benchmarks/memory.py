"""The most memory that a call takes, as exactly as small sizes need it.

Two measures, of which each sees what the other does not, and the larger counts:

- `resident`: the peak of resident memory above what was there before. It sees whatever takes memory, in kernels of
  other libraries too; but the kernel counts pages in lots, and may be some 128 KB behind for every processor.
- `allocated`: the peak of what torch allocated for tensors, byte by byte, whether it was written to or not.

Resident memory measures data only if nothing else grows. So the same call runs once before: code is then loaded, and
Python's own memory allocated. The C library is told to give every tensor of 8 KB or more pages of its own, and to
return all free memory, so that a tensor freed by the first call is counted in full again.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Callable, Iterator
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

SELF = Path("/proc/self")
OWN_PAGES = 8 << 10  # bytes; a matrix of a thousand rows is made of tensors of ten times that
_TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -2, -3, -4  # the C library's names for them


def peaks(*calls: Callable[[], object]) -> list[int]:
    """The most memory during each of some calls, which are made three times."""
    seen = []
    for call in calls:
        call()
        seen.append(resident(call))
    return [max(most, allocated(call)) for most, call in zip(seen, calls, strict=True)]  # last: it leaves memory behind


def allocated(call: Callable[[], object]) -> int:
    """The most that torch held for tensors that were made during a call."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    results = profiled.profiler.kineto_results  # type: ignore[union-attr]  # there is one after a profile
    events = [event for event in results.events() if event.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


def resident(call: Callable[[], object]) -> int:
    """The most resident memory during a call, above what was there before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    (SELF / "clear_refs").write_text("5")
    before = status("VmRSS")
    call()
    return status("VmHWM") - before


@contextlib.contextmanager
def pages_of_their_own(usual: int) -> Iterator[None]:
    """Where every tensor of some size has pages of its own; afterwards only those of the usual number of bytes."""
    library = ctypes.CDLL(None)
    for option, value in ((_MMAP_THRESHOLD, OWN_PAGES), (_TOP_PAD, 0), (_MMAP_MAX, 1 << 20)):
        library.mallopt(option, value)
    try:
        yield
    finally:
        library.mallopt(_MMAP_THRESHOLD, usual)
        library.mallopt(_TOP_PAD, 128 << 10)


def status(name: str) -> int:
    """A line of this process's status, in bytes."""
    lines = (SELF / "status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name + ":"))
