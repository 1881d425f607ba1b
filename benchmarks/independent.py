"""Judges that share no code with gradproof: torch's own check, and plain central differences of one entry."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

from gradproof import Entry, Place, Report

STEPS = (1e-3, 1e-4, 1e-5)
NEARER = 10.0  # a difference agrees with one value and not with another when it is this many times nearer to the first
ROUNDING = 32.0  # units of rounding that a claimed derivative is allowed
SEED = 0  # every evaluation draws the same numbers
KNOWN = {
    "as_strided_scatter": "the overwritten entries get the gradient, and the entries that are kept get none",
    "nn.functional.hardsigmoid": "the backward multiplies by a single-precision 1/6 in every precision",
    "nn.functional.max_unpool1d": "of several values with the same index the forward keeps one, and all get a gradient",
    "nn.functional.max_unpool2d": "of several values with the same index the forward keeps one, and all get a gradient",
    "nn.functional.max_unpool3d": "of several values with the same index the forward keeps one, and all get a gradient",
    "normal": "the gradient is zero by definition, though the output moves with the inputs when the draws are held",
    "normal.number_mean": "the gradient is zero by definition, though the output moves with the inputs, draws held",
}


@dataclass(frozen=True)
class Evidence:
    """One derivative entry: what gradproof and autograd say, and three central differences."""

    where: str
    claimed: float
    numerical: float
    autograd: float
    differences: tuple[float, ...]
    confirmed: bool

    def __str__(self) -> str:
        differences = " ".join(f"{value:.10g}" for value in self.differences)
        verdict = "torch's gradient is wrong" if self.confirmed else "NOT CONFIRMED"
        return (
            f"{self.where}: claimed {self.claimed:.10g}, gradproof {self.numerical:.10g}, "
            f"differences {differences}: {verdict}"
        )


GRADCHECK = importlib.import_module("torch.autograd.gradcheck")


def torch_says(function: Callable[..., Any], inputs: Any, *, fast: bool, nondet_tol: float = 0.0) -> str:
    """What `torch.autograd.gradcheck` says: pass, fail, or raised.

    Where the fast mode fails it runs the slow one too, for its message alone; that is left out here.
    """
    silent = mock.patch.object(GRADCHECK, "_run_slow_mode_and_get_error", return_value="")
    with silent, torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        try:
            passed = torch.autograd.gradcheck(
                function, inputs, fast_mode=fast, nondet_tol=nondet_tol, raise_exception=False
            )
        except Exception:
            return "raised"
    return "pass" if passed else "fail"


def size_of(inputs: Any) -> int:
    """The number of entries that are differentiated with respect to."""
    leaves, _ = tree_flatten(inputs)
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad)


def evidence(function: Callable[..., Any], inputs: Any, report: Report) -> Evidence | None:
    """The worst entry of a report's first finding, measured again; None where it names no entry of one output."""
    finding = report.findings[0]
    if finding.argument is None or not finding.entries or finding.entries[0].output is None:
        return None
    entry, output = finding.entries[0], finding.entries[0].output
    place = Place(path=finding.argument, index=entry.index, part=entry.part)
    differences = tuple(_difference(function, inputs, place, output, step) for step in STEPS)
    autograd, precision = _autograd(function, inputs, place, output)
    return Evidence(
        where=f"∂{output}/∂{place}",
        claimed=entry.claimed,
        numerical=entry.numerical,
        autograd=autograd,
        differences=differences,
        confirmed=_close(autograd, entry.claimed, precision) and _refuted(entry, differences, precision),
    )


def sixth(claimed: float) -> str:
    """How a claimed slope compares with the exact 1/6."""
    exact = Fraction(1, 6)
    single = Fraction(float(torch.tensor(1 / 6, dtype=torch.float32)))
    same = "is exactly" if Fraction(claimed) == single else "is not"
    return (
        f"{claimed!r} {same} the single-precision number nearest to 1/6; it differs from 1/6 by "
        f"{float(Fraction(claimed) - exact):.3g}, where double precision allows {float(Fraction(1 / 6) - exact):.2g}"
    )


def _refuted(entry: Entry, differences: tuple[float, ...], precision: float) -> bool:
    if not math.isfinite(entry.claimed):
        return all(_close(value, entry.numerical, 1e-4) for value in differences)
    return all(
        NEARER * abs(value - entry.numerical) <= abs(value - entry.claimed)
        and not _close(value, entry.claimed, precision)
        for value in differences
    )


def _close(one: float, other: float, precision: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or abs(one - other) <= ROUNDING * precision * max(abs(one), abs(other))


def _difference(function: Callable[..., Any], inputs: Any, place: Place, output: Place, step: float) -> float:
    """(f(x + h) − f(x − h)) / 2h for one entry of one output, in double precision."""
    above = _value(function, _moved(inputs, place, step), output)
    below = _value(function, _moved(inputs, place, -step), output)
    return float(above - below) / (2 * step)


def _value(function: Callable[..., Any], inputs: Any, output: Place) -> Tensor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        leaves, _ = tree_flatten_with_path(function(*inputs))
    found = next(leaf for path, leaf in leaves if f"output{keystr(path)}" == output.path)
    return _part(found[output.index], output.part)


def _autograd(function: Callable[..., Any], inputs: Any, place: Place, output: Place) -> tuple[float, float]:
    """The derivative that autograd claims, in the inputs' own precision, and that precision."""
    leaves, spec = tree_flatten_with_path(inputs)
    copies = [
        leaf.detach().requires_grad_(leaf.requires_grad) if isinstance(leaf, Tensor) else leaf for _, leaf in leaves
    ]
    target = next(copy for (path, _), copy in zip(leaves, copies, strict=True) if f"inputs{keystr(path)}" == place.path)
    value = _value(function, tree_unflatten(copies, spec), output)
    (gradient,) = torch.autograd.grad(value, target, allow_unused=True)
    whole = torch.zeros_like(target) if gradient is None else gradient.to_dense() if gradient.is_sparse else gradient
    return float(_part(whole[place.index], place.part)), torch.finfo(target.dtype).eps


def _moved(inputs: Any, place: Place, step: float) -> Any:
    leaves, spec = tree_flatten_with_path(inputs)
    copies = [_double(leaf) for _, leaf in leaves]
    for (path, _), copy in zip(leaves, copies, strict=True):
        if f"inputs{keystr(path)}" == place.path:
            copy[place.index] += step * (1j if place.part == "imag" else 1.0)
    return tree_unflatten(copies, spec)


def _double(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    wide = torch.complex128 if leaf.is_complex() else torch.float64 if leaf.is_floating_point() else leaf.dtype
    return leaf.detach().to(wide).clone(memory_format=torch.contiguous_format)


def _part(value: Tensor, part: str | None) -> Tensor:
    return value.real if part == "real" else value.imag if part == "imag" else value
