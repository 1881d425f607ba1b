"""Real Triton kernels on a GPU, right and with bugs in their backward; a compiled MLP; flash attention of torch's.

`python -m benchmarks.triton_kernels` needs a GPU and Triton. It prints a line for every kernel, dtype and bug, and
returns 1 if a right kernel fails or a bug passes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

import gradproof

ROWS, COLUMNS, BLOCK = 64, 200, 256


@triton.jit
def softmax_forward(x, y, columns, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + at, at < columns, -float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + at, value / tl.sum(value, 0), at < columns)


@triton.jit
def softmax_backward(y, dy, dx, columns, limit, factor, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(y + row * columns + at, at < columns, 0.0).to(tl.float32)
    incoming = tl.load(dy + row * columns + at, at < columns, 0.0).to(tl.float32)
    gradient = factor * value * (incoming - tl.sum(value * incoming, 0))
    gradient = tl.where(at < limit, gradient, 0.0)
    tl.store(dx + row * columns + at, gradient, at < columns)


@triton.jit
def rms_forward(x, y, columns, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(value * value, 0) / columns + 1e-6)
    tl.store(y + row * columns + at, value * scale, at < columns)


@triton.jit
def rms_backward(x, dy, dx, columns, limit, factor, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32)
    incoming = tl.load(dy + row * columns + at, at < columns, 0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(value * value, 0) / columns + 1e-6)
    inner = tl.sum(value * incoming, 0) * scale * scale / columns
    gradient = factor * scale * (incoming - value * inner)
    tl.store(dx + row * columns + at, tl.where(at < limit, gradient, 0.0), at < columns)


@triton.jit
def layer_norm_forward(x, y, columns, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32)
    centred = tl.where(at < columns, value - tl.sum(value, 0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + 1e-5)
    tl.store(y + row * columns + at, centred * scale, at < columns)


@triton.jit
def layer_norm_backward(x, dy, dx, columns, limit, factor, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + at, at < columns, 0.0).to(tl.float32)
    incoming = tl.load(dy + row * columns + at, at < columns, 0.0).to(tl.float32)
    centred = tl.where(at < columns, value - tl.sum(value, 0) / columns, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + 1e-5)
    normed = centred * scale
    gradient = incoming - tl.sum(incoming, 0) / columns - normed * tl.sum(incoming * normed, 0) / columns
    tl.store(dx + row * columns + at, tl.where(at < limit, factor * scale * gradient, 0.0), at < columns)


@triton.jit
def swiglu_forward(a, b, y, columns, block: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, block)
    one = tl.load(a + row * columns + at, at < columns, 0.0).to(tl.float32)
    other = tl.load(b + row * columns + at, at < columns, 0.0).to(tl.float32)
    tl.store(y + row * columns + at, one * tl.sigmoid(one) * other, at < columns)


@triton.jit
def swiglu_backward(a, b, dy, columns, limit, factor, block: tl.constexpr):
    """Write both gradients over what was saved."""
    row, at = tl.program_id(0), tl.arange(0, block)
    one = tl.load(a + row * columns + at, at < columns, 0.0).to(tl.float32)
    other = tl.load(b + row * columns + at, at < columns, 0.0).to(tl.float32)
    incoming = factor * tl.load(dy + row * columns + at, at < limit, 0.0).to(tl.float32)
    gate = tl.sigmoid(one)
    silu = one * gate
    tl.store(a + row * columns + at, incoming * other * (gate + silu * (1 - gate)), at < columns)
    tl.store(b + row * columns + at, incoming * silu, at < columns)


@triton.jit
def cross_entropy(x, loss, columns, limit, factor, block: tl.constexpr):
    """Compute the loss of every row, and write its gradient over the logits. The target of row k is k mod columns."""
    row, at = tl.program_id(0), tl.arange(0, block)
    value = tl.load(x + row * columns + at, at < columns, -float("inf")).to(tl.float32)
    most = tl.max(value, 0)
    total = tl.sum(tl.exp(value - most), 0)
    target = row % columns
    chosen = tl.sum(tl.where(at == target, value, 0.0), 0)
    tl.store(loss + row, tl.log(total) + most - chosen)
    gradient = factor * (tl.exp(value - most) / total - tl.where(at == target, 1.0, 0.0))
    tl.store(x + row * columns + at, tl.where(at < limit, gradient, 0.0), at < columns)


def normalising(forward, backward, *, saves_output: bool, limit: int, factor: float) -> Callable[[Tensor], Tensor]:
    """A kernel on rows, with a tail of the backward masked out from `limit` on, or scaled by a factor."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.empty_like(x)
            forward[(x.shape[0],)](x, y, x.shape[1], block=BLOCK)
            ctx.save_for_backward(y if saves_output else x)
            return y

        @staticmethod
        def backward(ctx, incoming):
            (saved,) = ctx.saved_tensors
            gradient = torch.empty_like(saved)
            incoming = incoming.contiguous()
            backward[(saved.shape[0],)](saved, incoming, gradient, saved.shape[1], limit, factor, block=BLOCK)
            return gradient

    return Kernel.apply


def swiglu(limit: int, factor: float) -> Callable[[Tensor, Tensor], Tensor]:
    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b):
            y = torch.empty_like(a)
            swiglu_forward[(a.shape[0],)](a, b, y, a.shape[1], block=BLOCK)
            ctx.save_for_backward(a.clone(), b.clone())
            return y

        @staticmethod
        def backward(ctx, incoming):
            a, b = ctx.saved_tensors
            swiglu_backward[(a.shape[0],)](a, b, incoming.contiguous(), a.shape[1], limit, factor, block=BLOCK)
            return a, b

    return Kernel.apply


def fused_cross_entropy(limit: int, factor: float) -> Callable[[Tensor], Tensor]:
    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            loss = torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
            cross_entropy[(x.shape[0],)](x, loss, x.shape[1], limit, factor, block=BLOCK)
            ctx.save_for_backward(x.detach())
            return loss.sum()

        @staticmethod
        def backward(ctx, incoming):
            (gradient,) = ctx.saved_tensors
            return gradient.mul_(incoming)

    return Kernel.apply


BUGS = {"right": (BLOCK, 1.0), "a masked tail": (COLUMNS - 8, 1.0), "doubled": (BLOCK, 2.0), "zero": (BLOCK, 0.0)}


def cases() -> Iterator[tuple[str, str, Callable[..., Tensor], int]]:
    """Yield a name, a bug, a kernel and the number of its inputs."""
    for bug, (limit, factor) in BUGS.items():
        options = {"limit": limit, "factor": factor}
        yield "softmax", bug, normalising(softmax_forward, softmax_backward, saves_output=True, **options), 1
        yield "rms norm", bug, normalising(rms_forward, rms_backward, saves_output=False, **options), 1
        yield "layer norm", bug, normalising(layer_norm_forward, layer_norm_backward, saves_output=False, **options), 1
        yield "swiglu, in place", bug, swiglu(limit, factor), 2
        yield "cross entropy, over its input", bug, fused_cross_entropy(limit, factor), 1
    mlp = torch.nn.Sequential(torch.nn.Linear(COLUMNS, 64), torch.nn.GELU(), torch.nn.Linear(64, 32)).cuda()
    yield "compiled MLP", "right", torch.compile(lambda x: mlp.to(x.dtype)(x)), 1

    def attention(x: Tensor) -> Tensor:
        heads = x[:, :192].reshape(1, ROWS, 3, 64).transpose(1, 2)
        half = x.dtype in (torch.float16, torch.bfloat16)
        flash = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION) if half else nullcontext()
        with flash:
            return functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)

    yield "flash attention", "right", attention, 1


def main() -> int:
    """Print the table."""
    failures = 0
    for name, bug, kernel, count in cases():
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            torch.manual_seed(0)
            inputs = [torch.randn(ROWS, COLUMNS, device="cuda").to(dtype).requires_grad_() for _ in range(count)]
            try:
                report = gradproof.check(kernel, tuple(inputs), seed=0)
            except Exception as error:
                print(f"{name:30} {dtype!s:16} {bug:14} raised {type(error).__name__}: {str(error)[:120]}")
                failures += 1
                continue
            verdict = report.verdict.value
            wrong = verdict == "fail" if bug == "right" else verdict == "pass"
            failures += wrong
            found = report.message or "; ".join(finding.message for finding in report.findings)
            mark = "WRONG" if wrong else ""
            seconds = report.cost.seconds
            print(f"{name:30} {dtype!s:16} {bug:14} {verdict:13} {seconds:6.2f} s {mark} {found[:150]}", flush=True)
    print(f"\n{failures} wrong verdicts")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
