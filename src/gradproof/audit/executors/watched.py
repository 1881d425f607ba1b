"""One worker process as its driver sees it: the case that it runs, those that wait in its pipe, and what it prints."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import select
import signal
import time
from collections import deque
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from gradproof.audit import worker
from gradproof.audit.case import Result
from gradproof.audit.printed import Output

STARTING = 120.0  # seconds in which a process starts, on a busy machine too
AHEAD = 16  # cases that may wait in the pipe while another one runs
SOON = 0.02  # seconds that they may take in all, if each takes as long as the last one: a slow case would hold them up
ROOM = 1 << 15  # bytes that they may have in all: a pipe takes so many at once, so that to send them does not block


class Task(NamedTuple):
    """A case as it is sent, and how often its process was killed from outside."""

    name: str
    pickled: bytes
    kills: int = 0


@dataclass(slots=True)
class Watched:
    """A process that runs the first of its tasks; the others wait in its pipe."""

    process: BaseProcess
    pipe: Connection
    output: Output
    device: str
    tasks: deque[Task] = field(default_factory=deque)
    size: int = 0  # bytes of the tasks
    since: float = 0.0  # when the first of the tasks began
    pace: float = math.inf  # seconds that the last case took
    cases: int = 0
    ready: bool = False
    poller: select.poll = field(default_factory=select.poll)

    def __post_init__(self) -> None:
        self.poller.register(self.pipe.fileno(), select.POLLIN)

    def has_room(self, task: Task, lifetime: int) -> bool:
        """Return True if a case that is sent begins at once or soon, and is among the first `lifetime` ones."""
        count = len(self.tasks)
        return not count or (
            count <= AHEAD
            and count * self.pace < SOON
            and self.cases + count < lifetime
            and self.size + len(task.pickled) < ROOM
        )

    def is_busy_for(self, seconds: float) -> bool:
        """Return True if the cases that wait take so long, at the pace of the last one."""
        return len(self.tasks) > 1 and (len(self.tasks) - 1) * self.pace > seconds

    def send(self, task: Task) -> None:
        """Send a case. If the process is dead, its pipe says so when it is read."""
        if not self.tasks:
            self.since = time.monotonic()
        self.tasks.append(task)
        self.size += len(task.pickled)
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(pickle.dumps((task.name, task.pickled)))

    def has_sent(self) -> bool:
        """Return True if there is something in the pipe, or if it has ended. Its own `poll` takes ten times as long."""
        return bool(self.poller.poll(0))

    def received(self) -> Result | None:
        """Return the next result in the pipe, or None if the process says that it is ready; raise if it is dead."""
        try:
            message = self.pipe.recv_bytes()
        except OSError as error:
            raise EOFError from error
        self.since = time.monotonic()  # the next case has begun
        if message == worker.READY:
            self.ready = True
            return None
        result: Result = pickle.loads(message)
        self.size -= len(self.tasks.popleft().pickled)
        self.cases += 1
        self.pace = result.seconds
        return result

    def deadline(self, limit: float) -> float:
        """Return when the case that runs has used up its time."""
        return self.since + (limit if self.ready else STARTING)

    def dump(self) -> None:
        """Make the process print where it is."""
        with contextlib.suppress(OSError):
            if self.process.pid:
                os.kill(self.process.pid, worker.DUMP)

    def kill(self) -> None:
        """End the process, and those that its cases have started."""
        if self.process.pid and self.ready:  # it leads a group of its own from then on
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()

    def close(self) -> None:
        """Wait for a process that ends, and let go of what belongs to it."""
        self.process.join()
        self.pipe.close()
        self.output.close()
