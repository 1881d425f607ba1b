"""What a passing check costs.

First table: the total time of passing checks over torch's operator database, beside torch's fast mode on the same
samples in the same run, as a ratio (medians of several rounds, the two taken in turns). Second table: at ten million
entries, the time beyond the function's own evaluations and pullbacks, as a share of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

import gradproof
from benchmarks.operators import Scenario, scenarios
from benchmarks.shapes import BUILDERS

ALLOWED_RATIO = 1.5
ALLOWED_SHARE = {"elementwise": 2.0, "matmul": 0.3, "linear": 0.3, "convolution": 0.3, "attention": 0.3}


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def passing(dtype: torch.dtype, samples: int) -> list[Scenario]:
    """The samples that both checks pass: the cost of a failure is another matter."""
    kept = []
    for scenario in scenarios(dtype, samples):
        try:
            torch_passes = torch.autograd.gradcheck(
                scenario.function,
                scenario.inputs,
                fast_mode=True,
                raise_exception=False,
                nondet_tol=scenario.nondet_tol,
            )
        except Exception:  # torch's own check raises for some operators, whatever the options
            continue
        if torch_passes and gradproof.check(scenario.function, scenario.inputs, contracts=(), seed=0).passed:
            kept.append(scenario)
    return kept


def operators(dtype: torch.dtype, samples: int, rounds: int) -> float:
    chosen = passing(dtype, samples)
    ours, torchs, bare = [], [], []
    for _ in range(rounds):
        mine = fast = without = 0.0
        for scenario in chosen:
            function, inputs, tolerance = scenario.function, scenario.inputs, scenario.nondet_tol
            mine += seconds(lambda: gradproof.check(function, inputs, contracts=(), seed=0))  # noqa: B023  # called now
            fast += seconds(
                lambda: torch.autograd.gradcheck(function, inputs, fast_mode=True, nondet_tol=tolerance)  # noqa: B023  # called within the loop
            )
            without += seconds(
                lambda: torch.autograd.gradcheck(
                    function,  # noqa: B023  # called within the loop
                    inputs,  # noqa: B023  # called within the loop
                    fast_mode=True,
                    nondet_tol=tolerance,  # noqa: B023  # called within the loop
                    check_undefined_grad=False,
                )
            )
        ours.append(mine)
        torchs.append(fast)
        bare.append(without)
    ratio = statistics.median(a / b for a, b in zip(ours, torchs, strict=True))
    beside = statistics.median(a / b for a, b in zip(ours, bare, strict=True))
    print(
        f"{str(dtype).removeprefix('torch.'):<12}{len(chosen):>8}{statistics.median(ours):>12.2f}"
        f"{statistics.median(torchs):>12.2f}{ratio:>8.2f}{beside:>28.2f}",
        flush=True,
    )
    return ratio


def overhead(name: str, size: int, rounds: int) -> float:
    shares = []
    for seed in range(rounds):
        torch.manual_seed(seed)
        function, x = BUILDERS[name](size)
        report = gradproof.check(function, x, contracts=(), seed=seed)
        assert report.passed, str(report)
        shares.append((report.cost.seconds - report.cost.inside) / report.cost.inside)
    share = statistics.median(shares)
    print(f"{name:<12}{x.numel():>12,}{report.cost.evaluations:>13}{report.cost.pullbacks:>11}", end="")
    print(f"{report.cost.inside:>15.2f}{share:>16.0%}{ALLOWED_SHARE.get(name, float('inf')):>10.0%}", flush=True)
    return share


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=float, default=1e7)
    options = parser.parse_args()
    print(f"{'dtype':<12}{'samples':>8}{'gradproof s':>12}{'torch s':>12}{'ratio':>8}{'without undefined grads':>28}")
    ratios = [operators(dtype, options.samples, options.rounds) for dtype in (torch.float64, torch.complex128)]
    print(f"\n{'function':<12}{'entries':>12}{'evaluations':>13}{'pullbacks':>11}{'inside, s':>15}", end="")
    print(f"{'time beyond it':>16}{'allowed':>10}")
    late = [
        name for name in BUILDERS if overhead(name, int(options.size), options.rounds) > ALLOWED_SHARE.get(name, 1e9)
    ]
    return int(max(ratios) > ALLOWED_RATIO or bool(late))


if __name__ == "__main__":
    sys.exit(main())
