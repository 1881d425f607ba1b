"""One wrong entry in a gradient of a thousand to ten million entries: is it found, and at its index?

A single entry of the gradient is scaled by 1.0001. The table shows, for every function and size, the verdict, whether
the worst entry of the finding is the planted one, the evaluations and pullbacks, and the time; evaluations may grow no
faster than log₂ n.
"""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

import torch
from torch import Tensor

import gradproof
from benchmarks.shapes import BUILDERS, Function


def planted(function: Function, victim: int | slice, factor: float) -> Function:
    """The same function, with one entry of its gradient scaled, or a slice of them."""

    class Planted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            with torch.enable_grad():
                ctx.leaf = x.detach().requires_grad_()
                ctx.result = function(ctx.leaf)
            return ctx.result.detach().clone()

        @staticmethod
        def backward(ctx: Any, incoming: Tensor) -> Tensor:
            (gradient,) = torch.autograd.grad(ctx.result, ctx.leaf, incoming, retain_graph=True)
            gradient = gradient.contiguous()
            gradient.view(-1)[victim] *= factor
            return gradient

    return Planted.apply


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=float, default=1e7)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'function':<12}{'entries':>12}{'verdict':>10}{'located':>9}{'evaluations':>13}{'per log2 n':>12}", end="")
    print(f"{'pullbacks':>11}{'seconds':>9}")
    missed, worst_growth = 0, 0.0
    for name, build in BUILDERS.items():
        per_log = []
        for size in (10**k for k in range(3, 8) if 10**k <= options.largest):
            torch.manual_seed(options.seed)
            function, x = build(size)
            victim = int(torch.randint(x.numel(), ()))
            report = gradproof.check(planted(function, victim, 1.0001), x, contracts=(), seed=options.seed)
            entry = report.findings[0].entries[0] if report.findings and report.findings[0].entries else None
            index = tuple(int(k) for k in torch.unravel_index(torch.tensor(victim), x.shape))
            located = entry is not None and entry.index == index
            missed += not located
            per_log.append(report.cost.evaluations / math.log2(x.numel()))
            print(
                f"{name:<12}{x.numel():>12,}{report.verdict.value:>10}{'yes' if located else 'NO':>9}"
                f"{report.cost.evaluations:>13}{per_log[-1]:>12.1f}{report.cost.pullbacks:>11}"
                f"{report.cost.seconds:>9.1f}",
                flush=True,
            )
        worst_growth = max(worst_growth, per_log[-1] / per_log[0])
    print(f"\nmissed or misplaced: {missed}; evaluations per log₂ n, largest size over smallest: ≤ {worst_growth:.2f}")
    return int(missed > 0 or worst_growth > 1.0)


if __name__ == "__main__":
    sys.exit(main())
