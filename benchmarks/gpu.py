"""Checks of large functions on a GPU: what they cost beside the function's own forward and backward.

Time and memory are medians after a warm-up, as ratios to one forward and backward of the function. Launches are the
kernels that the check launches, and waits the times that the host waits for the device. `--gradcheck` adds the ratio of
torch's gradcheck in its fast mode, which runs in double precision. `--where` prints the lines of gradproof that wait.
`--device cpu --scale 1e-4` tries the same on small inputs without a GPU, where operations are counted in the place of
kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

import gradproof
from benchmarks import device_counts
from benchmarks.memory import allocated
from benchmarks.sparse_training import graph
from gradproof.sparse import Pattern, matmul

BF16, F32, F16 = torch.bfloat16, torch.float32, torch.float16
SLOW = 2.0  # seconds: a check that takes longer is measured once
LEAST = 32  # rows or columns of the smallest inputs
Subject = tuple[Callable[..., Tensor], tuple[Tensor, ...]]


@dataclass(frozen=True)
class Setting:
    """The device, and the share of their size that inputs have."""

    device: str
    scale: float

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device == "cuda"

    def size(self, length: int, dimensions: int = 2) -> int:
        """Return a length that is scaled as one of some dimensions."""
        return max(min(LEAST, length), int(length * self.scale ** (1 / dimensions)))

    def drawn(self, *shape: int, dtype: torch.dtype = BF16) -> Tensor:
        """Return random numbers."""
        generator = torch.Generator(self.device).manual_seed(sum(shape))
        return torch.randn(*shape, device=self.device, generator=generator, dtype=dtype).requires_grad_()


@dataclass(frozen=True)
class Case:
    """A function with its inputs, made anew for every table, and the ratio of times that is asked for."""

    name: str
    make: Callable[[Setting], Subject]
    goal: float
    passes: bool = True


def elementwise(size: int, function: Callable[..., Tensor] = functional.gelu, dtype: torch.dtype = BF16) -> Any:
    return lambda on: (function, (on.drawn(on.size(size, 1), dtype=dtype),))


def softmax(on: Setting) -> Subject:
    return lambda x: x.softmax(-1), (on.drawn(on.size(4096), on.size(4096)),)


def product(dtype: torch.dtype, function: Callable[..., Tensor] = torch.matmul) -> Any:
    def make(on: Setting) -> Subject:
        n = on.size(8192)
        return function, (on.drawn(n, n, dtype=dtype), on.drawn(n, n, dtype=dtype))

    return make


def layer_norm(on: Setting) -> Subject:
    width = on.size(4096)

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, (width,), weight, bias)

    return norm, (on.drawn(on.size(65536), width), on.drawn(width), on.drawn(width))


def attention(on: Setting) -> Subject:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    shape = (4, 16, on.size(2048, 1), 64)
    return attend, (on.drawn(*shape), on.drawn(*shape), on.drawn(*shape))


def cross_entropy(on: Setting) -> Subject:
    rows, classes = on.size(8192), on.size(50257)
    target = torch.arange(rows, device=on.device) % classes
    return lambda x: functional.cross_entropy(x, target), (on.drawn(rows, classes),)


def perceptron(on: Setting) -> Subject:
    torch.manual_seed(0)
    width = on.size(2048)
    net = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).to(on.device, BF16)
    return net, (on.drawn(on.size(4096), width),)


def convolution(on: Setting) -> Subject:
    return lambda x, w: functional.conv2d(x, w, padding=1), (
        on.drawn(on.size(32, 1), 64, 112, 112, dtype=F16),
        on.drawn(64, 64, 3, 3, dtype=F16),
    )


def embedding(on: Setting) -> Subject:
    rows, width = on.size(50000), on.size(512)
    index = torch.arange(on.size(1 << 16), device=on.device) * 7919 % rows
    return lambda w: functional.embedding(index, w), (on.drawn(rows, width),)


def index_add(on: Setting) -> Subject:
    rows = on.size(1 << 18, 1)
    index = torch.arange(rows, device=on.device) * 7919 % 4096
    return lambda x: x.new_zeros(4096, 64).index_add(0, index, x), (on.drawn(rows, 64, dtype=F32),)


def scatter(on: Setting) -> Subject:
    rows, width = on.size(1 << 16), on.size(256)
    index = (torch.arange(rows * width, device=on.device) * 7919 % rows).view(rows, width)
    return lambda x: torch.zeros_like(x).scatter_add(0, index, x), (on.drawn(rows, width),)


def triton_softmax(on: Setting) -> Subject:
    from benchmarks.triton_kernels import BLOCK, normalising, softmax_backward, softmax_forward

    kernel = normalising(softmax_forward, softmax_backward, saves_output=True, limit=BLOCK, factor=1.0)
    return kernel, (on.drawn(on.size(1 << 16, 1), 200),)


def compiled(on: Setting) -> Subject:
    return torch.compile(lambda x, y: functional.silu(x) * y), (
        on.drawn(on.size(1 << 24, 1)),
        on.drawn(on.size(1 << 24, 1)),
    )


def sparse_product(on: Setting) -> Subject:
    nodes, edges = on.size(100_000, 1), on.size(1_000_000, 1)
    pattern = Pattern.from_edge_index(graph(nodes, edges, "uniform").to(on.device), nodes=nodes)
    inputs = on.drawn(pattern.entries, dtype=F32), on.drawn(nodes, 64, dtype=F32)
    return lambda values, x: matmul((pattern, values), x), inputs


class GeluWithOneWrongEntry(torch.autograd.Function):
    """GELU; one entry of its gradient is half as large again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The values."""
        ctx.save_for_backward(x)
        return functional.gelu(x)

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> Tensor:
        """The gradient, with the mistake."""
        gradient = torch.ops.aten.gelu_backward(incoming, *ctx.saved_tensors)
        gradient[gradient.shape[0] // 3] *= 1.5
        return gradient


class ProductWithAZeroedRow(torch.autograd.Function):
    """A matrix product; one row of its first gradient is zero."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """The values."""
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient, with the mistake."""
        a, b = ctx.saved_tensors
        first = incoming @ b.mT
        first[first.shape[0] // 3] = 0
        return first, a.mT @ incoming


CASES = [
    Case("gelu, 16 M", elementwise(1 << 24), 25),
    Case("matmul 8192²", product(BF16), 40),
    Case("layer norm 65536 × 4096", layer_norm, 25),
    Case("attention 4×16×2048×64", attention, 40),
    Case("cross entropy 8192 × 50257", cross_entropy, 25),
    Case("MLP 4096 × 2048 × 8192", perceptron, 40),
    Case("matmul 8192² float32", product(F32), 40),
    Case("gelu, 268 M", elementwise(1 << 28), 25),
    Case("gelu, 16 M, a wrong entry", elementwise(1 << 24, GeluWithOneWrongEntry.apply, F32), 375, passes=False),
    Case("gelu, 1e9", elementwise(1_000_000_000), 25),
    Case("softmax, 16 M", softmax, 25),
    Case("conv2d float16", convolution, 40),
    Case("embedding", embedding, 40),
    Case("index_add float32", index_add, 40),
    Case("scatter_add", scatter, 40),
    Case("softmax in Triton", triton_softmax, 40),
    Case("compiled SwiGLU, 16 M", compiled, 40),
    Case("sparse product float32", sparse_product, 40),
    Case("matmul 8192², a zeroed row", product(BF16, ProductWithAZeroedRow.apply), 600, passes=False),
]


def once(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
    """One forward and backward."""
    output = function(*inputs)
    leaves = [*inputs, *(function.parameters() if isinstance(function, nn.Module) else ())]
    torch.autograd.grad(output, leaves, torch.ones_like(output))


def timed(call: Callable[[], Any], on: Setting) -> float:
    if on.on_gpu:
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if on.on_gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def measured(call: Callable[[], Any], repeats: int, on: Setting) -> tuple[float, float]:
    """The median time in seconds and the peak of allocated memory above what was there before."""
    held = torch.cuda.memory_allocated() if on.on_gpu else 0
    if on.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    first = timed(call, on)
    times = [timed(call, on) for _ in range(repeats if first < SLOW else 0)] or [first]
    return statistics.median(times), torch.cuda.max_memory_allocated() - held if on.on_gpu else allocated(call)


def counted(call: Callable[[], Any], on: Setting) -> tuple[int, int]:
    """How many kernels are launched, and how often the host waits."""
    if not on.on_gpu:
        counts = device_counts.counted(call)
        return counts.launches, counts.waits
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
    names = Counter(event.name for event in seen.events())
    launches = sum(count for name, count in names.items() if "LaunchKernel" in name)
    waits = sum(count for name, count in names.items() if name in ("cudaStreamSynchronize", "cudaEventSynchronize"))
    return launches, waits


def gradcheck_time(function: Callable[..., Tensor], inputs: tuple[Tensor, ...], on: Setting) -> float:
    """The seconds that torch's gradcheck takes in its fast mode; NaN where it does not run."""
    if isinstance(function, nn.Module):
        return float("nan")
    doubles = tuple(each.detach().double().requires_grad_() for each in inputs)
    ask = {"fast_mode": True, "check_undefined_grad": False, "nondet_tol": float("inf"), "raise_exception": False}
    try:
        return timed(lambda: torch.autograd.gradcheck(function, doubles, **ask), on)
    except RuntimeError:
        return float("nan")


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


def row(case: Case, on: Setting, options: argparse.Namespace) -> bool:
    function, inputs = case.make(on)
    once(function, inputs)  # to start the device, or to compile
    own, memory = measured(lambda: once(function, inputs), 20, on)
    reports = []

    def check() -> None:
        reports[:] = [gradproof.check(function, inputs, contracts=(), seed=options.seed, explain=False)]

    spent, peak = measured(check, options.repeats, on)
    launches, waits = counted(check, on) if spent < SLOW else (0, 0)
    (report,) = reports
    peer = gradcheck_time(function, inputs, on) / own if options.gradcheck else float("nan")
    found = {
        "case": case.name,
        "own_ms": 1e3 * own,
        "check_ms": 1e3 * spent,
        "ratio": spent / own,
        "gradcheck_ratio": peer,
        "own_bytes": memory,
        "check_bytes": peak,
        "memory_ratio": peak / memory,
        "launches": launches,
        "waits": waits,
        "evaluations": report.cost.evaluations,
        "pullbacks": report.cost.pullbacks,
        "verdict": report.verdict.value,
        "resolution": report.resolution.relative,
        "entries": [[*entry.index] for finding in report.findings for entry in finding.entries][:3],
        "notes": report.notes,
    }
    if options.out:
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        with Path(options.out).open("a") as rows:
            rows.write(json.dumps(found) + "\n")
    print(
        f"{case.name:<28}{1e3 * own:>8.2f}{1e3 * spent:>9.1f}{spent / own:>8.1f}{case.goal:>5.0f}{peer:>8.1f}"
        f"{memory / 1e9:>7.2f}{peak / 1e9:>7.2f}{peak / memory:>6.1f}{launches:>7}{waits:>6}"
        f"{report.cost.evaluations:>5}{report.cost.pullbacks:>5}  {report.verdict.value}, "
        f"{report.resolution.relative:.0e} {found['entries'] or ''}",
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
        table = seen.key_averages().table(
            sort_by="self_cuda_time_total", row_limit=options.profile, max_name_column_width=60
        )
        print(table)
    return report.passed is case.passes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose names contain one of these, divided by semicolons")
    parser.add_argument("--skip", default="", help="cases that are left out, by parts of their names")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="the share of their size that inputs have")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after these no case is begun")
    parser.add_argument("--out", default="", help="a file to which every row is added in JSON")
    parser.add_argument("--gradcheck", action="store_true", help="time torch's gradcheck too, in its fast mode")
    parser.add_argument("--where", type=int, default=0, help="how many places that wait are shown")
    parser.add_argument("--profile", type=int, default=0, help="how many kinds of kernels are shown")
    options = parser.parse_args()
    on = Setting(options.device, options.scale)
    if on.on_gpu and not torch.cuda.is_available():
        print("This benchmark needs a GPU; --device cpu --scale 1e-4 tries it on small inputs.")
        return 0
    name = torch.cuda.get_device_name() if on.on_gpu else "processor"
    print(f"{name}, torch {torch.__version__}; times in ms, memory in GB")
    print(
        f"{'function':<28}{'own':>8}{'check':>9}{'ratio':>8}{'goal':>5}{'torch':>8}{'memory':>7}{'check':>7}{'ratio':>6}"
        f"{'launch':>7}{'waits':>6}{'eval':>5}{'pull':>5}"
    )
    passed, began = True, time.perf_counter()
    left_out = [part for part in options.skip.split(";") if part]
    wanted = options.only.split(";")
    for case in CASES:
        if not any(part in case.name for part in wanted) or any(part in case.name for part in left_out):
            continue
        if time.perf_counter() - began > options.seconds:
            print(f"{case.name:<28}not begun")
            continue
        try:
            passed &= row(case, on, options)
        except ModuleNotFoundError as error:
            print(f"{case.name:<28}needs {error.name}", flush=True)
        except Exception as error:  # a row that raises does not end the table
            passed = False
            print(f"{case.name:<28}{type(error).__name__}: {str(error)[:300]}", flush=True)
        if on.on_gpu:
            torch.cuda.empty_cache()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
