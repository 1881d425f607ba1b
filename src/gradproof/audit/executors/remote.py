"""Run a case on a worker of a cluster, in a process of its own that may crash without the worker."""

from __future__ import annotations

import multiprocessing
import threading
from typing import Any

from gradproof.audit.case import Result
from gradproof.audit.executors.processes import LocalProcesses
from gradproof.audit.worker import Limits

_here = threading.local()  # one process for each thread of a cluster's worker


class UnreachableError(Exception):
    """A cluster that cannot be reached, or that has lost all its workers."""


def run_remotely(name: str, pickled: bytes, limits: Limits, lifetime: int) -> Result:
    """Run a case in the watched process of this thread."""
    processes: LocalProcesses | None = getattr(_here, "processes", None)
    if processes is None:
        _may_start_processes()
        processes = _here.processes = LocalProcesses(workers=1, limits=limits, lifetime=lifetime)
    processes.submit(name, pickled)
    while True:
        for result in processes.finished():
            return result


def _may_start_processes() -> None:
    """Refuse a worker that Python does not let start processes."""
    settings: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    if settings.get("daemon"):
        raise UnreachableError(
            "This worker of Dask is a daemonic process, which may start no others. Start it with the environment "
            "variable DASK_DISTRIBUTED__WORKER__DAEMON=False."
        )
