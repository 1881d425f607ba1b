"""What does a failing check cost, beside the passing check of the same function, at about a million inputs?

One entry of the gradient is scaled by 1.1, or all of them are. The table shows evaluations and pullbacks of the passing
and of the failing check, their processor time and its ratio, whether the first entry shown is a wrong one, and the
first diagnosis. A failing check may take 80 evaluations, and 30 times the processor time of the passing one.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch import Tensor

import gradproof
from benchmarks.scale import planted
from benchmarks.shapes import BUILDERS, Function

NAMES = ("elementwise", "softmax", "matmul", "convolution")
FACTOR = 1.1
EVALUATIONS = 80  # of a failing check at most
TIMES = 30  # as much processor time at most as the passing check takes
REPEATS = 3  # checks, of which the fastest counts: the first one also loads code


def timed(function: Function, x: Tensor, seed: int) -> tuple[gradproof.Report, float]:
    """The report of a check, and the processor time in seconds of the fastest of several."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        report = gradproof.check(function, x, contracts=(), seed=seed)
        times.append(time.process_time() - began)
    return report, min(times)


def is_found(report: gradproof.Report, x: Tensor, victim: int | slice) -> bool:
    """Whether the first entry shown is the planted one, or any entry where all are wrong."""
    entries = [entry for finding in report.findings for entry in finding.entries]
    if isinstance(victim, slice) or not entries:
        return bool(entries)
    return entries[0].index == tuple(int(k) for k in torch.unravel_index(torch.tensor(victim), x.shape))


def first_diagnosis(report: gradproof.Report) -> str:
    """The name of the likeliest diagnosis."""
    return next((finding.diagnoses[0].name for finding in report.findings if finding.diagnoses), "none")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=float, default=2**20, help="inputs, about")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{'function':<12}{'wrong':<12}{'evaluations':>12}{'pullbacks':>14}{'seconds':>18}{'ratio':>7}", end="")
    print(f"{'found':>7}  diagnosis")
    missed, most, dearest = 0, 0, 0.0
    for name in NAMES:
        torch.manual_seed(options.seed)
        function, x = BUILDERS[name](int(options.size))
        one = int(torch.randint(x.numel(), ()))
        right = planted(function, slice(0), FACTOR)
        passing, least = timed(right, x, options.seed)
        missed += not passing.passed
        for wrong, victim in (("one entry", one), ("throughout", slice(None))):
            report, seconds = timed(planted(function, victim, FACTOR), x, options.seed)
            found = is_found(report, x, victim)
            missed += not found
            most, dearest = max(most, report.cost.evaluations), max(dearest, seconds / least)
            print(
                f"{name:<12}{wrong:<12}{passing.cost.evaluations:>5} →{report.cost.evaluations:>5}"
                f"{passing.cost.pullbacks:>7} →{report.cost.pullbacks:>5}{least:>9.2f} →{seconds:>7.2f}"
                f"{seconds / least:>7.1f}{'yes' if found else 'NO':>7}  {first_diagnosis(report)}",
                flush=True,
            )
    print(f"\nmissed: {missed}; evaluations ≤ {most} (may be {EVALUATIONS}); ", end="")
    print(f"times the passing check's processor time ≤ {dearest:.1f} (may be {TIMES})")
    return int(missed > 0 or most > EVALUATIONS or dearest > TIMES)


if __name__ == "__main__":
    sys.exit(main())
