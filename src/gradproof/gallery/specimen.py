"""Specimens of the gallery: functions whose derivatives are wrong in one known way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Value = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A planted bug: a title, the wrong function, a right one with the same values, inputs, the diagnosis."""

    name: str
    title: str
    function: Callable[..., Any]
    right: Callable[..., Any]
    inputs: Callable[[], tuple[Any, ...]]
    diagnosis: str


def planted(name: str, value: Value, gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with these values, whose backward is `gradient(incoming, *inputs)`.

    With several outputs `incoming` is a tuple. `gradient` gives one result, or a tuple with one for each input.

    >>> square = planted("Square", lambda x: x * x, lambda incoming, x: 4 * incoming * x)
    >>> x = torch.ones(2, requires_grad=True)
    >>> torch.autograd.grad(square(x).sum(), x)
    (tensor([4., 4.]),)
    """

    def forward(ctx: Any, *inputs: Any) -> Any:
        ctx.constants = [None if isinstance(each, Tensor) else each for each in inputs]
        ctx.save_for_backward(*(each if isinstance(each, Tensor) else None for each in inputs))
        return value(*inputs)

    def backward(ctx: Any, *incoming: Tensor) -> Any:
        pairs = zip(ctx.saved_tensors, ctx.constants, strict=True)
        inputs = [constant if tensor is None else tensor for tensor, constant in pairs]
        return gradient(incoming[0] if len(incoming) == 1 else incoming, *inputs)

    rules = {"forward": staticmethod(forward), "backward": staticmethod(backward), "__doc__": f"{name}, planted."}
    kind: Any = type(name, (torch.autograd.Function,), rules)
    return kind.apply  # type: ignore[no-any-return]  # torch's own


def specimen(
    name: str,
    title: str,
    value: Value,
    gradient: Callable[..., Any],
    *inputs: Callable[[], Any],
    diagnosis: str,
) -> Specimen:
    """Return a specimen from its values, its wrong gradient, and functions that make its inputs."""
    label = "".join(word.capitalize() for word in name.split("-"))
    return Specimen(
        name=name,
        title=title,
        function=planted(label, value, gradient),
        right=value,
        inputs=lambda: tuple(make() for make in inputs),
        diagnosis=diagnosis,
    )


def normal(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> Callable[[], Tensor]:
    """Return a function that makes normally distributed inputs, the same at every call."""

    def make() -> Tensor:
        return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed)).requires_grad_()

    return make


def positive(*shape: int, seed: int = 1) -> Callable[[], Tensor]:
    """Return a function that makes random inputs between ½ and 2."""

    def make() -> Tensor:
        draw = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        return (0.5 + 1.5 * draw).requires_grad_()

    return make


def complex_normal(*shape: int, seed: int = 1) -> Callable[[], Tensor]:
    """Return a function that makes random complex inputs."""
    return normal(*shape, seed=seed, dtype=torch.complex128)


def indices(*numbers: int) -> Callable[[], Tensor]:
    """Return a function that makes indices."""
    return lambda: torch.tensor(numbers)


def named(specimens: Sequence[Specimen]) -> dict[str, Specimen]:
    """Return the specimens by name."""
    return {each.name: each for each in specimens}
