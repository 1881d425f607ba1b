"""The contracts of memory and streams on real Triton kernels: right ones keep all, and each planted bug breaks its own.

`python -m benchmarks.triton_contracts` needs Triton and a GPU, or Triton's interpreter (`TRITON_INTERPRET=1`), in which
blocks run one after the other on no stream: atomic additions, races and streams are left out there. It returns 1 if a
right kernel breaks a contract, or a bug not its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

import gradproof

ROWS, COLUMNS, BLOCK = 64, 40, 64  # allocators round 40 entries up, so that one more may be written
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@triton.jit
def smooth(x, y, count, begin, loaded, stored, shift, block: tl.constexpr):
    """Compute y[i] = x[i] + x[i + shift] / 2; the second is zero outside of begin ≤ i + shift < loaded."""
    at = tl.program_id(0) * block + tl.arange(0, block)
    value = tl.load(x + at, at < count, 0.0).to(tl.float32)
    beside = tl.load(x + at + shift, (at + shift >= begin) & (at + shift < loaded) & (at < count), 0.0).to(tl.float32)
    tl.store(y + at, value + 0.5 * beside, at < stored)


@triton.jit
def add_up(x, total, columns, atomic: tl.constexpr, block: tl.constexpr):
    """Add one row of x to the total."""
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32)
    if atomic:
        tl.atomic_add(total + at, value, at < columns)
    else:
        before = tl.load(total + at, at < columns, 0.0)
        tl.store(total + at, before + value, at < columns)


@dataclass(frozen=True)
class Bug:
    """What is wrong, the contract that it breaks, and how the kernel is launched."""

    name: str
    contract: str
    read: int = 0  # entries too many that the forward reads beyond the end
    read_before: int = 0  # entries too many that the backward reads before the beginning
    write: int = 0  # entries too many that the forward writes; negative: that it leaves out
    write_back: int = 0  # the same of the backward
    from_storage: bool = False  # the kernel starts where the storage does
    on_default: bool = False  # the forward is launched on the default stream
    races: bool = False  # sums are added up without atomics


RIGHT = Bug("right", "")
BUGS = [
    Bug("reads beyond its input", "bounds", read=1),
    Bug("reads before its incoming gradient", "bounds", read_before=1),
    Bug("writes beyond its output", "bounds", write=1),
    Bug("writes beyond its gradient", "bounds", write_back=1),
    Bug("leaves the last entry of its output", "initialised", write=-1),
    Bug("leaves the last entry of its gradient", "initialised", write_back=-1),
    Bug("starts at the storage", "alignment", from_storage=True),
]
ON_A_GPU = [Bug("runs on the default stream", "streams", on_default=True), Bug("races", "repeatable", races=True)]


def smoothing(bug: Bug) -> Callable[[Tensor], Tensor]:
    def launched(x: Tensor, begin: int, loaded: int, stored: int, shift: int) -> Tensor:
        y, count = torch.empty_like(x), x.numel()
        source = x.as_strided((count,), (1,), 0) if bug.from_storage else x
        grid = (triton.cdiv(count, BLOCK),)
        smooth[grid](source, y, count, begin, count + loaded, count + stored, shift, block=BLOCK)
        return y

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            stream = torch.cuda.stream(torch.cuda.default_stream()) if bug.on_default else nullcontext()
            with stream:
                return launched(x.contiguous(), 0, bug.read, bug.write, 1)

        @staticmethod
        def backward(ctx, incoming):
            return launched(incoming.contiguous(), -bug.read_before, 0, bug.write_back, -1)

    return Kernel.apply


def spreading(bug: Bug) -> Callable[[Tensor], Tensor]:
    """A row that is repeated, whose backward adds up the rows of the incoming gradient."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.expand(ROWS, COLUMNS) * 1

        @staticmethod
        def backward(ctx, incoming):
            total = torch.zeros(COLUMNS, device=incoming.device, dtype=torch.float32)
            add_up[(ROWS,)](incoming.contiguous(), total, COLUMNS, atomic=not bug.races, block=BLOCK)
            return total.to(incoming.dtype)

    return Kernel.apply


def shown(bug: Bug, make: Callable[[Bug], Callable[[Tensor], Tensor]], dtype: torch.dtype) -> int:
    """Print a line, and return one if the verdict is wrong."""
    torch.manual_seed(0)
    x = torch.randn(COLUMNS, device=DEVICE).to(dtype).requires_grad_()
    began = time.perf_counter()
    report = gradproof.check(make(bug), x, contracts="kernel", seed=0)
    kinds = sorted({finding.kind for finding in report.findings})
    wrong = bug.contract not in kinds if bug.contract else not report.passed
    found = next((each.message for each in report.findings if each.kind == bug.contract), report.message)
    seconds = time.perf_counter() - began
    name = f"{make.__name__}, {bug.name}"
    print(f"{name:52} {str(dtype)[6:]:9} {report.verdict.value:13} {seconds:5.2f} s {'WRONG' * wrong} {kinds} {found}")
    sys.stdout.flush()
    return int(wrong)


def main() -> int:
    """Print the table."""
    cases = [(RIGHT, smoothing), *((bug, smoothing) for bug in BUGS)]
    if GPU and not INTERPRETED:
        cases += [(RIGHT, spreading), *((bug, spreading if bug.races else smoothing) for bug in ON_A_GPU)]
    wrong = sum(shown(*case, dtype) for case in cases for dtype in (torch.float32, torch.float16, torch.bfloat16))
    print(f"\n{wrong} wrong verdicts of {3 * len(cases)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
