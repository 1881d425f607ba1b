"""Forward mode and order two: false alarms and planted errors over every differentiable operator of PyTorch.

The first table counts verdicts on PyTorch's own derivatives: of forward mode, and of the four nestings at order two,
where a derivative is differentiated with respect to the point and to what it is multiplied by. `absent` counts
derivatives that torch alone does not have either. Each fail is compared with central differences at several steps,
which share no code with gradproof. A fail is explained if the differences agree with each other, on both sides, and
contradict torch's derivative by more than rounding, or if torch raises. Torch's own checks run on the operators that
are listed as supporting the derivative; torch has no check for derivatives of a pushforward.

The second table plants errors in double backwards: the function is one node, its backward another one with the right
values, and the backward of that is wrong in a known way. An error counts if it changes an entry by more than 1e-7 of
the largest. The exit status is 1 if a fail is not explained, or if gradproof finds fewer than 99 % of the errors.
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
from benchmarks.independent import SEED
from benchmarks.nested import (
    FORWARD,
    QUESTIONS,
    REVERSE,
    Explanation,
    Plain,
    Question,
    brief,
    explained,
    label,
    torch_on,
)
from benchmarks.operators import Scenario, scenarios
from benchmarks.planted_twice import Detection, plant_all, show_detection
from gradproof._check import examine
from gradproof._options import Options

SLOW_ENTRIES = 100
WANTED = 0.99


@dataclass(frozen=True)
class Alarm:
    """A fail of gradproof, with what others say."""

    dtype: str
    question: Question
    scenario: Scenario
    report: gradproof.Report | None
    torch: str
    explanation: Explanation


@dataclass(frozen=True)
class Tally:
    """The verdicts for one dtype and one question."""

    dtype: str
    question: Question
    verdicts: Counter[str] = field(default_factory=Counter)
    fast: Counter[str] = field(default_factory=Counter)
    slow: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    missing: Counter[str] = field(default_factory=Counter)
    alarms: list[Alarm] = field(default_factory=list)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


def options_for(question: Question, seed: int) -> Options:
    outer, inner = question
    if inner is None:
        return Options(modes=(outer,), contracts=(), seed=seed)
    return Options(order=2, nestings=((outer, inner),), contracts=(), seed=seed)


def checked(scenario: Scenario, question: Question) -> gradproof.Report:
    """gradproof's report; in forward mode its comparison with reverse mode counts too."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        options = options_for(question, scenario.number)
        report = examine(scenario.function, scenario.inputs, wrt=None, options=options)
        if question == (FORWARD, None) and report.passed:
            both = gradproof.check(
                scenario.function, scenario.inputs, modes=(REVERSE, FORWARD), contracts=(), seed=scenario.number
            )
            if any(finding.kind == "adjoint-mismatch" for finding in both.findings):
                return both
    return report


def count(tally: Tally, scenario: Scenario, plain: Plain, slow: bool) -> None:
    began = time.perf_counter()
    try:
        report = checked(scenario, tally.question)
    except Exception as error:
        tally.verdicts["raised"] += 1
        why = Explanation(False, f"gradproof raises {brief(error)}")
        tally.alarms.append(Alarm(tally.dtype, tally.question, scenario, None, "", why))
        return
    tally.seconds["gradproof"] += time.perf_counter() - began
    began = time.perf_counter()
    fast = torch_says(plain, scenario, tally.question, fast=True)
    tally.seconds["torch"] += time.perf_counter() - began
    tally.fast[fast] += 1
    if slow and sum(each.numel() for each in plain.tensors) <= SLOW_ENTRIES:
        tally.slow[torch_says(plain, scenario, tally.question, fast=False)] += 1
    verdict = report.verdict.value
    if report.reason is not None:
        tally.reasons[report.reason.value] += 1
        tally.undecided[f"{scenario.name} ({report.reason.value})"] += 1
    if report.verdict is gradproof.Verdict.FAIL:
        why = explained(plain, tally.question, report)
        if why.absent:
            verdict = "absent"
            tally.missing[scenario.name] += 1
        else:
            tally.alarms.append(Alarm(tally.dtype, tally.question, scenario, report, fast, why))
    tally.verdicts[verdict] += 1


def torch_says(plain: Plain, scenario: Scenario, question: Question, *, fast: bool) -> str:
    """What `gradcheck` or `gradgradcheck` says: pass, fail, raised, or nothing where torch has no such check."""
    supports = {
        (FORWARD, None): scenario.supports.forward,
        (REVERSE, REVERSE): scenario.supports.reverse_over_reverse,
        (FORWARD, REVERSE): scenario.supports.forward_over_reverse,
    }
    if not supports.get(question, False):
        return "not asked"
    inputs = [each.clone().requires_grad_() for each in plain.tensors]
    return torch_on(plain, inputs, question, fast=fast, nondet_tol=scenario.nondet_tol)


def tallied(dtype: str, samples: int, pattern: str, slow: bool) -> list[Tally]:
    tallies = [Tally(dtype, question) for question in QUESTIONS]
    for scenario in scenarios(getattr(torch, dtype), samples, pattern):
        plain = Plain.of(scenario)
        for tally in tallies if plain else ():
            count(tally, scenario, plain, slow)  # type: ignore[arg-type]  # there is a plain one here
    return tallies


def show_tallies(tallies: Sequence[Tally], slow: bool) -> None:
    for dtype in dict.fromkeys(tally.dtype for tally in tallies):
        print(
            f"\n{dtype:<22}{'samples':>8}{'pass':>7}{'fail':>6}{'explained':>11}{'inconclusive':>15}{'absent':>8}",
            end="",
        )
        print(f"{'torch fast: pass/fail/raised':>32}" + (f"{'torch slow':>18}" if slow else ""))
        for tally in tallies:
            if tally.dtype == dtype:
                show_tally(tally, slow)


def show_tally(tally: Tally, slow: bool) -> None:
    verdicts, total = tally.verdicts, tally.verdicts.total()
    undecided = f"{verdicts['inconclusive']} ({verdicts['inconclusive'] / max(1, total):.2%})"
    right = sum(alarm.explanation.explained for alarm in tally.alarms)
    line = f"{label(tally.question):<22}{total:>8}{verdicts['pass']:>7}{len(tally.alarms):>6}{right:>11}{undecided:>15}"
    line += f"{verdicts['absent']:>8}{_three(tally.fast):>32}" + (f"{_three(tally.slow):>18}" if slow else "")
    print(line + "   " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in tally.seconds.items()))


def _three(verdicts: Counter[str]) -> str:
    asked = verdicts["pass"] + verdicts["fail"] + verdicts["raised"]
    return f"{verdicts['pass']} / {verdicts['fail']} / {verdicts['raised']}" if asked else "—"


def show_alarms(alarms: Sequence[Alarm]) -> None:
    right = sum(alarm.explanation.explained for alarm in alarms)
    print(f"\nfails: {len(alarms)}, of which explained: {right}")
    for alarm in sorted(alarms, key=lambda each: (each.explanation.explained, each.scenario.name)):
        where = f"{alarm.scenario.name} sample {alarm.scenario.number} {alarm.dtype}, {label(alarm.question)}"
        print(f"  {where}, torch fast: {alarm.torch or '—'}; {alarm.explanation}")
        if not alarm.explanation.explained and alarm.report is not None:
            print("    " + str(alarm.report).replace("\n", "\n    "))


def show_reasons(tallies: Sequence[Tally]) -> None:
    print("\ninconclusive, by reason and by operator; absent, by operator")
    for tally in tallies:
        for counted in (tally.reasons, tally.undecided, tally.missing):
            listed = ", ".join(f"{name} {number}" for name, number in counted.most_common())
            print(f"  {tally.dtype} {label(tally.question)}: {listed or 'none'}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Forward mode and order two over PyTorch's operators.")
    parser.add_argument("--dtype", nargs="+", default=["float64"])
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator; errors are planted in one")
    parser.add_argument("--operator", default="", help="only operators whose name contains this")
    parser.add_argument("--slow", action="store_true", help="ask torch's slow mode too, for up to 100 input entries")
    parser.add_argument("--table", nargs="+", choices=("alarms", "planted"), default=["alarms", "planted"])
    parser.add_argument("--every", type=int, default=3, help="plant errors in every third operator, or as said")
    options = parser.parse_args()
    good = True
    if "alarms" in options.table:
        chosen = (options.samples, options.operator, options.slow)
        tallies = [tally for dtype in options.dtype for tally in tallied(dtype, *chosen)]
        alarms = [alarm for tally in tallies for alarm in tally.alarms]
        show_tallies(tallies, options.slow)
        show_alarms(alarms)
        show_reasons(tallies)
        good = all(alarm.explanation.explained for alarm in alarms)
    if "planted" in options.table:
        detection = Detection()
        for dtype in options.dtype:
            for number, scenario in enumerate(scenarios(getattr(torch, dtype), 1, options.operator)):
                if number % options.every == 0:
                    plant_all(detection, dtype, scenario)
        show_detection(detection)
        asked, found = detection.asked["gradproof"].total(), detection.found["gradproof"].total()
        good = good and found >= WANTED * asked
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
