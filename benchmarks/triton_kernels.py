"""Real Triton kernels on a GPU, right and with bugs in their backward; a compiled MLP; flash attention of torch's.

`python -m benchmarks.triton_kernels` needs Triton and a GPU, or Triton's interpreter (`TRITON_INTERPRET=1`, which takes
minutes for a check). It prints a line for every kernel, dtype and bug, and at the end how many verdicts are wrong: it
returns 1 if a right kernel fails or a bug passes. `--kernels softmax,rotary --bugs right,zero` picks some.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

import gradproof

ROWS, COLUMNS, BLOCK = 64, 200, 256
HEADS, KEYS, WIDTH = 4, 64, 32  # of the attention
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


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


@triton.jit
def rotary(x, y, columns, half, limit, factor, direction, block: tl.constexpr):
    """Rotate pairs of columns by an angle that grows with the row; backward is the opposite direction."""
    row, at = tl.program_id(0), tl.arange(0, block)
    one = tl.load(x + row * columns + at, at < half, 0.0).to(tl.float32)
    other = tl.load(x + row * columns + half + at, at < half, 0.0).to(tl.float32)
    angle = row * tl.exp(-9.210340371976184 * at / half)  # of base 10⁴
    cosine, sine = tl.cos(angle), direction * tl.sin(angle)
    kept = tl.where(at < limit, factor, 0.0)
    tl.store(y + row * columns + at, kept * (one * cosine - other * sine), at < half)
    tl.store(y + row * columns + half + at, kept * (one * sine + other * cosine), at < half)


@triton.jit
def attention_weights(q, k, places, scale):
    """Return the softmax of one head's scores; all of its keys fit into one block."""
    queries, keys = tl.load(q + places).to(tl.float32), tl.load(k + places).to(tl.float32)
    scores = scale * tl.dot(queries, tl.trans(keys), input_precision="ieee")
    weights = tl.exp(scores - tl.max(scores, 1)[:, None])
    return weights / tl.sum(weights, 1)[:, None]


@triton.jit
def attention_forward(q, k, v, y, scale, length: tl.constexpr, width: tl.constexpr):
    head, row, column = tl.program_id(0), tl.arange(0, length), tl.arange(0, width)
    places = head * length * width + row[:, None] * width + column[None, :]
    weights = attention_weights(q, k, places, scale)
    values = tl.load(v + places).to(tl.float32)
    tl.store(y + places, tl.dot(weights, values, input_precision="ieee"))


@triton.jit
def attention_backward(q, k, v, dy, dq, dk, dv, scale, limit, factor, length: tl.constexpr, width: tl.constexpr):
    head, row, column = tl.program_id(0), tl.arange(0, length), tl.arange(0, width)
    places = head * length * width + row[:, None] * width + column[None, :]
    weights = attention_weights(q, k, places, scale)
    incoming, values = tl.load(dy + places).to(tl.float32), tl.load(v + places).to(tl.float32)
    towards = tl.dot(incoming, tl.trans(values), input_precision="ieee")
    scores = scale * weights * (towards - tl.sum(weights * towards, 1)[:, None])
    kept = tl.where(row < limit, factor, 0.0)[:, None]  # of the keys: the last block may be masked out
    queries, keys = tl.load(q + places).to(tl.float32), tl.load(k + places).to(tl.float32)
    tl.store(dq + places, factor * tl.dot(scores, keys, input_precision="ieee"))
    tl.store(dk + places, kept * tl.dot(tl.trans(scores), queries, input_precision="ieee"))
    tl.store(dv + places, kept * tl.dot(tl.trans(weights), incoming, input_precision="ieee"))


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


def rotated(limit: int, factor: float) -> Callable[[Tensor], Tensor]:
    def turned(x: Tensor, limit: int, factor: float, direction: float) -> Tensor:
        y = torch.empty_like(x)
        half = x.shape[1] // 2
        rotary[(x.shape[0],)](x, y, x.shape[1], half, limit, factor, direction, block=BLOCK)
        return y

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return turned(x, BLOCK, 1.0, 1.0)

        @staticmethod
        def backward(ctx, incoming):
            return turned(incoming.contiguous(), limit // 2, factor, -1.0)

    return Kernel.apply


def attention(limit: int, factor: float) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Attention of a few heads; the gradients of keys and values are masked out from `limit` on."""
    sizes = {"length": KEYS, "width": WIDTH}

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            y = torch.empty_like(q)
            attention_forward[(q.shape[0],)](q, k, v, y, WIDTH**-0.5, **sizes)
            ctx.save_for_backward(q, k, v)
            return y

        @staticmethod
        def backward(ctx, incoming):
            saved = ctx.saved_tensors
            gradients = [torch.empty_like(each) for each in saved]
            incoming = incoming.contiguous()
            grid = (saved[0].shape[0],)
            attention_backward[grid](*saved, incoming, *gradients, WIDTH**-0.5, limit, factor, **sizes)
            return tuple(gradients)

    return Kernel.apply


BUGS = {"right": (BLOCK, 1.0), "a masked tail": (COLUMNS - 8, 1.0), "doubled": (BLOCK, 2.0), "zero": (BLOCK, 0.0)}


def kernels(limit: int, factor: float) -> Iterator[tuple[str, Callable[..., Tensor], list[tuple[int, ...]]]]:
    """Yield the name of every kernel, the kernel with this bug in it, and the shapes of its inputs."""
    options, one = {"limit": limit, "factor": factor}, (ROWS, COLUMNS)
    yield "softmax", normalising(softmax_forward, softmax_backward, saves_output=True, **options), [one]
    yield "rms norm", normalising(rms_forward, rms_backward, saves_output=False, **options), [one]
    yield "layer norm", normalising(layer_norm_forward, layer_norm_backward, saves_output=False, **options), [one]
    yield "swiglu, in place", swiglu(limit, factor), [one, one]
    yield "cross entropy, over its input", fused_cross_entropy(limit, factor), [one]
    yield "rotary", rotated(limit, factor), [one]
    yield "attention", attention(limit - COLUMNS + KEYS, factor), [(HEADS, KEYS, WIDTH)] * 3


def of_torch() -> Iterator[tuple[str, Callable[..., Tensor], list[tuple[int, ...]]]]:
    """Yield a compiled MLP and torch's own attention, whose flash kernel takes half precision only."""
    layers = torch.nn.Sequential(torch.nn.Linear(COLUMNS, 64), torch.nn.GELU(), torch.nn.Linear(64, 32)).to(DEVICE)
    yield "compiled MLP", torch.compile(lambda x: layers.to(x.dtype)(x)), [(ROWS, COLUMNS)]

    def flash(x: Tensor) -> Tensor:
        heads = x[:, :192].reshape(1, ROWS, 3, 64).transpose(1, 2)
        half = x.dtype in (torch.float16, torch.bfloat16)
        only = torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION) if half else nullcontext()
        with only:
            return functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)

    yield "flash attention", flash, [(ROWS, COLUMNS)]


def checked(kernel: Callable[..., Tensor], shapes: list[tuple[int, ...]], dtype: torch.dtype) -> gradproof.Report:
    """Check a kernel at a random point."""
    torch.manual_seed(0)
    inputs = [torch.randn(shape, device=DEVICE).to(dtype).requires_grad_() for shape in shapes]
    return gradproof.check(kernel, tuple(inputs), seed=0)


def shown(name: str, bug: str, dtype: torch.dtype, report: gradproof.Report) -> int:
    """Print a line, and return one if the verdict is wrong."""
    verdict, cost = report.verdict.value, report.cost
    wrong = verdict == ("fail" if bug == "right" else "pass")
    found = "; ".join(finding.message for finding in report.findings) or report.message
    calls = f"{cost.evaluations:5} evaluations {cost.pullbacks:5} pullbacks {cost.seconds:6.2f} s"
    print(f"{name:30} {str(dtype)[6:]:9} {bug:14} {verdict:13} {calls} {'WRONG' * wrong} {found[:120]}", flush=True)
    return int(wrong)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=lambda text: text.split(","), default=None)
    parser.add_argument("--bugs", type=lambda text: text.split(","), default=list(BUGS))
    arguments = parser.parse_args()
    wrong, done, began = 0, 0, time.perf_counter()
    for bug in arguments.bugs:
        every = [*kernels(*BUGS[bug]), *(of_torch() if bug == "right" else ())]
        for name, kernel, shapes in every:
            if arguments.kernels and name not in arguments.kernels:
                continue
            for dtype in (torch.float32, torch.float16, torch.bfloat16):
                done += 1
                try:
                    wrong += shown(name, bug, dtype, checked(kernel, shapes, dtype))
                except Exception as error:  # of a kernel that does not run here: the others are still shown
                    print(f"{name:30} {str(dtype)[6:]:9} {bug:14} raised {type(error).__name__}: {str(error)[:120]}")
                    wrong += 1
    print(f"\n{wrong} wrong verdicts of {done}, {time.perf_counter() - began:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
