"""Right kernels beside plain references: other algorithms for the same function, most with float32 inside.

A kernel gets its inputs in any floating dtype. A reference rounds at every step, as plain PyTorch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import Tensor

Draw = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Pair:
    """A kernel, its reference, and how to draw their inputs: `draw(*shape)` makes a normal tensor of the dtype."""

    name: str
    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[[Draw], tuple[Any, ...]]


def wide(x: Tensor) -> Tensor:
    """Return the tensor as kernels compute: in float32 at least."""
    return x if x.dtype == torch.float64 else x.float()


class RmsNorm(torch.autograd.Function):
    """Normalise by the root mean square in float32, with a backward written by hand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Save the inverse root mean square."""
        rate = torch.rsqrt(wide(x).square().mean(-1, keepdim=True) + 1e-5)
        ctx.save_for_backward(x, weight, rate)
        return (wide(x) * rate * wide(weight)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the tensor and of the weight."""
        x, weight, rate = ctx.saved_tensors
        hat, scaled = wide(x) * rate, wide(gradient) * wide(weight)
        inner = (scaled * hat).mean(-1, keepdim=True)
        return (rate * (scaled - hat * inner)).to(x.dtype), (wide(gradient) * hat).sum(0).to(weight.dtype)


class CrossEntropy(torch.autograd.Function):
    """Cross-entropy whose gradient is computed in the forward, in float32."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss, and keep the gradient of the logits."""
        x = wide(logits)
        shifted = x - x.amax(-1, keepdim=True)
        total = torch.exp(shifted).sum(-1, keepdim=True)
        gradient = torch.exp(shifted) / total
        gradient[torch.arange(len(target)), target] -= 1
        ctx.save_for_backward((gradient / len(target)).to(logits.dtype))
        losses = torch.log(total) - shifted.gather(-1, target[:, None])
        return losses.mean().to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Scale the gradient that is known already."""
        (known,) = ctx.saved_tensors
        return known * gradient, None


class CrossEntropyNormalised(torch.autograd.Function):
    """Cross-entropy whose gradient is exp(x - lse): the rounding of a large lse shows in every probability."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss, and keep the logarithms of the sums."""
        x = wide(logits)
        lse = torch.logsumexp(x, -1, keepdim=True)
        ctx.save_for_backward(logits, target, lse)
        return (lse - x.gather(-1, target[:, None])).mean().to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the probabilities, less one at the targets."""
        logits, target, lse = ctx.saved_tensors
        found = torch.exp(wide(logits) - lse)
        found[torch.arange(len(target)), target] -= 1
        return (found * wide(gradient) / len(target)).to(logits.dtype), None


class SwiGlu(torch.autograd.Function):
    """silu(gate) · up in float32, with a backward that computes the gate again."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """Save the inputs alone."""
        ctx.save_for_backward(gate, up)
        return (F.silu(wide(gate)) * wide(up)).to(gate.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients of the gate and of the factor."""
        gate, up = ctx.saved_tensors
        g, incoming = wide(gate), wide(gradient)
        s = torch.sigmoid(g)
        return (incoming * wide(up) * (s + g * s * (1 - s))).to(gate.dtype), (incoming * g * s).to(up.dtype)


def softmax_unshifted(x: Tensor) -> Tensor:
    """Softmax in float32 without subtracting the maximum."""
    e = torch.exp(wide(x))
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def softmax_plain(x: Tensor) -> Tensor:
    """Softmax step by step."""
    e = torch.exp(x - x.amax(-1, keepdim=True).detach())
    return e / e.sum(-1, keepdim=True)


def softmax_online(x: Tensor) -> Tensor:
    """Softmax from blocks of 16 columns with a running maximum."""
    blocks = wide(x).split(16, -1)
    highest, total = torch.full_like(blocks[0][..., :1], -math.inf), torch.zeros_like(blocks[0][..., :1])
    for block in blocks:
        new = torch.maximum(highest, block.detach().amax(-1, keepdim=True))
        total = total * torch.exp(highest - new) + torch.exp(block - new).sum(-1, keepdim=True)
        highest = new
    return torch.cat([torch.exp(block - highest) / total for block in blocks], -1).to(x.dtype)


def layer_norm_plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Two passes, step by step."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5) * weight + bias


def layer_norm_one_pass(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The variance as a mean of squares less a squared mean, in float32."""
    y = wide(x)
    mean = y.mean(-1, keepdim=True)
    variance = y.square().mean(-1, keepdim=True) - mean.square()
    return ((y - mean) * torch.rsqrt(variance + 1e-5) * wide(weight) + wide(bias)).to(x.dtype)


def variance_welford(x: Tensor) -> Tensor:
    """Welford's recurrence over columns, in float32."""
    y = wide(x)
    mean, squares = torch.zeros_like(y[..., 0]), torch.zeros_like(y[..., 0])
    for k in range(y.shape[-1]):
        change = y[..., k] - mean
        mean = mean + change / (k + 1)
        squares = squares + change * (y[..., k] - mean)
    return (squares / y.shape[-1]).to(x.dtype)


def variance_two_pass(x: Tensor) -> Tensor:
    """The mean first, then the squares."""
    return (x - x.mean(-1, keepdim=True)).square().mean(-1)


def matmul_blocked(a: Tensor, b: Tensor) -> Tensor:
    """Blocks of 16 along the inner dimension, accumulated in float32."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=wide(a).dtype)
    for k in range(0, a.shape[1], 16):
        total = total + wide(a[:, k : k + 16]) @ wide(b[k : k + 16])
    return total.to(a.dtype)


def matmul_sequential(a: Tensor, b: Tensor) -> Tensor:
    """One product after the other, accumulated in float32."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=wide(a).dtype)
    for k in range(a.shape[1]):
        total = total + wide(a[:, k : k + 1]) * wide(b[k : k + 1])
    return total.to(a.dtype)


def gelu_fused(x: Tensor) -> Tensor:
    """The exact gelu in float32, by the complementary error function."""
    y = wide(x)
    return (0.5 * y * torch.special.erfc(-y / math.sqrt(2))).to(x.dtype)


def gelu_plain(x: Tensor) -> Tensor:
    """The exact gelu, step by step."""
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def cross_entropy_normalised(x: Tensor, target: Tensor) -> Tensor:
    """The same algorithm, step by step."""
    return (torch.logsumexp(x, -1) - x.gather(-1, target[:, None])[:, 0]).mean()


def gelu_tanh_fused(x: Tensor) -> Tensor:
    """The approximate gelu in float32, by a sigmoid."""
    y = wide(x)
    return (y * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (y + 0.044715 * y * y * y))).to(x.dtype)


def gelu_tanh_plain(x: Tensor) -> Tensor:
    """Torch's own approximate gelu."""
    return F.gelu(x, approximate="tanh")


def logsumexp_blocked(x: Tensor) -> Tensor:
    """The logarithm of sums of blocks, in float32."""
    return torch.logsumexp(torch.stack([torch.logsumexp(b, -1) for b in wide(x).split(16, -1)]), 0).to(x.dtype)


def rotary_complex(x: Tensor, angles: Tensor) -> Tensor:
    """Pairs of neighbours turned as complex numbers, in float32."""
    pairs = torch.view_as_complex(wide(x).unflatten(-1, (-1, 2)).contiguous())
    turned = pairs * torch.polar(torch.ones_like(wide(angles)), wide(angles))
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def rotary_plain(x: Tensor, angles: Tensor) -> Tensor:
    """Even and odd entries turned by sine and cosine."""
    even, odd, cosine, sine = x[..., ::2], x[..., 1::2], torch.cos(angles), torch.sin(angles)
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)


def attention_plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores, softmax and average, step by step."""
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v


def attention_online(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Blocks of 16 keys with a running maximum, accumulated in float32."""
    scale, q32 = 1 / math.sqrt(q.shape[-1]), wide(q)
    highest = torch.full_like(q32[..., :1], -math.inf)
    total, average = torch.zeros_like(highest), torch.zeros_like(wide(v)[: q.shape[0]])
    for keys, values in zip(wide(k).split(16), wide(v).split(16), strict=True):
        scores = q32 @ keys.mT * scale
        new = torch.maximum(highest, scores.detach().amax(-1, keepdim=True))
        weights, shrink = torch.exp(scores - new), torch.exp(highest - new)
        total, average = total * shrink + weights.sum(-1, keepdim=True), average * shrink + weights @ values
        highest = new
    return (average / total).to(q.dtype)


def attention_rounded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Probabilities rounded to the dtype before they meet the values, as on tensor cores."""
    weights = torch.softmax(wide(q) @ wide(k).mT / math.sqrt(q.shape[-1]), -1).to(q.dtype)
    return (wide(weights) @ wide(v)).to(q.dtype)


def mean_backwards(x: Tensor) -> Tensor:
    """Sums in float32 from the last column to the first."""
    total = torch.zeros_like(wide(x[..., 0]))
    for k in reversed(range(x.shape[-1])):
        total = total + wide(x[..., k])
    return (total / x.shape[-1]).to(x.dtype)


def linear_relu_fused(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A layer in float32."""
    return torch.relu(wide(x) @ wide(weight).mT + wide(bias)).to(x.dtype)


def linear_relu_plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A layer step by step."""
    return torch.relu(x @ weight.mT + bias)


def normalised_fused(x: Tensor) -> Tensor:
    """Rows of length one, in float32."""
    return F.normalize(wide(x), dim=-1).to(x.dtype)


def normalised_plain(x: Tensor) -> Tensor:
    """Rows of length one, step by step."""
    return x / x.square().sum(-1, keepdim=True).sqrt()


def softplus_fused(x: Tensor) -> Tensor:
    """Softplus in float32, without overflow."""
    y = wide(x)
    return (y.clamp(min=0) + torch.log1p(torch.exp(-y.abs()))).to(x.dtype)


def bce_fused(x: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy of logits in float32."""
    y = wide(x)
    return (softplus_fused(y) - y * wide(target)).mean().to(x.dtype)


def bce_plain(x: Tensor, target: Tensor) -> Tensor:
    """Torch's own."""
    return F.binary_cross_entropy_with_logits(x, target)


def group_norm_fused(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Four groups of channels, in float32."""
    y = wide(x).unflatten(1, (4, -1))
    variance, mean = torch.var_mean(y, (2, 3), correction=0, keepdim=True)
    y = ((y - mean) * torch.rsqrt(variance + 1e-5)).flatten(1, 2)
    return (y * wide(weight)[:, None] + wide(bias)[:, None]).to(x.dtype)


def group_norm_plain(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Torch's own."""
    return F.group_norm(x, 4, weight, bias)


def convolution_unfolded(x: Tensor, weight: Tensor) -> Tensor:
    """A convolution as a product, in float32."""
    windows = wide(x).unfold(-1, weight.shape[-1], 1)
    return torch.einsum("bclk,ock->bol", windows, wide(weight)).to(x.dtype)


def convolution_plain(x: Tensor, weight: Tensor) -> Tensor:
    """Torch's own."""
    return F.conv1d(x, weight)


def gathered_fused(table: Tensor, rows: Tensor) -> Tensor:
    """Sums of rows of a table in float32."""
    return F.embedding(rows, wide(table)).sum(1).to(table.dtype)


def gathered_plain(table: Tensor, rows: Tensor) -> Tensor:
    """The same, rounded to the dtype row by row."""
    return torch.stack([table[row] for row in rows.unbind(1)]).sum(0)


def whole(high: int, *shape: int) -> Tensor:
    """Draw whole numbers."""
    return torch.randint(high, shape)


PAIRS = (
    Pair("softmax, no maximum", softmax_unshifted, softmax_plain, lambda draw: (draw(8, 48),)),
    Pair("softmax, online", softmax_online, softmax_plain, lambda draw: (draw(8, 48, scale=4.0),)),
    Pair("log-sum-exp, blocked", logsumexp_blocked, lambda x: torch.logsumexp(x, -1), lambda draw: (draw(8, 64),)),
    Pair(
        "layer norm, one pass",
        layer_norm_one_pass,
        layer_norm_plain,
        lambda draw: (draw(8, 48), draw(48), draw(48)),
    ),
    Pair(
        "rms norm",
        RmsNorm.apply,
        lambda x, weight: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight,
        lambda draw: (draw(16, 48), draw(48)),
    ),
    Pair("group norm", group_norm_fused, group_norm_plain, lambda draw: (draw(2, 8, 12), draw(8), draw(8))),
    Pair("variance, Welford", variance_welford, variance_two_pass, lambda draw: (draw(16, 32),)),
    Pair("matmul, blocked", matmul_blocked, torch.matmul, lambda draw: (draw(16, 128), draw(128, 24))),
    Pair("matmul, sequential", matmul_sequential, torch.matmul, lambda draw: (draw(16, 64), draw(64, 24))),
    Pair("gelu", gelu_fused, gelu_plain, lambda draw: (draw(16, 32),)),
    Pair("gelu of torch", F.gelu, gelu_plain, lambda draw: (draw(16, 32),)),
    Pair("gelu of torch, wide", F.gelu, gelu_plain, lambda draw: (draw(16, 32, scale=2.0),)),
    Pair("gelu, tanh", gelu_tanh_fused, gelu_tanh_plain, lambda draw: (draw(16, 32),)),
    Pair("swiglu", SwiGlu.apply, lambda gate, up: F.silu(gate) * up, lambda draw: (draw(16, 32), draw(16, 32))),
    Pair("cross-entropy", CrossEntropy.apply, F.cross_entropy, lambda draw: (draw(16, 64), whole(64, 16))),
    Pair(
        "cross-entropy, confident",
        CrossEntropy.apply,
        F.cross_entropy,
        lambda draw: (draw(16, 64, scale=6.0), whole(64, 16)),
    ),
    Pair(
        "cross-entropy, exp(x - lse)",
        CrossEntropyNormalised.apply,
        cross_entropy_normalised,
        lambda draw: (draw(16, 64, scale=6.0), whole(64, 16)),
    ),
    Pair("binary cross-entropy", bce_fused, bce_plain, lambda draw: (draw(16, 8), draw(16, 8, fixed=True).sigmoid())),
    Pair("rotary", rotary_complex, rotary_plain, lambda draw: (draw(16, 32), draw(16, 16, fixed=True))),
    Pair(
        "attention, online", attention_online, attention_plain, lambda draw: (draw(16, 16), draw(48, 16), draw(48, 16))
    ),
    Pair(
        "attention, rounded",
        attention_rounded,
        attention_plain,
        lambda draw: (draw(16, 16), draw(48, 16), draw(48, 16)),
    ),
    Pair("mean, backwards", mean_backwards, lambda x: x.mean(-1), lambda draw: (draw(8, 64),)),
    Pair(
        "linear, relu",
        linear_relu_fused,
        linear_relu_plain,
        lambda draw: (draw(16, 32), draw(24, 32), draw(24)),
    ),
    Pair("normalise", normalised_fused, normalised_plain, lambda draw: (draw(16, 32),)),
    Pair("softplus", softplus_fused, lambda x: torch.log(1 + torch.exp(x)), lambda draw: (draw(16, 32),)),
    Pair("convolution", convolution_unfolded, convolution_plain, lambda draw: (draw(2, 4, 24), draw(6, 4, 5))),
    Pair("sum of rows", gathered_fused, gathered_plain, lambda draw: (draw(12, 16), whole(12, 16, 5))),
)


def drawing(dtype: torch.dtype) -> Draw:
    """Return how to draw normal tensors of a dtype, which require grad unless they are `fixed`."""

    def draw(*shape: int, scale: float = 1.0, fixed: bool = False) -> Tensor:
        return (scale * torch.randn(*shape, dtype=torch.float64)).to(dtype).requires_grad_(not fixed)

    return draw
