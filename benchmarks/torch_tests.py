"""What do test files written for torch's gradcheck say when gradproof takes its place? Stock beside routed.

    python -m benchmarks.torch_tests                      the databases of torch's wheel (benchmarks/torch_suites)
    python -m benchmarks.torch_tests pytorch/test         a folder of torch's own test files, or files of it

Every file runs twice, each time in a process of its own: with torch's check, and with gradproof's drop-ins in its place
(`gradproof.replace_gradcheck`). Only tests that call a check count. A test that fails in one run alone is named. Where
a test ends the process, the run goes on behind it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).parent / "torch_suites"
CHECKS = ("gradcheck", "gradgradcheck")
LIMIT = 30  # seconds of processor time a test


class LimitReached(BaseException):
    """Not an `Exception`, which a check would take for one of the function's."""


def main() -> None:
    """Run every file with either check, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--tests", type=int, help="a random sample of so many tests of each file")
    parser.add_argument("--match", default="", help="only tests with this in their name")
    parser.add_argument("--child", choices=("stock", "routed"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _child(arguments.paths[0], arguments.child, arguments.folder)
        return
    print(f"{'':<49}   fails: {'':<9}   seconds inside:")
    columns = f"{'stock':>6}{'routed':>8}      {'stock':>7}{'routed':>8}{'ratio':>7}"
    print(f"{'file':<34}{'tests':>7}{'calls':>8}         {columns}")
    for path in _files(arguments.paths):
        _compare(path, arguments.tests, arguments.match)


def _files(paths: list[Path]) -> Iterator[Path]:
    """Yield the test files that mention a check."""
    for path in paths:
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            if "gradcheck" in file.read_text(errors="replace"):
                yield file


def _compare(path: Path, tests: int | None, match: str) -> None:
    stock = _run(path, "stock", {"tests": tests, "match": match})
    names = [name for name, seen in stock.items() if seen["calls"]]
    if not names:
        print(f"{path.name:<34} no test ran a check")
        return
    routed = _run(path, "routed", {"only": names})
    calls = sum(stock[name]["calls"] for name in names)
    failed = [[name for name in names if not run[name]["passed"]] for run in (stock, routed)]
    seconds = [sum(run[name]["inside"] for name in names) for run in (stock, routed)]
    print(
        f"{path.name:<34}{len(names):>7}{calls:>8}         {len(failed[0]):>6}{len(failed[1]):>8}      "
        f"{seconds[0]:>7.1f}{seconds[1]:>8.1f}{seconds[1] / max(seconds[0], 1e-9):>7.2f}"
    )
    for which, run, other in (("routed", routed, failed[0]), ("stock", stock, failed[1])):
        for name in failed[which == "routed"]:
            if name not in other:
                print(f"    {which} alone: {name}: {run[name]['message']}")
    sys.stdout.flush()


def _run(path: Path, which: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Run a file in a process of its own, and return what was seen of each test; behind one that ends it, go on."""
    command = [sys.executable, "-m", "benchmarks.torch_tests", str(path), "--child", which, "--folder"]
    environment = os.environ | {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu"}
    seen: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        begun, lines = Path(folder) / "begun", Path(folder) / "seen.jsonl"
        lines.touch()
        while True:
            begun.write_text("")
            (Path(folder) / "wanted.json").write_text(json.dumps(wanted | {"seen": list(seen)}))
            told = subprocess.run([*command, folder], capture_output=True, text=True, env=environment)
            seen |= dict(map(json.loads, lines.read_text().splitlines()))
            if told.returncode == 0:
                return seen
            if not begun.read_text():  # the file itself does not run
                print(f"{path.name}: {told.stderr.strip().splitlines()[-1:]}")
                return seen
            message = f"ended the process with {told.returncode}"
            seen[begun.read_text()] = {"calls": 0, "inside": 0.0, "passed": False, "message": message}


def _child(path: Path, which: str, folder: Path) -> None:
    """Run the tests of one file that are wanted, and write a line for each as it ends."""
    warnings.simplefilter("ignore")
    wanted = json.loads((folder / "wanted.json").read_text())
    meter = _Meter()
    with ExitStack() as stack:
        meter.replace(stack, routed=which == "routed")
        sys.path.insert(0, str(path.parent))
        sys.argv = [str(path)]
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]  # the file is there
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)  # type: ignore[union-attr]  # the file is there
        with (folder / "seen.jsonl").open("a") as lines:
            for test in _wanted(list(_flat(unittest.defaultTestLoader.loadTestsFromModule(module))), wanted):
                (folder / "begun").write_text(test.id())
                print(json.dumps([test.id(), _seen(test, meter)]), file=lines, flush=True)


def _wanted(found: list[unittest.TestCase], wanted: dict[str, Any]) -> list[unittest.TestCase]:
    """Choose tests by name or at random, and leave out those that were seen."""
    if "only" in wanted:
        chosen = [test for test in found if test.id() in set(wanted["only"])]
    else:
        chosen = [test for test in found if wanted["match"] in test.id()]
        if wanted["tests"] and wanted["tests"] < len(chosen):
            chosen = random.Random(0).sample(chosen, wanted["tests"])
    return [test for test in chosen if test.id() not in set(wanted["seen"])]


class _Meter:
    """Counts the calls of the checks, and their seconds of processor time, which a busy machine disturbs less."""

    def __init__(self) -> None:
        self.calls, self.inside = 0, 0.0

    def replace(self, stack: ExitStack, *, routed: bool) -> None:
        """Put counted checks, torch's or gradproof's, in the place of torch's."""
        import torch  # in the child alone

        import gradproof

        inner = importlib.import_module("torch.autograd.gradcheck")
        for name in CHECKS:
            check = getattr(gradproof if routed else inner, name)
            check(torch.sin, (torch.ones(2, dtype=torch.float64, requires_grad=True),))  # loads its code, uncounted
            counted = self.counted(check)
            for module in (inner, torch.autograd):
                stack.enter_context(patch.object(module, name, counted))

    def counted(self, check: Callable[..., bool]) -> Callable[..., bool]:
        """Return a check that is counted; one that a check calls itself is not."""
        depth = 0

        def counting(*args: Any, **kwargs: Any) -> bool:
            nonlocal depth
            began, depth = time.process_time(), depth + 1
            try:
                return check(*args, **kwargs)
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
    try:
        test.run(result)
    except LimitReached as error:
        told.append(f"LimitReached: {error}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
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
