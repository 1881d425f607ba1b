"""Verdicts on some twenty thousand cases, one JSON line each, to be compared between two versions of gradproof.

`python -m benchmarks.sweep --out before.jsonl` writes the lines and prints how often each table came to which verdict;
`python -m benchmarks.sweep diff before.jsonl after.jsonl` says what changed. Cases come in an order that is random and
always the same, so that two runs that are cut short by `--seconds` have most of their cases in common. Only the public
interface of gradproof is used.

A case that raises, or that does not end within half a minute, has the verdict `raised` or `timeout`, and so does one
that ends its process, which is then started again; where there is nothing to check the verdict is `skipped`. Seconds
are of processor time, in which a busy machine shows less.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import multiprocessing
import os
import re
import signal
import sys
import time
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest import mock

from benchmarks.sweep_diff import compare, show_reasons, show_verdicts

if TYPE_CHECKING:
    from benchmarks.sweep_cases import Case

OPERATORS = ("alarms64", "alarms32", "full", "forward", "order2", "odd", "planted", "planted_full", "planted32")
FUNCTIONS = ("casts", "rough", "kinks")
OTHERS = ("compared", "large", "extreme")
TABLES = OPERATORS + FUNCTIONS + OTHERS
LIMIT = 30.0  # seconds for a case
PATIENCE = 15.0  # seconds after which a process that does not heed the limit is ended
GRACE = 5.0  # seconds for a case that is under way when the time for all is up
LONGEST = 200  # characters of a message


class TimeUp(BaseException):
    """A case has run for too long; no `except Exception` on the way holds it up."""


# ── cases ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def prepare() -> None:
    """One thread, no accelerator, no warnings, before torch is imported: processes are forked later on."""
    warnings.simplefilter("ignore")
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONWARNINGS": "ignore",
    }
    if importlib.util.find_spec("expecttest") is None:  # torch's database imports it, and does without it here
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase, stand_in.ACCEPT = unittest.TestCase, False
        sys.modules["expecttest"] = stand_in
    import torch

    torch.set_num_threads(1)


def listed(tables: Sequence[str]) -> list[Case]:
    """All cases of some tables, in an order in which neither the tables nor the cases that exist play a part."""
    from benchmarks import sweep_cases, sweep_functions, sweep_others

    modules = {OPERATORS: sweep_cases, FUNCTIONS: sweep_functions, OTHERS: sweep_others}
    cases: dict[tuple[str, str], Case] = {}
    with unwatched():
        for module, table in ((modules[kind], table) for table in tables for kind in modules if table in kind):
            for case in getattr(module, table)():
                if (case.table, case.name) in cases:
                    raise ValueError(f"two cases of {case.table} have the name {case.name!r}")
                cases[case.table, case.name] = case
    return [cases[key] for key in sorted(cases, key=_shuffled)]


@contextmanager
def unwatched() -> Iterator[None]:
    """Without the stacks that torch looks up at every sample and every seed, which take most of the time under `-m`."""
    with mock.patch("inspect.stack", return_value=[]), mock.patch("traceback.format_stack", return_value=[]):
        yield


def _shuffled(key: tuple[str, str]) -> bytes:
    return hashlib.blake2b("\n".join(key).encode()).digest()


# ── one case ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def line_of(case: Case, verdict: str, seconds: float, **said: Any) -> dict[str, Any]:
    """What is written of a case."""
    return {
        "table": case.table,
        "case": case.name,
        "verdict": verdict,
        "reason": said.get("reason", ""),
        "message": said.get("message", "")[:LONGEST],
        "evaluations": said.get("evaluations", 0),
        "seconds": round(seconds, 6),
        "planted": case.planted,
        "expected": "wrong" if case.wrong else "right",
    }


def examined(case: Case, said: Callable[[Any], dict[str, Any]] | None = None) -> dict[str, Any]:
    """The verdict on a case; `said` takes the reason, the message and the cost from a report, if not `said_in`."""
    began = time.process_time()
    try:
        subject = case.make()
    except Exception as error:  # a reason not to check, or a function or a backward that raises by itself
        return line_of(case, "skipped", 0.0, reason=_brief(error))
    try:
        began = time.process_time()
        report = checked(case, subject)
    except Exception as error:
        return line_of(case, "raised", time.process_time() - began, reason=type(error).__name__, message=str(error))
    return line_of(case, report.verdict.value, time.process_time() - began, **(said or said_in)(report))


def checked(case: Case, subject: Any) -> Any:
    """gradproof's report; the generators are at the same place before every check."""
    import torch

    import gradproof
    from benchmarks.independent import SEED

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(SEED)
        options = {"contracts": (), "seed": case.seed, **case.options}
        if "reference" in options:
            return gradproof.compare(subject.function, inputs=subject.inputs, **options)
        return gradproof.check(subject.function, subject.inputs, progress=False, **options)


def said_in(report: Any) -> dict[str, Any]:
    """The reason in a word or two and in full, and the cost; it may be a text, or a value with a message beside it."""
    reason = getattr(report, "reason", "")
    text = str(getattr(reason, "value", reason) or "")
    message = getattr(report, "message", None) or text
    findings = getattr(report, "findings", ())
    word = getattr(findings[0], "kind", text) if findings else text
    return {"reason": _first_words(str(word)), "message": str(message), "evaluations": report.cost.evaluations}


def _first_words(text: str) -> str:
    return re.split(r":| at | \(", text, maxsplit=1)[0][:60]


def _brief(error: Exception) -> str:
    name = type(error).__name__
    return str(error) if name == "Skipped" else f"{name} while the case was made"


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` after so many seconds, and again and again where that is swallowed."""
    signal.signal(signal.SIGALRM, _time_up)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _time_up(number: int, frame: Any) -> NoReturn:
    raise TimeUp


# ── many cases ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Sweep:
    """Processes that take the cases one after the other, and write to one file."""

    cases: Sequence[Case]
    processes: int
    deadline: float
    out: Path

    def __post_init__(self) -> None:
        self.context = multiprocessing.get_context("fork")
        self.next = self.context.Value("q", 0)
        self.current = self.context.Array("q", [-1] * self.processes, lock=False)  # the case that each is at
        self.since = self.context.Array("d", [0.0] * self.processes, lock=False)

    def run(self) -> None:
        """Until all cases are done, or the time is up."""
        self.out.write_bytes(b"")
        workers = [self._started(place) for place in range(self.processes)]
        while any(worker.is_alive() or worker.exitcode for worker in workers):
            time.sleep(0.1)
            for place, worker in enumerate(workers):
                if worker.is_alive():
                    self._end_if_stuck(place, worker)
                elif worker.exitcode:
                    self._record_end(place, worker.exitcode)
                    workers[place] = self._started(place)

    def _started(self, place: int) -> Any:
        worker = self.context.Process(target=self._work, args=(place,))
        worker.start()
        return worker

    def _end_if_stuck(self, place: int, worker: Any) -> None:
        if self.current[place] >= 0 and time.monotonic() - self.since[place] > LIMIT + PATIENCE:
            worker.kill()
            worker.join()

    def _record_end(self, place: int, exitcode: int) -> None:
        number, self.current[place] = self.current[place], -1
        if number >= 0:
            verdict = "timeout" if exitcode == -signal.SIGKILL else "raised"
            took = time.monotonic() - self.since[place]
            self._write(line_of(self.cases[number], verdict, took, reason="ended the process", message=str(exitcode)))

    def _work(self, place: int) -> None:
        while time.monotonic() < self.deadline and (number := self._taken()) < len(self.cases):
            self.since[place] = time.monotonic()
            self.current[place] = number
            line = self._timed(self.cases[number])
            if line is not None:
                self._write(line)
            self.current[place] = -1

    def _taken(self) -> int:
        with self.next.get_lock():
            number = int(self.next.value)
            self.next.value = number + 1
        return number

    def _timed(self, case: Case) -> dict[str, Any] | None:
        """The line of a case; None where it is cut off because the time for all is up."""
        left = self.deadline + GRACE - time.monotonic()
        try:
            with at_most(min(LIMIT, left)):
                return examined(case)
        except TimeUp:
            return line_of(case, "timeout", LIMIT) if left >= LIMIT else None

    def _write(self, line: Mapping[str, Any]) -> None:
        with self.out.open("ab", buffering=0) as file:  # one write at the end of the file, which no other comes between
            file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a run."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def sweep(arguments: Sequence[str]) -> int:
    """Check the cases, and count the verdicts."""
    began = time.monotonic()
    options = parsed(arguments)
    prepare()
    first, step = options.shard
    cases = listed(options.tables)[first::step]
    print(f"{len(cases):,} cases listed in {time.monotonic() - began:.0f} s", flush=True)
    Sweep(cases, options.processes, began + options.seconds, options.out).run()
    lines = read(options.out)
    print(f"{len(lines):,} of them checked in {time.monotonic() - began:.0f} s\n")
    show_verdicts(lines)
    show_reasons(lines)
    return 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="gradproof's verdicts on many cases; `diff A B` compares two runs.")
    parser.add_argument("--tables", type=_tables, default=TABLES, help=f"of {','.join(TABLES)}; by default all")
    parser.add_argument("--shard", type=_shard, default=(0, 1), help="i/n: every n-th case, from the i-th on")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no further case is taken")
    parser.add_argument("--out", type=Path, required=True, help="the file of JSON lines, which is written anew")
    return parser.parse_args(arguments)


def _tables(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(TABLES):
        raise argparse.ArgumentTypeError(f"choose from {','.join(TABLES)}")
    return names


def _shard(text: str) -> tuple[int, int]:
    first, step = map(int, text.split("/"))
    if not 0 <= first < step:
        raise argparse.ArgumentTypeError("i/n with 0 ≤ i < n")
    return first, step


def main() -> int:
    if sys.argv[1:2] == ["diff"]:
        parser = argparse.ArgumentParser(prog="benchmarks.sweep diff", description="What changed between two runs.")
        parser.add_argument("before", type=Path)
        parser.add_argument("after", type=Path)
        paths = parser.parse_args(sys.argv[2:])
        return compare(read(paths.before), read(paths.after))
    return sweep(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
