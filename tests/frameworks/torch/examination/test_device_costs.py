"""What a passing check asks of a device: kernels, waits and memory, counted on a processor."""

from functools import partial

import pytest
import torch
from benchmarks.device_counts import counted
from torch import nn
from torch.nn import functional

import gradproof

# float32 and bfloat16 passes launch under 400 kernels and wait under 50 times; tensors of a module add a few each
LAUNCHES, WAITS = 400, 50
PER_TENSOR = 50
VECTORS = 15  # of the inputs' size in double precision, the most that are held


def drawn(*shape, dtype):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def gelu(dtype):
    return functional.gelu, (drawn(1 << 22, dtype=dtype),)


def softmax(dtype):
    return partial(torch.softmax, dim=-1), (drawn(1024, 256, dtype=dtype),)


def product(dtype):
    return torch.matmul, (drawn(384, 384, dtype=dtype), drawn(384, 384, dtype=dtype))


def cross_entropy(dtype):
    return partial(functional.cross_entropy, target=torch.arange(128)), (drawn(128, 2048, dtype=dtype),)


def perceptron(dtype):
    net = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
    return net.to(dtype), (drawn(1024, 128, dtype=dtype),)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("make", [gelu, softmax, product, cross_entropy, perceptron])
def test_a_passing_check_launches_few_kernels_and_seldom_waits(make, dtype):
    function, inputs = make(dtype)
    reports = []
    counts = counted(lambda: reports.append(gradproof.check(function, inputs, contracts=(), seed=0)))
    tensors = len(inputs) + (len(list(function.parameters())) if isinstance(function, nn.Module) else 0)
    assert reports[-1].passed
    assert counts.launches <= LAUNCHES + PER_TENSOR * (tensors - 1)
    assert counts.waits <= WAITS + PER_TENSOR // 5 * (tensors - 1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_check_of_a_large_elementwise_function_holds_few_vectors(dtype):
    function, inputs = gelu(dtype)
    counts = counted(lambda: gradproof.check(function, inputs, contracts=(), seed=0))
    assert counts.memory <= VECTORS * 8 * inputs[0].numel()


@pytest.mark.parametrize("make", [gelu, softmax, product])
def test_a_gradient_that_rounding_explains_at_a_glance_takes_no_further_evaluations(make):
    function, inputs = make(torch.float32)
    report = gradproof.check(function, inputs, contracts=(), seed=0)
    assert report.passed
    assert report.cost.evaluations <= 7
    assert report.cost.pullbacks <= 8


def test_numbers_that_are_taken_out_are_counted():
    numbers = torch.ones(100)
    counts = counted(lambda: (float(numbers.sum()), numbers.tolist(), numbers[numbers > 0]))
    assert counts.waits == 3
    assert counts.launches == 2  # the sum and the comparison
