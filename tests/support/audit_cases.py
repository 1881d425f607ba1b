"""Cases for audits: quick ones, a wrong gradient, and those that end or outlast their process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import gradproof
from gradproof.audit import Case, Skip


class Half(torch.autograd.Function):
    """A sine, half of whose gradient is lost."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos() / 2


def right(log: str | None = None, name: str = "") -> tuple[Any, Any]:
    if log:  # one line a run, in one write
        with Path(log).open("ab", buffering=0) as file:
            file.write(f"{time.time()} {name}\n".encode())
    return torch.sin, torch.linspace(0.1, 1, 3, dtype=torch.float64, requires_grad=True)


def wrong(*noted: Any) -> tuple[Any, Any]:
    return Half.apply, right(*noted)[1]


def compared() -> tuple[Any, Any, Any]:
    return torch.sin, torch.sin, torch.ones(3, requires_grad=True)


def crash(*noted: Any) -> Any:
    right(*noted)
    print("about to abort", flush=True)
    os.abort()


def hang(*noted: Any) -> Any:
    right(*noted)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    while True:
        time.sleep(60)


def bomb(*noted: Any) -> Any:
    right(*noted)
    return [torch.ones(1 << 27, dtype=torch.float64) for _ in range(1000)]


def slow(seconds: float, *noted: Any) -> tuple[Any, Any]:
    time.sleep(seconds)
    return right(*noted)


def importing() -> Any:
    """Say what a check imports, but for what is in the standard library."""
    before = set(sys.modules)
    gradproof.check(*right(), order=2, modes=("reverse", "forward"))
    raise Skip(" ".join(sorted(name for name in set(sys.modules) - before if name.startswith(("torch", "gradproof")))))


def large(weight: bytes) -> tuple[Any, Any]:
    return right()


def skipped() -> Any:
    raise Skip("nothing to differentiate")


def raising() -> Any:
    print("what it printed", file=sys.stderr)
    raise RuntimeError("the database is gone")


def leaving() -> Any:
    sys.exit(3)


class SilentError(Exception):
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        raise ValueError("no words")


def silent() -> Any:
    raise SilentError


def short_of_memory() -> Any:
    raise OSError(12, os.strerror(12))


def with_a_child(file: str) -> Any:
    """Start a process that outlives the case, note its number, and hang."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(file).write_text(str(child.pid))
    hang()


def on_its_device(crashes: bool = False) -> Any:
    """Say which device the process sees, after a while in which others are busy with theirs."""
    time.sleep(0.2)
    if crashes:
        os.abort()
    raise Skip(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))


def killed() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def crash_after_others(fresh: str) -> tuple[Any, Any]:
    """Crash in a process in which another case ran before, which `spoil` has noted there."""
    if os.environ.get("SPOILED"):
        os.abort()
    return right()


def spoil() -> tuple[Any, Any]:
    os.environ["SPOILED"] = "yes"
    return right()


def case(make: Any, *arguments: Any, name: str = "", **fields: Any) -> Case:
    return Case(name or make.__name__, make=partial(make, *arguments) if arguments else make, **fields)


def four() -> Iterator[Case]:
    yield case(right, tags=("op=sin", "kind=right"))
    yield case(wrong, tags=("op=sin", "kind=wrong"))
    yield case(crash)
    yield case(skipped)


def passing() -> Iterator[Case]:
    yield from (case(right, name=f"sin {number}") for number in range(6))


def twice() -> Iterator[Case]:
    yield from (case(right), case(wrong), case(right))


def breaking() -> Iterator[Case]:
    yield case(right)
    raise KeyError("no such operator")


def leaving_early() -> Iterator[Case]:
    yield case(right)
    sys.exit(0)
