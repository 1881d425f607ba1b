"""Derivatives of derivatives in plain torch: what is claimed, and what differences say. No code of gradproof's."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

import gradproof
from benchmarks.independent import GRADCHECK, NEARER, ROUNDING, SEED
from benchmarks.operators import Scenario
from benchmarks.planted import largest_entry

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
        duals = [forward_ad.make_dual(*pair) for pair in zip(point, tangents, strict=True)]  # type: ignore[no-untyped-call]  # torch
        unpacked = [forward_ad.unpack_dual(each) for each in function(*duals)]  # type: ignore[no-untyped-call]  # torch
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
    found = Explanation(False, report.message)
    raised = all(finding.kind.endswith(("-raised", "-rule")) for finding in report.findings)
    for along, weights, where in directions(plain, question, report):
        try:
            found = compared(plain, question, along, weights, where)
        except Exception as error:
            absent = raised and (isinstance(error, NotImplementedError) or any(word in str(error) for word in ABSENT))
            return Explanation(raised, f"torch raises {brief(error)}", absent)
        if raised:
            return Explanation(False, f"gradproof has no derivative where plain torch has one: {report.message}")
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
