"""A bug: a function with a wrong backward, its inputs, and the names that are right for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gradproof.gallery.specimen import planted


@dataclass(frozen=True, slots=True)
class Bug:
    """A function whose backward is wrong, its inputs, and the names of a right diagnosis."""

    family: str
    title: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    names: frozenset[str]


def bug(
    title: str,
    value: Callable[..., Any],
    gradient: Callable[..., Any],
    *inputs: Callable[[], Any],
    names: str,
    family: str,
) -> Bug:
    """Return a bug from its values, its wrong gradient, and functions that make its inputs."""
    label = "".join(word.capitalize() for word in title.replace("-", " ").split() if word.isalnum())
    wrong = planted(label, value, gradient)
    return Bug(family, title, wrong, lambda: tuple(make() for make in inputs), frozenset(names.split()))


def pulled_back(function: Callable[..., Any], g: Any, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients that autograd computes for a function, zero where it does not depend on an input."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        value = function(*leaves)
    found = torch.autograd.grad(value, leaves, g, allow_unused=True)
    return tuple(torch.zeros_like(x) if each is None else each for x, each in zip(leaves, found, strict=True))


def fixed(*shape: int, seed: int = 31) -> Tensor:
    """Return random numbers that are no input: a weight, a kernel, a target."""
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def unrelated(g: Tensor, x: Tensor, seed: int) -> Tensor:
    """Return a gradient of the shape of `x` that is a dense random map of `g`: a mistake without a name."""
    return (fixed(x.numel(), g.numel(), seed=seed) @ g.flatten()).reshape(x.shape)
