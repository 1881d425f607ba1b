"""Checks of large functions on a GPU: what they cost beside the function's own forward and backward.

Time and memory are medians after a warm-up, as ratios to one forward and backward of the function. Launches are the
kernels that the check launches beyond those of the function itself, and waits the times that the host waits for the
device. `--where` prints the lines of gradproof that wait. Needs a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

import gradproof

BF16, F32, F16 = torch.bfloat16, torch.float32, torch.float16
Make = Callable[[], tuple[Callable[..., Tensor], tuple[Tensor, ...]]]


@dataclass(frozen=True)
class Case:
    """A function with its inputs, made anew for every table, and the ratio of times that is asked for."""

    name: str
    make: Make
    goal: float


def drawn(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(sum(shape))
    return torch.randn(*shape, device="cuda", generator=generator).to(dtype).requires_grad_()


def of_one(function: Callable[..., Tensor], *shape: int, dtype: torch.dtype = BF16) -> Make:
    return lambda: (function, (drawn(*shape, dtype=dtype),))


def product(n: int, dtype: torch.dtype) -> Make:
    return lambda: (torch.matmul, (drawn(n, n, dtype=dtype), drawn(n, n, dtype=dtype)))


def layer_norm() -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, (4096,), weight, bias)

    return norm, (drawn(65536, 4096), drawn(4096), drawn(4096))


def attention() -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return attend, (drawn(4, 16, 2048, 64), drawn(4, 16, 2048, 64), drawn(4, 16, 2048, 64))


def cross_entropy() -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    target = torch.arange(8192, device="cuda") % 50257
    return lambda x: functional.cross_entropy(x, target), (drawn(8192, 50257),)


def perceptron() -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 2048)).to("cuda", BF16)
    return net, (drawn(4096, 2048),)


def convolution() -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    return lambda x, w: functional.conv2d(x, w, padding=1), (
        drawn(32, 64, 112, 112, dtype=F16),
        drawn(64, 64, 3, 3, dtype=F16),
    )


def embedding() -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    index = torch.arange(1 << 16, device="cuda") * 7919 % 50000
    return lambda w: functional.embedding(index, w), (drawn(50000, 512),)


def index_add() -> tuple[Callable[..., Tensor], tuple[Tensor, ...]]:
    index = torch.arange(1 << 18, device="cuda") * 7919 % 4096
    return lambda x: torch.zeros(4096, 64, device="cuda").index_add(0, index, x), (drawn(1 << 18, 64, dtype=F32),)


CASES = [
    Case("gelu, 16 M", of_one(functional.gelu, 1 << 24), 25),
    Case("gelu, 268 M", of_one(functional.gelu, 1 << 28), 25),
    Case("softmax, 16 M", of_one(lambda x: x.softmax(-1), 4096, 4096), 25),
    Case("layer norm 65536 × 4096", layer_norm, 25),
    Case("cross entropy 8192 × 50257", cross_entropy, 25),
    Case("matmul 8192²", product(8192, BF16), 40),
    Case("matmul 8192² float32", product(8192, F32), 40),
    Case("attention 4×16×2048×64", attention, 40),
    Case("MLP 4096 × 2048 × 8192", perceptron, 40),
    Case("conv2d float16", convolution, 40),
    Case("embedding", embedding, 40),
    Case("index_add float32", index_add, 40),
    Case("gelu, 1e9", of_one(functional.gelu, 1_000_000_000), 25),
]


def once(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
    """One forward and backward."""
    output = function(*inputs)
    leaves = [*inputs, *(function.parameters() if isinstance(function, nn.Module) else ())]
    torch.autograd.grad(output, leaves, torch.ones_like(output))


def measured(call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """The median time in seconds and the peak of allocated memory above what was there before."""
    call()
    times, held = [], torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times), torch.cuda.max_memory_allocated() - held


def counted(call: Callable[[], Any]) -> tuple[int, int]:
    """How many kernels are launched, and how often the host waits."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        torch.cuda.synchronize()
    names = Counter(event.name for event in seen.events())
    launches = sum(count for name, count in names.items() if "LaunchKernel" in name)
    waits = sum(count for name, count in names.items() if name in ("cudaStreamSynchronize", "cudaEventSynchronize"))
    return launches, waits


@contextmanager
def places_of_waits() -> Iterator[Counter[str]]:
    """Count the lines of gradproof at which the host waits for the device."""
    places: Counter[str] = Counter()

    def note(message: Any, *_: Any) -> None:
        if "synchroniz" in str(message):
            frames = [each for each in traceback.extract_stack() if "/gradproof/" in each.filename]
            places[" < ".join(f"{f.filename.split('/gradproof/')[-1]}:{f.lineno}" for f in frames[:-4:-1])] += 1

    shown, warnings.showwarning = warnings.showwarning, note
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = note
            yield places
    finally:
        torch.cuda.set_sync_debug_mode("default")
        warnings.showwarning = shown


def row(case: Case, options: argparse.Namespace) -> bool:
    function, inputs = case.make()
    own, memory = measured(lambda: once(function, inputs), 20)
    reports = []

    def check() -> None:
        reports[:] = [gradproof.check(function, inputs, contracts=(), seed=options.seed, explain=False)]

    spent, peak = measured(check, options.repeats)
    launches, waits = counted(check)
    report = reports[0]
    cost = report.cost
    print(
        f"{case.name:<28}{1e3 * own:>9.2f}{1e3 * spent:>10.1f}{spent / own:>9.1f}{case.goal:>6.0f}"
        f"{memory / 1e9:>8.2f}{peak / 1e9:>8.2f}{peak / memory:>7.1f}{launches:>9}{waits:>7}"
        f"{cost.evaluations:>6}{cost.pullbacks:>5}  {report.verdict.value}, {report.resolution.relative:.0e}",
        flush=True,
    )
    if options.where:
        with places_of_waits() as places:
            check()
        for place, times in places.most_common(options.where):
            print(f"    {times:>6} × {place}")
    if options.profile:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            check()
        print(
            seen.key_averages().table(
                sort_by="self_cuda_time_total", row_limit=options.profile, max_name_column_width=60
            )
        )
    return report.passed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--skip", default="1e9,268 M", help="cases that are left out, by parts of their names")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--where", type=int, default=0, help="how many places that wait are shown")
    parser.add_argument("--profile", type=int, default=0, help="how many kinds of kernels are shown")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("This benchmark needs a GPU.")
        return 0
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; times in ms, memory in GB")
    print(
        f"{'function':<28}{'own':>9}{'check':>10}{'ratio':>9}{'goal':>6}{'memory':>8}{'check':>8}{'ratio':>7}"
        f"{'launches':>9}{'waits':>7}{'eval':>6}{'pull':>5}"
    )
    passed = True
    left_out = [part for part in options.skip.split(",") if part]
    for case in CASES:
        if options.only in case.name and not any(part in case.name for part in left_out):
            try:
                passed &= row(case, options)
            except (torch.OutOfMemoryError, MemoryError) as error:
                print(f"{case.name:<28}out of memory: {str(error)[:80]}")
            torch.cuda.empty_cache()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
