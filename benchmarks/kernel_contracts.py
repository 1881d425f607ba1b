"""False alarms of the contracts of memory and streams on torch's own operators, and their cost.

    python -m benchmarks.kernel_contracts [--samples 1] [--pattern softmax]

`as_strided` and its like depend on the storage by definition, and are expected to be found.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import torch

from benchmarks.operators import Scenario, scenarios
from gradproof import Report, check
from gradproof._options import CONTRACT_GROUPS, CheckOptions

SETTINGS: dict[str, CheckOptions] = {
    "no contracts": {"contracts": ()},
    "usual contracts": {},
    "kernel": {"contracts": "kernel"},
}


def main() -> None:
    """Check every operator without contracts, with the usual ones and with those of kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--pattern", default="")
    options = parser.parse_args()
    seconds: Counter[str] = Counter()
    checked = found = 0
    for scenario in scenarios(torch.float32, options.samples, options.pattern):
        try:
            times, report = _timed(scenario)
        except Exception as error:  # what cannot be checked at all is another benchmark's concern
            print(f"{scenario.name}: not checked ({type(error).__name__})")
            continue
        checked += 1
        seconds.update(times)
        broken = [finding for finding in report.findings if finding.kind in CONTRACT_GROUPS["kernel"]]
        found += bool(broken)
        for finding in broken:
            print(f"{scenario.name}: {finding.kind}: {finding.message}")
    print(f"{checked} samples, {found} with findings")
    for name, time_spent in seconds.items():
        print(f"{name}: {time_spent:.2f} s, {time_spent / seconds['usual contracts']:.2f} of the usual")


def _timed(scenario: Scenario) -> tuple[dict[str, float], Report]:
    times = {}
    for name, setting in SETTINGS.items():
        began = time.perf_counter()
        report = check(scenario.function, scenario.inputs, seed=0, nondet_tol=scenario.nondet_tol, **setting)
        times[name] = time.perf_counter() - began
    return times, report


if __name__ == "__main__":
    main()
