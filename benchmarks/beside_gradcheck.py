"""What torch's gradcheck and gradproof say about the same functions, side by side.

Both have their default options, but for torch's fast mode where a row says so. "error" is torch's answer to a mismatch,
or to what it does not take.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

import gradproof

Backward = Callable[[Tensor, Tensor], Tensor]


def sine(backward: Backward) -> Callable[[Tensor], Tensor]:
    """Return the sine with a backward of its own, a function of the incoming gradient and the input."""

    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, incoming: Tensor) -> Tensor:
            return backward(incoming, *ctx.saved_tensors)

    return Sine.apply


def one_entry_off(incoming: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of the sine, with one entry 1 % too large."""
    gradient = incoming * x.cos()
    gradient[417] *= 1.01
    return gradient


def says_torch(function: Callable[..., Any], x: Tensor, **options: Any) -> str:
    """Return torch's answer: True, or an error."""
    try:
        return str(torch.autograd.gradcheck(function, x, **options))
    except (RuntimeError, ValueError):  # torch's own error for a mismatch is a RuntimeError
        return "error"


def says_gradproof(function: Callable[..., Any], x: Tensor) -> str:
    """Return gradproof's verdict, with the reason of an inconclusive check."""
    report = gradproof.check(function, x, seed=0)
    return report.verdict.value + (f" ({report.reason.value})" if report.reason else "")


def answers() -> Iterator[tuple[str, str, str, str]]:
    """Yield, for each function, its name, what its gradient is, and what torch and gradproof say about it."""
    few, many = (torch.linspace(0.1, 1, n, dtype=torch.float64, requires_grad=True) for n in (5, 1000))
    zero = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    single = few.detach().float().requires_grad_()
    matrix = torch.eye(3, dtype=torch.float64).to_sparse_csr().requires_grad_()
    rows: list[tuple[str, str, Callable[..., Any], Tensor, dict[str, Any]]] = [
        ("one entry of 1,000 is off by 1 % (fast mode)", "wrong", sine(one_entry_off), many, {"fast_mode": True}),
        ("all entries are off by 0.01 %", "wrong", sine(lambda u, x: 1.0001 * u * x.cos()), few, {}),
        ("the backward clips large incoming gradients", "wrong", sine(lambda u, x: u.clamp(-2, 2) * x.cos()), few, {}),
        ("the backward overwrites its incoming gradient", "wrong", sine(lambda u, x: u.mul_(x.cos())), few, {}),
        ("`exp` in float32", "right", torch.exp, single, {}),
        ("a cast to bfloat16 inside", "right", lambda x: x.bfloat16().double().sin(), few, {}),
        ("a sparse result, `2 * csr`", "right", lambda a: 2 * a, matrix, {}),
        ("`relu` at zero", "undefined", torch.relu, zero, {}),
    ]
    for name, truth, function, x, options in rows:
        yield name, truth, says_torch(function, x, **options), says_gradproof(function, x)


def main() -> None:
    """Print the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about single precision, and about CSR
        print("| function | its gradient is | torch | gradproof |\n|---|---|---|---|")
        for row in answers():
            print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
