"""The sweep's cases of functions made for it: lower precisions inside, rough values, kinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as f

from benchmarks.detection import LEAST_EFFECT
from benchmarks.held_out import corrupted, draw, mixing, smooth
from benchmarks.planted import effect
from benchmarks.sweep_cases import FULL, Case, Skipped, Subject

Function = Callable[[Tensor], Tensor]
RIGHT = "right"
LOWER = (torch.bfloat16, torch.float16, torch.float32)
COVERAGES: Mapping[str, Mapping[str, Any]] = {"probe": {}, "full": FULL}
SHAPES = ((4,), (4, 6), (12, 25))


def _last_zero(gradient: Tensor) -> Tensor:
    flat = gradient.reshape(-1).clone()
    flat[-1] = 0
    return flat.reshape(gradient.shape)


BUGS: Mapping[str, Function] = {
    RIGHT: lambda gradient: gradient,
    "zero": torch.zeros_like,
    "doubled": lambda gradient: 2 * gradient,
    "sign flipped": torch.neg,
    "last entry zero": _last_zero,
    "all + 10 %": lambda gradient: 1.1 * gradient,
}


@dataclass(frozen=True)
class Rule:
    """A function with a backward of its own: the derivative of another one, computed in a dtype of its own."""

    function: Function
    derived: Function
    inside: torch.dtype | None = None

    def with_bug(self, bug: str) -> Callable[..., Tensor]:
        """The function with a gradient that is right, or wrong in a known way."""
        inside = self.inside
        return corrupted(
            self.function,
            lambda run: [
                BUGS[bug](gradient)
                for gradient in run.gradients(function=self.derived, incoming=run.incoming.to(inside or run.incoming))
            ],
        )

    def subject(self, bug: str, point: Callable[[], Tensor]) -> Subject:
        """What is checked, unless the bug changes nothing at this point."""
        x = point()
        if bug != RIGHT:
            right, wrong = (_gradient(self.with_bug(each), x) for each in (RIGHT, bug))
            if not effect([right], [wrong]) > LEAST_EFFECT:
                raise Skipped("the error changes nothing")
        return Subject(self.with_bug(bug), (x,))


def _gradient(function: Callable[..., Tensor], x: Tensor) -> Tensor:
    value = function(x)
    incoming = draw(*value.shape, seed=11).detach().to(value.dtype)
    return torch.autograd.grad(value, x, incoming)[0].to(torch.float64)


def with_bugs(
    table: str, name: str, rule: Rule, point: Callable[[], Tensor], options: Mapping[str, Any]
) -> Iterator[Case]:
    """The function with a right gradient and with every wrong one."""
    for bug in BUGS:
        wrong = bug != RIGHT
        yield Case(table, f"{name}, {bug}", partial(rule.subject, bug, point), options, planted=wrong, wrong=wrong)


# ── casts: functions with a place inside where a value can be rounded ────────────────────────────────────────────────


@cache
def _matrix(rows: int, columns: int) -> Tensor:
    return draw(rows, columns, seed=rows).detach() / math.sqrt(rows)


def _softmax(x: Tensor, cast: Function) -> Tensor:
    powers = cast((x - x.amax(-1, keepdim=True).detach()).exp())
    return powers / powers.sum(-1, keepdim=True)


def _layer_norm(x: Tensor, cast: Function) -> Tensor:
    centred = cast(x - x.mean(-1, keepdim=True))
    return centred * (centred.square().mean(-1, keepdim=True) + 1e-5).rsqrt()


def _matmul(x: Tensor, cast: Function) -> Tensor:
    size = x.shape[-1]
    return cast(x @ _matrix(size, size + 1).to(x)) @ _matrix(size + 1, 3).to(x)


INSIDES: Mapping[str, Callable[[Tensor, Function], Tensor]] = {
    "sin": lambda x, cast: cast(1.5 * x).sin(),
    "exp·x": lambda x, cast: cast(x.exp()) * x,
    "softmax": _softmax,
    "layer norm": _layer_norm,
    "matmul": _matmul,
    "gelu": lambda x, cast: x * cast(0.5 * (1 + (x * math.sqrt(0.5)).erf())),
    "cumsum": lambda x, cast: cast(x * x).cumsum(-1),
    "x/(1+x²)": lambda x, cast: x / cast(1 + x * x),
}
Inside = Callable[[Tensor, Function], Tensor]


def _same(x: Tensor) -> Tensor:
    return x


def _rounded(dtype: torch.dtype, x: Tensor) -> Tensor:
    return x.to(dtype).to(x.dtype)


def casts_of(inside: Inside, dtype: torch.dtype) -> Mapping[str, Function]:
    """The function with a lower precision in its inputs, its outputs, between them, or all the way."""
    rounded = partial(_rounded, dtype)
    return {
        "inputs": lambda x: inside(rounded(x), _same),
        "outputs": lambda x: rounded(inside(x, _same)),
        "intermediate": lambda x: inside(x, rounded),
        "throughout": lambda x: inside(x.to(dtype), _same).to(x.dtype),
    }


def kernel_of(inside: Inside, dtype: torch.dtype) -> Rule:
    """A kernel that takes and gives one dtype, computes in single precision, and refuses double precision."""

    def single(x: Tensor) -> Tensor:
        return inside(x.to(torch.float32), _same)

    def function(x: Tensor) -> Tensor:
        if x.dtype != dtype:
            raise TypeError(f"this kernel is for {dtype}, not for {x.dtype}")
        return single(x).to(dtype)

    return Rule(function, single, torch.float32)


def casts() -> Iterator[Case]:
    """Lower precisions inside of functions in double precision, and kernels in lower precisions."""
    for name, inside in INSIDES.items():
        for dtype in LOWER:
            for shape in SHAPES:
                title = f"{name}{shape} {str(dtype).removeprefix('torch.')}"
                for where, function in casts_of(inside, dtype).items():
                    rule = Rule(function, partial(inside, cast=_same))
                    yield from with_bugs("casts", f"{title} {where}", rule, partial(draw, *shape), {})
                point = partial(draw, *shape, dtype=dtype)
                yield from with_bugs("casts", f"{title} kernel", kernel_of(inside, dtype), point, {})


# ── rough: values that change on scales far below usual steps, or that are mostly rounding ───────────────────────────


def _oscillating(k: float, x: Tensor) -> Tensor:
    return x + (k * x).sin() / k


def _from_table(pitch: float, x: Tensor) -> Tensor:
    below = (x / pitch).floor()
    low, high = (below * pitch).sin(), ((below + 1) * pitch).sin()
    return low + (x / pitch - below) * (high - low)


def _noisy(function: Function, size: float, x: Tensor) -> Tensor:
    noise = ((x * 2.0**40).sin() * 43758.5453).frac()
    return function(x) * (1 + size * (2 * noise.abs() - 1))


def _naive_variance(x: Tensor) -> Tensor:
    return (x * x).mean() - x.mean() ** 2


def _hilbert(size: int) -> Tensor:
    numbers = torch.arange(size, dtype=torch.float64)
    return 1 / (numbers[:, None] + numbers + 1)


def _far(*shape: int, centre: float, spread: float = 1.0) -> Tensor:
    return (centre + spread * draw(*shape, seed=7).detach()).requires_grad_()


def _with_huge(size: float) -> Tensor:
    x = draw(6, seed=8).detach()
    x[2] = size
    return x.requires_grad_()


def entrywise() -> Iterator[tuple[str, Rule]]:
    """Rough functions of any shape."""
    for exponent in range(5, 10):
        function = partial(_oscillating, 10.0**exponent)
        yield f"oscillation 1e{exponent}", Rule(function, function)
    yield "sin(1e6 x)", Rule(*2 * (lambda x: (1e6 * x).sin(),))
    for exponent in range(3, 8):
        function = partial(_from_table, 10.0**-exponent)
        yield f"table of pitch 1e-{exponent}", Rule(function, function)
    for exponent in range(4, 11):
        for base in (smooth, mixing):
            yield f"{base.__name__} with noise 1e-{exponent}", Rule(partial(_noisy, base, 10.0**-exponent), base)


def at_points() -> Iterator[tuple[str, Rule, Callable[[], Tensor]]]:
    """Rough functions at points of their own."""
    for size in (6, 8, 10, 12):
        right_hand, matrix = partial(torch.linalg.solve, _hilbert(size)), partial(_solved, ones=torch.ones(size))
        yield f"Hilbert solve {size}", Rule(right_hand, right_hand), partial(draw, size)
        yield f"Hilbert matrix {size}", Rule(matrix, matrix), lambda size=size: _hilbert(size).requires_grad_()
    for name, function in (("variance", torch.var), ("naive variance", _naive_variance)):
        yield f"{name} near 1e8", Rule(function, function), partial(_far, 20, centre=1e8)
    cumulative = partial(torch.logcumsumexp, dim=0)
    for size in (1e3, 1e8):
        yield f"logcumsumexp with {size:.0e}", Rule(cumulative, cumulative), partial(_with_huge, size)
    yield "lgamma(-1e6)", Rule(torch.lgamma, torch.lgamma), partial(_far, 5, centre=-1e6 + 0.4, spread=0.05)


def _solved(matrix: Tensor, ones: Tensor) -> Tensor:
    return torch.linalg.solve(matrix, ones.to(matrix.dtype))


def rough() -> Iterator[Case]:
    """Right and wrong gradients of rough functions."""
    for coverage, options in COVERAGES.items():
        for name, rule in entrywise():
            for shape in ((6,), (12, 5)):
                yield from with_bugs("rough", f"{name}{shape} {coverage}", rule, partial(draw, *shape), options)
        for name, rule, point in at_points():
            yield from with_bugs("rough", f"{name} {coverage}", rule, point, options)


# ── kinks: right subgradients where there is no derivative, and right gradients beside such points ───────────────────


KINKED: Mapping[str, Function] = {
    "abs": torch.abs,
    "relu": torch.relu,
    "leaky relu": f.leaky_relu,
    "hardtanh": f.hardtanh,
    "relu6": lambda x: f.relu6(6 * x),
    "hardswish": lambda x: f.hardswish(3 * x),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "softshrink": f.softshrink,
    "hardshrink": f.hardshrink,
    "threshold": lambda x: f.threshold(x, 0.5, 0.5),
    "huber": lambda x: f.huber_loss(x, torch.zeros_like(x)),
    "smooth l1": lambda x: f.smooth_l1_loss(x, torch.zeros_like(x), reduction="none"),
    "hinge": lambda x: (1 - x).clamp(min=0).sum(),
    "x|x|": lambda x: x * x.abs(),
    "max": torch.max,
    "max of a dimension": lambda x: x.max(0).values,
    "amax": torch.amax,
    "min": torch.min,
    "median": torch.median,
    "quantile": lambda x: x.quantile(0.4),
    "sort": lambda x: x.sort().values,
    "topk": lambda x: x.topk(2).values,
    "kthvalue": lambda x: x.kthvalue(3).values,
    "cummax": lambda x: x.cummax(0).values,
    "max pool": lambda x: f.max_pool1d(x[None], 2),
    "maximum": lambda x: torch.maximum(x, x.flip(0)),
    "minimum with a number": lambda x: torch.minimum(x, torch.full_like(x, 0.5)),
    "norm": torch.linalg.vector_norm,
    "norm 1": lambda x: torch.linalg.vector_norm(x, 1),
    "norm ∞": lambda x: torch.linalg.vector_norm(x, math.inf),
    "norm of rows": lambda x: x.reshape(3, 2).norm(dim=1),
    "distances": lambda x: torch.cdist(x.reshape(3, 2), x.reshape(3, 2)),
    "range": lambda x: x.max() - x.min(),
    "prod": torch.prod,
}
POINTS: Mapping[str, list[float]] = {
    "zeros": [0.0] * 6,
    "one zero": [0.3, -1.1, 0.0, 0.7, 1.9, -0.4],
    "a tie": [0.3, 1.9, -0.6, 0.7, 1.9, -0.4],
    "all equal": [0.7] * 6,
    "halves": [0.5, -0.5, 0.5, 1.5, -1.0, 0.5],
    "ones": [1.0, -1.0, 1.0, 2.0, -1.0, 0.2],
    "nearly": [1e-9, -1e-9, 0.5 + 1e-9, 1.0, 1.0 + 1e-9, -0.5],
    "no kink": [0.31, -1.13, 0.62, 0.74, 1.92, -0.43],
}


def kinks() -> Iterator[Case]:
    """PyTorch's subgradients."""
    for name, function in KINKED.items():
        for place, point in POINTS.items():
            for dtype in (torch.float64, torch.float32):
                for coverage, options in COVERAGES.items():
                    title = f"{name} at {place} {str(dtype).removeprefix('torch.')} {coverage}"
                    yield Case("kinks", title, partial(_at, function, point, dtype), options)


def _at(function: Function, point: list[float], dtype: torch.dtype) -> Subject:
    return Subject(function, (torch.tensor(point, dtype=dtype, requires_grad=True),))
