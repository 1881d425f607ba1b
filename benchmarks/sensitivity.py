"""The sensitivity of the engine's numeric constants: which verdicts change when one of them is halved or doubled?

`python -m benchmarks.sensitivity --processes 16 --out sensitivity.jsonl` checks a sample of the sweep's cases once as
they are, and once for each change of each constant; `python -m benchmarks.sensitivity table sensitivity.jsonl` prints
the table of a run, which may have been stopped. Every change has a process of its own. What is patched, and what keeps
its value, is said in `benchmarks.sensitivity_constants`.

A change has five figures:

- `fails`: right gradients that newly fail.
- `lost`: planted errors that were found, and are found no more.
- `other`: all other cases with another verdict or another reason, among them those that raise or take over 5 seconds.
- `named`: cases that fail as before, with another diagnosis or with other entries.
- `evals`: the evaluations of all cases, as a ratio to those without the change.

The sample is the same in every run. It has as many cases of each table of the sweep, right and planted, and more of the
tables with casts, rough functions and kinks (`--rough`). Cases with nothing to check and cases that take many
evaluations are replaced by others. The first change is none: it has an effect only if verdicts vary by themselves.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import multiprocessing
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.sensitivity_table import CONTROL, FIGURES, show
from benchmarks.sweep import TABLES, TimeUp, at_most, examined, line_of, listed, prepare, read, said_in
from benchmarks.sweep_diff import DECIDED, Line, Pair, lost, newly_failing

if TYPE_CHECKING:
    from benchmarks.sensitivity_constants import Constant, Value
    from benchmarks.sweep_cases import Case

HARD = ("casts", "rough", "kinks")  # tables of which `--rough` takes further cases
LIMIT = 5.0  # seconds for a case
LONGEST = 60.0  # seconds for a change: its remaining cases are left out
PATIENCE = 15.0  # seconds after which a process that does not heed the limits is ended
DEAREST = 400  # evaluations of a case of the sample; those that take more are a tenth of all, and half of the time
PART = 10  # cases that one process looks at for the sample
SPARE = 2  # times as many cases are looked at as are wanted
SHOWN = 5  # changed cases written for each change
SEED = 0


# ── the sample ───────────────────────────────────────────────────────────────────────────────────────────────────────


def strata(cases: Sequence[Case]) -> dict[tuple[str, bool], list[Case]]:
    """The cases of each table, right and planted, in a random order; without PyTorch's own errors."""
    found: dict[tuple[str, bool], list[Case]] = {}
    for case in random.Random(SEED).sample(cases, len(cases)):
        if case.planted or not case.wrong:
            found.setdefault((case.table, case.planted), []).append(case)
    return dict(sorted(found.items()))


def shared_out(total: int, room: Mapping[Any, int]) -> dict[Any, int]:
    """As many of a total to each as there is room for, evenly."""
    given = dict.fromkeys(room, 0)
    while total > 0 and (open_ones := [key for key in room if given[key] < room[key]]):
        for key in open_ones[:total]:
            given[key] += 1
        total -= len(open_ones)
    return given


def quotas(layers: Mapping[tuple[str, bool], Sequence[Case]], total: int, hard: int) -> dict[tuple[str, bool], int]:
    """How many cases of each stratum are wanted."""
    wanted = shared_out(total, {key: len(layer) for key, layer in layers.items()})
    further = shared_out(hard, {key: len(layers[key]) - wanted[key] for key in layers if key[0] in HARD})
    return {key: count + further.get(key, 0) for key, count in wanted.items()}


def observed(case: Case) -> dict[str, Any]:
    """The verdict on a case, with what is named in the place of the message."""
    try:
        with at_most(LIMIT):
            return examined(case, lambda report: {**said_in(report), "message": named_in(report)})
    except TimeUp:
        return line_of(case, "timeout", LIMIT)


def named_in(report: Any) -> str:
    """The likeliest diagnosis of every finding, and its entries."""
    return "; ".join(
        f"{next((each.name for each in finding.diagnoses), '')} {finding.argument} {[e.index for e in finding.entries]}"
        for finding in report.findings
    )


def is_usable(line: Line) -> bool:
    """Return True if a case has a verdict, and not too dear a one."""
    return line["verdict"] in DECIDED and line["evaluations"] <= DEAREST


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Change:
    """A constant and what it is changed to; no constant for none."""

    constant: Constant | None
    name: str = "none"
    to: Value | None = None

    def described(self) -> dict[str, Any]:
        """The change itself, as it is written."""
        if self.constant is None:
            return {"module": "", "name": CONTROL, "value": None, "comment": "", "change": "none", "to": None}
        constant = self.constant
        return {
            "module": constant.place,
            "name": constant.name,
            "value": constant.value,
            "comment": constant.comment,
            "kept": constant.read_at_import,
            "change": self.name,
            "to": self.to,
        }


def effect(change: Change, cases: Sequence[Case], before: Sequence[Line]) -> dict[str, Any]:
    """Patch the constant in this process, check the cases, and compare."""
    from benchmarks.sensitivity_constants import patch

    began = time.monotonic()
    if change.constant is not None and change.to is not None:
        patch(change.constant, change.to)
    pairs = []
    for case, line in zip(cases, before, strict=True):
        if time.monotonic() - began > LONGEST:
            break
        pairs.append(Pair(line, observed(case)))
    return {"cases": len(pairs), "of": len(cases), **compared(pairs), "seconds": round(time.monotonic() - began, 2)}


def compared(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The figures of a change, and some of the cases behind them."""
    changed = {kind: [pair for pair in pairs if kind_of(pair) == kind] for kind in FIGURES}
    decided = [pair for pair in pairs if pair.verdicts[1] in DECIDED]
    counts = [(pair.before["evaluations"], pair.after["evaluations"]) for pair in decided]
    return {
        **{kind: len(those) for kind, those in changed.items()},
        "evaluations": round(sum(after for _, after in counts) / max(sum(before for before, _ in counts), 1), 4),
        "recounted": sum(before != after for before, after in counts),
        "examples": [f"{kind}: {example(pair)}" for kind, those in changed.items() for pair in those[:SHOWN]],
    }


def kind_of(pair: Pair) -> str:
    """In which figure a case counts; empty where nothing changed."""
    if newly_failing(pair):
        return "fails"
    if lost(pair) and pair.verdicts[1] != "timeout":  # for which a busy machine is enough
        return "lost"
    if pair.transition:
        return "other"
    return "named" if pair.before["message"] != pair.after["message"] else ""


def example(pair: Pair) -> str:
    change = pair.transition or f"{pair.before['message']} → {pair.after['message']}"
    return f"{pair.table}: {pair.before['case']}: {change}"


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Running:
    """A job in a process of its own, and where its result comes from."""

    number: int
    process: Any
    since: float


def in_processes(
    jobs: Sequence[Callable[[], Any]], processes: int, deadline: float = math.inf
) -> Iterator[tuple[int, Any]]:
    """Fork a process for every job; yield its number and its result, which is None where the process ended without one.

    After the deadline no job begins; those under way are given some seconds, and then ended without a result.
    """
    context, running, following = multiprocessing.get_context("fork"), dict[Any, Running](), 0
    while running or (following < len(jobs) and time.monotonic() < deadline):
        while len(running) < processes and following < len(jobs) and time.monotonic() < deadline:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_send_result, args=(jobs[following], sender))
            process.start()
            sender.close()  # the process holds the only one, so that its end is seen here
            running[receiver] = Running(following, process, time.monotonic())
            following += 1
        for receiver in wait(list(running), timeout=0.2):
            job = running.pop(receiver)
            try:
                result = receiver.recv()
            except EOFError:
                result = None
            job.process.join()
            yield job.number, result
        now = time.monotonic()
        if now > deadline + PATIENCE:
            for job in running.values():
                job.process.kill()
            return
        for job in running.values():
            if now > job.since + LONGEST + LIMIT + PATIENCE:
                job.process.kill()


def _send_result(job: Callable[[], Any], sender: Any) -> None:
    sender.send(job())


# ── a run ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def sampled(options: argparse.Namespace) -> tuple[list[Case], list[Line]]:
    """The cases of the sample, and the verdicts on them without a change."""
    layers = strata(listed(TABLES))
    wanted = quotas(layers, options.cases, options.rough)
    candidates = [case for key, layer in layers.items() for case in layer[: SPARE * wanted[key]]]
    gc.freeze()  # the processes share what is there by now
    parts = [candidates[k : k + PART] for k in range(0, len(candidates), PART)]
    jobs = [lambda part=part: [(case.table, case.name, observed(case)) for case in part] for part in parts]
    lines = {
        (table, name): line
        for _, result in in_processes(jobs, options.processes)
        for table, name, line in result or ()
        if is_usable(line)
    }
    chosen = []
    for key, layer in layers.items():
        usable = [case for case in layer[: SPARE * wanted[key]] if (case.table, case.name) in lines]
        chosen += usable[: wanted[key]]
    random.Random(SEED).shuffle(chosen)  # so that those before a change is cut short are of all tables
    return chosen, [lines[case.table, case.name] for case in chosen]


def planned(only: Sequence[str]) -> list[Change]:
    """All changes of the chosen constants, in a random order of constants, after a change of none."""
    from benchmarks.sensitivity_constants import changes, constants

    found = constants()
    for text in only:
        if not any(is_meant(constant, text) for constant in found):
            raise SystemExit(f"{text} is no numeric constant of the engine: name it as in estimators.steps.RATIO")
    chosen = [constant for constant in found if not only or any(is_meant(constant, text) for text in only)]
    random.Random(SEED).shuffle(chosen)
    return [Change(None)] + [Change(each, name, to) for each in chosen for name, to in changes(each.value).items()]


def is_meant(constant: Constant, text: str) -> bool:
    """Return True if a text is the constant's name with its module, or the end of that."""
    return f".{constant}".endswith(f".{text}")


def run(options: argparse.Namespace) -> int:
    """Make every change, write what comes of it, and print the table."""
    began = time.monotonic()
    prepare()
    plan = planned(options.only)
    cases, before = sampled(options)
    took = sum(line["seconds"] for line in before)
    print(f"{len(cases)} cases, which take {took:.1f} s, after {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(plan)} changes", flush=True)
    options.out.write_bytes(b"")
    jobs = [lambda change=change: effect(change, cases, before) for change in plan]
    for number, result in in_processes(jobs, options.processes, began + options.seconds):
        line = {**plan[number].described(), **(result or {"ended": True})}
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    lines = read(options.out)
    print(f"{len(lines)} of them made in {time.monotonic() - began:.0f} s\n")
    show(lines)
    return 0


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="The sensitivity of the engine's constants; `table FILE...` shows what runs have written."
    )
    parser.add_argument("--cases", type=int, default=300, help="of all tables")
    parser.add_argument("--rough", type=int, default=100, help=f"further cases, of {', '.join(HARD)}")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="after which no further change is made")
    parser.add_argument("--only", type=lambda text: text.split(","), default=(), help="MODULE.NAME,... of the engine")
    parser.add_argument("--out", type=Path, required=True, help="the file of JSON lines, which is written anew")
    return parser.parse_args(arguments)


def main() -> int:
    if sys.argv[1:2] == ["table"]:
        parser = argparse.ArgumentParser(prog="benchmarks.sensitivity table", description="The table of some runs.")
        parser.add_argument("files", type=Path, nargs="+")
        show([line for path in parser.parse_args(sys.argv[2:]).files for line in read(path)])
        return 0
    return run(parsed(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
