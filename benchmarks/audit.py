"""Does an audit survive being killed, and what does it cost beside checking in one process?

`python -m benchmarks.audit` runs 2,000 cases with planted crashes, hangs and memory bombs: once undisturbed, and once
with twenty kills (SIGKILL) of the driver, of a worker, or of both at random times, with `--resume` after each. Every
case must have one row, no row may change once it is written, no case that has a row may run again, and no outcome may
differ from the undisturbed run. `python -m benchmarks.audit throughput` checks small cases alone: in one process, and
with two workers. `python -m benchmarks.audit clusters` compares two local workers with Dask and Ray, where they are
installed, in seconds and in processor seconds, which other work on the machine changes less.
`python -m benchmarks.audit memory --cases 100000` measures the driver's memory. `--cases` and `--kills` say how much is
done; the exit status is 1 if anything does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

COUNT, LOG = "GRADPROOF_AUDIT_COUNT", "GRADPROOF_AUDIT_LOG"  # environment variables that the cases are made from
PLANTED = {"crash": 0.02, "wrong": 0.05, "bomb": 0.005, "hang": 0.002}  # fractions of the cases
ROUNDS = 5
TIME, WORK = "seconds", "processor seconds"
OPTIONS = ("--memory", "500M", "--workers", "2", "--resume")


def cases() -> Iterator[Any]:
    """Return cases of every kind, the same in every run."""
    from gradproof.audit import Case

    drawn, log = random.Random(0), os.environ.get(LOG, "")
    kinds, weights = [*PLANTED, "right"], [*PLANTED.values(), 1 - sum(PLANTED.values())]
    for number in range(int(os.environ.get(COUNT, "100"))):
        kind = "right" if not log else kinds[number] if number < len(kinds) else drawn.choices(kinds, weights)[0]
        name = f"{kind} {number}"
        yield Case(name, make=partial(made, kind, name, log), options={"contracts": ()}, tags=(f"kind={kind}",))


def made(kind: str, name: str, log: str) -> tuple[Any, Any]:
    """Note that a case is run, and return its function and inputs, or end its process."""
    import torch

    if log:
        with Path(log).open("ab", buffering=0) as file:
            file.write(f"{time.time()} {name}\n".encode())
    if kind == "crash":
        os.abort()
    if kind == "hang":
        time.sleep(1e6)
    if kind == "bomb":
        kept = [torch.ones(1 << 24, dtype=torch.float64) for _ in range(10_000)]
        raise AssertionError(f"{len(kept)} tensors were allocated")
    x = torch.linspace(0.1, 1, 5, dtype=torch.float64, requires_grad=True)
    return (_half if kind == "wrong" else torch.sin), x


def _half(x: Any) -> Any:
    y = x.sin()
    return y.detach() / 2 + y / 2


@dataclass
class Kills:
    """A sweep in a process of its own, which is killed and resumed."""

    folder: Path
    count: int
    seed: int = 0
    timeout: float = 3.0
    changed: list[str] = field(default_factory=list)
    _seen: dict[str, float] = field(default_factory=dict)

    @property
    def journal(self) -> Path:
        """The file that the sweep writes."""
        return self.folder / "journal.db"

    @property
    def log(self) -> Path:
        """One line for every run of a case, with its time."""
        return self.folder / "log"

    def started(self) -> subprocess.Popen[bytes]:
        """Start the driver."""
        environment = os.environ | {COUNT: str(self.count), LOG: str(self.log), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "gradproof", "audit", "benchmarks.audit:cases", "--journal", str(self.journal)]
        return subprocess.Popen(
            [*command, *OPTIONS, "--timeout", str(self.timeout)], env=environment, stdout=subprocess.DEVNULL
        )

    def run(self, kills: int) -> None:
        """Kill the driver, a worker, or both, so many times while the sweep advances; then let it end."""
        drawn, done = random.Random(self.seed), 0
        driver = self.started()
        while done < kills:
            before = len(self.rows())
            target = before + drawn.randint(1, max(1, (self.count - before) // (2 * (kills - done))))
            while driver.poll() is None and len(self.rows()) < target:
                time.sleep(0.02)
            if driver.poll() is not None:
                break
            time.sleep(drawn.random() / 10)
            workers = descendants(driver.pid)[1:]  # the first is the server that they are forked from
            victims = drawn.choice([[driver.pid], workers[-1:], [driver.pid, *workers]])
            for victim in victims:
                kill(victim)
            done += 1
            if driver.pid in victims:
                driver.wait()
                driver = self.started()
        driver.wait()
        self.rows()
        print(f"{done} kills, exit code {driver.returncode}")

    def rows(self) -> dict[str, float]:
        """Return when each case ended, and note rows that differ from what they were."""
        try:
            with sqlite3.connect(f"{self.journal.as_uri()}?mode=ro", uri=True) as connection:
                found = dict(connection.execute("SELECT name, finished FROM result"))
        except sqlite3.OperationalError:  # not there yet
            return {}
        self.changed += [name for name, when in self._seen.items() if found.get(name) != when]
        self._seen = found
        return found

    def ran_again(self) -> list[str]:
        """Return the cases that ran after they had a row."""
        rows = self.rows()
        lines = (line.partition(" ") for line in self.log.read_text().splitlines())
        return [name for when, _, name in lines if float(when) > rows[name]]

    def outcomes(self) -> dict[str, str]:
        """Return how each case ended."""
        with sqlite3.connect(self.journal) as connection:
            return dict(connection.execute("SELECT name, outcome FROM result"))


def descendants(process: int) -> list[int]:
    """Return the processes below one, the nearest first."""
    parents: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(each.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it ended meanwhile
            continue
        parents.setdefault(parent, []).append(int(each.parent.name))
    found = [process]
    for each in found:
        found += sorted(parents.get(each, []))
    return found[1:]


def kill(process: int) -> None:
    """End a process, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def survives(count: int, kills: int, timeout: float) -> bool:
    """Compare a sweep that is killed with one that is not."""
    with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as rough:
        undisturbed, killed = (Kills(Path(folder), count, timeout=timeout) for folder in (calm, rough))
        for sweep, times in ((undisturbed, 0), (killed, kills)):
            began = time.monotonic()
            sweep.run(times)
            print(f"{len(sweep.rows()):,} rows in {time.monotonic() - began:.0f} s", Counter(sweep.outcomes().values()))
        differ = dict(undisturbed.outcomes().items() ^ killed.outcomes().items())
        again = killed.ran_again()
        print(f"rows that changed: {len(killed.changed)}; cases run again: {len(again)}; other outcomes: {differ}")
        return len(killed.rows()) == len(undisturbed.rows()) == count and not (differ or again or killed.changed)


def throughput(count: int) -> bool:
    """Compare two workers with one process that checks everything itself."""
    os.environ[COUNT] = str(count)
    from gradproof.audit import Journal, sweep
    from gradproof.audit.executors.processes import LocalProcesses
    from gradproof.audit.running import run_case

    listed, alone, both = list(cases()), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, Journal.to_write(Path(folder) / "a.db", source="mine") as journal:
        executor = LocalProcesses(workers=2, lifetime=count)
        sweep(warming(), journal, executor)
        for case in listed[:ROUNDS]:
            run_case(case)
        for number in range(ROUNDS):  # in turns, since a machine that is shared is not always as fast
            part = listed[number::ROUNDS]
            with spent(alone):
                for case in part:
                    run_case(case)
            with spent(both):
                sweep(iter(part), journal, executor)
        executor.close()
    ratios = {unit: both[unit] / alone[unit] for unit in alone}
    print(f"{count:,} cases in one process: {alone[TIME]:.1f} s, {alone[WORK]:.1f} processor s")
    print(f"with two workers: {both[TIME]:.1f} s, {both[WORK]:.1f} processor s")
    print(f"{2 * ratios[TIME]:.2f} of half the time, {ratios[WORK]:.2f} of the processor time")
    return min(2 * ratios[TIME], ratios[WORK]) <= 1.3  # no fewer seconds than half of the processor's on two cores


@contextlib.contextmanager
def spent(seconds: Counter[str]) -> Iterator[None]:
    """Add what is done to the seconds, and the processor seconds of this process and those below it."""
    began, worked = time.perf_counter(), processor_seconds()
    yield
    seconds[TIME] += time.perf_counter() - began
    seconds[WORK] += processor_seconds() - worked


def clusters(count: int) -> bool:
    """Compare two workers of this machine with two of a Dask and of a Ray cluster."""
    os.environ[COUNT] = str(count)
    from gradproof.audit import Journal, sweep
    from gradproof.audit.executors.dask import DaskCluster
    from gradproof.audit.executors.processes import LocalProcesses
    from gradproof.audit.executors.ray import RayCluster
    from gradproof.errors import InputError

    engines = {"local": LocalProcesses, "dask": partial(DaskCluster, ""), "ray": partial(RayCluster, "")}
    spent: dict[str, tuple[float, float]] = {}
    for name, engine in engines.items():
        try:
            executor: Any = engine(workers=2, lifetime=count)
        except InputError as error:
            print(f"{name}: {error}")
            continue
        with tempfile.TemporaryDirectory() as folder, Journal.to_write(Path(folder) / "a.db", source="a") as journal:
            sweep(warming(), journal, executor)
            began, worked = time.perf_counter(), processor_seconds()
            sweep(cases(), journal, executor)
            spent[name] = time.perf_counter() - began, processor_seconds() - worked
        executor.close()
        both = zip(("s", "processor s"), spent[name], spent["local"], strict=True)
        print(f"{name}: " + ", ".join(f"{mine:.1f} {unit} ({mine / local:.2f} of local)" for unit, mine, local in both))
    return all(spent[name][1] <= 1.5 * spent["local"][1] for name in spent)


def processor_seconds() -> float:
    """Return what this process and those below it have used."""
    ticks = 0
    for process in (os.getpid(), *descendants(os.getpid())):
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def warming() -> Iterator[Any]:
    """Return cases that keep two workers busy until both have started."""
    from gradproof.audit import Case

    for number in range(4):
        yield Case(f"warming {number}", make=partial(warm))


def warm() -> tuple[Any, Any]:
    time.sleep(0.5)
    return made("right", "", "")


class Immediate:
    """An executor that passes every case unseen, so that the driver alone is measured."""

    capacity = 4

    def __init__(self) -> None:
        self.names: list[str] = []

    def submit(self, name: str, pickled: bytes) -> None:
        """Take a case."""
        self.names.append(name)

    def finished(self) -> list[Any]:
        """Return all cases."""
        from gradproof.audit import Outcome, Result

        taken, self.names = self.names, []
        return [Result(name=name, outcome=Outcome.PASS) for name in taken]

    def running(self) -> list[str]:
        """Return nothing."""
        return []

    def close(self) -> None:
        """Do nothing."""


def memory(count: int) -> bool:
    """Compare what the driver holds after a thousand cases and after many."""
    import resource

    from gradproof.audit import Journal, sweep

    held = []
    for number in (1000, count):
        os.environ[COUNT] = str(number)
        with tempfile.TemporaryDirectory() as folder, Journal.to_write(Path(folder) / "a.db", source="mine") as journal:
            sweep(cases(), journal, Immediate())
        held.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(f"the driver holds {held[0]:.1f} MiB after 1,000 cases, and {held[1]:.1f} MiB after {count:,}")
    return held[1] - held[0] < 16


TABLES = {"throughput": throughput, "clusters": clusters, "memory": memory}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("table", nargs="?", choices=("kills", *TABLES), default="kills")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=3.0, help="more where others use the processor too")
    options = parser.parse_args()
    kills = partial(survives, kills=options.kills, timeout=options.timeout)
    return 0 if TABLES.get(options.table, kills)(options.cases) else 1


if __name__ == "__main__":
    sys.exit(main())
