"""Sparse matrices of a thousand to a million rows, ten entries in each: what does a check take?

Beside torch's fast and slow mode and `torch.sparse.as_sparse_gradcheck` (slow mode), each in a process of its own, with
one thread, torch's within 8 GB of address space. Torch's checks refuse sparse outputs and are given dense ones.

`s` is processor time, the least of some repetitions, so that a busy machine disturbs it little. `own s` is what the
function's own calls take of it, counted and timed by themselves. `memory` is the most that a check takes (see
`benchmarks.memory`), as a multiple of the matrix's own indices and values; `own` is that of one forward and as many
backwards as the check makes, since torch does not give everything back (the sum of two CSR matrices keeps 0.74 of the
input's memory each time). For the time, the C library is told to give tensors of more than 1 MB pages of their own and
to take them back at once: by itself it does so from 32 MB on, which makes larger matrices look slower by the entry.

`--planted 3` holds a tensor of three times the matrix's memory throughout every check of gradproof's: all its figures
must be larger by three, at every size, or the measure hides something.

The exit status is 1 where a check of gradproof's does not pass; where, at any size, it takes more than six times the
matrix's memory beyond the function's own (where it takes more with it, that is said); where its time grows by a fifth
more than the entries over the last tenfold; or where it is slower at a thousand rows than the fastest of torch's.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from unittest import mock

import torch
from torch import Tensor

import gradproof
from benchmarks.memory import pages_of_their_own, peaks, status
from benchmarks.sparse_subjects import KINDS, PER_ROW, bytes_of, matrix_of

LIMIT = 8 << 30
SECONDS, PEER_SECONDS = 600, 60
PAGES = 1 << 20  # bytes from which on a tensor has pages of its own; see above
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(PAGES), "OMP_NUM_THREADS": "1"}
VISIBLE = 0.2  # seconds
MEMORY, GROWTH = 6.0, 1.2
OWN = ("gradproof", "gradproof, no contracts")
PEERS = ("torch fast", "torch slow", "torch as_sparse")


@dataclass(frozen=True)
class Case:
    """One run."""

    kind: str
    layout: str
    masked: bool
    size: int
    tool: str


@dataclass(frozen=True)
class Measured:
    """What a run took; `said` is the verdict, or why there is none."""

    said: str
    seconds: float = 0.0
    own_seconds: float = 0.0
    memory: float = 0.0
    own_memory: float = 0.0


def measured(case: Case, repetitions: int, more: float) -> Measured:
    """The run itself, in this process."""
    torch.set_num_threads(1)
    matrix = matrix_of(case.size, case.layout)
    small = matrix_of(20, case.layout)
    forward_and_backward(case, small, 1)  # loads what it needs of torch
    run(case, small)
    if case.tool in PEERS:  # of the others the memory is judged, after repetitions that add up what torch leaks
        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + LIMIT,) * 2)
    said, evaluations, pullbacks = "", 0, 0

    def once() -> None:
        nonlocal said, evaluations, pullbacks
        limited(case)
        with planted(more * bytes_of(matrix)):
            said, evaluations, pullbacks = run(case, matrix)

    with pages_of_their_own(PAGES):
        memory, own_memory = peaks(once, lambda: forward_and_backward(case, matrix, max(1, pullbacks)))
    limited(case)
    spent = [timed(lambda: run(case, matrix)) for _ in range(repetitions)]
    size = bytes_of(matrix)
    own = own_seconds(case, matrix, evaluations, pullbacks)
    return Measured(said, min(spent), own, memory / size, own_memory / size)


def limited(case: Case) -> None:
    """Grant this process some processor time from now on."""
    limit = int(time.process_time()) + (SECONDS if case.tool in OWN else PEER_SECONDS)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


@contextlib.contextmanager
def planted(size: float) -> Iterator[None]:
    """Where so many bytes more are held."""
    buffer = torch.ones(int(size), dtype=torch.int8)
    yield
    del buffer


def run(case: Case, matrix: Tensor) -> tuple[str, int, int]:
    """What one tool says, and how often it called the function and its backward, where that is known."""
    kind = KINDS[case.kind]
    try:
        if case.tool in OWN:
            contracts = None if case.tool == "gradproof" else ()
            report = gradproof.check(kind.function, matrix, masked=case.masked, contracts=contracts, seed=0)
            return report.verdict.value, report.cost.evaluations, report.cost.pullbacks
        return ("pass" if torch_says(case, matrix) else "fail"), 0, 0
    except (RuntimeError, MemoryError) as error:
        text = str(error).split("\n")[0]
        return ("out of memory" if "allocate" in text or not text else f"refuses: {text}"), 0, 0


def torch_says(case: Case, matrix: Tensor) -> bool:
    """One of torch's checks; where the fast mode fails it runs the slow one for its message, which is left out."""
    kind = KINDS[case.kind]

    def function(matrix: Tensor) -> Tensor:
        result = kind.function(matrix)
        return result.to_dense(masked_grad=case.masked) if kind.sparse_output else result

    check = torch.autograd.gradcheck
    if case.tool == "torch as_sparse":
        check = torch.sparse.as_sparse_gradcheck(check)
    module = importlib.import_module("torch.autograd.gradcheck")
    with mock.patch.object(module, "_run_slow_mode_and_get_error", return_value=""):
        fast = case.tool == "torch fast"
        return bool(check(function, (matrix,), masked=case.masked, fast_mode=fast, raise_exception=False))


def forward_and_backward(case: Case, matrix: Tensor, times: int) -> None:
    result = KINDS[case.kind].function(matrix)
    incoming = result.detach()
    for _ in range(times):
        torch.autograd.grad(result, matrix, incoming, retain_graph=True)


def own_seconds(case: Case, matrix: Tensor, evaluations: int, pullbacks: int) -> float:
    """What so many calls take by themselves: each the least of three."""
    function = KINDS[case.kind].function
    still = matrix.detach()
    result = function(matrix)
    incoming = result.detach()
    forward = min(timed(lambda: function(still)) for _ in range(3))
    backward = min(timed(lambda: torch.autograd.grad(result, matrix, incoming, retain_graph=True)) for _ in range(3))
    return evaluations * forward + pullbacks * backward


def timed(call: Callable[[], object]) -> float:
    """Processor time of one call, the mean of as many as it takes to see some on a coarse clock."""
    began, calls = time.process_time(), 0
    while True:
        call()
        calls += 1
        spent = time.process_time() - began
        if spent >= VISIBLE:
            return spent / calls


def apart(case: Case, repetitions: int, more: float) -> Measured:
    """The run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.sparse_scale", "--worker", json.dumps(asdict(case))]
    command += ["--repetitions", str(repetitions), "--planted", str(more if case.tool in OWN else 0.0)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | ALLOCATION)
    if done.returncode == 0:
        return Measured(**json.loads(done.stdout.splitlines()[-1]))
    if done.returncode in (-9, -24):  # the kernel's answer to too much processor time
        return Measured(f"not done after {SECONDS if case.tool in OWN else PEER_SECONDS} s")
    lines = done.stderr.strip().splitlines()
    return Measured(f"ended with {done.returncode}: {lines[-1] if lines else ''}")


class Table:
    """Runs cases, prints a line for each, and keeps what fell short."""

    def __init__(self, tools: Sequence[str], repetitions: int, more: float) -> None:
        self.tools, self.repetitions, self.more = tools, repetitions, more
        self.found: dict[Case, Measured] = {}
        self.short: list[str] = []
        print(f"{'function':<10}{'layout':<8}{'masked':<8}{'rows':>9}  {'check':<25}{'s':>9}{'own s':>9}", end="")
        print(f"{'ns/entry':>10}{'less own':>10}{'memory':>9}{'own':>7}  said")

    def add(self, case: Case) -> Measured:
        """Run a case, and print its line."""
        result = self.found[case] = apart(case, self.repetitions, self.more)
        entries = PER_ROW * case.size
        line = f"{case.kind:<10}{case.layout:<8}{'yes' if case.masked else 'no':<8}{case.size:>9,}  {case.tool:<25}"
        if result.said in ("pass", "fail", "inconclusive"):
            spent, less = 1e9 * result.seconds / entries, 1e9 * (result.seconds - result.own_seconds) / entries
            own = case.tool in OWN
            line += f"{result.seconds:>9.3f}" + (f"{result.own_seconds:>9.3f}" if own else f"{'':>9}")
            line += f"{spent:>10.0f}" + (f"{less:>10.0f}" if own else f"{'':>10}")
            line += f"{result.memory:>8.1f}x{result.own_memory:>6.1f}x  {result.said}"
        else:
            line += f"{'':>54}  {result.said[:110]}"
        print(line, flush=True)
        return result

    def judge(self, group: tuple[str, str, bool], sizes: list[int]) -> None:
        """Whether gradproof keeps what it says, for one function, layout and semantics."""
        for tool in OWN:
            runs = [self.found[Case(*group, size, tool)] for size in sizes]
            name = f"{group[0]} {group[1]} masked={group[2]} {tool}"
            for size, run in zip(sizes, runs, strict=True):
                self._holds(f"{name}, {size:,} rows", run)
            if len(runs) > 1:
                self._grows(name, runs[-2], runs[-1], sizes[-1] / sizes[-2])
            peers = [self.found[Case(*group, sizes[0], peer)] for peer in self.tools if peer in PEERS]
            seconds = [peer.seconds for peer in peers if peer.said in ("pass", "fail")]
            if seconds and runs[0].seconds > min(seconds):
                self.short.append(f"{name}: {runs[0].seconds:.3f} s at {sizes[0]:,} rows, torch {min(seconds):.3f} s")

    def _holds(self, name: str, run: Measured) -> None:
        if run.said != "pass":
            self.short.append(f"{name}: {run.said}")
        elif run.memory > MEMORY + run.own_memory:
            self.short.append(f"{name}: {run.memory:.1f} times the matrix's memory, own {run.own_memory:.1f}")
        elif run.memory > MEMORY:
            print(f"    {name}: {run.memory:.1f} times the memory, {run.own_memory:.1f} of them the function's own")

    def _grows(self, name: str, smaller: Measured, larger: Measured, factor: float) -> None:
        whole = larger.seconds / max(1e-9, smaller.seconds) / factor
        less = (larger.seconds - larger.own_seconds) / max(1e-9, smaller.seconds - smaller.own_seconds) / factor
        print(f"    {name}: time per entry, largest over next: {whole:.2f}, less the function's own: {less:.2f}")
        if less > GROWTH:
            self.short.append(f"{name}: time per entry grows by {less:.2f}")


def fill(table: Table, group: tuple[str, str, bool], sizes: list[int]) -> None:
    stopped: set[str] = set()
    for size in sizes:
        for tool in table.tools:
            if tool in stopped:
                continue
            result = table.add(Case(*group, size, tool))
            if tool in PEERS and result.said not in ("pass", "fail"):
                stopped.add(tool)  # what does not go at this size does not go at the next
    table.judge(group, sizes)


def main() -> int:
    parser = argparse.ArgumentParser(description="What a check of sparse matrices takes.")
    parser.add_argument("--largest", type=float, default=1e6)
    parser.add_argument("--function", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--layout", nargs="+", choices=("COO", "CSR"), default=["COO", "CSR"])
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="without torch's checks, which take most of the time")
    parser.add_argument("--planted", type=float, default=0.0, help="more memory than there is, to test the measure")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        case = Case(**json.loads(options.worker))
        print(json.dumps(asdict(measured(case, options.repetitions, options.planted))))
        return 0
    table = Table(OWN if options.alone else (*OWN, *PEERS), options.repetitions, options.planted)
    sizes = [10**k for k in range(3, 7) if 10**k <= options.largest]
    for kind in options.function:
        for layout in options.layout:
            for masked in (True,) if KINDS[kind].only_masked else (True, False):
                fill(table, (kind, layout, masked), sizes)
    print(f"\nfell short: {len(table.short)}")
    for line in table.short:
        print(f"  {line}")
    return int(bool(table.short))


if __name__ == "__main__":
    sys.exit(main())
