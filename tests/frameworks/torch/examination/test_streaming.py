"""Large functions in half precision are passed by sums, and wrong ones are never."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import gradproof
from gradproof.frameworks.torch.examination import derivative_judge

ROWS, COLUMNS = 300, 501  # more entries than two blocks of a drawn vector, and not a multiple of one
HALVES = [torch.bfloat16, torch.float16]

in_both_halves = pytest.mark.parametrize("dtype", HALVES, ids=str)


def normal(*shape, dtype, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


def checked(function, *inputs, **options):
    return gradproof.check(function, inputs, contracts=(), seed=0, **options)


def perceptron(dtype):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(COLUMNS, 300), nn.GELU(), nn.Linear(300, 20)).to(dtype)


def two_outputs(x):
    return x.exp(), 3 * x.sum(1)


def into_one_number(x):
    return functional.cross_entropy(x, torch.arange(ROWS) % COLUMNS)


def with_dropout(x):
    return functional.dropout(x, 0.5) * x


RIGHT = {
    "gelu": functional.gelu,
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: functional.layer_norm(x, (COLUMNS,)),
    "sum": lambda x: x.sum(),
    "cross entropy": into_one_number,
    "two outputs": two_outputs,
    "transposed": lambda x: x.T * 2,
    "rectified": lambda x: x.relu(),
    "dropout": with_dropout,
    "a part": lambda x: x[:10].tanh(),
}


@in_both_halves
@pytest.mark.parametrize("name", RIGHT)
def test_right_gradients_pass(name, dtype):
    assert checked(RIGHT[name], normal(ROWS, COLUMNS, dtype=dtype)).passed


@in_both_halves
@pytest.mark.parametrize("name", ["gelu", "softmax", "layer norm"])
def test_a_passing_check_takes_six_calls_and_two_pullbacks(name, dtype):
    report = checked(RIGHT[name], normal(ROWS, COLUMNS, dtype=dtype))

    assert (report.cost.evaluations, report.cost.pullbacks) == (6, 2)


@in_both_halves
@pytest.mark.parametrize("name", RIGHT)
def test_sums_say_what_whole_vectors_say(name, dtype, monkeypatch):
    x = normal(ROWS, COLUMNS, dtype=dtype)
    streamed = checked(RIGHT[name], x)
    monkeypatch.setattr(derivative_judge, "judged_as_stream", lambda *_: None)
    whole = checked(RIGHT[name], x)

    assert streamed.verdict is whole.verdict
    assert streamed.resolution.relative == pytest.approx(whole.resolution.relative, rel=1.0)


@in_both_halves
def test_modules_and_several_inputs_pass(dtype):
    x, w = normal(ROWS, COLUMNS, dtype=dtype), normal(COLUMNS, 30, dtype=dtype, seed=1)

    assert checked(torch.matmul, x, w).passed
    assert checked(perceptron(dtype), x).passed


def wrong(spoil):
    """A product with a vector of weights whose first gradient is spoiled."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, incoming):
            (x,) = ctx.saved_tensors
            return spoil(2 * x * incoming)

    return Wrong.apply


def with_entry(gradient, factor):
    gradient.view(-1)[77_777] *= factor
    return gradient


def without_row(gradient):
    gradient[200] = 0
    return gradient


def without_last_column(gradient):
    gradient[:, -1] = 0
    return gradient


def only_in_half(spoil):
    return lambda gradient: gradient if gradient.dtype == torch.float64 else spoil(gradient)


MISTAKES = {
    "an entry × 1.5": lambda gradient: with_entry(gradient, 1.5),
    "an entry zero": lambda gradient: with_entry(gradient, 0),
    "an entry NaN": lambda gradient: with_entry(gradient, torch.nan),
    "a row zero": without_row,
    "the last column zero": without_last_column,
    "all + 10 %": lambda gradient: gradient * 1.1,
    "sign": lambda gradient: -gradient,
    "zero": torch.zeros_like,
    "shifted": lambda gradient: gradient.roll(1, 1),
}


@in_both_halves
@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_gradients_fail(mistake, dtype):
    report = checked(wrong(MISTAKES[mistake]), normal(ROWS, COLUMNS, dtype=dtype), explain=False)

    assert report.verdict is gradproof.Verdict.FAIL


@in_both_halves
@pytest.mark.parametrize("mistake", MISTAKES)
def test_gradients_that_are_wrong_in_half_precision_alone_fail(mistake, dtype):
    spoil = only_in_half(MISTAKES[mistake])

    report = checked(wrong(spoil), normal(ROWS, COLUMNS, dtype=dtype), explain=False)

    assert report.verdict is gradproof.Verdict.FAIL


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_lone_entry_that_is_not_finite_fails_where_all_other_outputs_have_few_digits(dtype):
    x = normal(300, 501, dtype=torch.float16).detach().to(dtype).requires_grad_()

    report = checked(wrong(MISTAKES["an entry NaN"]), x, explain=False)

    assert report.verdict is gradproof.Verdict.FAIL


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_large_complex_functions_pass(dtype):
    assert checked(torch.exp, normal(ROWS, COLUMNS, dtype=torch.float64).detach().to(dtype).requires_grad_()).passed


@in_both_halves
def test_nothing_of_the_callers_changes(dtype):
    x = normal(ROWS, COLUMNS, dtype=dtype)
    before, state = x.detach().clone(), torch.get_rng_state()

    checked(with_dropout, x)

    assert torch.equal(x, before)
    assert x.grad is None
    assert torch.equal(torch.get_rng_state(), state)


def test_a_function_that_returns_its_results_in_the_same_memory_passes():
    memory = {}

    def reusing(x):
        with torch.no_grad():
            kept = memory.setdefault(x.dtype, torch.empty_like(x, requires_grad=False))
            kept.copy_(x)
        return x * 2 + (kept - kept)

    assert checked(reusing, normal(ROWS, COLUMNS, dtype=torch.bfloat16)).passed


def test_a_function_that_writes_to_its_input_passes():
    def writing(x):
        y = x * 2
        x.detach().zero_()
        return y

    assert checked(writing, normal(ROWS, COLUMNS, dtype=torch.bfloat16)).passed


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_inputs_of_other_sizes_pass(scale):
    x = (scale * normal(ROWS, COLUMNS, dtype=torch.float32)).to(torch.bfloat16).detach().requires_grad_()

    assert checked(RIGHT["layer norm"], x).passed
