"""Worker processes on this machine, each watched: they may hang, run out of memory, crash or be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from gradproof.audit import worker
from gradproof.audit.case import Outcome, Result
from gradproof.audit.printed import Output
from gradproof.audit.worker import Limits

PRELOADED = ("torch", "torch.func", "gradproof.audit.worker", "gradproof.frameworks.torch.examination.examination")
PRINTED = 4000  # characters kept of what a process printed
TICK = 0.5  # seconds after which `finished` returns, even if no case has ended
STARTING = 120.0  # seconds in which a process starts, on a busy machine too
DUMPING = 0.3  # seconds in which a process that hangs prints where
KILLS = 3  # of a case's worker from outside, such as by the kernel for want of memory, before the case is blamed
OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP})  # signals that a case does not send itself
PRINTING = frozenset({Outcome.ERROR, Outcome.MEMORY})  # outcomes of a live process whose output is kept


class _Task(NamedTuple):
    name: str
    pickled: bytes
    kills: int = 0


@dataclass(slots=True)
class _Worker:
    """A process with its pipe and its output, the case that it is at, and how many it has had."""

    process: BaseProcess
    pipe: Connection
    output: Output
    device: str
    task: _Task | None = None
    since: float = 0.0
    cases: int = 0
    ready: bool = False

    def kill(self) -> None:
        """End the process, and those that its cases have started."""
        if self.process.pid and self.ready:  # it leads a group of its own from then on
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def printed(self) -> str:
        return self.output.end(PRINTED).decode(errors="backslashreplace")


class LocalProcesses:
    """Processes that are forked from a server which has torch loaded, so that a fresh one takes milliseconds.

    A process is replaced after `lifetime` cases. A case that ends a process in which others ran before runs once more,
    in a fresh one, so that no case is blamed for what another left behind. With `devices`, which are numbers or names
    as CUDA_VISIBLE_DEVICES takes them, there is one process for each, which sees no other.
    """

    def __init__(
        self,
        *,
        workers: int = 1,
        limits: Limits | None = None,
        lifetime: int = 200,
        devices: Sequence[str] = (),
    ) -> None:
        workers = len(devices) or workers
        self._limits = limits or Limits()
        self._lifetime = lifetime
        self._threads = max(1, (os.cpu_count() or 1) // workers)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        self._waiting: deque[_Task] = deque()
        self._workers: list[_Worker] = []
        self._size = workers
        self._devices = tuple(devices) or ("",) * workers

    @property
    def capacity(self) -> int:
        """One case at work and one waiting for each process, so that none is idle while a result is written."""
        return 2 * self._size

    def submit(self, name: str, pickled: bytes) -> None:
        """Take a case, and start it if a process is free."""
        self._waiting.append(_Task(name, pickled))
        self._assign()

    def running(self) -> list[str]:
        """Return the names of the cases that run now, the longest first."""
        busy = sorted((each for each in self._workers if each.task), key=lambda each: each.since)
        return [each.task.name for each in busy if each.task]

    def finished(self) -> list[Result]:
        """Wait until a case ends, for half a second at the most, and return the results."""
        busy = [each for each in self._workers if each.task]
        deadline = min((self._deadline(each) for each in busy), default=0.0)
        patience = min(TICK, max(0.0, deadline - time.monotonic()))
        ready = set(wait([each.pipe for each in busy], timeout=patience)) if busy else set()
        results = [self._received(each) if each.pipe in ready else self._overdue(each) for each in busy]
        self._assign()
        return [result for result in results if result]

    def close(self) -> None:
        """End all processes."""
        for each in self._workers:
            each.kill()
        for each in self._workers:
            each.process.join()
            each.pipe.close()
            each.output.close()
        self._workers.clear()

    def _assign(self) -> None:
        """Give waiting cases to free processes."""
        while self._waiting:
            free = next((each for each in self._workers if not each.task), None)
            if free is None:
                if len(self._workers) == self._size:
                    return
                free = self._started()
            task = self._waiting.popleft()
            free.task, free.since = task, time.monotonic()
            try:
                free.pipe.send_bytes(pickle.dumps((task.name, task.pickled)))
            except OSError:  # it was killed while it had nothing to do
                self._waiting.appendleft(task)
                self._end(free)

    def _started(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        output, device = Output(), self._free_device()
        arguments = (theirs, output, self._limits, self._threads, device)
        process = self._context.Process(target=worker.serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        started = _Worker(process=process, pipe=ours, output=output, device=device)
        self._workers.append(started)
        return started

    def _free_device(self) -> str:
        held = Counter(each.device for each in self._workers)
        return next(device for device in self._devices if held[device] < self._devices.count(device))

    def _end(self, ended: _Worker) -> int:
        """Kill a process, and return the code with which it ended."""
        ended.kill()
        ended.process.join()
        ended.pipe.close()
        ended.output.close()
        self._workers.remove(ended)
        return ended.process.exitcode or 0

    def _received(self, sender: _Worker) -> Result | None:
        """Return the result that a process sent; if it died instead, the case is judged by how."""
        try:
            result: Result | None = sender.pipe.recv()
        except (EOFError, OSError, pickle.UnpicklingError):
            return self._died(sender)
        if result is worker.READY:
            sender.ready, sender.since = True, time.monotonic()
            return None
        sender.cases += 1
        sender.task = None
        if result.outcome in PRINTING:
            result = replace(result, output=sender.printed())
        if sender.cases >= self._lifetime or result.outcome is Outcome.MEMORY:
            self._end(sender)
        return result

    def _deadline(self, busy: _Worker) -> float:
        return busy.since + (self._limits.seconds if busy.ready else STARTING)

    def _overdue(self, late: _Worker) -> Result | None:
        """End a process whose case has used up its time, after it has printed where it is."""
        if time.monotonic() < self._deadline(late):
            return None
        with contextlib.suppress(OSError):
            if late.process.pid:
                os.kill(late.process.pid, worker.DUMP)
        if wait([late.pipe], timeout=DUMPING):  # it ended after all, at the last moment
            return self._received(late)
        message = f"The case did not end within {self._limits.seconds:g} seconds."
        return self._lost(late, Outcome.TIMEOUT, "time limit", message)

    def _died(self, dead: _Worker) -> Result | None:
        """Return a crash, or None where the case is to run once more because it may not be to blame."""
        task = dead.task
        assert task is not None
        dead.process.join(DUMPING)
        code = dead.process.exitcode or 0
        killed = -code in OUTSIDE
        if dead.cases or (killed and task.kills + 1 < KILLS):
            self._end(dead)
            self._waiting.appendleft(task._replace(kills=task.kills + killed))
            return None
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        times = f" {KILLS} times, which the kernel does when memory runs out" if killed else ""
        return self._lost(dead, Outcome.CRASH, how, f"The case ended its process ({how}){times}.")

    def _lost(self, lost: _Worker, outcome: Outcome, reason: str, message: str) -> Result:
        assert lost.task is not None
        name, seconds, printed = lost.task.name, time.monotonic() - lost.since, lost.printed()
        self._end(lost)
        return Result(
            name=name,
            outcome=outcome,
            reason=reason,
            message=message,
            output=printed,
            seconds=seconds,
            host=socket.gethostname(),
        )
