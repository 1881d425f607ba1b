"""A process of `benchmarks.torch_tests`: runs tests of one file with torch's check and with gradproof's.

Several run beside each other. A process claims a test by creating a file for it, and writes one line as the test ends.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import os
import random
import re
import signal
import sys
import time
import unittest
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

CHECKS = ("gradcheck", "gradgradcheck")
LIMIT = 30  # seconds of processor time for a run of a test
WALL = 8 * LIMIT  # seconds after which a run that no signal reaches ends the process


class LimitReached(BaseException):
    """Not an `Exception`, which a check would take for one of the function's."""


def main() -> None:
    """Claim and run the tests of a file until none is left."""
    folder, journal, begun = map(Path, sys.argv[1:])
    warnings.simplefilter("ignore")
    wanted = json.loads((folder / "wanted.json").read_text())
    meter = _Meter()
    with ExitStack() as stack:
        meter.replace(stack)
        tests = _wanted(_tests_of(Path(wanted["path"])), wanted)
        (folder / "total").write_text(str(len(tests)))
        lines = stack.enter_context(journal.open("a"))
        for number, test in enumerate(tests):
            if test.id() not in set(wanted["seen"]) and _claimed(folder / f"claimed-{number}"):
                runs = _runs(test, meter, begun)
                lines.write(json.dumps([test.id(), runs]) + "\n")  # one line, one write: processes share the file
                lines.flush()
        begun.write_text("")


def _tests_of(path: Path) -> list[unittest.TestCase]:
    """Import a test file, whose imports of the checks are counted ones, and return its tests."""
    sys.path.insert(0, str(path.parent))
    sys.argv = [str(path)]
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # the file is there
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]  # the file is there
    return list(_flat(unittest.defaultTestLoader.loadTestsFromModule(module)))


def _wanted(found: list[unittest.TestCase], wanted: dict[str, Any]) -> list[unittest.TestCase]:
    """Choose tests by name, in an order that is random and always the same: what is cut off is a sample too."""
    chosen = sorted((test for test in found if wanted["match"] in test.id()), key=unittest.TestCase.id)
    random.Random(0).shuffle(chosen)
    return chosen[: wanted["tests"]]


def _claimed(file: Path) -> bool:
    """Return True to the one process that creates the file."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def _runs(test: unittest.TestCase, meter: _Meter, begun: Path) -> dict[str, Any]:
    """Run a test with torch's check and, if it calls one, with gradproof's."""
    runs: dict[str, Any] = {}
    for which in ("stock", "routed"):
        calls = runs["stock"]["calls"] if runs else 0
        if runs and not calls:
            return runs
        begun.write_text(f"{test.id()} {which} {calls}")
        meter.routed = which == "routed"
        runs[which] = _seen(test, meter)
    return runs


class _Meter:
    """Counts the calls of the checks, and their seconds of processor time, which a busy machine disturbs less."""

    def __init__(self) -> None:
        self.calls, self.inside, self.routed = 0, 0.0, False

    def replace(self, stack: ExitStack) -> None:
        """Put a counted check in the place of torch's, which calls torch's or gradproof's as `routed` says."""
        import torch

        import gradproof

        inner = importlib.import_module("torch.autograd.gradcheck")
        for name in CHECKS:
            checks = getattr(inner, name), getattr(gradproof, name)
            for check in checks:  # loads its code, uncounted
                check(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))
            counted = self.counted(*checks)
            for module in (inner, torch.autograd):
                stack.enter_context(patch.object(module, name, counted))

    def counted(self, stock: Callable[..., bool], routed: Callable[..., bool]) -> Callable[..., bool]:
        """Return a check that is counted; one that a check calls itself is not."""
        depth = 0

        def counting(*args: Any, **kwargs: Any) -> bool:
            nonlocal depth
            began, depth = time.process_time(), depth + 1
            try:
                return (routed if self.routed else stock)(*args, **kwargs)
            finally:
                depth -= 1
                if not depth:
                    self.calls, self.inside = self.calls + 1, self.inside + time.process_time() - began

        return counting


def _seen(test: unittest.TestCase, meter: _Meter) -> dict[str, Any]:
    """Run one test within its limit; a skipped one has no calls."""
    calls, inside, result = meter.calls, meter.inside, unittest.TestResult()

    def stop(*_: Any) -> None:
        raise LimitReached(f"{LIMIT} s of processor time are over")

    told: list[str] = []
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    faulthandler.dump_traceback_later(WALL, exit=True)
    try:
        test.run(result)
    except LimitReached as error:
        told.append(f"LimitReached: {error}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
    told += [text for _, text in (*result.failures, *result.errors)]
    told += ["it passes, where the test expects a failure" for _ in result.unexpectedSuccesses]
    return {
        "calls": meter.calls - calls,
        "inside": meter.inside - inside,
        "passed": not told,
        "message": _raised(told[0]) if told else "",
    }


def _raised(traceback: str) -> str:
    """Return the first words of the error at the end of a traceback."""
    parts = re.split(r"^(?=[\w.]+: )", traceback.strip(), flags=re.MULTILINE)
    errors = [part for part in parts if re.match(r"[\w.]*(Error|Exception|Failure|LimitReached)", part)]
    return " ".join((errors or parts)[-1].split())[:300]


def _flat(suite: Any) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from _flat(test)
        else:
            yield test


if __name__ == "__main__":
    main()
