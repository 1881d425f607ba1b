"""Detection: errors planted in the gradients of every differentiable operator of PyTorch, and who finds them.

A line of the table is one kind of error. An error counts if it changes a gradient entry by more than 1e-7 of the
largest one for a random incoming gradient, in a scenario that gradproof passes while nothing is planted. Torch's modes
check the same errors, except where they reject the right gradient already. `named` says how often gradproof's
first finding names the argument and the index of an error in one entry. The exit status is 1 if gradproof finds fewer
than 99.5 % of all.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

import gradproof
from benchmarks.independent import SEED, size_of, torch_says
from benchmarks.operators import Scenario, scenarios
from benchmarks.planted import KINDS, Kind, Planted, Victim, effect

LEAST_EFFECT = 1e-7
SLOW_ENTRIES = 400
WANTED = 0.995
MISSES_SHOWN = 40
EXCUSES = ("passed, ABOVE the stated resolution", "inconclusive", "passed, below the stated resolution")


@dataclass(frozen=True)
class Miss:
    """An error that gradproof did not find."""

    dtype: str
    scenario: Scenario
    kind: Kind
    victim: Victim
    effect: float
    report: gradproof.Report

    @property
    def excuse(self) -> str:
        """What the report itself says about an error of this size."""
        if self.report.verdict is gradproof.Verdict.INCONCLUSIVE:
            return EXCUSES[1]
        resolution = self.report.resolution
        below = resolution is not None and self.effect <= resolution.relative
        return EXCUSES[2] if below else EXCUSES[0]

    def __str__(self) -> str:
        resolution = self.report.resolution
        place = f"{self.victim.path}{list(self.victim.index) or ''}"
        return (
            f"{self.scenario.name} sample {self.scenario.number} {self.dtype}, {self.kind.name} at {place}: "
            f"effect {self.effect:.2e}, resolution {resolution.relative if resolution else float('nan'):.2e}, "
            f"{self.report.verdict.value} {self.report.message}".rstrip()
        )


@dataclass(frozen=True)
class Tally:
    """What each checker was asked about, and what it found, by kind."""

    scenarios: Counter[str] = field(default_factory=Counter)
    asked: dict[str, Counter[str]] = field(default_factory=dict)
    found: dict[str, Counter[str]] = field(default_factory=dict)
    named: Counter[str] = field(default_factory=Counter)
    misses: list[Miss] = field(default_factory=list)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def count(self, checker: str, kind: Kind, found: bool) -> None:
        """Add one answer."""
        self.asked.setdefault(checker, Counter())[kind.name] += 1
        self.found.setdefault(checker, Counter())[kind.name] += found


def checked(planted: Planted, seed: int) -> gradproof.Report:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return gradproof.check(planted, planted.inputs, contracts=(), seed=seed)


def names(report: gradproof.Report, victim: Victim) -> bool:
    """Whether the first finding's worst entry is the victim."""
    finding = report.findings[0]
    return finding.argument == victim.path and bool(finding.entries) and finding.entries[0].index == victim.index


def plant_all(tally: Tally, dtype: str, scenario: Scenario, slow: bool) -> None:
    """Plant every kind of error in one scenario."""
    planted = Planted.around(scenario.function, scenario.inputs)
    if planted is None or not checked(planted, scenario.number).passed:
        tally.scenarios["left out, not passed unplanted"] += 1
        return
    right = planted.gradients(scenario.number)
    victim = planted.victim_at(right, scenario.number)
    if victim is None:
        tally.scenarios["left out, gradient zero up to rounding or not finite"] += 1
        return
    tally.scenarios["used"] += 1
    rivals = [name for name in rival_names(planted, slow) if rival(name, planted, scenario) == "pass"]
    for kind in KINDS:
        if kind.needs_complex and not any(tensor.is_complex() for tensor in planted.tensors):
            continue
        wrong = planted.corrupted(kind, victim)
        size = effect(right, wrong.gradients(scenario.number))
        if size > LEAST_EFFECT:
            ask_all(tally, wrong, Miss(dtype, scenario, kind, victim, size, checked(wrong, scenario.number)), rivals)


def ask_all(tally: Tally, wrong: Planted, case: Miss, rivals: Sequence[str]) -> None:
    report, kind = case.report, case.kind
    found = report.verdict is gradproof.Verdict.FAIL
    tally.count("gradproof", kind, found)
    tally.seconds["gradproof"] += report.cost.seconds
    if not found:
        tally.misses.append(case)
    elif kind.lone:
        tally.named[kind.name] += names(report, case.victim)
    for name in rivals:
        began = time.perf_counter()
        tally.count(name, kind, rival(name, wrong, case.scenario) != "pass")
        tally.seconds[name] += time.perf_counter() - began


def rival_names(planted: Planted, slow: bool) -> list[str]:
    return ["torch fast"] + (["torch slow"] if slow and size_of(planted.inputs) <= SLOW_ENTRIES else [])


def rival(name: str, planted: Planted, scenario: Scenario) -> str:
    fast = name == "torch fast"
    return torch_says(planted.of_tensors, planted.tensors, fast=fast, nondet_tol=scenario.nondet_tol)


def show(tally: Tally) -> None:
    print("scenarios: " + ", ".join(f"{count} {what}" for what, count in tally.scenarios.items()))
    checkers = list(tally.asked)
    print(f"{'error':<28}" + "".join(f"{checker + ': found of planted':>35}" for checker in checkers) + f"{'named':>9}")
    kinds = [kind for kind in KINDS if tally.asked.get("gradproof", Counter())[kind.name]]
    for kind in kinds:
        cells = "".join(cell(tally.found[checker][kind.name], tally.asked[checker][kind.name]) for checker in checkers)
        found = tally.found["gradproof"][kind.name]
        print(f"{kind.name:<28}{cells}{percent(tally.named[kind.name], found) if kind.lone else '':>9}")
    totals = "".join(cell(tally.found[checker].total(), tally.asked[checker].total()) for checker in checkers)
    lone = sum(tally.found["gradproof"][kind.name] for kind in kinds if kind.lone)
    print(f"{'total':<28}{totals}{percent(tally.named.total(), lone):>9}")
    print("time: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in tally.seconds.items()))
    show_misses(tally.misses)


def show_misses(misses: Sequence[Miss]) -> None:
    """Counts first; of the misses those that no report excuses are listed first."""
    excuses = Counter(miss.excuse for miss in misses)
    operators = Counter(f"{miss.scenario.name} {miss.dtype}" for miss in misses)
    print(f"\nmissed by gradproof: {len(misses)}")
    for counted in filter(None, (excuses, operators)):
        print("  " + ", ".join(f"{name}: {count}" for name, count in counted.most_common()))
    for miss in sorted(misses, key=lambda miss: EXCUSES.index(miss.excuse))[:MISSES_SHOWN]:
        print(f"  {miss}")


def cell(found: int, asked: int) -> str:
    return f"{f'{found} of {asked}':>25}{percent(found, asked):>10}"


def percent(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if whole else "—"


def main() -> int:
    parser = argparse.ArgumentParser(description="Planted errors over PyTorch's operators.")
    parser.add_argument("--dtype", nargs="+", default=["float64", "complex128"])
    parser.add_argument("--samples", type=int, default=1, help="samples of each operator")
    parser.add_argument("--operator", default="", help="only operators whose name contains this")
    parser.add_argument("--slow", action="store_true", help="ask torch's slow mode too, for up to 400 input entries")
    options = parser.parse_args()
    tally = Tally()
    for dtype in options.dtype:
        for scenario in scenarios(getattr(torch, dtype), options.samples, options.operator):
            plant_all(tally, dtype, scenario, options.slow)
    if not tally.asked:
        print("nothing was planted")
        return 1
    show(tally)
    return 0 if tally.found["gradproof"].total() >= WANTED * tally.asked["gradproof"].total() else 1


if __name__ == "__main__":
    sys.exit(main())
