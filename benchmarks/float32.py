"""Single precision: false alarms, and an error of 1 % in one gradient entry, over PyTorch's operators in float32.

The error is planted in an entry of at least a tenth of the largest one, in functions of up to 10,000 input entries
that gradproof passes while nothing is planted. The exit status is 1 if fewer than 95 % of the errors are found, or if
gradproof fails anything but the known errors of PyTorch, each confirmed by central differences in double precision.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

import gradproof
from benchmarks.detection import Miss, checked, names, percent, show_misses
from benchmarks.false_alarms import Alarm, Tally, count, show_alarms, show_reasons, show_table
from benchmarks.independent import KNOWN, size_of
from benchmarks.operators import Scenario, scenarios
from benchmarks.planted import Kind, Planted, effect, scaled

ONE_PERCENT = Kind("one entry × 1.01", scaled(1.01), lone=True)
LEAST_ENTRY = 0.1
LARGEST_INPUT = 10_000
WANTED = 0.95


@dataclass(frozen=True)
class Answer:
    """What gradproof said about one planted error."""

    case: Miss

    @property
    def found(self) -> bool:
        """Whether the gradient was called wrong."""
        return self.case.report.verdict is gradproof.Verdict.FAIL

    @property
    def named(self) -> bool:
        """Whether the entry was named."""
        return self.found and names(self.case.report, self.case.victim)


def answered(dtype: str, scenario: Scenario) -> Answer | None:
    """Plant the error in one scenario; None where it cannot be."""
    if size_of(scenario.inputs) > LARGEST_INPUT:
        return None
    planted = Planted.around(scenario.function, scenario.inputs)
    if planted is None or not checked(planted, scenario.number).passed:
        return None
    right = planted.gradients(scenario.number)
    victim = planted.victim_at(right, scenario.number, least=LEAST_ENTRY)
    if victim is None:
        return None
    wrong = planted.corrupted(ONE_PERCENT, victim)
    change = effect(right, wrong.gradients(scenario.number))
    return Answer(Miss(dtype, scenario, ONE_PERCENT, victim, change, checked(wrong, scenario.number)))


def show_answers(answers: Sequence[Answer]) -> None:
    found = [answer for answer in answers if answer.found]
    share, named = percent(len(found), len(answers)), percent(sum(answer.named for answer in found), len(found))
    print(
        f"\n1 % planted in one entry: found {len(found)} of {len(answers)} ({share}); entry named in {named} of those"
    )
    missed = [answer.case for answer in answers if not answer.found]
    show_misses(missed)


def unexplained(alarms: Sequence[Alarm]) -> list[Alarm]:
    """The fails that are no known error of PyTorch, or that no independent method confirms."""
    return [alarm for alarm in alarms if alarm.scenario.name not in KNOWN or not alarm.confirmed]


def main() -> int:
    parser = argparse.ArgumentParser(description="gradproof in single precision over PyTorch's operators.")
    parser.add_argument("--dtype", choices=("float32", "complex64"), default="float32")
    parser.add_argument("--samples", type=int, default=2, help="samples of each operator")
    parser.add_argument("--operator", default="", help="only operators whose name contains this")
    options = parser.parse_args()
    began, tally, answers = time.perf_counter(), Tally(options.dtype), []
    for scenario in scenarios(getattr(torch, options.dtype), options.samples, options.operator):
        count(tally, scenario, slow=False)
        answer = answered(options.dtype, scenario)
        answers += [answer] if answer is not None else []
    show_table([tally], slow=False)
    show_answers(answers)
    show_alarms(tally.alarms)
    print(f"\nfails that nothing explains: {len(unexplained(tally.alarms))}")
    show_reasons([tally])
    print(f"\n{time.perf_counter() - began:.0f} s")
    found = sum(answer.found for answer in answers)
    return 0 if found >= WANTED * len(answers) and not unexplained(tally.alarms) else 1


if __name__ == "__main__":
    sys.exit(main())
