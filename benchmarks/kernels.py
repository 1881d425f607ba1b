"""Kernels that compute in float32 inside: are right ones passed, and planted bugs found, in the precision they run in?

Fifteen functions, each as kernels of several kinds: one that casts, one that raises for float64, in forward or in
backward alone, one whose backward overwrites what forward saved, one that computes the gradient in forward, one that
writes it over its input, one compiled, one whose sums differ from call to call, one under autocast. Every kernel is
checked right and with bugs planted in its backward.

`python -m benchmarks.kernels --rows 8 --columns 24` prints how many right kernels pass, fail or are inconclusive, how
many of the planted bugs are found, and the median numbers of calls of a kernel and of its backward in a check.
`--device cuda` puts the tensors there; `--shard 0/12` does every twelfth case, and `--out` writes a JSON line for each.
The kind "inductor", compiled by torch's Inductor, needs a C++ compiler (on a GPU Triton) and has to be named.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import median

import numpy
import torch
from torch import Tensor
from torch.nn import functional

import gradproof

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def _weight(rows: int, columns: int, device: torch.device) -> Tensor:
    draw = torch.Generator().manual_seed(rows * 1000 + columns)
    return (torch.randn(rows, columns, generator=draw) / math.sqrt(rows)).to(device)


def _rotary(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    angle = (torch.arange(x.shape[0])[:, None] / 10.0 ** (torch.arange(half) / half)).to(x.device)
    a, b = x[:, :half], x[:, half : 2 * half]
    return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


def _cross_entropy(x: Tensor) -> Tensor:
    target = torch.arange(x.shape[0], device=x.device) % x.shape[1]
    return functional.cross_entropy(x, target, reduction="none")


def _attention(x: Tensor) -> Tensor:
    rows = x[:64]
    scores = rows @ rows.T / math.sqrt(x.shape[1])
    return torch.cat([scores.softmax(-1) @ rows, x[64:]])


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "silu": functional.silu,
    "tanh": torch.tanh,
    "squared relu": lambda x: functional.relu(x) ** 2,
    "swiglu": lambda x: functional.silu(x[:, : x.shape[1] // 2]) * x[:, x.shape[1] // 2 :],
    "softmax": lambda x: x.softmax(-1),
    "log softmax": lambda x: x.log_softmax(-1),
    "layer norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "rms norm": lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt(),
    "l2 norm": lambda x: x.norm(dim=-1),
    "cross entropy": _cross_entropy,
    "rotary": _rotary,
    "cumulative sum": lambda x: x.cumsum(-1),
    "linear": lambda x: x @ _weight(x.shape[1], 16, x.device),
    "attention": _attention,
}


def _edited(change: Callable[[Tensor], object]) -> Callable[[Tensor], Tensor]:
    def bug(gradient: Tensor) -> Tensor:
        wrong = gradient.clone()
        change(wrong)
        return wrong

    return bug


class _LoneEntry:
    """Multiplies one entry by 1.5, in every call the same one: that which is largest in the first gradient."""

    place: int | None = None

    def __call__(self, gradient: Tensor) -> Tensor:
        if self.place is None:
            self.place = int(gradient.abs().argmax())
        wrong = gradient.clone()
        wrong.view(-1)[self.place] *= 1.5
        return wrong


LONE = _LoneEntry()
BUGS: dict[str, Callable[[Tensor], Tensor]] = {
    "zero": torch.zeros_like,
    "doubled": lambda g: 2 * g,
    "sign": lambda g: -g,
    "shift": lambda g: g.roll(1, -1),
    "last column": _edited(lambda g: g[:, -1].zero_()),
    "last rows": _edited(lambda g: g[-max(1, len(g) // 8) :].zero_()),
    "a tile": _edited(lambda g: g[:4, :8].zero_()),
    "+ 10 %": lambda g: 1.1 * g,
    "missing term": lambda g: g + 0.5 * g.mean(-1, keepdim=True) + 0.1 * g.abs().mean(),
    "wrong reduction": lambda g: g / 3,
    "one entry × 1.5": LONE,
    "the largest × 1.5": _edited(lambda g: g.view(-1)[g.abs().argmax()].mul_(1.5)),
}
RIGHT = "right"
SCATTER = numpy.random.default_rng(0)


def _unsteady(like: Tensor) -> Tensor:
    """Numbers that are different in every call, whatever the state of torch's generators."""
    draw = torch.Generator(like.device).manual_seed(int(SCATTER.integers(2**31)))
    return torch.randn(like.shape, generator=draw, device=like.device)


def _gradient(function: Callable[[Tensor], Tensor], x: Tensor, incoming: Tensor, bug: str) -> Tensor:
    """The gradient in float32, with a bug planted."""
    with torch.enable_grad():
        leaf = x.detach().float().requires_grad_()
        (gradient,) = torch.autograd.grad(function(leaf), leaf, incoming.float())
    return gradient if bug == RIGHT else BUGS[bug](gradient)


def _casts(
    function: Callable[[Tensor], Tensor], bug: str, *, refuses: str = "", consumes: bool = False, scatter: float = 0
) -> Callable[[Tensor], Tensor]:
    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if refuses == "forward" and x.dtype == torch.float64:
                raise TypeError("unsupported dtype: float64")
            ctx.save_for_backward(x.clone() if consumes else x)
            value = function(x.float())
            if scatter:
                value = value * (1 + scatter * _unsteady(value))
            return value.to(x.dtype)

        @staticmethod
        def backward(ctx, incoming):
            (x,) = ctx.saved_tensors
            if refuses == "backward" and x.dtype == torch.float64:
                raise KeyError(torch.float64)
            gradient = _gradient(function, x, incoming, bug)
            if scatter:
                gradient = gradient * (1 + scatter * _unsteady(gradient))
            if consumes:
                x.data.copy_(gradient)
                return x
            return gradient.to(x.dtype)

    return Kernel.apply


def _in_forward(
    function: Callable[[Tensor], Tensor], bug: str, *, over_input: bool = False
) -> Callable[[Tensor], Tensor]:
    """A loss of which forward computes the gradient, and backward scales it in place."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            value = function(x.float())
            weights = torch.linspace(0.5, 1.5, value.numel(), device=value.device).view_as(value)
            gradient = _gradient(function, x, weights, bug).to(x.dtype)
            if over_input:
                x.data.copy_(gradient)
                gradient = x.data
            ctx.save_for_backward(gradient)
            return (value * weights).sum()

        @staticmethod
        def backward(ctx, incoming):
            (gradient,) = ctx.saved_tensors
            return gradient.mul_(incoming)

    return Kernel.apply


def _compiled(
    function: Callable[[Tensor], Tensor], bug: str, *, backend: str = "aot_eager"
) -> Callable[[Tensor], Tensor]:
    kernel = _casts(function, bug) if bug != RIGHT else lambda x: function(x.float()).to(x.dtype)
    return torch.compile(kernel, backend=backend)


def _autocast(function: Callable[[Tensor], Tensor], bug: str) -> Callable[[Tensor], Tensor]:
    kernel = _casts(function, bug)

    def called(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return kernel(x)

    return called


KINDS: dict[str, Callable[[Callable[[Tensor], Tensor], str], Callable[[Tensor], Tensor]]] = {
    "casts": _casts,
    "refuses float64": lambda f, bug: _casts(f, bug, refuses="forward"),
    "refuses it in backward": lambda f, bug: _casts(f, bug, refuses="backward"),
    "consumes its graph": lambda f, bug: _casts(f, bug, consumes=True),
    "gradient in forward": _in_forward,
    "gradient over input": lambda f, bug: _in_forward(f, bug, over_input=True),
    "compiled": _compiled,
    "atomics": lambda f, bug: _casts(f, bug, scatter=2.0**-23),
    "autocast": _autocast,
    "inductor": lambda f, bug: _compiled(f, bug, backend="inductor"),
}
USUAL = [kind for kind in KINDS if kind != "inductor"]


@dataclass(frozen=True)
class Case:
    """One kernel with one bug, or none, in one precision."""

    kind: str
    function: str
    dtype: torch.dtype
    bug: str
    rows: int
    columns: int
    device: str = "cpu"

    def checked(self) -> gradproof.Report:
        """Check the kernel at a random point."""
        kernel, x = KINDS[self.kind](FUNCTIONS[self.function], self.bug), self._point().requires_grad_()
        return gradproof.check(kernel, x, seed=zlib.crc32(self.bug.encode()) % 1000)

    def share(self) -> float:
        """The norm of the planted error over that of the gradient."""
        x = self._point()
        value = FUNCTIONS[self.function](x.float())
        right = _gradient(FUNCTIONS[self.function], x, torch.randn_like(value), RIGHT)
        return float((BUGS[self.bug](right) - right).norm() / right.norm())

    def _point(self) -> Tensor:
        torch.manual_seed(zlib.crc32(f"{self.function}{self.dtype}".encode()))
        LONE.place = None
        return torch.randn(self.rows, self.columns).to(self.device, self.dtype)


def cases(arguments: argparse.Namespace) -> Iterator[Case]:
    """All cases that were asked for."""
    for kind in arguments.kinds:
        for name in arguments.functions:
            for dtype in arguments.dtypes:
                if kind.startswith("refuses") and dtype == torch.float64:
                    continue
                for bug in arguments.bugs:
                    yield Case(kind, name, dtype, bug, arguments.rows, arguments.columns, arguments.device)


def _print(title: str, table: dict[tuple[str, str], list[gradproof.Report]]) -> None:
    print(f"\n{title:24} {'':10} {'pass':>6} {'fail':>6} {'inconclusive':>13} {'evaluations':>12} {'pullbacks':>10}")
    for (name, short), reports in table.items():
        print(f"{name:24} {short:10} {_row(reports)}")
    if table:
        print(f"{'together':24} {'':10} {_row([report for reports in table.values() for report in reports])}")


def _row(reports: list[gradproof.Report]) -> str:
    counts = Counter(report.verdict.value for report in reports)
    evaluations = median(report.cost.evaluations for report in reports)
    pullbacks = median(report.cost.pullbacks for report in reports)
    return f"{counts['pass']:6} {counts['fail']:6} {counts['inconclusive']:13} {evaluations:12.0f} {pullbacks:10.0f}"


def _found(report: gradproof.Report) -> str:
    return report.message or "; ".join(finding.message for finding in report.findings)


def main() -> int:
    """Print the tables; return 1 if a right kernel fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--columns", type=int, default=24)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=USUAL)
    parser.add_argument("--functions", type=lambda text: text.split(","), default=list(FUNCTIONS))
    parser.add_argument("--bugs", type=lambda text: text.split(","), default=[RIGHT, *BUGS])
    parser.add_argument(
        "--dtypes", type=lambda text: [getattr(torch, each) for each in text.split(",")], default=DTYPES
    )
    parser.add_argument(
        "--show", action="store_true", help="every right kernel that does not pass, every bug that is missed"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shard", default="0/1", help="i/n: every n-th case, from the i-th on")
    parser.add_argument("--out", type=argparse.FileType("w"), help="a file for a JSON line for each case")
    arguments = parser.parse_args()
    first, step = map(int, arguments.shard.split("/"))
    right: dict[tuple[str, str], list[gradproof.Report]] = defaultdict(list)
    planted: dict[tuple[str, str], list[gradproof.Report]] = defaultdict(list)
    began, done = time.perf_counter(), 0
    for case in islice(cases(arguments), first, None, step):
        started = time.perf_counter()
        report, done = case.checked(), done + 1
        verdict, short = report.verdict.value, str(case.dtype).removeprefix("torch.")
        table, name = (right, case.kind) if case.bug == RIGHT else (planted, case.bug)
        table[name, short].append(report)
        if arguments.out:
            line = {
                **asdict(case),
                "dtype": short,
                "verdict": verdict,
                "seconds": round(time.perf_counter() - started, 3),
                "evaluations": report.cost.evaluations,
                "pullbacks": report.cost.pullbacks,
                "resolution": report.resolution.relative,
                "message": _found(report),
            }
            print(json.dumps(line), file=arguments.out, flush=True)
        if arguments.show and (verdict != "pass") == (case.bug == RIGHT):
            print(f"{case.kind}: {case.function} {short}, {case.bug}: {verdict} {_found(report)}"[:300])
    _print("right kernels", right)
    _print("planted bugs", planted)
    print(f"\n{done} checks in {time.perf_counter() - began:.0f} s")
    return int(any(report.verdict is gradproof.Verdict.FAIL for reports in right.values() for report in reports))


if __name__ == "__main__":
    sys.exit(main())
