"""Full coverage beside torch's slow mode: every entry of the Jacobian, the same samples, in one run.

First the operator database. An operator's samples are taken in their order, all of them unless they take longer than
`--seconds`. Those on which both checks pass do the same work: of them a line is printed for each operator that is
slower than 0.8 ×. Those on which one check does not pass are listed separately, with both verdicts: the work differs.
Torch's check takes one difference for the truth. gradproof measures a suspicious entry again, on shorter and longer
steps and together with the other inputs; then it lists and diagnoses the wrong entries, or reports a kink or a cast.
These samples count in the total and in the mean. Then come larger functions, of 300 to 3,000 inputs.

A speed-up is torch's time over gradproof's, each the least of several rounds taken in turns; lines that come out slower
than 0.8 × are measured again with more rounds, since an interruption of a millisecond makes one. Beside the Jacobian
torch's check asks whether a backward repeats itself, is linear and takes undefined gradients, and with `--contracts`
gradproof's does too, as its drop-in does. The exit status is 1 if a limit is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
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
PATIENCE = 5  # times the rounds, where a line is measured again
DROP_IN = ("linear", "repeatable", "undefined")  # contracts that torch's check holds a backward to


@dataclass
class Line:
    """What was measured of one operator."""

    ours: float = 0.0
    torchs: float = 0.0
    entries: int = 0
    samples: int = 0
    verdicts: dict[tuple[str, str], None] = field(default_factory=dict)

    @property
    def speed_up(self) -> float:
        """Torch's time over ours."""
        return self.torchs / self.ours


def least(action: Callable[[], str], other: Callable[[], str], rounds: int) -> tuple[str, str, float, float]:
    """The answers of two actions, and the least time of each over rounds in turns."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        mine = action()
        middle = time.perf_counter()
        theirs = other()
        times.append((middle - began, time.perf_counter() - middle))
    return mine, theirs, min(a for a, _ in times), min(b for _, b in times)


def measure(
    function: Callable[..., Any], inputs: Any, nondet_tol: float, rounds: int, contracts: Sequence[str] = ()
) -> tuple[str, str, float, float]:
    """Our verdict, torch's, and the time that each took."""

    def torchs() -> str:
        try:
            passed = torch.autograd.gradcheck(function, inputs, raise_exception=False, nondet_tol=nondet_tol)
        except Exception:  # torch's own check lets some errors out, whatever the options
            return "raised"
        return "pass" if passed else "fail"

    def ours() -> str:
        report = gradproof.check(
            function, inputs, coverage="full", contracts=contracts, modes="reverse", seed=0, nondet_tol=nondet_tol
        )
        return report.verdict.value

    return least(ours, torchs, rounds)


def enter(line: Line, inputs: Any, mine: str, theirs: str, fast: float, slow: float) -> None:
    """Add a sample to a line."""
    line.ours += fast
    line.torchs += slow
    line.entries = max(line.entries, size_of(inputs if isinstance(inputs, tuple) else (inputs,)))
    line.samples += 1
    line.verdicts[mine, theirs] = None


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
        f"{name:<44}{line.entries:>8,}{line.samples:>9}{line.ours * 1e3:>13.2f}{line.torchs * 1e3:>11.2f}"
        f"{line.speed_up:>10.2f}  " + "; ".join(f"{mine}, torch {theirs}" for mine, theirs in line.verdicts),
        flush=True,
    )


def mean(lines: list[Line]) -> float:
    return math.exp(sum(math.log(line.speed_up) for line in lines) / len(lines)) if lines else math.nan


@dataclass(frozen=True)
class Plan:
    """What is measured of every operator, and how."""

    samples: int
    seconds: float
    rounds: int
    contracts: Sequence[str]


def operators(plan: Plan, pattern: str, names: Collection[str] = ()) -> tuple[dict[str, Line], dict[str, Line]]:
    """The lines of samples on which both checks pass, and of those on which one does not."""
    both: dict[str, Line] = defaultdict(Line)
    others: dict[str, Line] = defaultdict(Line)
    spent: Counter[str] = Counter()
    for dtype in (torch.float64, torch.complex128):
        for scenario in scenarios(dtype, plan.samples, pattern):
            name = f"{scenario.name} {str(dtype).removeprefix('torch.')}"
            if names and name not in names:
                continue
            if size_of(scenario.inputs) > MOST or spent[name] > plan.seconds:
                continue
            mine, theirs, fast, slow = measure(
                scenario.function, scenario.inputs, scenario.nondet_tol, plan.rounds, plan.contracts
            )
            spent[name] += plan.rounds * (fast + slow)
            lines = both if mine == theirs == "pass" else others
            if theirs != "raised":
                enter(lines[name], scenario.inputs, mine, theirs, fast, slow)
    return both, others


def measured_again(plan: Plan, names: Collection[str]) -> dict[str, Line]:
    """The lines of some operators on which both checks pass, with more rounds."""
    patient = Plan(plan.samples, PATIENCE * plan.seconds, PATIENCE * plan.rounds, plan.contracts)
    found: dict[str, Line] = {}
    for pattern in {name.rsplit(" ", 1)[0] for name in names}:
        found |= operators(patient, pattern, names)[0]
    return found


def by_speed(lines: dict[str, Line]) -> list[tuple[str, Line]]:
    return sorted(lines.items(), key=lambda pair: pair[1].speed_up)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=ALL, help="samples of each operator, at the most")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="after which no further sample of an operator is taken"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--operator", default="", help="only operators whose name contains this")
    parser.add_argument("--contracts", action="store_true", help="those that torch's check has, too")
    options = parser.parse_args()
    plan = Plan(options.samples, options.seconds, options.rounds, DROP_IN if options.contracts else ())
    print(f"{'function':<44}{'inputs':>8}{'samples':>9}{'gradproof ms':>13}{'torch ms':>11}{'speed-up':>10}  gradproof")
    both, others = operators(plan, options.operator)
    both |= measured_again(plan, [name for name, line in both.items() if line.speed_up < SLOWEST])
    slow = [(name, line) for name, line in by_speed(both) if line.speed_up < SLOWEST]
    for name, line in slow:
        show(name, line)
    print(f"both pass: {len(both)} operators, {sum(line.samples for line in both.values()):,} samples; ", end="")
    print(f"{len(slow)} slower than {SLOWEST} ×\n")
    for name, line in by_speed(others):
        show(name, line)
    lines = [*both.values(), *others.values()]
    ours, torchs = sum(line.ours for line in lines), sum(line.torchs for line in lines)
    print(
        f"all {sum(line.samples for line in lines):,} samples: gradproof {ours:.1f} s, torch {torchs:.1f} s, ", end=""
    )
    print(f"{torchs / ours:.1f} ×\n")
    big = [line for line in lines if line.entries >= LARGE]
    for name, function, inputs in () if options.operator else larger():
        line = Line()
        enter(line, inputs, *measure(function, inputs, 0.0, options.rounds))
        show(name, line)
        big.append(line)
        slow += [(name, line)] if line.speed_up < SLOWEST else []
    print(f"\ngeometric mean where there are {LARGE} inputs or more: {mean(big):.1f} × over {len(big)}")
    return int(ours > torchs or bool(slow) or not mean(big) >= WANTED_MEAN)


if __name__ == "__main__":
    sys.exit(main())
