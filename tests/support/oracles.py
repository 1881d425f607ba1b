"""Torch's own derivatives, and central differences, each as one number: ⟨u, Df(x)v⟩ or ⟨u, D²f(x)(v, w)⟩."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.autograd import forward_ad

from gradproof import check
from support.checks import BOTH
from support.points import normal


def modes_found(function, x, *, order, seed=0, modes=BOTH):
    report = check(function, x.clone().requires_grad_(), modes=modes, order=order, seed=seed, contracts=())
    return {finding.mode for finding in report.findings}


def slope(function, x, u, v, h=1e-5):
    def central(step):
        return (function(x + step * v) - function(x - step * v)) / (2 * step)

    return float((u * (4 * central(h / 2) - central(h)) / 3).sum())


def pulled(function, x, u, v):
    x = x.clone().requires_grad_()
    y = function(x)
    return float((torch.autograd.grad(y, x, u)[0] * v).sum()) if y.requires_grad else 0.0


def pushed(function, x, u, v):
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, v))).tangent
        return 0.0 if tangent is None else float((tangent * u).sum())


def curvature(function, x, u, v, w, h=2e-3):
    def mixed(step):
        a, b = step * v, step * w
        values = function(x + a + b) - function(x + a - b) - function(x - a + b) + function(x - a - b)
        return values / (4 * step * step)

    return float((u * (4 * mixed(h / 2) - mixed(h)) / 3).sum())


def reverse_over_reverse(function, x, u, v, w):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(x), x, u, create_graph=True)
    return float((torch.autograd.grad((gradient * v).sum(), x)[0] * w).sum())


def forward_over_reverse(function, x, u, v, w):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), w)
        (gradient,) = torch.autograd.grad(function(dual), dual, u, create_graph=True)
        return float((forward_ad.unpack_dual(gradient).tangent.detach() * v).sum())


def reverse_over_forward(function, x, u, v, w):
    x = x.clone().requires_grad_()
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, v))).tangent
        if not tangent.requires_grad:
            return 0.0
        (gradient,) = torch.autograd.grad((tangent * u).sum(), x, allow_unused=True)
    return 0.0 if gradient is None else float((gradient * w).sum())


def forward_over_forward(function, x, u, v, w):
    def inner(y):
        return torch.func.jvp(function, (y,), (v,))[1]

    return float((torch.func.jvp(inner, (x,), (w,))[1] * u).sum())


FIRST = {"reverse": pulled, "forward": pushed}

SECOND = {
    "reverse over reverse": reverse_over_reverse,
    "forward over reverse": forward_over_reverse,
    "reverse over forward": reverse_over_forward,
    "forward over forward": forward_over_forward,
}


def wrong_in_torch(function, x, order):
    """The modes in which torch's derivative is not what central differences say, by a thousandth or more."""
    directions = [normal(*x.shape, seed=seed) for seed in (1, 2)][:order]
    u = normal(*function(x).shape, seed=3)
    truth = (slope if order == 1 else curvature)(function, x, u, *directions)
    assert abs(truth) > 1e-2
    gaps = {mode: abs(f(function, x, u, *directions) - truth) for mode, f in (FIRST if order == 1 else SECOND).items()}
    doubtful = [mode for mode, gap in gaps.items() if 1e-6 * abs(truth) < gap < 1e-3 * abs(truth)]
    assert doubtful == []
    return {mode for mode, gap in gaps.items() if not gap < 1e-3 * abs(truth)}


@dataclass(frozen=True, kw_only=True)
class Case:
    function: Callable
    x: torch.Tensor
    wrong: set
