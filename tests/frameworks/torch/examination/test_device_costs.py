"""What a passing check asks of a device: kernels, waits and memory, counted on a processor."""

from functools import partial

import pytest
import torch
from benchmarks.device_counts import counted
from torch import nn
from torch.nn import functional

import gradproof
from gradproof.gallery.specimen import planted

# what was counted, and a few more: a regression of a tenth fails
LAUNCHES, WAITS = {torch.bfloat16: 300, torch.float32: 445}, 27
OF_A_TENSOR = 65, 3  # kernels and waits for every further tensor


def drawn(*shape, dtype):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def softmax(dtype):
    return partial(torch.softmax, dim=-1), (drawn(600, 256, dtype=dtype),)


def product(dtype):
    return torch.matmul, (drawn(384, 384, dtype=dtype), drawn(384, 384, dtype=dtype))


def cross_entropy(dtype):
    return partial(functional.cross_entropy, target=torch.arange(128)), (drawn(128, 2048, dtype=dtype),)


def perceptron(dtype):
    net = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
    return net.to(dtype), (drawn(1024, 128, dtype=dtype),)


def asked_of_a_device(function, inputs):
    reports = []
    counts = counted(lambda: reports.append(gradproof.check(function, inputs, contracts=(), seed=0)))
    assert reports[-1].passed
    return counts, reports[-1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("make", [softmax, product, cross_entropy, perceptron])
def test_a_passing_check_launches_few_kernels_and_seldom_waits(make, dtype):
    function, inputs = make(dtype)
    counts, report = asked_of_a_device(function, inputs)

    more = len(inputs) - 1 + (len(list(function.parameters())) if isinstance(function, nn.Module) else 0)
    assert counts.launches <= LAUNCHES[dtype] + OF_A_TENSOR[0] * more
    assert counts.waits <= WAITS + OF_A_TENSOR[1] * more
    assert report.cost.evaluations <= 7
    assert report.cost.pullbacks <= 8


# launches, waits, and the vectors of the inputs' size in double precision that are held at most
@pytest.mark.parametrize(("dtype", "most"), [(torch.bfloat16, (230, 17, 10)), (torch.float32, (430, 28, 13.5))])
def test_a_check_of_a_large_elementwise_function_holds_few_vectors(dtype, most):
    inputs = drawn(1 << 21, dtype=dtype)
    counts, report = asked_of_a_device(functional.gelu, inputs)

    launches, waits, vectors = most
    assert counts.memory <= vectors * 8 * inputs.numel()
    assert counts.launches <= launches
    assert counts.waits <= waits
    assert report.cost.evaluations <= 7  # in float32 some entries are off by rounding that cancels, which is slight


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_right_gradient_in_half_precision_takes_six_evaluations_and_two_pullbacks(dtype):
    report = gradproof.check(functional.gelu, drawn(1 << 20, dtype=dtype), contracts=(), seed=0)

    assert report.passed
    assert (report.cost.evaluations, report.cost.pullbacks) == (6, 2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_wrong_entry_among_a_million_is_found_by_the_one_cotangent_of_half_precision(dtype):
    def backward(incoming, x):
        gradient = torch.ops.aten.gelu_backward(incoming, x)
        gradient[700_000] *= 1.5
        return gradient

    function = planted("Gelu", functional.gelu, backward)
    report = gradproof.check(function, drawn(1 << 20, dtype=dtype), contracts=(), seed=0, explain=False)

    assert [entry.index for entry in report.findings[0].entries] == [(700_000,)]


def test_the_usual_contracts_ask_for_less_than_two_and_a_half_times_as_much_as_the_check_without_them():
    function, inputs = softmax(torch.bfloat16)
    without, _ = asked_of_a_device(function, inputs)
    counts = counted(lambda: gradproof.check(function, inputs, seed=0))

    assert counts.launches <= 2.5 * without.launches
    assert counts.waits <= 2.5 * without.waits


def test_a_wrong_entry_is_located_in_a_bounded_number_of_kernels_and_waits():
    class Gelu(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return functional.gelu(x)

        @staticmethod
        def backward(ctx, incoming):
            gradient = torch.ops.aten.gelu_backward(incoming, *ctx.saved_tensors)
            gradient[70_000] *= 1.5
            return gradient

    x, reports = drawn(1 << 18, dtype=torch.float32), []
    counts = counted(lambda: reports.append(gradproof.check(Gelu.apply, x, contracts=(), seed=0, explain=False)))

    assert [entry.index for entry in reports[-1].findings[0].entries] == [(70_000,)]
    assert counts.launches <= 8000
    assert counts.waits <= 450


def test_numbers_that_are_taken_out_are_counted():
    numbers = torch.ones(100)
    counts = counted(lambda: (float(numbers.sum()), numbers.tolist(), numbers[numbers > 0]))

    assert counts.waits == 3
    assert counts.launches == 2  # the sum and the comparison
