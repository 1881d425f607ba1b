"""Forward mode and order two: false alarms and planted errors over every differentiable operator of PyTorch.

The first table counts verdicts on PyTorch's own derivatives: of forward mode, and of the four nestings at order two,
where a derivative is differentiated with respect to the point and to what it is multiplied by. `absent` counts
derivatives that plain torch does not have either. Each fail is put to central differences of what is differentiated, in
plain torch, at several steps: they share no code with gradproof. It is explained where they agree with each other, from
both sides, and contradict torch's derivative by more than rounding, or where torch raises. Torch's own checks see the
samples of operators that are listed as supporting the derivative; for derivatives of a pushforward it has none.

The second table plants errors in double backwards: the function is one node, its backward another one with the right
values, and the backward of that is wrong in a known way. An error counts if it changes an entry by more than 1e-7 of
the largest. The exit status is 1 if a fail is not explained, or if gradproof finds fewer than 99 % of the errors.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

import gradproof
from benchmarks.independent import GRADCHECK, NEARER, ROUNDING, SEED
from benchmarks.operators import Scenario, scenarios
from benchmarks.planted import KINDS, Kind, Planted, Victim, effect, largest_entry
from gradproof._check import examine
from gradproof._options import Options

FORWARD, REVERSE = "forward", "reverse"
QUESTIONS = (
    (FORWARD, None),
    (REVERSE, REVERSE),
    (FORWARD, REVERSE),
    (REVERSE, FORWARD),
    (FORWARD, FORWARD),
)
Question = tuple[str, str | None]
STEPS = (1e-3, 1e-4, 1e-5, 1e-6)
NEGLIGIBLE = 1e-12  # of the largest value: an error below this is rounding
SIDES = 1e-2  # of the error that is claimed: by more than this the slopes on the two sides do not differ
SLOW_ENTRIES = 100
LEAST_EFFECT = 1e-7
WANTED = 0.99
SHOWN = 40
ABSENT = (  # words of torch where there is no rule for a derivative
    "not implemented",
    "not support",
    "don't support",
    "must implement the jvp",
    "once_differentiable",
    "are specified up to",  # a phase, on which the derivative of eigenvectors depends
    "doesn't have storage",
)


def label(question: Question) -> str:
    outer, inner = question
    return f"{outer} over {inner}" if inner else outer


@dataclass(frozen=True)
class Plain:
    """A scenario as a function of its differentiated tensors alone, and its derivatives in plain torch.

    A derivative takes the point and, at order two, what the first derivative is multiplied by; each random draw is the
    same in every call.
    """

    scenario: Scenario
    paths: tuple[str, ...]
    positions: tuple[int, ...]
    kept: tuple[int, ...]
    outputs: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    shapes: tuple[Tensor, ...]

    @classmethod
    def of(cls, scenario: Scenario) -> Plain | None:
        """None where no output depends on the inputs."""
        named, _ = tree_flatten_with_path(scenario.inputs)
        chosen = [
            (number, f"inputs{keystr(path)}", leaf)
            for number, (path, leaf) in enumerate(named)
            if isinstance(leaf, Tensor) and leaf.requires_grad
        ]
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(SEED)
            results, _ = tree_flatten_with_path(scenario.function(*scenario.inputs))
        found = [(number, *each) for number, each in enumerate(results) if isinstance(each[1], Tensor)]
        kept = [(number, f"output{keystr(path)}", each) for number, path, each in found if each.requires_grad]
        if not kept:
            return None
        positions, paths, tensors = zip(*chosen, strict=True)
        numbers, outputs, shapes = zip(*kept, strict=True)
        points, values = (tuple(each.detach() for each in group) for group in (tensors, shapes))
        return cls(scenario, paths, positions, numbers, outputs, points, values)

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The differentiable outputs."""
        leaves, spec = tree_flatten(self.scenario.inputs)
        for number, tensor in zip(self.positions, tensors, strict=True):
            leaves[number] = tensor
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            results, _ = tree_flatten(self.scenario.function(*tree_unflatten(leaves, spec)))
        return tuple(results[number] for number in self.kept)

    def gradient(self, *values: Tensor) -> tuple[Tensor, ...]:
        """(point, incoming gradients) ↦ gradients, with a graph where there is one to be had."""
        own, incoming = values[: len(self.tensors)], values[len(self.tensors) :]
        keep = torch.is_grad_enabled() or forward_ad._current_level >= 0
        with torch.enable_grad():
            leaves = [each if each.requires_grad else each.detach().requires_grad_() for each in own]
            found = torch.autograd.grad(self(*leaves), leaves, incoming, create_graph=keep, allow_unused=True)
        pairs = zip(found, leaves, strict=True)
        return tuple(torch.zeros_like(leaf) if each is None else each.to_dense() for each, leaf in pairs)

    def tangent(self, *values: Tensor) -> tuple[Tensor, ...]:
        """(point, tangents) ↦ tangents of the outputs."""
        own, tangents = values[: len(self.tensors)], values[len(self.tensors) :]
        return pushed(self, own, tangents, nested=True)

    def first(self, inner: str | None) -> Callable[..., tuple[Tensor, ...]]:
        """What is differentiated: the function itself, or its first derivative."""
        return self if inner is None else self.gradient if inner == REVERSE else self.tangent

    def point(self, inner: str | None) -> tuple[Tensor, ...]:
        """Where it is differentiated, with random factors."""
        like = () if inner is None else self.shapes if inner == REVERSE else self.tensors
        return self.tensors + random_like(like, SEED)

    def sorts(self, inner: str | None) -> tuple[str, ...]:
        """What gradproof calls the entries of the point."""
        name, count = ("grad_outputs", len(self.shapes)) if inner == REVERSE else ("tangents", len(self.tensors))
        return self.paths + (tuple(f"{name}[{k}]" for k in range(count)) if inner else ())

    def results(self, inner: str | None) -> tuple[str, ...]:
        """What gradproof calls the entries of what is differentiated."""
        if inner is None:
            return self.outputs
        name, paths = ("gradient", self.paths) if inner == REVERSE else ("tangent", self.outputs)
        return tuple(f"{name}[{path!r}]" for path in paths)


def random_like(tensors: Sequence[Tensor], seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(each.shape, dtype=each.dtype, generator=generator) for each in tensors)


def pushed(
    function: Callable[..., Sequence[Tensor]], point: Sequence[Tensor], tangents: Sequence[Tensor], *, nested: bool
) -> tuple[Tensor, ...]:
    """The tangents of a function's outputs, by torch's dual numbers or, where they would nest, by `torch.func`."""
    if nested and forward_ad._current_level >= 0:
        return tuple(torch.func.jvp(lambda *own: tuple(function(*own)), tuple(point), tuple(tangents))[1])
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in zip(point, tangents, strict=True)]  # type: ignore[no-untyped-call]
        unpacked = [forward_ad.unpack_dual(each) for each in function(*duals)]  # type: ignore[no-untyped-call]
        return tuple(torch.zeros_like(each.primal) if each.tangent is None else each.tangent for each in unpacked)


def claimed(plain: Plain, question: Question, along: Sequence[Tensor], weights: Sequence[Tensor]) -> float:
    """⟨weights, D(along)⟩ as torch has it, D the derivative that the question is about."""
    outer, inner = question
    function, point = plain.first(inner), plain.point(inner)
    if outer == REVERSE:
        leaves = [each.detach().requires_grad_() for each in point]
        with torch.enable_grad():
            pairs = [pair for pair in zip(function(*leaves), weights, strict=True) if pair[0].requires_grad]
            if not pairs:
                return 0.0
            found = torch.autograd.grad(
                [result for result, _ in pairs], leaves, [weight for _, weight in pairs], allow_unused=True
            )
        return sum(inner_product(each, step) for each, step in zip(found, along, strict=True) if each is not None)
    if inner == FORWARD:

        def outputs(*values: Tensor) -> tuple[Tensor, ...]:
            own, factors = values[: len(plain.tensors)], values[len(plain.tensors) :]
            return tuple(torch.func.jvp(lambda *each: tuple(plain(*each)), own, factors)[1])

        with torch.enable_grad():  # a Function without a jvp raises where a gradient is asked for, and else says zero
            function(*(each.detach().requires_grad_() for each in point))
        found = torch.func.jvp(outputs, tuple(point), tuple(along))[1]
    else:
        leaves = [each.detach().requires_grad_(inner is not None) for each in point]
        found = pushed(function, leaves, along, nested=False)
    return sum(inner_product(weight, each) for weight, each in zip(weights, found, strict=True))


def inner_product(one: Tensor, other: Tensor) -> float:
    one, other = one.detach().resolve_conj(), other.detach().resolve_conj()
    return float((one.conj() * other).real.sum()) if one.is_complex() else float((one * other.real).sum())


@dataclass(frozen=True)
class Explanation:
    """What plain torch says about a fail."""

    explained: bool
    text: str
    absent: bool = False

    def __str__(self) -> str:
        return f"{'torch is wrong' if self.explained else 'NOT EXPLAINED'}: {self.text}"


def explained(plain: Plain, question: Question, report: gradproof.Report) -> Explanation:
    """Entry by entry of what gradproof names, then along random directions, until one shows torch to be wrong."""
    found = Explanation(False, report.reason)
    raised = all(finding.kind.endswith(("-raised", "-rule")) for finding in report.findings)
    for along, weights, where in directions(plain, question, report):
        try:
            found = compared(plain, question, along, weights, where)
        except Exception as error:
            absent = raised and (isinstance(error, NotImplementedError) or any(word in str(error) for word in ABSENT))
            return Explanation(raised, f"torch raises {brief(error)}", absent)
        if raised:
            return Explanation(False, f"gradproof has no derivative where plain torch has one: {report.reason}")
        if found.explained:
            break
    return found


def compared(
    plain: Plain, question: Question, along: Sequence[Tensor], weights: Sequence[Tensor], where: str
) -> Explanation:
    """Central differences at several steps, and the bend between the two sides, beside what torch claims.

    The three steps that agree best count. A gap that is nothing beside the largest of all values explains nothing:
    where a softmax is saturated, small entries of its gradient are rounded alike at many steps in a row, and their
    differences look steady and are wrong.
    """
    function, point = plain.first(question[1]), plain.point(question[1])

    def values(t: float) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return function(*(each + t * step for each, step in zip(point, along, strict=True)))

    def value(t: float) -> float:
        return sum(inner_product(weight, each) for weight, each in zip(weights, values(t), strict=True))

    claim, centre = claimed(plain, question, along, weights), value(0.0)
    above, below = ([value(sign * step) for step in STEPS] for sign in (1, -1))
    differences = [(one - other) / (2 * h) for one, other, h in zip(above, below, STEPS, strict=True)]
    triples = enumerate(zip(differences, differences[1:], differences[2:], strict=False), 1)
    spread, k = min((max(three) - min(three), k) for k, three in triples)
    doubt = spread + ROUNDING * torch.finfo(point[0].dtype).eps * abs(centre) / STEPS[k]
    bend = abs(above[k] - 2 * centre + below[k]) / STEPS[k]
    gap = abs(claim - differences[k]) if math.isfinite(claim) else max(1.0, abs(differences[k]))
    material = gap > NEGLIGIBLE * largest_entry([torch.nan_to_num(each, 0.0, 0.0, 0.0) for each in values(0.0)])
    text = f"{where}: claimed {claim:.9g}, differences {' '.join(f'{each:.9g}' for each in differences)}"
    return Explanation(material and bend <= SIDES * gap and NEARER * doubt < gap, text)


def directions(
    plain: Plain, question: Question, report: gradproof.Report
) -> Iterator[tuple[Sequence[Tensor], Sequence[Tensor], str]]:
    """The entries that a report names, and two random directions."""
    inner = question[1]
    like = plain.tensors if inner == REVERSE else plain.shapes
    for finding in report.findings:
        for entry in finding.entries[:2]:
            along = unit(plain.point(inner), plain.sorts(inner), finding.argument, entry.index, entry.part)
            out = entry.output
            weights = out and unit(like, plain.results(inner), out.path, out.index, out.part)
            if along is not None:
                where = f"{finding.argument}{list(entry.index)}{entry.part or ''}" + (f" of {out}" if out else "")
                yield along, weights or random_like(like, SEED + 1), where
    for seed in range(2):
        yield random_like(plain.point(inner), SEED + 2 + seed), random_like(like, SEED + 1), "a random direction"


def unit(
    like: Sequence[Tensor], names: Sequence[str], name: str | None, index: tuple[int, ...], part: str | None
) -> list[Tensor] | None:
    """One in one entry of the tensor of this name, and zero elsewhere; None where there is no such entry."""
    if name not in names:
        return None
    found = [torch.zeros_like(each) for each in like]
    found[names.index(name)][index] = 1j if part == "imag" else 1  # type: ignore[assignment]  # torch's stub knows no complex
    return found


def brief(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


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
    if report.verdict is gradproof.Verdict.INCONCLUSIVE:
        tally.reasons[report.reason.split()[0].rstrip(":,")] += 1
        tally.undecided[f"{scenario.name} ({report.reason.split()[0].rstrip(':,')})"] += 1
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


def torch_on(
    function: Callable[..., Any], inputs: Sequence[Tensor], question: Question, *, fast: bool, nondet_tol: float
) -> str:
    """The accuracy of the derivative alone is asked about, as gradproof is without its contracts."""
    options: dict[str, Any] = {
        "fast_mode": fast,
        "nondet_tol": nondet_tol,
        "raise_exception": False,
        "check_undefined_grad": False,
    }
    silent = mock.patch.object(GRADCHECK, "_run_slow_mode_and_get_error", return_value="")
    with silent, torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        try:
            if question[1] is None:
                passed = torch.autograd.gradcheck(
                    function, inputs, check_forward_ad=True, check_backward_ad=False, **options
                )
            else:
                options |= {"check_fwd_over_rev": question[0] == FORWARD, "check_rev_over_rev": question[0] == REVERSE}
                passed = torch.autograd.gradgradcheck(function, inputs, **options)
        except Exception:
            return "raised"
    return "pass" if passed else "fail"


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
    print("\ninconclusive, by the first word of the reason and by operator; absent, by operator")
    for tally in tallies:
        for counted in (tally.reasons, tally.undecided, tally.missing):
            listed = ", ".join(f"{name} {number}" for name, number in counted.most_common())
            print(f"  {tally.dtype} {label(tally.question)}: {listed or 'none'}")


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
        if kind.needs_complex and not any(each.is_complex() for each in plain.tensors):  # type: ignore[union-attr]
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
            f"resolution {report.resolution.relative:.2e} {report.reason}".rstrip()
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
