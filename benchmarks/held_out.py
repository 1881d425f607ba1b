"""Planted bugs that the diagnosis was not written against: other functions, other shapes, several precisions.

A right function is taken, and the gradient that autograd finds for it is corrupted in one known way. Controls are
corrupted in a way that has no name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as f

Corrupt = Callable[["Run"], Sequence[Tensor]]
DTYPES = (torch.float64, torch.float32)


@dataclass(frozen=True)
class Run:
    """What a corrupted backward has at hand: the function, its inputs and the incoming gradient."""

    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    incoming: Tensor

    def gradients(
        self, *, function: Any = None, inputs: Sequence[Tensor] | None = None, incoming: Tensor | None = None
    ) -> list[Tensor]:
        """The right gradients, or those of something else."""
        leaves = [each.detach().requires_grad_() for each in inputs or self.inputs]
        with torch.enable_grad():
            value = (function or self.function)(*leaves)
        found = torch.autograd.grad(value, leaves, self.incoming if incoming is None else incoming, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


@dataclass(frozen=True)
class Plant:
    """A corrupted function at a point, and the diagnosis that is due; an empty one where none is."""

    kind: str
    title: str
    function: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    due: str


def corrupted(function: Callable[..., Tensor], corrupt: Corrupt) -> Callable[..., Tensor]:
    """The function with a corrupted backward."""

    class Corrupted(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> Tensor:
            ctx.save_for_backward(*inputs)
            return function(*inputs).detach().clone()

        @staticmethod
        def backward(ctx: Any, *incoming: Tensor) -> Any:
            return tuple(corrupt(Run(function, ctx.saved_tensors, incoming[0])))

    return Corrupted.apply


def draw(*shape: int, seed: int = 5, dtype: torch.dtype = torch.float64, low: float | None = None) -> Tensor:
    """Random numbers, or random numbers above `low`."""
    generator = torch.Generator().manual_seed(seed)
    if low is None:
        return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()
    return (low + torch.rand(shape, dtype=dtype, generator=generator)).requires_grad_()


# ── right functions: of one tensor, of one matrix, of two tensors ────────────────────────────────────────────────────


def smooth(x: Tensor) -> Tensor:
    """Entry by entry."""
    return torch.atan(x) + 0.3 * torch.exp(-x * x)


def mixing(x: Tensor) -> Tensor:
    """Every output depends on several inputs."""
    return torch.log_softmax(x * x, -1) * torch.cosh(0.3 * x)


def scalar(x: Tensor) -> Tensor:
    """One number."""
    return torch.logsumexp(2 * x.reshape(-1), 0) + (x**4).mean()


def two(a: Tensor, b: Tensor) -> Tensor:
    """Two tensors of one shape."""
    return torch.exp(0.5 * a) * torch.sin(b) + a * a


def broadcast(x: Tensor, b: Tensor) -> Tensor:
    """A tensor that is broadcast over the rows."""
    return torch.tanh(x * b) + b * b * x


def holomorphic(z: Tensor) -> Tensor:
    """Complex to complex."""
    return torch.sin(z) * z


def modulus(z: Tensor) -> Tensor:
    """Complex to real."""
    return (z.abs() ** 2).sum(-1) + z.real.sum(-1)


SHAPES = ((11,), (4, 6), (3, 2, 5), (40, 30))
SQUARE = ((5, 5), (2, 4, 4), (25, 25))


def _replaced(gradients: list[Tensor], number: int, piece: Tensor) -> list[Tensor]:
    return [piece if k == number else each for k, each in enumerate(gradients)]


def on_last(change: Callable[[Tensor], Tensor]) -> Corrupt:
    """A corruption of the last input's gradient."""
    return lambda run: _replaced(run.gradients(), len(run.inputs) - 1, change(run.gradients()[-1]))


def _shift(gradient: Tensor, offset: int, axis: int, *, wrap: bool) -> Tensor:
    rolled = gradient.roll(offset, axis)
    if not wrap:
        rolled.select(axis, 0 if offset > 0 else -1).zero_()
    return rolled


def _kept(gradient: Tensor, low: int, high: int, axis: int) -> Tensor:
    result = torch.zeros_like(gradient)
    piece = (slice(None),) * axis + (slice(low, high),)
    result[piece] = gradient[piece]
    return result


def sizes() -> Iterator[Plant]:
    """Factors and signs."""
    for function in (smooth, mixing, scalar):
        for shape in SHAPES:
            for dtype in DTYPES:
                for size, due in ((3.0, "factor"), (-1.0, "sign"), (0.5, "factor"), (1.7, "factor")):
                    x = draw(*shape, dtype=dtype)
                    title = f"{function.__name__}{shape} {dtype} × {size}"
                    yield Plant("factor, sign", title, corrupted(function, on_last(lambda g, s=size: s * g)), (x,), due)


def transposes() -> Iterator[Plant]:
    """Exchanged dimensions, and matrices that are not transposed."""
    for function in (smooth, mixing, scalar):
        for shape in SQUARE:
            x = draw(*shape)
            wrong = corrupted(function, on_last(lambda g: g.transpose(-1, -2)))
            yield Plant("transposed", f"{function.__name__}{shape}", wrong, (x,), "transposed")
    for shape in ((3, 7), (2, 3, 4)):
        wrong = corrupted(mixing, on_last(lambda g: g.transpose(-1, -2).reshape(g.shape)))
        yield Plant("transposed", f"reshaped {shape}", wrong, (draw(*shape),), "transposed")
    for size in (4, 12, 150):
        matrix = draw(size, size, seed=9).detach() / size**0.5
        wrong = corrupted(lambda x, m=matrix: m @ x, lambda run, m=matrix: [m @ run.incoming])
        yield Plant("transposed", f"matrix times vector {size}", wrong, (draw(size),), "transposed")


def conjugates() -> Iterator[Plant]:
    """Conjugates missing or one too many."""
    for shape in ((6,), (3, 4), (20, 15)):
        for dtype in (torch.complex128, torch.complex64):
            z = draw(*shape, dtype=dtype)
            for function in (holomorphic, modulus):
                wrong = corrupted(function, on_last(torch.conj_physical))
                yield Plant("conjugate", f"{function.__name__}{shape} {dtype}", wrong, (z,), "conjugate")
            wrong = corrupted(
                holomorphic, lambda run: [g.conj() for g in run.gradients(incoming=run.incoming.conj().resolve_conj())]
            )
            yield Plant("conjugate", f"factor {shape} {dtype}", wrong, (z,), "conjugate")


def sums() -> Iterator[Plant]:
    """One slice of a sum, or a sum too many."""
    for rows, columns in ((3, 4), (7, 2), (60, 40)):
        for index, which in ((0, "first"), (-1, "last")):
            wrong = corrupted(broadcast, lambda run, k=index: _one_slice(run, k))
            inputs = (draw(rows, columns), draw(columns, seed=6))
            yield Plant("missing-sum", f"{which} of {rows}×{columns}", wrong, inputs, "missing-sum")
        wrong = corrupted(broadcast, on_last(lambda g: g.sum().expand(g.shape)))
        yield Plant(
            "doubled-sum", f"bias {columns}", wrong, (draw(rows, columns), draw(columns, seed=6)), "doubled-sum"
        )
        for axis in (0, 1):
            wrong = corrupted(mixing, on_last(lambda g, a=axis: g.sum(a, keepdim=True).expand(g.shape)))
            yield Plant("doubled-sum", f"{rows}×{columns} over {axis}", wrong, (draw(rows, columns),), "doubled-sum")


def _one_slice(run: Run, index: int) -> list[Tensor]:
    only = torch.zeros_like(run.incoming)
    only[index] = run.incoming[index]
    return [run.gradients()[0], run.gradients(incoming=only)[1]]


def incoming() -> Iterator[Plant]:
    """The incoming gradient ignored, assumed, or passed on."""
    for function in (smooth, mixing, scalar):
        for shape in SHAPES:
            wrong = corrupted(function, lambda run: run.gradients(incoming=torch.ones_like(run.incoming)))
            yield Plant("incoming", f"{function.__name__}{shape}", wrong, (draw(*shape),), "incoming-ignored")
    for shape in SHAPES:
        wrong = corrupted(smooth, lambda run: [run.incoming.clone()])
        yield Plant("incoming", f"passed on {shape}", wrong, (draw(*shape),), "pass-through")


def duplicates() -> Iterator[Plant]:
    """Entries that are read several times."""
    for length, width, reads in ((6, 4, 9), (12, 1, 20), (300, 8, 500)):
        generator = torch.Generator().manual_seed(length)
        rows = torch.randint(0, length, (reads,), generator=generator)

        def function(x: Tensor, rows: Tensor = rows) -> Tensor:
            return torch.cos(x[rows])

        def corrupt(run: Run, rows: Tensor = rows) -> list[Tensor]:
            (x,) = run.inputs
            flow, result = -run.incoming * x[rows].sin(), torch.zeros_like(x)
            for place, row in enumerate(rows.tolist()):
                result[row] = flow[place]
            return [result]

        wrong = corrupted(function, corrupt)
        yield Plant("overwritten", f"{reads} of {length}×{width}", wrong, (draw(length, width),), "overwritten")


def places() -> Iterator[Plant]:
    """Shifts, blocks, masks, detached and exchanged tensors."""
    for function in (smooth, mixing):
        for shape in SHAPES:
            for axis in range(len(shape)):
                if shape[axis] < 4:
                    continue
                x = draw(*shape)
                for offset, wrap in ((1, True), (-1, False)):
                    wrong = corrupted(function, on_last(lambda g, o=offset, a=axis, w=wrap: _shift(g, o, a, wrap=w)))
                    yield Plant("shifted", f"{function.__name__}{shape} {offset} along {axis}", wrong, (x,), "shifted")
                for low, high in ((0, shape[axis] // 2), (shape[axis] // 3, None), (0, -1)):
                    wrong = corrupted(function, on_last(lambda g, lo=low, hi=high, a=axis: _kept(g, lo, hi, a)))
                    yield Plant("block", f"{function.__name__}{shape} {low}:{high} of {axis}", wrong, (x,), "block")
    for shape in SHAPES:
        for function in (smooth, mixing):
            wrong = corrupted(function, lambda run: [run.gradients()[0] * (run.inputs[0] < 0.2)])
            yield Plant("mask", f"{function.__name__}{shape}", wrong, (draw(*shape),), "mask")
        wrong = corrupted(lambda x: f.softplus(x) * (x > -0.3), lambda run: [run.incoming * run.inputs[0].sigmoid()])
        yield Plant("mask", f"mask forgotten {shape}", wrong, (draw(*shape),), "mask")
        for dtype in DTYPES:
            pair = (draw(*shape, dtype=dtype), draw(*shape, seed=6, dtype=dtype))
            wrong = corrupted(two, on_last(torch.zeros_like))
            yield Plant("detached", f"two{shape} {dtype}", wrong, pair, "detached")
            wrong = corrupted(two, lambda run: run.gradients()[::-1])
            yield Plant("mixed", f"two{shape} {dtype}", wrong, pair, "mixed")


def _halves(product: Callable[[Tensor, Tensor], Tensor]) -> tuple[Callable[[Tensor], Tensor], list[Corrupt]]:
    """A function of one tensor that is used twice, and backwards that differentiate one of the uses."""
    first: Corrupt = lambda run: run.gradients(function=lambda x: product(x, x.detach()))  # noqa: E731  # a case
    second: Corrupt = lambda run: run.gradients(function=lambda x: product(x.detach(), x))  # noqa: E731  # a case
    return lambda x: product(x, x), [first, second]


PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x cos x": lambda a, b: a * b.cos(),
    "x² sigmoid x": lambda a, b: a * a * b.sigmoid(),
    "exp x sin x": lambda a, b: a.exp() * b.sin(),
    "x over mean": lambda a, b: a / (1 + b.pow(2).mean(-1, keepdim=True)),
    "rms norm": lambda a, b: a * (b.pow(2).mean(-1, keepdim=True) + 0.1).rsqrt(),
    "log softmax": lambda a, b: a - b.logsumexp(-1, keepdim=True),
    "centred": lambda a, b: a - b.mean(-1, keepdim=True),
    "max-scaled": lambda a, b: a / b.abs().amax(-1, keepdim=True),
    "x plus sin 2x": lambda a, b: a + (2 * b).sin(),
    "x tanh sum": lambda a, b: a * b.sum(-1, keepdim=True).tanh(),
}
SQUARES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "X X": lambda a, b: a @ b,
    "Xᵀ X": lambda a, b: a.transpose(-1, -2) @ b,
    "gated": lambda a, b: a.tanh() * (b @ b.transpose(-1, -2)).sigmoid() if a.shape[-1] == a.shape[-2] else a * b,
}


def products() -> Iterator[Plant]:
    """Products of which one factor is differentiated."""
    for name, product in PRODUCTS.items():
        whole, halves = _halves(product)
        for shape in ((7,), (3, 6), (30, 20)):
            for half, corrupt in zip(("second", "first"), halves, strict=True):
                title = f"{name} {shape} without its {half}"
                yield Plant("missing-term", title, corrupted(whole, corrupt), (draw(*shape),), "missing-term")
    for name, product in SQUARES.items():
        whole, halves = _halves(product)
        for half, corrupt in zip(("second", "first"), halves, strict=True):
            wrong = corrupted(whole, corrupt)
            yield Plant("missing-term", f"{name} without its {half}", wrong, (draw(4, 4),), "missing-term")


def stale() -> Iterator[Plant]:
    """Derivatives at another point."""
    for function in (smooth, mixing):
        for shape in ((9,), (4, 5), (30, 20)):
            x = draw(*shape)
            wrong = corrupted(function, lambda run: run.gradients(inputs=[2 * run.inputs[0]]))
            yield Plant("stale", f"{function.__name__}{shape} at 2x", wrong, (x,), "stale")
            wrong = corrupted(function, lambda run: run.gradients(inputs=[run.function(run.inputs[0])]))
            yield Plant("stale", f"{function.__name__}{shape} at the value", wrong, (x,), "stale")
            wrong = corrupted(function, lambda run: run.gradients(inputs=[run.inputs[0] + 1]))
            yield Plant("stale", f"{function.__name__}{shape} at x + 1", wrong, (x,), "stale")


def approximations() -> Iterator[Plant]:
    """Nearly right everywhere."""
    for function in (smooth, mixing):
        for shape in ((9,), (4, 5), (30, 20)):
            for size in (3e-2, 1e-3, 1e-5):
                wrong = corrupted(
                    function, lambda run, s=size: [run.gradients()[0] * (1 + s * (7 * run.inputs[0]).cos())]
                )
                title = f"{function.__name__}{shape} {size}"
                yield Plant("approximation", title, wrong, (draw(*shape),), "approximation")


def controls() -> Iterator[Plant]:
    """Wrong without a pattern: a lone entry, random entries, a random matrix, another function's gradient."""
    for shape in SHAPES:
        x = draw(*shape)
        for k in (1, 5):
            wrong = corrupted(smooth, on_last(lambda g, k=k: _lone(g, k)))
            yield Plant("no pattern", f"one entry {shape}", wrong, (x,), "")
        noise = draw(*shape, seed=77).detach()
        wrong = corrupted(smooth, on_last(lambda g, n=noise: g * (1 + n)))
        yield Plant("no pattern", f"every entry {shape}", wrong, (x,), "")
        wrong = corrupted(smooth, on_last(lambda g, n=noise: torch.where(n > n.quantile(0.8), 3 * n * g, g)))
        yield Plant("no pattern", f"some entries {shape}", wrong, (x,), "")
        wrong = corrupted(mixing, lambda run: run.gradients(function=lambda t: (t * t.sin()).cumsum(-1)))
        yield Plant("no pattern", f"another function {shape}", wrong, (x,), "")
        wrong = corrupted(smooth, lambda run: run.gradients(function=lambda t: (t * 1.3).sin() * t.exp()))
        yield Plant("no pattern", f"another smooth function {shape}", wrong, (x,), "")

    for size in (1, 2, 3):
        noise = draw(size, seed=78).detach()
        for function in (smooth, scalar):
            wrong = corrupted(function, on_last(lambda g, n=noise: g * (1.234 + 0.5 * n)))
            yield Plant("no pattern", f"{function.__name__}, {size} entries", wrong, (draw(size),), "")
    for shape in ((5,), (20, 9)):
        noise = draw(*shape, seed=79, dtype=torch.complex128).detach()
        for function in (holomorphic, modulus):
            wrong = corrupted(function, on_last(lambda g, n=noise: g * (1 + 0.3 * n)))
            yield Plant("no pattern", f"{function.__name__}{shape}", wrong, (draw(*shape, dtype=torch.complex128),), "")
        wrong = corrupted(two, on_last(lambda g, n=noise: g * (1 + 0.3 * n.real)))
        yield Plant("no pattern", f"two{shape}", wrong, (draw(*shape), draw(*shape, seed=6)), "")


def _lone(gradient: Tensor, place: int) -> Tensor:
    flat = gradient.reshape(-1).clone()
    flat[place] *= 1.37
    return flat.reshape(gradient.shape)


FAMILIES = (
    sizes,
    transposes,
    conjugates,
    sums,
    incoming,
    duplicates,
    places,
    products,
    stale,
    approximations,
    controls,
)


def plants() -> Iterator[Plant]:
    """All of them."""
    for family in FAMILIES:
        yield from family()
