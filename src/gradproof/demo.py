"""Three reports: a right gradient, a subtly wrong one, and a function at a kink.

Run it with `python -m gradproof.demo`.
"""

from __future__ import annotations

from typing import Any


def main() -> None:
    """Check three functions and show what gradproof says, beside what torch's own fast check says."""
    import torch

    import gradproof

    class OffByABit(torch.autograd.Function):
        """A sine whose backward is wrong by a hundredth of a percent in one entry of a thousand."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            result: torch.Tensor = gradient * x.cos()
            result[417] *= 1.0001
            return result

    torch.manual_seed(0)
    x = torch.randn(1000, dtype=torch.float64, requires_grad=True)
    kink = torch.tensor([1.5, -0.5, 0.0, 2.0], dtype=torch.float64, requires_grad=True)
    scenes: list[tuple[str, Any, torch.Tensor]] = [
        ("A right gradient", torch.nn.Softplus().double(), x),
        ("A gradient that is wrong by 0.01 % in one entry of a thousand", OffByABit.apply, x),
        ("A function at a kink", torch.relu, kink),
    ]
    for title, function, inputs in scenes:
        print(f"── {title} ".ljust(96, "─"))
        gradproof.check(function, inputs, seed=0).show()
        passes = torch.autograd.gradcheck(function, inputs, fast_mode=True, raise_exception=False)
        verdict = "passes" if passes else "fails"
        print(f"  (torch.autograd.gradcheck with fast_mode=True {verdict} it.)\n")


if __name__ == "__main__":
    main()
