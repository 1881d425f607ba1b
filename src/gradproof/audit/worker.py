"""A process that runs cases one after the other, until it is told to stop or one of them ends it."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

from gradproof.audit.case import Outcome, Result
from gradproof.audit.printed import Output
from gradproof.audit.running import run_case
from gradproof.errors import InputError

GRACE = 10.0  # seconds beyond the limit after which a worker ends by itself, if nobody is there to end it
DUMP = signal.SIGUSR1  # makes a worker print the stack of every thread, whatever it is stuck in

LONGEST = 1e8  # seconds, three years: more than the system's timers take

PRINTING = frozenset({Outcome.ERROR, Outcome.MEMORY})  # outcomes of a live process whose output is kept
READY = b""  # what a worker sends before its first result: the time of a case does not include that of its start


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a case may take: seconds, and bytes beyond those that its worker holds at its start."""

    seconds: float = 60.0
    memory: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= LONGEST:
            raise InputError(f"A limit of {self.seconds:g} seconds: pass a number above 0 and at most {LONGEST:,.0f}.")


def serve(pipe: Connection, output: Output, limits: Limits, threads: int, device: str) -> None:
    """Receive a case, run it, send its result, and so on until the pipe is closed."""
    if device:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # in time: nothing has asked for the devices yet
    os.setpgrp()  # the processes that a case starts end with this one
    _print_to(output)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver ends its workers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # for the processes that a case starts
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel ends this process, even if it hangs in native code
    _prepare(threads)
    pipe.send_bytes(READY)
    while True:
        try:
            pickled = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        output.clear()
        signal.setitimer(signal.ITIMER_REAL, limits.seconds + GRACE)
        with limited(limits.memory):
            result = _result(pickled)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.flush()
        if result.outcome in PRINTING:
            result = replace(result, output=output.text())
        try:
            pipe.send_bytes(pickle.dumps(result))
        except OSError:  # the driver is gone
            return
        if result.outcome is Outcome.MEMORY:  # nothing else is to run in what is left of this process
            return


def _result(pickled: bytes) -> Result:
    name, case = pickle.loads(pickled)
    try:
        return run_case(pickle.loads(case))
    except Exception as error:
        words = f"The case cannot be unpickled in a worker: {type(error).__name__}: {error}"
        return Result(name=name, outcome=Outcome.ERROR, reason="unpicklable", message=words)


def _print_to(output: Output) -> None:
    """Send standard output and error to a file, which outlives this process."""
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    sys.stdout = open(1, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115  # for good
    sys.stderr = open(2, "w", closefd=False, buffering=1, errors="backslashreplace")  # noqa: SIM115  # as above
    faulthandler.enable(2)
    faulthandler.register(DUMP, file=2)


def _prepare(threads: int) -> None:
    import torch

    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def limited(memory: int | None) -> Iterator[None]:
    """Let this process allocate only so much more, so that a larger request fails instead of taking the machine.

    The limit is that of private writable memory, which Linux enforces; address space alone, which a GPU's driver and
    mapped files take much of, costs nothing.
    """
    if memory is None or not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("VmData:")[2].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (held + memory, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
