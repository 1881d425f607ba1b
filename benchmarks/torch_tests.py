"""What do test files written for torch's gradcheck say when gradproof takes its place? Stock beside routed.

    python -m benchmarks.torch_tests                      the databases of torch's wheel (benchmarks/torch_suites)
    python -m benchmarks.torch_tests pytorch/test         a folder of torch's own test files, or files of it
    python -m benchmarks.torch_tests --jobs 15 --keep runs/torch --seconds 570 pytorch/test/test_ops_gradients.py

Every test runs twice, one run after the other in one process: with torch's check, and with gradproof's drop-ins in its
place. Only tests that call a check count. A test that fails in one run alone is named. Where a test ends the process,
the run goes on behind it. With `--keep`, the results of each test are kept as it ends: the same command goes on where
the last one stopped, and prints the table of both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "torch_suites"
WORKER = [sys.executable, "-m", "benchmarks.torch_tests_worker"]
RUNS = ("stock", "routed")


def main() -> None:
    """Run every file with either check, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--tests", type=int, help="a random sample of so many tests of each file")
    parser.add_argument("--match", default="", help="only tests with this in their name")
    parser.add_argument("--jobs", type=int, default=1, help="processes beside each other")
    parser.add_argument("--keep", type=Path, help="a folder for the results, read again by the next run")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the time for all files together")
    arguments = parser.parse_args()
    deadline = time.monotonic() + arguments.seconds
    print(f"{'':<57}   fails: {'':<9}   seconds inside:")
    columns = f"{'stock':>6}{'routed':>8}      {'stock':>7}{'routed':>8}{'ratio':>7}"
    print(f"{'file':<34}{'tests':>7}{'calls':>8}{'unseen':>8}         {columns}")
    with tempfile.TemporaryDirectory() as folder:
        for path in _files(arguments.paths):
            wanted = {"path": str(path), "tests": arguments.tests, "match": arguments.match}
            _print_row(path, *_run(path, wanted, arguments.jobs, arguments.keep or Path(folder), deadline))


def _files(paths: list[Path]) -> Iterator[Path]:
    """Yield the test files that mention a check."""
    for path in paths:
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            if "gradcheck" in file.read_text(errors="replace"):
                yield file


def _run(path: Path, wanted: dict[str, Any], jobs: int, kept: Path, deadline: float) -> tuple[dict[str, Any], str]:
    """Run the tests of a file that were not seen before; return what was seen of each, and the number left."""
    kept.mkdir(parents=True, exist_ok=True)
    journal = kept / f"{path.stem}.jsonl"
    journal.touch()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "wanted.json").write_text(json.dumps(wanted | {"seen": list(_read(journal))}))
        workers = [_Worker(number, folder, journal) for number in range(jobs)]
        while workers and time.monotonic() < deadline:
            workers = [worker for worker in workers if worker.at_work()]
            time.sleep(0.1)
        for worker in workers:
            worker.process.kill()
            worker.process.wait()
        total = folder / "total"
        tests = total.read_text() if total.exists() else ""
    seen = _read(journal)
    return seen, str(max(int(tests) - len(seen), 0)) if tests else "?"


class _Worker:
    """A process that runs tests, and is started again behind a test that ends it."""

    def __init__(self, number: int, folder: Path, journal: Path) -> None:
        self.begun, self.told = folder / f"begun-{number}", folder / f"told-{number}"
        self.journal = journal
        self.command = [*WORKER, str(folder), str(journal), str(self.begun)]
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        self.begun.write_text("")
        environment = os.environ | {"PYTORCH_TESTING_DEVICE_ONLY_FOR": "cpu"}
        with self.told.open("wb") as told:
            return subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=told, env=environment)

    def at_work(self) -> bool:
        """Return False once the tests are used up, or the file does not run."""
        status = self.process.poll()
        if not status:
            return status is None
        begun = self.begun.read_text().split()
        if not begun:
            told = self.told.read_text(errors="replace").strip().splitlines()
            print(f"{self.journal.stem}: {told[-1:]}")
            return False
        name, which, calls = begun
        ended = {"calls": int(calls), "inside": 0.0, "passed": False, "message": f"ended the process with {status}"}
        with self.journal.open("a") as lines:
            print(json.dumps([name, {which: ended}]), file=lines)
        self.process = self._started()
        return True


def _read(journal: Path) -> dict[str, Any]:
    """Return what was seen of each test; what is not of a whole line was cut off."""
    seen: dict[str, Any] = {}
    for line in journal.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            name, runs = json.loads(line)
            seen[name] = seen.get(name, {}) | runs
    return seen


def _print_row(path: Path, seen: dict[str, Any], unseen: str) -> None:
    both = {name: runs for name, runs in seen.items() if any(run["calls"] for run in runs.values())}
    if not both:
        print(f"{path.name:<34} no test ran a check; unseen: {unseen}")
        return
    calls = sum(max(run["calls"] for run in runs.values()) for runs in both.values())
    failed = [{name for name, runs in both.items() if which in runs and not runs[which]["passed"]} for which in RUNS]
    whole = [runs for runs in both.values() if len(runs) == len(RUNS)]
    seconds = [sum(runs[which]["inside"] for runs in whole) for which in RUNS]
    print(
        f"{path.name:<34}{len(both):>7}{calls:>8}{unseen:>8}         {len(failed[0]):>6}{len(failed[1]):>8}      "
        f"{seconds[0]:>7.1f}{seconds[1]:>8.1f}{seconds[1] / max(seconds[0], 1e-9):>7.2f}"
    )
    for which, mine, other in (("routed", failed[1], failed[0]), ("stock", failed[0], failed[1])):
        for name in sorted(mine - other):
            print(f"    {which} alone: {name}: {both[name][which]['message']}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
