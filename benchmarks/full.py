"""Full coverage beside torch's slow mode: every entry of the Jacobian, the same samples, in one run.

First the operator database, one line for each operator that is slower than 0.8 × or on which the verdicts differ; then
larger functions, of 300 to 3,000 inputs. An operator's samples are taken in their order, all of them unless they take
longer than `--seconds`. A speed-up is torch's time over gradproof's, each the least of several rounds taken in turns.
The exit status is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

import gradproof
from benchmarks.independent import size_of
from benchmarks.operators import scenarios

WANTED_MEAN = 8.0
SLOWEST = 0.8
LARGE = 100  # inputs from which on the mean is taken
MOST = 3_000  # inputs of an operator's sample
ALL = 10**6  # samples: more than any operator has


@dataclass
class Line:
    """What was measured of one operator."""

    ours: float = 0.0
    torchs: float = 0.0
    entries: int = 0
    verdicts: list[tuple[str, str]] = field(default_factory=list)

    @property
    def speed_up(self) -> float:
        """Torch's time over ours."""
        return self.torchs / self.ours

    @property
    def differ(self) -> list[tuple[str, str]]:
        """The verdicts that are not the same."""
        return [pair for pair in self.verdicts if pair[0] != pair[1]]


def least(action: Callable[[], Any], other: Callable[[], Any], rounds: int) -> tuple[Any, Any, float, float]:
    """The answers of two actions, and the least time of each over rounds in turns."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        mine = action()
        middle = time.perf_counter()
        theirs = other()
        times.append((middle - began, time.perf_counter() - middle))
    return mine, theirs, min(a for a, _ in times), min(b for _, b in times)


def measure(line: Line, function: Callable[..., Any], inputs: Any, nondet_tol: float, rounds: int) -> None:
    def torchs() -> str:
        try:
            passed = torch.autograd.gradcheck(function, inputs, raise_exception=False, nondet_tol=nondet_tol)
        except Exception:  # torch's own check lets some errors out, whatever is asked
            return "raised"
        return "pass" if passed else "fail"

    def ours() -> str:
        report = gradproof.check(function, inputs, coverage="full", contracts=(), modes="reverse", seed=0)
        return report.verdict.value

    mine, theirs, fast, slow = least(ours, torchs, rounds)
    if theirs != "raised":
        line.ours += fast
        line.torchs += slow
    line.entries = max(line.entries, size_of(inputs if isinstance(inputs, tuple) else (inputs,)))
    line.verdicts.append((mine, theirs))


def larger() -> Iterator[tuple[str, Callable[..., Any], tuple[torch.Tensor, ...]]]:
    def point(*shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64).requires_grad_()

    torch.manual_seed(0)
    for n in (300, 1000, 3000):
        side = math.isqrt(n)
        yield f"softmax {n}", lambda x: torch.softmax(x, -1), (point(n // 50, 50),)
        yield f"layer norm {n}", lambda x: functional.layer_norm(x, x.shape[-1:]), (point(n // 50, 50),)
        yield f"matmul {n}", torch.matmul, (point(side // 2, side), point(side, side // 2))
        yield f"cumsum {n}", lambda x: x.cumsum(0), (point(n),)
        yield (
            f"conv {n}",
            lambda x, w: functional.conv2d(x, w, padding=1),
            (point(1, 2, side // 2, side // 2), point(4, 2, 3, 3)),
        )
        yield (
            f"attention {n}",
            functional.scaled_dot_product_attention,
            tuple(point(1, n // 48, 16) for _ in range(3)),
        )
        square = (torch.randn(side, side, dtype=torch.float64) + side * torch.eye(side)).requires_grad_()
        yield f"inverse {n}", torch.linalg.inv, (square,)
        yield f"svdvals {n}", torch.linalg.svdvals, (point(side, side),)


def show(name: str, line: Line) -> None:
    print(
        f"{name:<44}{line.entries:>8,}{line.ours * 1e3:>13.2f}{line.torchs * 1e3:>11.2f}{line.speed_up:>10.2f}  "
        + ", ".join(f"gradproof {mine}, torch {theirs}" for mine, theirs in dict.fromkeys(line.differ)),
        flush=True,
    )


def mean(lines: list[Line]) -> float:
    return math.exp(sum(math.log(line.speed_up) for line in lines) / len(lines)) if lines else math.nan


def operators(samples: int, seconds: float, rounds: int, pattern: str) -> dict[str, Line]:
    lines: dict[str, Line] = defaultdict(Line)
    for dtype in (torch.float64, torch.complex128):
        for scenario in scenarios(dtype, samples, pattern):
            line = lines[f"{scenario.name} {str(dtype).removeprefix('torch.')}"]
            if size_of(scenario.inputs) <= MOST and rounds * (line.ours + line.torchs) < seconds:
                measure(line, scenario.function, scenario.inputs, scenario.nondet_tol, rounds)
    return {name: line for name, line in lines.items() if line.ours}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=ALL, help="samples of each operator, at the most")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="after which no further sample of an operator is taken"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--operator", default="", help="only operators whose name contains this")
    options = parser.parse_args()
    print(f"{'function':<44}{'inputs':>8}{'gradproof ms':>13}{'torch ms':>11}{'speed-up':>10}  verdicts that differ")
    lines = operators(options.samples, options.seconds, options.rounds, options.operator)
    for name, line in sorted(lines.items(), key=lambda pair: pair[1].speed_up):
        if line.speed_up < SLOWEST or line.differ:
            show(name, line)
    ours, torchs = sum(line.ours for line in lines.values()), sum(line.torchs for line in lines.values())
    slow = [name for name, line in lines.items() if line.speed_up < SLOWEST]
    checks = sum(len(line.verdicts) for line in lines.values())
    print(f"\n{len(lines)} operators, {checks:,} samples: gradproof {ours:.1f} s, torch {torchs:.1f} s, ", end="")
    print(f"{torchs / ours:.1f} ×; {len(slow)} slower than {SLOWEST} ×\n")
    big = [line for line in lines.values() if line.entries >= LARGE]
    for name, function, inputs in () if options.operator else larger():
        line = Line()
        measure(line, function, inputs, 0.0, options.rounds)
        show(name, line)
        big.append(line)
    print(f"\ngeometric mean where there are {LARGE} inputs or more: {mean(big):.1f} × over {len(big)}")
    return int(ours > torchs or bool(slow) or not mean(big) >= WANTED_MEAN)


if __name__ == "__main__":
    sys.exit(main())
