"""Sparse × dense, forward and backward, beside torch and torchsparsegradutils: how fast, and in how much memory?

Each way at each point runs in processes of its own: square matrices with ten random entries a row, single precision,
gradients of both sides asked for. The time is the median of steps after the first, by the wall clock, or with
`--clock cpu` the processor time, which is more reliable on a busy machine. A way that needs more memory than the limit
is shown as "memory". torchsparsegradutils takes part where it is installed (the extra `bench`).
Results are compared with each other, in double precision, after times and memory were taken.

The extra memory is the peak of resident memory above that before the call, measured twice, in processes of its own.
"Needed": over two steps, with an allocator that returns blocks as soon as they are freed. "Held": over ten equal steps
with the default allocator, the median of several processes. The second is shown and not judged, since it varies between
processes: glibc 2.36 cannot reuse an aligned block if small blocks beside it are in use, so that freed results may
accumulate to more than twice what is needed, or not at all. Blocks over 32 MB are always returned at once; for larger
results three steps show as much as ten.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from benchmarks.memory import SELF, status

ENTRIES = 10  # a row
WAYS = {
    "coo": ("gradproof", "torch.sparse.mm", "torchsparsegradutils"),
    "csr": ("gradproof", "torch.sparse.mm", "csr @ dense", "torchsparsegradutils"),
}
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
QUICK = 10**5 * 32  # rows times columns of the dense side
GOALS = {"coo": 3.0, "csr": 1.5}
GIVING_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # to the C library: blocks above this are of their own, and stay so
MAPPED = 1 << 25  # bytes from which the C library gives a block back at once, whatever it was told
PATIENCE = 12.0  # seconds of a process after which the same is not asked of another
NEED_STEPS, HELD_STEPS, FEW_STEPS = 2, 10, 3


def product(way: str) -> Callable[[Tensor, Tensor], Tensor]:
    if way == "gradproof":
        from gradproof.sparse import matmul

        return matmul
    if way == "torch.sparse.mm":
        return torch.sparse.mm
    if way == "csr @ dense":
        return torch.matmul
    from torchsparsegradutils import sparse_mm

    return sparse_mm


def matrix(n: int, layout: str) -> Tensor:
    """Ten entries in every row, at random, none twice."""
    generator = torch.Generator().manual_seed(n)
    col_indices = torch.randint(n - ENTRIES + 1, (n, ENTRIES), generator=generator).sort(1).values
    col_indices += torch.arange(ENTRIES)
    values = torch.randn(n * ENTRIES, generator=generator)
    crow_indices = torch.arange(0, n * ENTRIES + 1, ENTRIES)
    if layout == "csr":
        return torch.sparse_csr_tensor(crow_indices, col_indices.reshape(-1), values, (n, n), check_invariants=False)
    rows = torch.arange(n).repeat_interleave(ENTRIES)
    indices = torch.stack([rows, col_indices.reshape(-1)])
    del col_indices, rows, crow_indices
    return torch.sparse_coo_tensor(indices, values, (n, n), check_invariants=False, is_coalesced=True)


def measure(way: str, layout: str, n: int, k: int, options: argparse.Namespace) -> dict[str, float]:
    """In this process: seconds of the first step and of later ones, extra bytes, and sums to compare results by."""
    resource.setrlimit(resource.RLIMIT_AS, (int(options.limit * 2**30),) * 2)
    torch.set_num_threads(options.threads)
    clock = CLOCKS[options.clock]
    multiply = product(way)
    small = matrix(100, layout).requires_grad_()
    once = multiply(small, torch.ones(100, k, requires_grad=True))
    once.backward(torch.ones(100, k))  # what libraries load once is no memory of the product's
    del once, small
    sparse = matrix(n, layout).requires_grad_()
    dense = torch.randn(n, k, generator=torch.Generator().manual_seed(k)).requires_grad_()
    weights = torch.randn(n, k, generator=torch.Generator().manual_seed(k + 1))
    (SELF / "clear_refs").write_text("5")  # the peak starts anew
    before = status("VmRSS")
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < options.steps or (time.perf_counter() - began < options.budget and len(times) < 200):
        sparse.grad = dense.grad = result = None
        start = clock()
        result = multiply(sparse, dense)
        result.backward(weights)
        times.append(clock() - start)
        if 0 < 4 * options.budget < times[-1]:
            break
    peak = status("VmHWM") - before
    assert result is not None
    assert sparse.grad is not None
    assert dense.grad is not None
    rows, columns = _positions(n)
    on_pattern = sparse.grad[rows, columns] if sparse.grad.layout is torch.strided else _stored(sparse.grad)
    return {
        "first": times[0],
        "later": statistics.median(times[1:] or times),
        "memory": peak,
        "result": _norm(result),
        "sparse": _norm(on_pattern),
        "dense": _norm(dense.grad),
    }


def _norm(tensor: Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor.detach(), dtype=torch.float64))


def _positions(n: int) -> tuple[Tensor, Tensor]:
    sparse = matrix(n, "coo")
    return sparse.indices()[0], sparse.indices()[1]


def _stored(gradient: Tensor) -> Tensor:
    return gradient.coalesce().values() if gradient.layout is torch.sparse_coo else gradient.values()


def in_processes(way: str, layout: str, n: int, k: int, options: argparse.Namespace) -> dict[str, float] | None:
    """Memory and times, each in processes of its own, and in several where these are quick."""

    def run(times: int, **asked: Any) -> list[dict[str, float]]:
        found: list[dict[str, float]] = []
        for _ in range(times):
            began = time.perf_counter()
            one = in_a_process(way, layout, n, k, options, **asked)
            found += [] if one is None else [one]
            if time.perf_counter() - began > PATIENCE:
                break
        return found

    rounds = options.rounds if n * k <= QUICK else 1
    small = 4 * n * k < MAPPED
    needed = run(1, steps=NEED_STEPS, environment=GIVING_BACK)
    held = run(options.held_rounds if small else 1, steps=HELD_STEPS if small else FEW_STEPS) if needed else []
    timed = held if options.memory_only else run(rounds, steps=2, budget=options.budget) if held else []
    if not timed:
        return None
    measured = {name: statistics.median(one[name] for one in timed) for name in timed[0]}
    return {**measured, "memory": needed[0]["memory"], "held": statistics.median(one["memory"] for one in held)}


def in_a_process(
    way: str,
    layout: str,
    n: int,
    k: int,
    options: argparse.Namespace,
    *,
    steps: int,
    budget: float = 0.0,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, float] | None:
    """So many steps at least, and more while they take less than the budget; None where memory does not suffice."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.sparse_products", "--one", way, layout, str(n), str(k)]
    for name in ("threads", "limit", "clock"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--steps", str(steps), "--budget", str(budget)]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode == 0:
        measured: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return measured
    if "memory" in done.stderr or "Memory" in done.stderr or done.returncode < 0:
        return None
    raise RuntimeError(f"{way} on {layout} failed at n = {n}, k = {k}:\n{done.stderr}")


def agree(found: list[dict[str, float]]) -> bool:
    return all(
        math.isclose(one[name], found[0][name], rel_tol=1e-4) for one in found for name in ("result", "sparse", "dense")
    )


def shown(measured: dict[str, float] | None) -> str:
    if measured is None:
        return f"{'memory':>12}{'':>15}"
    needed, held = measured["memory"] / 2**20, measured["held"] / 2**20
    return f"{1e3 * measured['later']:>9.1f} ms{needed:>6.0f} /{held:>5.0f} MB"


def table(layout: str, options: argparse.Namespace) -> bool:
    ways = [way for way in WAYS[layout] if way != "torchsparsegradutils" or find_spec(way)]
    print(f"\n{layout.upper()}: forward + backward, and extra memory: needed / held")
    print(f"{'n':>9}{'k':>5}" + "".join(f"{way:>28}" for way in ways) + f"{'faster':>9}{'needed':>8}{'held':>7}")
    ratios, shares, wrong = [], {"memory": [], "held": []}, 0
    for n in options.sizes:
        for k in options.widths:
            found = {way: in_processes(way, layout, n, k, options) for way in ways}
            ours, others = found["gradproof"], [found[way] for way in ways[1:] if found[way] is not None]
            assert ours is not None, f"gradproof failed at n = {n}, k = {k}"
            peers = [one for one in others if one is not None]
            wrong += not agree([ours, *peers])
            line = f"{n:>9,}{k:>5}" + "".join(shown(found[way]) for way in ways)
            if peers:
                ratios.append(min(one["later"] for one in peers) / ours["later"])
                for name, found_shares in shares.items():
                    found_shares.append(ours[name] / min(one[name] for one in peers))
                line += f"{ratios[-1]:>8.2f}x{shares['memory'][-1]:>8.2f}{shares['held'][-1]:>7.2f}"
            print(line, flush=True)
    goal = GOALS[layout]
    most = {name: max(each) for name, each in shares.items()}
    print(
        f"against the best at each point: {statistics.median(ratios):.2f}x faster (median; goal {goal}x), "
        f"{min(ratios):.2f}x at the least, memory at most {most['memory']:.2f} of theirs needed, {most['held']:.2f} "
        f"held; results that differ: {wrong}"
    )
    fast = options.memory_only or (statistics.median(ratios) >= goal and min(ratios) >= 1)
    return fast and most["memory"] <= 1 and wrong == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--one", nargs=4, metavar=("WAY", "LAYOUT", "N", "K"), help="measure one way in this process")
    parser.add_argument("--layouts", nargs="+", default=["coo", "csr"], choices=list(WAYS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[10**4, 10**5, 10**6])
    parser.add_argument("--widths", nargs="+", type=int, default=[8, 32, 128])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", default="wall", choices=list(CLOCKS))
    parser.add_argument("--rounds", type=int, default=3, help="processes a way and point, where they are quick")
    parser.add_argument("--held-rounds", type=int, default=9, help="processes that tell what is held, a way and point")
    parser.add_argument("--memory-only", action="store_true", help="take times from few steps, and judge memory alone")
    parser.add_argument("--steps", type=int, default=2, help="steps at the least")
    parser.add_argument("--limit", type=float, default=18.0, help="address space of a process, in GiB")
    parser.add_argument("--budget", type=float, default=3.0, help="seconds of repetitions a way and point")
    options = parser.parse_args()
    if options.one:
        way, layout, n, k = options.one
        print(json.dumps(measure(way, layout, int(n), int(k), options)))
        return 0
    print(
        f"torch {torch.__version__}, {options.threads} threads, {options.clock} clock, {ENTRIES} entries a row, float32"
    )
    met = [table(layout, options) for layout in options.layouts]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
