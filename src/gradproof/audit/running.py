"""Run one case in this process, and return its result."""

from __future__ import annotations

import random
import socket
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gradproof
from gradproof.audit.case import Case, Outcome, Result, Skip
from gradproof.errors import InputError

LONGEST = 2000  # characters of a message
REFUSED_MEMORY = (  # what torch's allocators, the system and its loader say, none of them by a MemoryError
    "can't allocate memory", "not enough memory", "Cannot allocate memory", "cannot map zero-fill pages",
)  # fmt: skip


def run_case(case: Case) -> Result:
    """Make and check a case. Whatever it raises is a result, but for an interruption."""
    began = time.perf_counter()
    try:
        with seeded(case.seed):
            said = _said(report_of(case))
    except (Skip, unittest.SkipTest) as reason:
        said = {"outcome": Outcome.SKIPPED, "message": str(reason)}
    except MemoryError as error:
        said = {"outcome": Outcome.MEMORY, "message": _words(error)}
    except (Exception, SystemExit) as error:
        message = _words(error)
        outcome = Outcome.MEMORY if any(words in message for words in REFUSED_MEMORY) else Outcome.ERROR
        said = {"outcome": outcome, "reason": type(error).__name__, "message": message}
    seconds = time.perf_counter() - began
    return Result(name=case.name, seed=case.seed, host=socket.gethostname(), seconds=seconds, **said)


def report_of(case: Case) -> gradproof.Report:
    """Make the function and the inputs of a case, and check or compare them."""
    made = case.make()
    if case.entry == "report":
        return _the_report(case, made)
    expected = 2 if case.entry == "check" else 3
    if not isinstance(made, tuple) or len(made) != expected:
        what = "(function, inputs)" if case.entry == "check" else "(function, reference, inputs)"
        raise InputError(f"make() of the case {case.name!r} returned {type(made).__name__}: return {what}.")
    options: dict[str, Any] = {**case.options, "seed": case.seed}
    if case.entry == "check":
        return gradproof.check(*made, **{"progress": False, **options})
    return gradproof.compare(*made, **options)


def _the_report(case: Case, made: Any) -> gradproof.Report:
    if not isinstance(made, gradproof.Report):
        raise InputError(f"make() of the case {case.name!r} returned {type(made).__name__}: return a gradproof.Report.")
    return made


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of torch and Python for a case, those of GPUs too, and restore them afterwards."""
    import torch

    state = random.getstate()
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's own
    used = range(torch.cuda.device_count()) if started else ()
    try:
        with torch.random.fork_rng(devices=used):
            torch.default_generator.manual_seed(seed)
            if torch.cuda.is_available():
                torch.cuda.manual_seed_all(seed)  # of a process that has not used them yet: when it does
            random.seed(seed)
            yield
    finally:
        random.setstate(state)


def _said(report: gradproof.Report) -> dict[str, Any]:
    reason = report.findings[0].kind if report.findings else report.reason.value if report.reason else ""
    return {
        "outcome": Outcome(report.verdict.value),
        "reason": reason,
        "message": report.message[:LONGEST],
        "report": report.to_json(),
    }


def _words(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # the error's __str__ is the user's code too
        text = ""
    return f"{type(error).__name__}: {text}".rstrip(": ")[:LONGEST]
