"""Right functions that tempt a checker into a false alarm: cancellation, casts, ties, edges, extreme sizes.

The table counts verdicts over many points and seeds, beside torch's fast mode at its own tolerances. The exit status is
1 if gradproof calls one of them wrong.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import Tensor

import gradproof

Point = Callable[[], Tensor]
FIXED = torch.linspace(1, 2, 80, dtype=torch.float64).sin().view(4, 20)


def normal(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Point:
    """Standard normal numbers, scaled."""
    return lambda: (torch.randn(*shape, dtype=torch.float64) * scale).to(dtype).requires_grad_()


def positive(*shape: int, scale: float = 1.0, least: float = 0.0) -> Point:
    """Numbers that are not negative, scaled."""
    return lambda: ((torch.rand(*shape, dtype=torch.float64) + least) * scale).requires_grad_()


def ill_conditioned(condition: float) -> Point:
    """Five by five, of condition ten to this."""

    def point() -> Tensor:
        u, v = (torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64))[0] for _ in range(2))
        return (u * torch.logspace(0, -condition, 5, dtype=torch.float64) @ v).requires_grad_()

    return point


def nearly_tied() -> Tensor:
    """Eight numbers, and each of them once more, a little off."""
    x = torch.randn(8, dtype=torch.float64)
    return torch.cat([x, x + 1e-7 * torch.randn(8, dtype=torch.float64)]).requires_grad_()


def images(*shape: int) -> Point:
    """An image of two channels."""
    return lambda: torch.randn(1, 2, *shape, dtype=torch.float64).requires_grad_()


def attention_gradients(x: Tensor) -> tuple[Tensor, ...]:
    """Where the largest logit is far above the others, what is left of these gradients is far below one rounding."""
    parts = q, k, v = x.unbind()
    return torch.autograd.grad(((F.softmax(q @ k.T, -1) @ v) * FIXED[:3, :2]).sum(), parts, create_graph=True)


def grid_sampled(x: Tensor) -> Tensor:
    """At random indices, the same at every call."""
    torch.manual_seed(1)
    grid = torch.rand(1, 5, 5, 2, dtype=torch.float64) * 2 - 1
    return F.grid_sample(x, grid, align_corners=False)


def piecewise_linear(x: Tensor) -> Tensor:
    """Interpolation between 1,000 knots."""
    knots = torch.sin(torch.arange(1001, dtype=torch.float64) * 0.7)
    place = (x.clamp(0, 1) * 999.5).detach().floor().long()
    return knots[place] + (x * 999.5 - place) * (knots[place + 1] - knots[place])


def dropped(x: Tensor) -> Tensor:
    """Through a dropout that is drawn."""
    return F.dropout(x, 0.4).exp()


TEMPTATIONS: dict[str, tuple[Callable[..., Any], Point]] = {
    "cancellation with 1e8": (lambda x: (1e8 + x) - 1e8, normal(20)),
    "cancellation with 1e12": (lambda x: (1e12 + x) - 1e12, normal(20)),
    "a sum that cancels": (lambda x: ((1e6 + x) - 1e6).sum(), normal(100)),
    "a cast through single precision": (lambda x: x.float().double(), normal(20)),
    "a cast through half precision": (lambda x: x.half().double(), normal(20)),
    "a cast through bfloat16": (lambda x: x.bfloat16().double(), normal(20)),
    "sin in single precision": (lambda x: x.float().sin().double(), normal(20)),
    "sin in half precision": (lambda x: x.half().sin().double(), normal(20)),
    "a matrix product in single precision": (lambda x: (x.float() @ x.float().T).double(), normal(6, 6)),
    "a sum of 1e5 terms": (torch.sum, normal(100_000)),
    "a sum of 1e5 squares": (lambda x: x.square().sum(), normal(100_000)),
    "a sum of 1e5 terms in single precision": (torch.sum, normal(100_000, dtype=torch.float32)),
    "a product of 200 factors": (torch.prod, positive(200, least=0.5)),
    "logsumexp of large values": (lambda x: torch.logsumexp(x, 0), normal(30, scale=1e4)),
    "a softmax of large values": (lambda x: x.softmax(0), normal(30, scale=1e3)),
    "the gradients of a saturated attention": (attention_gradients, normal(3, 3, 2, scale=20)),
    "a layer norm of one entry each": (lambda x: F.layer_norm(x[1:, None], (1,), x[:1]), normal(9)),
    "a softmax that is summed": (lambda x: x.softmax(0).sum(), normal(30)),
    "a log-softmax": (lambda x: x.log_softmax(1), normal(10, 30, scale=30)),
    "sqrt near zero": (torch.sqrt, positive(20, scale=1e-12)),
    "sqrt of sizes that differ wildly": (lambda x: x.exp().sqrt(), normal(20, scale=20)),
    "1/x near zero": (torch.reciprocal, positive(20, scale=1e-9, least=1e-3)),
    "log near zero": (torch.log, positive(20, scale=1e-9)),
    "a constant": (lambda x: x * 0 + 3, normal(20)),
    "a constant that cancels": (lambda x: x - x + 1, normal(20)),
    "sin² + cos²": (lambda x: x.sin() ** 2 + x.cos() ** 2, normal(20)),
    "a step": (lambda x: (x > 0).double() + 0 * x, normal(20)),
    "rounding": (torch.round, normal(20, scale=100)),
    "floor": (torch.floor, normal(20, scale=3)),
    "values of 1e-200": (lambda x: 1e-200 * x.sin(), normal(20)),
    "values of 1e200": (lambda x: 1e200 * x.sin(), normal(20)),
    "values of 1e-310": (lambda x: 1e-310 * x.sin(), normal(20)),
    "inputs of 1e-30": (torch.sin, normal(20, scale=1e-30)),
    "inputs of 1e30": (lambda x: (x * 1e-30).sin(), normal(20, scale=1e30)),
    "inputs of 1e-30 beside one": (lambda x: 1 + x, normal(20, scale=1e-30)),
    "inputs of all sizes": (
        lambda x: x.sign() * x.abs().log(),
        lambda: normal(20)().exp().pow(20).detach().requires_grad_(),
    ),
    "an argument that is reduced": (torch.sin, normal(20, scale=1e6)),
    "sort near ties": (lambda x: x.sort().values, nearly_tied),
    "topk near ties": (lambda x: x.topk(5).values, nearly_tied),
    "the median near ties": (torch.median, nearly_tied),
    "a maximum near ties": (lambda x: torch.maximum(x[:8], x[8:]), nearly_tied),
    "max pooling": (lambda x: F.max_pool2d(x, 2), images(16, 16)),
    "max pooling near ties": (lambda x: F.max_pool1d(x[None], 3, 1)[0], nearly_tied),
    "interpolation between pixels": (grid_sampled, images(7, 7)),
    "interpolation with a thousand kinks": (piecewise_linear, positive(50, scale=0.99)),
    "bicubic interpolation": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bicubic"), images(7, 7)),
    "an inverse of condition 1e4": (torch.linalg.inv, ill_conditioned(4)),
    "an inverse of condition 1e8": (torch.linalg.inv, ill_conditioned(8)),
    "an inverse of condition 1e12": (torch.linalg.inv, ill_conditioned(12)),
    "a determinant near zero": (torch.linalg.det, ill_conditioned(10)),
    "singular values": (torch.linalg.svdvals, ill_conditioned(6)),
    "eigenvalues": (lambda x: torch.linalg.eigvalsh(x + x.T), normal(6, 6)),
    "the error function": (torch.special.erfcx, normal(20, scale=3)),
    "lgamma": (torch.lgamma, positive(20, scale=10)),
    "digamma": (torch.digamma, positive(20, scale=10, least=0.01)),
    "a Bessel function": (torch.special.i1e, normal(20, scale=5)),
    "the normal quantile": (torch.special.ndtri, positive(20, scale=0.98, least=0.01)),
    "xlogy": (lambda x: torch.special.xlogy(x, x), positive(20)),
    "relu of 10,000 normal entries": (torch.relu, normal(10_000)),
    "a sum of 10,000 relus": (lambda x: x.relu().sum(), normal(10_000)),
    "abs of 10,000 normal entries": (torch.abs, normal(10_000)),
    "hinges": (lambda x: (1 - x).clamp(min=0).sum(), normal(2000)),
    "a Huber loss": (lambda x: F.huber_loss(x, torch.zeros_like(x), delta=0.1), normal(1000)),
    "dropout": (dropped, normal(100)),
    "a gradient that underflows": (lambda x: (-x.square() * 1e3).exp(), positive(20, least=0.5)),
    "a sigmoid in saturation": (torch.sigmoid, normal(20, scale=100)),
    "a tanh in saturation": (torch.tanh, normal(20, scale=30)),
    "softplus in saturation": (F.softplus, normal(20, scale=40)),
    "a layer norm of a large offset": (lambda x: F.layer_norm(x + 1e5, (20,)), normal(4, 20)),
    "a cosine similarity of nearly equal vectors": (
        lambda x: F.cosine_similarity(x, FIXED + 1e-8, dim=1),
        lambda: (FIXED + 1e-8 * torch.randn_like(FIXED)).requires_grad_(),
    ),
    "a distance of nearly equal points": (
        lambda x: torch.cdist(x, FIXED, compute_mode="donot_use_mm_for_euclid_dist"),
        lambda: (FIXED + 1e-4 * torch.randn_like(FIXED)).requires_grad_(),
    ),
    "sin of a fast phase": (lambda x: (300 * x).sin(), normal(20)),
    "sin of a very fast phase": (lambda x: (1e5 * x).sin(), normal(20)),
    "a power of 50": (lambda x: x**50, normal(20)),
    "a complex absolute value": (torch.abs, lambda: torch.randn(20, dtype=torch.complex128).requires_grad_()),
    "half precision": (torch.sin, normal(50, dtype=torch.float16)),
    "a softmax in half precision": (lambda x: x.softmax(0), normal(50, dtype=torch.float16)),
    "a matrix product in bfloat16": (lambda x: x @ x, normal(8, 8, dtype=torch.bfloat16)),
    "a norm in single precision": (torch.linalg.norm, normal(50, dtype=torch.float32)),
    "an oscillation in single precision": (lambda x: (300 * x).sin(), normal(20, dtype=torch.float32)),
    "single precision that never runs in double": (lambda x: x.float().exp().sin(), normal(20, dtype=torch.float32)),
    "half precision that never runs in double": (lambda x: (10 * x.half()).sin(), normal(20, dtype=torch.float16)),
    "bfloat16 that never runs in double": (lambda x: (10 * x.bfloat16()).sin(), normal(20, dtype=torch.bfloat16)),
}


def torch_says(function: Callable[..., Any], x: Tensor) -> str:
    """The verdict of torch's fast mode."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "pass" if torch.autograd.gradcheck(function, (x,), fast_mode=True) else "fail"
    except Exception:  # torch's check raises whatever the function does beside the point
        return "fail"


def main(seeds: int = 20) -> int:
    """Print the table; the number of false alarms."""
    torch.set_num_threads(1)
    print(f"{'function':<48}{'pass':>6}{'fail':>6}{'open':>6}{'torch fails':>13}")
    total: Counter[str] = Counter()
    for name, (function, point) in TEMPTATIONS.items():
        found: Counter[str] = Counter()
        for seed in range(seeds):
            torch.manual_seed(seed)
            x = point()
            found[gradproof.check(function, x, seed=seed).verdict.value] += 1
            found["torch"] += torch_says(function, x) == "fail"
        total += found
        print(f"{name:<48}{found['pass']:>6}{found['fail']:>6}{found['inconclusive']:>6}{found['torch']:>13}")
    print(f"{'together':<48}{total['pass']:>6}{total['fail']:>6}{total['inconclusive']:>6}{total['torch']:>13}")
    return total["fail"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="points and seeds for each function")
    sys.exit(1 if main(parser.parse_args().seeds) else 0)
