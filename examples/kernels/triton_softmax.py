"""A softmax in Triton, from its first check to the bug in its tail: the backward leaves the last columns out.

Run with `python examples/kernels/triton_softmax.py` on a GPU, or anywhere in Triton's interpreter, with
`TRITON_INTERPRET=1` before it.
"""

import torch
import triton
import triton.language as tl

import gradproof

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BLOCK = 16


@triton.jit
def forward_kernel(x, y, columns, width: tl.constexpr):
    """Write the softmax of one row."""
    row, at = tl.program_id(0), tl.arange(0, width)
    value = tl.load(x + row * columns + at, at < columns, -float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + at, value / tl.sum(value, 0), at < columns)


@triton.jit
def backward_kernel(y, dy, dx, columns, written, width: tl.constexpr):
    """Write the gradient of one row, in the first columns."""
    row, at = tl.program_id(0), tl.arange(0, width)
    value = tl.load(y + row * columns + at, at < columns, 0.0).to(tl.float32)
    incoming = tl.load(dy + row * columns + at, at < columns, 0.0).to(tl.float32)
    gradient = value * (incoming - tl.sum(value * incoming, 0))
    tl.store(dx + row * columns + at, gradient, at < written)


class Softmax(torch.autograd.Function):
    """A softmax of rows."""

    @staticmethod
    def forward(ctx, x):
        """Save the probabilities."""
        y = torch.empty_like(x)
        forward_kernel[(len(x),)](x, y, x.shape[1], width=triton.next_power_of_2(x.shape[1]))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        """Write whole blocks of columns alone: this is the bug."""
        (y,) = ctx.saved_tensors
        rows, columns = y.shape
        result = torch.zeros_like(y)
        written = columns // BLOCK * BLOCK
        width = triton.next_power_of_2(columns)
        backward_kernel[(rows,)](y, gradient.contiguous(), result, columns, written, width=width)
        return result


def logits(columns: int) -> torch.Tensor:
    """Draw a few rows."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(4, columns, generator=generator).to(DEVICE).requires_grad_()


def plain(x: torch.Tensor) -> torch.Tensor:
    """Softmax as PyTorch computes it."""
    return x.softmax(-1)


def main() -> list[gradproof.Report]:
    """Check the kernel where blocks divide its columns and where they do not, then compare it with torch's own."""
    reports = [
        gradproof.check(Softmax.apply, logits(32), seed=0),
        gradproof.check(Softmax.apply, logits(40), seed=0),
        gradproof.compare(Softmax.apply, plain, logits(40), seed=0),
        gradproof.check(Softmax.apply, logits(32), contracts="kernel", seed=0),
    ]
    for report in reports:
        print(report)
    return reports


if __name__ == "__main__":
    main()
