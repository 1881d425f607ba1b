"""Functions and modules of torch.compile are checked as they are used."""

from __future__ import annotations

import pytest
import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional

import gradproof
from gradproof import Verdict
from support.points import normal


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 1.2 * gradient * x.cos()


@pytest.fixture(autouse=True)
def _fresh():
    """Earlier compilations would count towards torch's limit."""
    torch.compiler.reset()


def compiled(function):
    return torch.compile(function, backend="aot_eager")


def leaf(*shape, dtype=torch.float32):
    return normal(*shape, seed=sum(shape)).to(dtype).requires_grad_()


def loss(x, weight):
    return functional.cross_entropy(x @ weight, torch.tensor([0, 1, 2, 1, 0]))


def test_a_compiled_loss_passes_with_its_contracts():
    """For other strides it is compiled anew, with a backward that refuses to retain its graph."""
    assert gradproof.check(compiled(loss), (leaf(5, 7), leaf(7, 4)), seed=0).passed


def test_a_compiled_loss_passes_in_both_modes():
    inputs = (leaf(5, 7, dtype=torch.float64), leaf(7, 4, dtype=torch.float64))

    assert gradproof.check(compiled(loss), inputs, modes=("reverse", "forward"), contracts="kernel", seed=0).passed


def test_second_derivatives_that_torch_does_not_compile_are_not_supported():
    inputs = (leaf(5, 7, dtype=torch.float64), leaf(7, 4, dtype=torch.float64))

    report = gradproof.check(compiled(loss), inputs, seed=0, order=2)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "uncompiled" in report.hint


def writing_to_given_memory(graph, examples):
    """A backend whose code writes to memory that it allocates, as inductor's does; dual numbers refuse that."""

    def run(*args):
        return [torch.add(each, 0, out=torch.empty_like(each)) for each in graph(*args)]

    return make_boxed_func(run)


@pytest.mark.parametrize("modes", ["forward", ("reverse", "forward")])
def test_tangents_that_torch_does_not_compile_are_not_supported(modes):
    function = torch.compile(loss, backend=aot_autograd(fw_compiler=writing_to_given_memory))
    inputs = (leaf(5, 7, dtype=torch.float64), leaf(7, 4, dtype=torch.float64))

    report = gradproof.check(function, inputs, seed=0, modes=modes)

    assert report.verdict is (Verdict.INCONCLUSIVE if modes == "forward" else Verdict.PASS)
    assert "forward" in "".join((*report.unsupported, report.message))


def test_a_compiled_module_passes():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(7, 9), torch.nn.GELU(), torch.nn.LayerNorm(9), torch.nn.Linear(9, 4))

    assert gradproof.check(torch.compile(layers, backend="aot_eager"), leaf(5, 7), seed=0).passed


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # of torch's own call
def test_a_wrong_rule_within_a_compiled_function_is_found():
    assert gradproof.check(compiled(lambda x: Wrong.apply(x) + x), leaf(6, 7), seed=0).verdict is Verdict.FAIL
