"""Worker processes on this machine, each watched: they may hang, run out of memory, crash or be killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Sequence
from multiprocessing.connection import wait

from gradproof.audit import worker
from gradproof.audit.case import Outcome, Result
from gradproof.audit.executors.watched import AHEAD, Task, Watched
from gradproof.audit.printed import Output
from gradproof.audit.worker import Limits

PRELOADED = (  # what the first check of a process imports: torch imports a good second's worth only when it is needed
    "torch.func", "torch.fx.experimental.symbolic_shapes", "torch._decomp.decompositions_for_jvp", "torch._dynamo",
    "gradproof.audit.worker", "gradproof.frameworks.torch.examination.examination", "gradproof.report.json",
)  # fmt: skip
TICK = 0.5  # seconds after which `finished` returns, even if no case has ended
GATHERING = 0.005  # seconds in which results gather while every process has work: waking up for each slows them down
DUMPING = 0.3  # seconds in which a process that hangs prints where
KILLS = 3  # of a case's worker from outside, such as by the kernel for want of memory, before the case is blamed
OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP})  # signals that a case does not send itself


class LocalProcesses:
    """Processes that are forked from a server which has torch loaded, so that a fresh one takes milliseconds.

    A process is replaced after `lifetime` cases. Quick cases are sent to it while another one runs; those that it has
    not begun when it ends go to others. A case that ends a process in which others ran before runs once more, in a
    fresh one, so that no case is blamed for what another left behind. With `devices`, which are numbers or names as
    CUDA_VISIBLE_DEVICES takes them, there is one process for each, which sees no other.
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
        self._waiting: deque[Task] = deque()
        self._again: list[Task] = []  # what ended its process, and takes its place
        self._workers: list[Watched] = []
        self._size = workers
        self._devices = tuple(devices) or ("",) * workers

    @property
    def capacity(self) -> int:
        """So many cases for each process that none is idle while results are written."""
        return (2 + AHEAD) * self._size

    def submit(self, name: str, pickled: bytes) -> None:
        """Take a case, and send it if a process has room."""
        self._waiting.append(Task(name, pickled))
        self._assign()

    def withdraw(self) -> None:
        """Drop the cases that no process has yet."""
        self._waiting.clear()

    def running(self) -> list[str]:
        """Return the names of the cases that run now, the longest first."""
        return [each.tasks[0].name for each in sorted(self._busy(), key=lambda each: each.since)]

    def finished(self) -> list[Result]:
        """Wait until a case ends, for half a second at the most, and return the results."""
        busy = self._busy()
        if busy and all(each.is_busy_for(2 * GATHERING) for each in busy):
            time.sleep(GATHERING)
        limit = self._limits.seconds
        deadline = min((each.deadline(limit) for each in busy), default=0.0)
        patience = min(TICK, max(0.0, deadline - time.monotonic()))
        ready = set(wait([each.pipe for each in busy], timeout=patience)) if busy else set()
        found = [self._received(each) if each.pipe in ready else self._overdue(each) for each in busy]
        self._assign()
        return [result for results in found for result in results]

    def close(self) -> None:
        """End all processes."""
        for each in self._workers:
            each.kill()
        for each in self._workers:
            each.close()
        self._workers.clear()

    def _busy(self) -> list[Watched]:
        return [each for each in self._workers if each.tasks]

    def _assign(self) -> None:
        """Start processes for what runs again, and send waiting cases to those that have room."""
        while self._again:
            self._started().send(self._again.pop())
        while self._waiting and (chosen := self._with_room(self._waiting[0])):
            chosen.send(self._waiting.popleft())

    def _with_room(self, task: Task) -> Watched | None:
        """Return the process that has the least to do, a new one if none is idle, or None if there is no room."""
        with_room = [each for each in self._workers if each.has_room(task, self._lifetime)]
        chosen = min(with_room, key=lambda each: len(each.tasks), default=None)
        idle = chosen is not None and not chosen.tasks
        return self._started() if len(self._workers) < self._size and not idle else chosen

    def _started(self) -> Watched:
        ours, theirs = self._context.Pipe()
        output, device = Output(), self._free_device()
        arguments = (theirs, output, self._limits, self._threads, device)
        process = self._context.Process(target=worker.serve, args=arguments, daemon=True)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # Ctrl-C is for the driver, not the server
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        theirs.close()
        started = Watched(process=process, pipe=ours, output=output, device=device)
        self._workers.append(started)
        return started

    def _free_device(self) -> str:
        held = Counter(each.device for each in self._workers)
        return next(device for device in self._devices if held[device] < self._devices.count(device))

    def _end(self, ended: Watched) -> None:
        """Kill a process, and take back what it has not begun."""
        self._waiting.extendleft(reversed(ended.tasks))
        self._workers.remove(ended)
        ended.kill()
        ended.close()

    def _received(self, sender: Watched) -> list[Result]:
        """Return the results that a process has sent; if it died, its case is judged by how."""
        results: list[Result] = []
        while sender.has_sent():
            try:
                result = sender.received()
            except EOFError:
                return results + self._died(sender)
            if result:
                results.append(result)
                if sender.cases >= self._lifetime or result.outcome is Outcome.MEMORY:
                    self._end(sender)
                    break
        return results

    def _overdue(self, late: Watched) -> list[Result]:
        """End a process whose case has used up its time, after it has printed where it is."""
        if time.monotonic() < late.deadline(self._limits.seconds):
            return []
        late.dump()
        if wait([late.pipe], timeout=DUMPING):  # it ended after all, at the last moment
            return self._received(late)
        message = f"The case did not end within {self._limits.seconds:g} seconds."
        return self._lost(late, Outcome.TIMEOUT, "time limit", message)

    def _died(self, dead: Watched) -> list[Result]:
        """Return a crash, or nothing where the case is to run once more because it may not be to blame."""
        dead.process.join(DUMPING)
        code = dead.process.exitcode or 0
        killed = -code in OUTSIDE
        task = dead.tasks[0]
        if dead.cases or (killed and task.kills + 1 < KILLS):
            dead.tasks.popleft()
            self._end(dead)
            self._again.append(task._replace(kills=task.kills + killed))
            return []
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        times = f" {KILLS} times, which the kernel does when memory runs out" if killed else ""
        return self._lost(dead, Outcome.CRASH, how, f"The case ended its process ({how}){times}.")

    def _lost(self, lost: Watched, outcome: Outcome, reason: str, message: str) -> list[Result]:
        task, seconds, printed = lost.tasks.popleft(), time.monotonic() - lost.since, lost.output.text()
        self._end(lost)
        return [
            Result(
                name=task.name,
                outcome=outcome,
                reason=reason,
                message=message,
                output=printed,
                seconds=seconds,
                host=socket.gethostname(),
            )
        ]
