"""Autograd Functions with rules of the test's choice, right and wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def rule(
    forward: Callable[..., Any],
    backward: Callable[..., Any] | None = None,
    *,
    jvp: Callable[..., Any] | None = None,
    name: str = "Rule",
) -> Callable[..., Any]:
    """Make a Function from `backward(*incoming, *inputs)` and `jvp(*tangents, *inputs)`, each where it is given."""

    def remember(ctx: Any, *inputs: Tensor) -> Any:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)
        return forward(*inputs)

    members: dict[str, Any] = {"forward": staticmethod(remember)}
    if backward is not None:
        members["backward"] = staticmethod(lambda ctx, *incoming: backward(*incoming, *ctx.saved_tensors))
    if jvp is not None:
        members["jvp"] = staticmethod(lambda ctx, *tangents: jvp(*tangents, *ctx.saved_tensors))
    return type(name, (torch.autograd.Function,), members).apply


def func_rule(
    forward: Callable[..., Any],
    backward: Callable[..., Any],
    jvp: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Make a Function of one input in the style that torch.func takes; undefined gradients come as None."""

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return forward(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx, *incoming):
            return backward(*incoming, ctx.saved_tensors[0])

    if jvp is not None:
        Rule.jvp = staticmethod(lambda ctx, tangent: jvp(tangent, ctx.saved_tensors[0]))
    return Rule.apply


def with_context(forward: Callable[..., Any], backward: Callable[..., Any], **others: Any) -> Callable[..., Any]:
    """Make a Function from the static methods themselves, which take a context first."""
    members = {"forward": forward, "backward": backward, **others}
    kind = type("Ruled", (torch.autograd.Function,), {name: staticmethod(each) for name, each in members.items()})
    return kind.apply


def identity(ctx: Any, x: Tensor) -> Tensor:
    """Return a copy: a forward for `with_context`."""
    return x.clone()


def cosine(incoming: Tensor, x: Tensor) -> Tensor:
    """Return the right derivative of a sine, for `rule`."""
    return incoming * x.cos()


def twice_cosine(incoming: Tensor, x: Tensor) -> Tensor:
    """Return twice the derivative of a sine, for `rule`."""
    return 2 * incoming * x.cos()


def raising_rule(incoming: Tensor, x: Tensor) -> Tensor:
    """Raise, as a backward or a jvp with a mistake in its shapes does."""
    raise ValueError("no such shape")


def wrong_sine(factor: float | Tensor, name: str = "WrongSine") -> Callable[[Tensor], Tensor]:
    """Make a sine whose backward is off by a factor, or by one factor for each entry."""
    return rule(torch.sin, lambda incoming, x: incoming * x.cos() * factor, name=name)


class Spoiled(torch.autograd.Function):
    """The identity, whose backward passes the gradient through `change`."""

    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


def scaled(x: Tensor, factor: float) -> Tensor:
    """Return `x`, with a backward that is wrong by a factor."""
    return Spoiled.apply(x, lambda gradient: factor * gradient)


def doubled(x: Tensor) -> Tensor:
    """Return `x`, with a backward that is wrong by a factor of two."""
    return scaled(x, 2.0)


class Sine(torch.autograd.Function):
    """sin, with a backward and a jvp that are right, in the style that torch.func takes."""

    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, incoming):
        return incoming * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * ctx.saved_tensors[0].cos()
