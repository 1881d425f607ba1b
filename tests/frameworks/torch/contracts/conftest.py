"""Right functions of every kind, which keep every contract, and a helper that tests one contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from gradproof import check
from support.points import point


class _Cubes(torch.autograd.Function):
    """x³ and x·y, by rules of its own, in both modes and under vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y):
        return x**3, x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, cubes, products):
        x, y = ctx.saved_tensors
        return 3 * x**2 * cubes + y * products, x * products

    @staticmethod
    def jvp(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return 3 * x**2 * dx, y * dx + x * dy


class _Frugal(torch.autograd.Function):
    """(2x, 3x), whose backward takes undefined gradients as they are."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, first, second):
        terms = [factor * g for factor, g in ((2, first), (3, second)) if g is not None]
        return sum(terms) if terms else None


def _strided(x: Tensor) -> Tensor:
    memory = torch.zeros(2 * x.numel(), dtype=x.dtype)
    return memory[::2].view(x.shape).copy_(x.detach()).requires_grad_()


RIGHT: dict[str, tuple[Callable[..., Any], Any]] = {
    "a sine": (torch.sin, point(4)),
    "a product of matrices": (torch.matmul, (point(3, 4), point(4, 2, seed=2))),
    "complex numbers": (lambda z: (z * z.conj(), z.exp()), point(3, dtype=torch.complex128)),
    "a real function of a complex number": (lambda z: z.abs(), point(3, dtype=torch.complex128)),
    "single precision": (lambda x: torch.softmax(x, -1).log(), point(3, 5, dtype=torch.float32)),
    "half precision": (lambda x: x * 2, point(3, dtype=torch.float16)),
    "numbers without dimensions": (lambda a, b: a * b.cos(), (point(), point(seed=2))),
    "an input that is empty": (lambda a, b: (a.exp(), b.exp()), (point(0, 3), point(2, seed=2))),
    "an input with gaps": (lambda x: x.exp(), _strided(point(4))),
    "a transposed input": (lambda x: x.sinh(), point(3, 4).detach().T.requires_grad_()),
    "an expanded result": (lambda x: x.expand(4, 3), point(3)),
    "results in a nest": (lambda x: {"a": x.sin(), "b": [x.cos(), None, 3]}, point(3)),
    "an input without influence": (lambda x, y: x.sin() + 0 * y.detach(), (point(3), point(3, seed=2))),
    "rules of its own": (_Cubes.apply, (point(3), point(3, seed=2))),
    "undefined gradients taken as they are": (_Frugal.apply, point(3)),
    "an embedding with sparse gradients": (
        lambda w: torch.nn.functional.embedding(torch.tensor([1, 0, 1]), w, sparse=True),
        point(4, 2),
    ),
    "dropout": (lambda x: torch.nn.functional.dropout(x, 0.5), point(20)),
    "an infinite slope": (lambda x: x.sqrt(), torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64).requires_grad_()),
    "tiny numbers": (lambda x: x * 1e-40, point(3, dtype=torch.float32)),
    "large numbers": (lambda x: x * 1e37, point(3, dtype=torch.float32)),
    "a module": (torch.nn.LayerNorm(4, dtype=torch.float64), point(3, 4)),
    "batch statistics": (torch.nn.BatchNorm1d(3, dtype=torch.float64), point(5, 3)),
    "a sum with another order": (lambda x: x.sum(0).cumsum(-1).prod(), point(7, 5, dtype=torch.float32)),
    "a matrix exponential": (torch.matrix_exp, point(4, 4)),
}


@pytest.fixture(params=list(RIGHT))
def right(request) -> tuple[Callable[..., Any], Any]:
    """A function whose derivatives are right, and its inputs."""
    return RIGHT[request.param]


@pytest.fixture
def asked() -> Callable[..., list[Any]]:
    """Return the findings of one contract, and test that the check changed nothing of the caller's."""

    def ask(name: str, function: Callable[..., Any], inputs: Any, **options: Any) -> list[Any]:
        given = inputs if isinstance(inputs, tuple) else (inputs,)
        before = [(tensor._version, tensor.detach().clone(), tensor.stride()) for tensor in given]
        generator = torch.get_rng_state()
        modes = "forward" if name.endswith("forward") else "reverse"
        report = check(function, inputs, modes=modes, contracts=(name,), **({"seed": 5} | options))
        for tensor, (version, values, strides) in zip(given, before, strict=True):
            assert (tensor._version, tensor.stride()) == (version, strides)
            assert torch.equal(tensor.detach(), values)
            assert tensor.grad is None
        assert torch.equal(torch.get_rng_state(), generator)
        return [finding for finding in report.findings if finding.kind == name]

    return ask
