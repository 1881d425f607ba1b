"""Errors planted in double backwards, and who finds them."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import gradproof
from benchmarks.nested import REVERSE, Plain, torch_on
from benchmarks.operators import Scenario
from benchmarks.planted import KINDS, Kind, Planted, Victim, effect

LEAST_EFFECT = 1e-7
SHOWN = 40


class _Twice(torch.autograd.Function):
    """The whole function as one node, whose backward is another: a planted one."""

    @staticmethod
    def forward(ctx: Any, double: Double, *tensors: Tensor) -> Any:
        ctx.double = double
        ctx.save_for_backward(*tensors)
        return tuple(each.detach().clone() for each in double.plain(*tensors))

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> Any:
        double: Double = ctx.double
        tensors = ctx.saved_tensors
        found = double.gradient.of_tensors(*tensors, *incoming)
        whole = [torch.zeros_like(each) for each in tensors]
        for number, each in zip(double.gradient.kept, [found] if isinstance(found, Tensor) else found, strict=True):
            whole[number] = each
        return None, *whole


@dataclass(frozen=True)
class Double:
    """A function whose gradient is right, and the gradient of that planted."""

    plain: Plain
    gradient: Planted

    @classmethod
    def around(cls, plain: Plain) -> Double | None:
        """None where the gradient does not depend on anything, or cannot be differentiated again."""
        point = tuple(each.clone().requires_grad_() for each in plain.point(REVERSE))
        try:
            gradient = Planted.around(plain.gradient, point)
        except Exception:
            return None
        return None if gradient is None else cls(plain, gradient)

    def __call__(self, *tensors: Tensor) -> Any:
        """The function's own values."""
        results = _Twice.apply(self, *tensors)  # type: ignore[no-untyped-call]  # torch's own
        return results[0] if len(results) == 1 else results

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The function's own tensors."""
        return tuple(each.clone().requires_grad_() for each in self.plain.tensors)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Those of a gradient, and a part of the double backward that is left out."""
        own = len(self.plain.tensors)
        return (
            *KINDS,
            Kind("grad_outputs' part ignored", _left_out(own, None)),
            Kind("point's part ignored", _left_out(None, own)),
        )

    def verdict(self, seed: int) -> gradproof.Report:
        """gradproof at order two, in reverse mode."""
        return gradproof.check(self, self.inputs, modes=REVERSE, order=2, contracts=(), seed=seed)

    def torch_verdict(self, nondet_tol: float) -> str:
        """torch's at order two, fast mode."""
        return torch_on(self, self.inputs, (REVERSE, REVERSE), fast=True, nondet_tol=nondet_tol)


def _left_out(first: int | None, last: int | None) -> Callable[[list[Tensor], Victim], list[Tensor]]:
    def corruption(gradients: list[Tensor], victim: Victim) -> list[Tensor]:
        gone = range(len(gradients))[first:last]
        return [torch.zeros_like(each) if number in gone else each for number, each in enumerate(gradients)]

    return corruption


@dataclass(frozen=True)
class Detection:
    """What each checker was asked about, and what it found, by kind."""

    scenarios: Counter[str] = field(default_factory=Counter)
    asked: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    found: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    misses: list[str] = field(default_factory=list)
    excuses: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def count(self, checker: str, kind: Kind, found: bool, began: float) -> None:
        """Add one answer."""
        self.asked[checker][kind.name] += 1
        self.found[checker][kind.name] += found
        self.seconds[checker] += time.perf_counter() - began


def plant_all(detection: Detection, dtype: str, scenario: Scenario) -> None:
    """Plant every kind of error in one scenario."""
    plain = Plain.of(scenario) if scenario.supports.reverse_over_reverse else None
    double = Double.around(plain) if plain else None
    if double is None:
        detection.scenarios["left out, no second derivative"] += 1
        return
    if not double.verdict(scenario.number).passed:
        detection.scenarios["left out, not passed unplanted"] += 1
        return
    right = double.gradient.gradients(scenario.number)
    victim = double.gradient.victim_at(right, scenario.number)
    if victim is None:
        detection.scenarios["left out, second derivative zero up to rounding or not finite"] += 1
        return
    detection.scenarios["used"] += 1
    rival = double.torch_verdict(scenario.nondet_tol) == "pass"
    for kind in double.kinds:
        if kind.needs_complex and not any(each.is_complex() for each in plain.tensors):  # type: ignore[union-attr]  # not None here
            continue
        wrong = Double(double.plain, double.gradient.corrupted(kind, victim))
        size = effect(right, wrong.gradient.gradients(scenario.number))
        if size > LEAST_EFFECT:
            ask(detection, wrong, kind, scenario, rival, f"{dtype} {victim.path}{list(victim.index)} effect {size:.2e}")


def ask(detection: Detection, wrong: Double, kind: Kind, scenario: Scenario, rival: bool, where: str) -> None:
    began = time.perf_counter()
    report = wrong.verdict(scenario.number)
    found = report.verdict is gradproof.Verdict.FAIL
    detection.count("gradproof", kind, found, began)
    if not found:
        detection.excuses[report.verdict.value] += 1
        detection.misses.append(
            f"{scenario.name} sample {scenario.number} {kind.name} at {where}: {report.verdict.value}, "
            f"resolution {report.resolution.relative:.2e} {report.message}".rstrip()
        )
    if rival:
        began = time.perf_counter()
        detection.count("torch fast", kind, wrong.torch_verdict(scenario.nondet_tol) != "pass", began)


def show_detection(detection: Detection) -> None:
    print("\nplanted in double backwards, scenarios: ", end="")
    print(", ".join(f"{number} {what}" for what, number in detection.scenarios.items()))
    print(f"{'error':<28}" + "".join(f"{checker + ': found of planted':>35}" for checker in detection.asked))
    for kind in detection.asked["gradproof"]:
        print(f"{kind:<28}" + "".join(_cell(detection, checker, kind) for checker in detection.asked))
    print(f"{'total':<28}" + "".join(_cell(detection, checker, None) for checker in detection.asked))
    print("time: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in detection.seconds.items()))
    print(f"missed by gradproof: {len(detection.misses)} {dict(detection.excuses)}")
    for miss in detection.misses[:SHOWN]:
        print(f"  {miss}")


def _cell(detection: Detection, checker: str, kind: str | None) -> str:
    asked, found = detection.asked[checker], detection.found[checker]
    part, whole = (found[kind], asked[kind]) if kind else (found.total(), asked.total())
    return f"{f'{part} of {whole}':>25}{f'{part / whole:.2%}' if whole else '—':>10}"
