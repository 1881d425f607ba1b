"""The functions that people differentiate, at any size."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Function = Callable[[Tensor], Tensor]
Builder = Callable[[int], tuple[Function, Tensor]]


def _point(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


def elementwise(size: int) -> tuple[Function, Tensor]:
    return torch.sin, _point(size)


def softmax(size: int) -> tuple[Function, Tensor]:
    return lambda x: torch.softmax(x, -1), _point(size // 1000, 1000)


def layer_norm(size: int) -> tuple[Function, Tensor]:
    return lambda x: functional.layer_norm(x, (500,)), _point(size // 500, 500)


def matmul(size: int) -> tuple[Function, Tensor]:
    width = int(size**0.5)
    weight = torch.randn(width, width, dtype=torch.float64)
    return lambda x: x @ weight, _point(size // width, width)


def linear(size: int) -> tuple[Function, Tensor]:
    """A product with fewer operations an entry than the square one: the harder case for what comes on top of it."""
    width = min(1000, int(size**0.5))
    weight = torch.randn(width, width, dtype=torch.float64)
    return lambda x: x @ weight, _point(size // width, width)


def convolution(size: int) -> tuple[Function, Tensor]:
    weight = torch.randn(16, 16, 3, 3, dtype=torch.float64)
    side = 8 if size < 100_000 else 64
    return lambda x: functional.conv2d(x, weight, padding=1), _point(max(1, size // (16 * side * side)), 16, side, side)


def gather_with_duplicates(size: int) -> tuple[Function, Tensor]:
    index = torch.randint(size, (2 * size,))
    return lambda x: x[index] ** 2, _point(size)


def attention(size: int) -> tuple[Function, Tensor]:
    length, width = (16, 16) if size < 100_000 else (256, 64)
    heads = max(1, size // (3 * length * width))

    def attend(x: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(x[0], x[1], x[2])

    return attend, _point(3, heads, length, width)


BUILDERS: dict[str, Builder] = {
    "elementwise": elementwise,
    "softmax": softmax,
    "layer norm": layer_norm,
    "matmul": matmul,
    "linear": linear,
    "convolution": convolution,
    "gather": gather_with_duplicates,
    "attention": attention,
}
