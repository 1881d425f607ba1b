"""Right kernels and kernels with one wrong entry, beside their references: `gradproof.compare`, and what is usual.

The right kernels are other algorithms for the same function (see `compare_kernels`), in float32, float16 and bfloat16.
A wrong kernel has one entry, of its value or of its gradient, that is 16 units in the last place off. The entry is
drawn among those that can show it: where inputs that move by a unit in the last place, and the rounding of the plain
reference, change the entry by at most one unit, as root mean squares.

Beside it: `torch.testing.assert_close` of kernel and plain reference with its defaults, and FlashAttention's rule, by
which the largest error of the kernel is at most twice that of the plain reference (gradients: three times). The exit
status is 1 if gradproof calls a right kernel wrong, or finds less than 99 % of the wrong entries.

    python -m benchmarks.compare [draws of each kernel and dtype] [wrong entries of each] [first seed]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import gradproof
from benchmarks.compare_kernels import PAIRS, Pair, drawing
from gradproof.frameworks.torch.comparison.perturbation import incoming_like, moved

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
OFF = 16  # units in the last place
SAMPLES = 8  # points at which the conditioning of entries is measured


@dataclass(slots=True)
class Row:
    """What each of three checks says about the same kernels: how often it fails a right one, or finds a wrong entry."""

    cases: int = 0
    said: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("gradproof", "assert_close", "flash"), 0))

    def add(self, failed: dict[str, bool]) -> None:
        """Count one case."""
        self.cases += 1
        for name, fail in failed.items():
            self.said[name] += fail

    def text(self) -> str:
        """Return the counts as columns."""
        return f"{self.cases:>7}" + "".join(f"{count:>14}" for count in self.said.values())


class Nudged(torch.autograd.Function):
    """The identity, with one entry of its gradient some units in the last place off."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: int) -> Tensor:
        """Copy the tensor."""
        ctx.place = place
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Move one entry."""
        return nudged(gradient, ctx.place), None


def spacing(values: Tensor) -> Tensor:
    """Return the unit in the last place of each value."""
    _, exponent = torch.frexp(values.double())
    return torch.finfo(values.dtype).eps * torch.exp2(exponent.double() - 1)


def nudged(values: Tensor, place: int) -> Tensor:
    """Return the values with one entry moved away from zero."""
    flat = values.reshape(-1).clone()
    entry = flat[place].detach()
    flat[place] = flat[place] + (OFF * torch.sign(entry.double()) * spacing(entry)).to(values.dtype)
    return flat.reshape(values.shape)


def results(function: Any, inputs: Sequence[Any], incoming: Tensor | None) -> list[Tensor]:
    """Return the value of a function, and its gradients for one incoming gradient."""
    leaves = [each.detach().requires_grad_(each.requires_grad) for each in inputs]
    value = function(*leaves)
    if incoming is None:
        return [value.detach()]
    chosen = [leaf for leaf in leaves if leaf.requires_grad]
    return [value.detach(), *torch.autograd.grad(value, chosen, incoming.to(value.dtype))]


def doubled(inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the inputs in double precision."""
    return [
        each.detach().double().requires_grad_(each.requires_grad) if each.is_floating_point() else each
        for each in inputs
    ]


def conditioning(pair: Pair, inputs: Sequence[Tensor], incoming: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Return the exact results, and how far a unit in the last place and plain rounding change each entry."""
    exact = results(pair.reference, doubled(inputs), incoming)
    scatter, rounding = ([torch.zeros_like(each) for each in exact] for _ in range(2))
    for number in range(2 * SAMPLES):  # half of them farther away, where intermediate numbers are rounded afresh
        beside = moved([*inputs, incoming], 10_007 * number + 5, far=number >= SAMPLES)
        point = [tensor.requires_grad_(each.requires_grad) for tensor, each in zip(beside[:-1], inputs, strict=True)]
        there = results(pair.reference, doubled(point), beside[-1])
        plain = results(pair.reference, point, beside[-1])
        for k, each in enumerate(exact):
            scatter[k] += (there[k] - each).square() / SAMPLES if number < SAMPLES else 0
            rounding[k] += (plain[k] - there[k]).square() / (2 * SAMPLES)
    return exact, [torch.maximum(a, b).sqrt() for a, b in zip(scatter, rounding, strict=True)]


def usual(pair: Pair, kernel: Any, inputs: Sequence[Tensor], incoming: Tensor) -> dict[str, bool]:
    """Return what assert_close and FlashAttention's rule say: True if the kernel fails."""
    exact, plain = results(pair.reference, doubled(inputs), incoming), results(pair.reference, inputs, incoming)
    own = results(kernel, inputs, incoming)
    flash = any(
        float((mine - right).abs().max()) > (2 if number == 0 else 3) * float((theirs - right).abs().max())
        for number, (mine, theirs, right) in enumerate(zip(own, plain, exact, strict=True))
    )
    try:
        torch.testing.assert_close(own, plain)
    except AssertionError:
        return {"assert_close": True, "flash": flash}
    return {"assert_close": False, "flash": flash}


def right(pair: Pair, dtype: torch.dtype, seed: int, row: Row) -> None:
    """Compare a right kernel."""
    torch.manual_seed(seed)
    inputs = pair.inputs(drawing(dtype))
    report = gradproof.compare(pair.kernel, pair.reference, inputs, seed=seed)
    incoming = incoming_like(results(pair.kernel, inputs, None)[0], seed)
    row.add({"gradproof": not report.passed} | usual(pair, pair.kernel, inputs, incoming))


@dataclass(frozen=True, slots=True)
class WrongKernel:
    """A kernel with one wrong entry, and the path of the tensor that it is in."""

    kernel: Any
    path: str


def with_wrong_entry(
    pair: Pair, dtype: torch.dtype, seed: int, inputs: Sequence[Tensor], incoming: Tensor
) -> WrongKernel | None:
    """Return the kernel with one wrong entry, in its value or in one of its gradients; None if no entry can show it."""
    exact, changes = conditioning(pair, inputs, incoming)
    part = seed % len(exact)
    unit = spacing(exact[part].to(dtype))
    normal = exact[part].abs() > 64 * torch.finfo(dtype).smallest_normal
    places = ((changes[part] <= unit) & normal).reshape(-1).nonzero().reshape(-1)
    if not len(places):
        return None
    place = int(places[torch.randint(len(places), ())])
    varied = [number for number, each in enumerate(inputs) if each.requires_grad]

    def kernel(*given: Tensor) -> Tensor:
        if part == 0:
            return nudged(pair.kernel(*given), place)
        moving = varied[part - 1]
        return pair.kernel(*(Nudged.apply(x, place) if k == moving else x for k, x in enumerate(given)))

    return WrongKernel(kernel, "output" if part == 0 else f"inputs[{varied[part - 1]}]")


def wrong(pair: Pair, dtype: torch.dtype, seed: int, row: Row) -> None:
    """Compare a kernel with one wrong entry; skip if no entry can show it."""
    torch.manual_seed(seed)
    inputs = pair.inputs(drawing(dtype))
    incoming = incoming_like(results(pair.kernel, inputs, None)[0], seed)
    planted = with_wrong_entry(pair, dtype, seed, inputs, incoming)
    if planted is None:
        return
    report = gradproof.compare(planted.kernel, pair.reference, inputs, seed=seed)
    found = any(finding.argument == planted.path for finding in report.findings)
    row.add({"gradproof": found} | usual(pair, planted.kernel, inputs, incoming))


def main(draws: int, planted: int, first: int = 0) -> int:
    """Print both tables, and return the exit status."""
    began, rows = time.perf_counter(), {}
    for title, what, count in (("right kernels called wrong", right, draws), ("wrong entries found", wrong, planted)):
        print(f"\n{title:<30}{'cases':>7}{'gradproof':>14}{'assert_close':>14}{'FlashAttention':>16}", flush=True)
        rows[title] = {dtype: Row() for dtype in DTYPES}
        for pair in PAIRS:
            whole = Row()
            for dtype in DTYPES:
                mine = Row()
                for seed in range(first, first + count):
                    what(pair, dtype, seed, mine)
                for row in (whole, rows[title][dtype]):
                    row.cases += mine.cases
                    row.said = {name: row.said[name] + mine.said[name] for name in row.said}
            print(f"{pair.name:<30}{whole.text()}", flush=True)
        for dtype, row in rows[title].items():
            print(f"{'all, ' + str(dtype).removeprefix('torch.'):<30}{row.text()}")
    alarms, found = rows.values()
    shown = sum(row.said["gradproof"] for row in found.values()) / max(1, sum(row.cases for row in found.values()))
    false = sum(row.said["gradproof"] for row in alarms.values())
    print(f"\nfalse alarms: {false}; found: {shown:.2%}; {time.perf_counter() - began:.0f} s")
    return int(bool(false) or shown < 0.99 or not math.isfinite(shown))


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:]] or [140, 20]
    sys.exit(main(*numbers))
