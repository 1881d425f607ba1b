"""Run a case on a worker of a cluster, in a process of its own that may crash without the worker."""

from __future__ import annotations

import math
import multiprocessing
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from gradproof.audit.case import Outcome, Result
from gradproof.audit.executors.processes import LocalProcesses
from gradproof.audit.worker import Limits

BATCH = 32  # cases handed over at a time
AHEAD = 2  # batches for each thread: one at work, one waiting
SLICE = 0.25  # seconds after which a batch begins no other case

Task = tuple[str, bytes]  # a name, and the case as it was pickled

_here = threading.local()  # one process for each thread of a cluster's worker


class UnreachableError(Exception):
    """A cluster that cannot be reached, or that has lost all its workers."""


class Cluster(ABC):
    """An executor that hands cases to a cluster in batches, since to hand over one takes as long as a small case.

    A batch ends after `SLICE` seconds; the cases that it has not begun by then wait for another.
    """

    def __init__(self, limits: Limits | None, lifetime: int) -> None:
        self._limits, self._lifetime = limits or Limits(), lifetime
        self._waiting: deque[Task] = deque()
        self._alone: deque[Task] = deque()  # of batches whose worker was lost
        self._handed: dict[Any, list[Task]] = {}

    @property
    def capacity(self) -> int:
        """Several batches for every thread of the cluster as it is now, since workers come and go."""
        return AHEAD * BATCH * self._threads()

    def submit(self, name: str, pickled: bytes) -> None:
        """Take a case, and hand it over if a thread has nothing to do."""
        self._waiting.append((name, pickled))
        if len(self._handed) < self._threads():
            self._hand_over()

    def running(self) -> list[str]:
        """Return the names of the cases that the cluster holds, the longest first."""
        return [name for batch in self._handed.values() for name, _ in batch]

    def finished(self) -> list[Result]:
        """Wait until a batch ends, for half a second at the most, and return the results."""
        self._hand_over()
        return [result for handle in self._ended() for result in self._received(handle, self._handed.pop(handle))]

    @abstractmethod
    def _threads(self) -> int:
        """Return how many batches the cluster can run at a time, one at least."""

    @abstractmethod
    def _start(self, batch: list[Task]) -> Any:
        """Send a batch to the cluster, which runs it again if its worker is lost; return what stands for it."""

    @abstractmethod
    def _ended(self) -> list[Any]:
        """Wait until a batch ends, and return what stands for those that have."""

    @abstractmethod
    def _outcome(self, handle: Any) -> list[Result] | None:
        """Return the results of a batch that has ended, or None if its workers were lost, one after the other."""

    def _hand_over(self) -> None:
        room = AHEAD * self._threads()
        while (self._waiting or self._alone) and len(self._handed) < room:
            queue, size = self._waiting, math.ceil(len(self._waiting) / (room - len(self._handed)))
            if self._alone:
                queue, size = self._alone, 1
            batch = [queue.popleft() for _ in range(min(size, BATCH))]
            self._handed[self._start(batch)] = batch

    def _received(self, handle: Any, batch: list[Task]) -> list[Result]:
        results = self._outcome(handle)
        if results is None and len(batch) == 1:
            message = "The workers of the cluster that ran the case were lost, one after the other."
            return [Result(name=batch[0][0], outcome=Outcome.CRASH, reason="lost workers", message=message)]
        if results is None:
            self._alone.extend(batch)
            return []
        done = {result.name for result in results}
        self._waiting.extendleft(reversed([task for task in batch if task[0] not in done]))
        return results


def run_remotely(batch: list[Task], limits: Limits, lifetime: int) -> list[Result]:
    """Run cases in the watched process of this thread, the first in any case, and the others while there is time."""
    processes: LocalProcesses | None = getattr(_here, "processes", None)
    if processes is None:
        _may_start_processes()
        processes = _here.processes = LocalProcesses(workers=1, limits=limits, lifetime=lifetime)
    for name, pickled in batch:
        processes.submit(name, pickled)
    began, results = time.monotonic(), list[Result]()
    while processes.running():
        results += processes.finished()
        if time.monotonic() - began > SLICE:
            processes.withdraw()
    return results


def _may_start_processes() -> None:
    """Refuse a worker that Python does not let start processes."""
    settings: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    if settings.get("daemon"):
        raise UnreachableError(
            "This worker of Dask is a daemonic process, which may start no others. Start it with the environment "
            "variable DASK_DISTRIBUTED__WORKER__DAEMON=False."
        )
