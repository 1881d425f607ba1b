"""False alarms: gradproof and torch's own check on every differentiable operator of PyTorch.

The table counts verdicts. PyTorch's gradients are nearly always right, so nearly every line should be a pass; each
`fail` of gradproof is listed with torch's verdict and with plain central differences of the entry that gradproof calls
wrong, which share no code with it. The exit status is 1 if a fail is not confirmed by them, or if more than 2 % of the
samples are inconclusive.
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
from benchmarks.independent import KNOWN, SEED, Evidence, evidence, sixth, size_of, torch_says
from benchmarks.operators import Scenario, scenarios

DTYPES = ("float64", "complex128", "float32", "complex64")
SLOW_ENTRIES = 2000
INCONCLUSIVE_ALLOWED = 0.02


@dataclass(frozen=True)
class Alarm:
    """A fail of gradproof, with what others say."""

    dtype: str
    scenario: Scenario
    report: gradproof.Report
    fast: str
    evidence: Evidence | None

    @property
    def confirmed(self) -> bool:
        """Whether an independent method says the same."""
        return self.evidence is not None and self.evidence.confirmed


@dataclass(frozen=True)
class Tally:
    """The verdicts for one dtype."""

    dtype: str
    verdicts: Counter[str] = field(default_factory=Counter)
    fast: Counter[str] = field(default_factory=Counter)
    slow: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    alarms: list[Alarm] = field(default_factory=list)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def share_inconclusive(self) -> float:
        """Of all samples."""
        return self.verdicts["inconclusive"] / max(1, self.verdicts.total())


def checked(scenario: Scenario) -> gradproof.Report:
    """gradproof's report; the generators are where the independent judges put them too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return gradproof.check(scenario.function, scenario.inputs, contracts=(), seed=scenario.number)


def tallied(dtype: str, samples: int, pattern: str, slow: bool) -> Tally:
    tally = Tally(dtype)
    for scenario in scenarios(getattr(torch, dtype), samples, pattern):
        count(tally, scenario, slow)
    return tally


def count(tally: Tally, scenario: Scenario, slow: bool) -> None:
    began = time.perf_counter()
    report = checked(scenario)
    tally.seconds["gradproof"] += time.perf_counter() - began
    began = time.perf_counter()
    fast = torch_says(scenario.function, scenario.inputs, fast=True, nondet_tol=scenario.nondet_tol)
    tally.seconds["torch fast"] += time.perf_counter() - began
    tally.verdicts[report.verdict.value] += 1
    tally.fast[fast] += 1
    if slow and size_of(scenario.inputs) <= SLOW_ENTRIES:
        tally.slow[torch_says(scenario.function, scenario.inputs, fast=False, nondet_tol=scenario.nondet_tol)] += 1
    if report.reason is not None:
        tally.reasons[report.reason.value] += 1
        tally.undecided[scenario.name] += 1
    if report.verdict is gradproof.Verdict.FAIL:
        proof = evidence(scenario.function, scenario.inputs, report)
        tally.alarms.append(Alarm(tally.dtype, scenario, report, fast, proof))


def show_table(tallies: Sequence[Tally], slow: bool) -> None:
    header = f"{'dtype':<11}{'samples':>8}{'pass':>7}{'fail':>6}{'inconclusive':>15}   torch fast: pass/fail/raised"
    print(header + ("   torch slow: pass/fail/raised" if slow else ""))
    for tally in tallies:
        verdicts = tally.verdicts
        undecided = f"{verdicts['inconclusive']} ({tally.share_inconclusive:.2%})"
        line = f"{tally.dtype:<11}{verdicts.total():>8}{verdicts['pass']:>7}{verdicts['fail']:>6}{undecided:>15}"
        line += f"{_three(tally.fast):>31}"
        print(line + (f"{_three(tally.slow):>31}" if slow else ""))
    for tally in tallies:
        spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in tally.seconds.items())
        print(f"time for {tally.dtype}: {spent}")


def _three(verdicts: Counter[str]) -> str:
    return f"{verdicts['pass']} / {verdicts['fail']} / {verdicts['raised']}"


def show_alarms(alarms: Sequence[Alarm]) -> None:
    print(f"\nfails: {len(alarms)}, of which confirmed: {sum(alarm.confirmed for alarm in alarms)}")
    for name in sorted({alarm.scenario.name for alarm in alarms}):
        print(f"\n{name}: {KNOWN.get(name, 'not a known error of PyTorch')}")
        for alarm in alarms:
            if alarm.scenario.name == name:
                show_alarm(alarm)


def show_alarm(alarm: Alarm) -> None:
    proof = alarm.evidence or f"NOT CONFIRMED, no entry of one output is named: {alarm.report.message}"
    print(f"  {alarm.dtype} sample {alarm.scenario.number}, torch fast: {alarm.fast}; {proof}")
    if alarm.scenario.name == "nn.functional.hardsigmoid" and alarm.evidence is not None:
        print(f"    {sixth(alarm.evidence.claimed)}")
    if not alarm.confirmed:
        print("    " + str(alarm.report).replace("\n", "\n    "))


def show_reasons(tallies: Sequence[Tally]) -> None:
    print("\ninconclusive, by reason and by operator")
    for tally in tallies:
        for counted in (tally.reasons, tally.undecided):
            listed = ", ".join(f"{name} {count}" for name, count in counted.most_common())
            print(f"  {tally.dtype}: {listed or 'none'}")


def main() -> int:
    parser = argparse.ArgumentParser(description="False alarms over PyTorch's operators.")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=["float64", "complex128"])
    parser.add_argument("--samples", type=int, default=8, help="samples of each operator")
    parser.add_argument("--operator", default="", help="only operators whose name contains this")
    parser.add_argument("--slow", action="store_true", help="run torch's slow mode too")
    options = parser.parse_args()
    tallies = [tallied(dtype, options.samples, options.operator, options.slow) for dtype in options.dtype]
    alarms = [alarm for tally in tallies for alarm in tally.alarms]
    show_table(tallies, options.slow)
    show_alarms(alarms)
    show_reasons(tallies)
    confirmed = all(alarm.confirmed for alarm in alarms)
    decided = all(tally.share_inconclusive <= INCONCLUSIVE_ALLOWED for tally in tallies)
    return 0 if confirmed and decided else 1


if __name__ == "__main__":
    sys.exit(main())
