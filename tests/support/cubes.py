"""x³ with a first derivative that is right, and a second derivative of choice."""

from __future__ import annotations

import torch


class Cube(torch.autograd.Function):
    """x³ with a derivative that is right, and a second derivative of choice."""

    @staticmethod
    def forward(ctx, x, second):
        ctx.save_for_backward(x)
        ctx.second = second
        return x**3

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return _Slope.apply(incoming, x, ctx.second), None


class _Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, incoming, x, second):
        ctx.save_for_backward(incoming, x)
        ctx.second = second
        return 3 * incoming * x**2

    @staticmethod
    def backward(ctx, incoming):
        first, x = ctx.saved_tensors
        return (*ctx.second(incoming, first, x), None)


SECOND = {
    "right": lambda h, g, x: (3 * h * x**2, 6 * h * g * x),
    "twice as much": lambda h, g, x: (3 * h * x**2, 12 * h * g * x),
    "the other sign": lambda h, g, x: (3 * h * x**2, -6 * h * g * x),
    "nothing in x": lambda h, g, x: (3 * h * x**2, 0 * x),
    "no gradient in x": lambda h, g, x: (3 * h * x**2, None),
    "wrong in the incoming gradient": lambda h, g, x: (3.1 * h * x**2, 6 * h * g * x),
    "nothing in the incoming gradient": lambda h, g, x: (0 * h, 6 * h * g * x),
    "one entry": lambda h, g, x: (3 * h * x**2, 6 * h * g * x * (1 + 1e-4 * (torch.arange(x.numel()) == 1))),
    "wrong with gaps": lambda h, g, x: (3 * h * x**2, (6 if g.is_contiguous() else 7) * h * g * x),
    "not a number": lambda h, g, x: (3 * h * x**2, 6 * h * g * x * torch.nan),
}

WRONG = [name for name in SECOND if name not in ("right", "wrong with gaps")]


def cube(second):
    return lambda x: Cube.apply(x, SECOND.get(second, second))


def two(x, y):
    return x * y, (x + y).sin().sum()
