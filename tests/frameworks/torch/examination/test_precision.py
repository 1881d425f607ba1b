"""Every precision: right gradients never fail, wrong ones are found, complex ones too."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradproof import Verdict, check
from support.functions import Spoiled
from support.points import point

REAL = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
COMPLEX = [torch.complex128, torch.complex64]
SEEDS = [0, 1, 2]


def _names(dtype) -> str:
    return str(dtype).removeprefix("torch.")


real = pytest.mark.parametrize("dtype", REAL, ids=_names)
any_dtype = pytest.mark.parametrize("dtype", REAL + COMPLEX, ids=_names)
every_complex = pytest.mark.parametrize("dtype", COMPLEX, ids=_names)

THROUGH_HALF = {
    "alone": lambda x: x.half().sin().to(x.dtype),
    "reduced": lambda x: x.half().sin().sum().to(x.dtype),
    "beside a smooth part": lambda x: (x.half().sin().to(x.dtype) * x).sum(),
}


def _under_autocast(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ w).float()


ELEMENTWISE = {
    "sin": torch.sin,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "square": torch.square,
    "reciprocal": lambda x: 1 / (x + 5),
}
REDUCTIONS = {"sum": torch.sum, "mean": torch.mean, "cumsum": lambda x: x.cumsum(0)}
OTHERS = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "gelu": functional.gelu,
    "logsumexp": lambda x: x.logsumexp(-1),
    "max": lambda x: x.max(),
    "norm": lambda x: (x * x).sum().sqrt(),
    "variance": lambda x: x.var(-1),
}


# ── right gradients ──────────────────────────────────────────────────────────────────────────────────────────────────


@any_dtype
@pytest.mark.parametrize("name", ELEMENTWISE | REDUCTIONS)
def test_simple_functions_pass(name, dtype):
    report = check((ELEMENTWISE | REDUCTIONS)[name], point(4, 5, dtype=dtype), seed=0)

    assert report.passed, str(report)


@real
@pytest.mark.parametrize("name", OTHERS)
def test_composed_functions_pass(name, dtype):
    report = check(OTHERS[name], point(4, 5, dtype=dtype), seed=0)

    assert report.passed, str(report)


@real
@pytest.mark.parametrize("seed", SEEDS)
def test_a_sort_of_entries_that_a_rounding_may_swap_is_never_called_wrong(dtype, seed):
    assert check(lambda x: x.sort(-1).values, point(4, 5, dtype=dtype), seed=seed).verdict is not Verdict.FAIL


@any_dtype
@pytest.mark.parametrize("shape", [(2, 3, 2), (8, 32, 8)], ids=str)
def test_matrix_products_pass(dtype, shape):
    m, n, k = shape
    report = check(torch.matmul, (point(m, n, dtype=dtype), point(n, k, dtype=dtype, seed=2)), seed=0)

    assert report.passed, str(report)


@real
@pytest.mark.parametrize("seed", SEEDS)
def test_a_small_network_passes(dtype, seed):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(dtype)

    report = check(network, point(5, 6, dtype=dtype), seed=seed)

    assert report.passed, str(report)


@real
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_scale_of_the_inputs_does_not_matter(dtype, scale):
    x = (scale * point(20, dtype=dtype).detach()).requires_grad_()

    assert check(lambda x: torch.sin(x / scale), x, seed=0).passed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=_names)
@pytest.mark.parametrize("name", THROUGH_HALF)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cast_through_half_is_never_called_wrong(dtype, name, seed):
    assert check(THROUGH_HALF[name], point(8, dtype=dtype), seed=seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("seed", SEEDS)
def test_a_function_under_autocast_is_never_called_wrong(seed):
    inputs = (point(3, 4, dtype=torch.float32), point(4, 2, dtype=torch.float32, seed=2))

    assert check(_under_autocast, inputs, seed=seed).verdict is not Verdict.FAIL


@pytest.mark.parametrize("seed", SEEDS)
def test_a_check_under_autocast_is_never_a_fail_for_a_right_function(seed):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        report = check(nn.Linear(4, 3), point(5, 4, dtype=torch.float32), seed=seed)

    assert report.verdict is not Verdict.FAIL


@pytest.mark.parametrize("seed", SEEDS)
def test_mixed_precisions_pass(seed):
    inputs = (point(4, dtype=torch.float64), point(4, dtype=torch.float32, seed=2), point(4, dtype=torch.bfloat16))

    report = check(lambda a, b, c: a.sin() * b.double() + c.double(), inputs, seed=seed)

    assert report.passed, str(report)


@real
def test_a_function_that_runs_in_one_precision_only_is_never_called_wrong(dtype):
    def strict(x):
        assert x.dtype == dtype
        return x.sin() * x

    assert check(strict, point(6, dtype=dtype), seed=0).verdict is not Verdict.FAIL


def test_a_float32_function_that_runs_in_one_precision_only_passes():
    def strict(x):
        assert x.dtype == torch.float32
        return x.sin() * x

    assert check(strict, point(6, dtype=torch.float32), seed=0).passed


@real
def test_the_resolution_fits_the_precision(dtype):
    relative = check(torch.sin, point(10, dtype=dtype), seed=0).resolution.relative

    eps = torch.finfo(dtype).eps
    assert relative < (1e-7 if dtype == torch.float64 else 100 * eps)
    assert relative > eps


# ── wrong gradients ──────────────────────────────────────────────────────────────────────────────────────────────────


def _in_one_entry(factor):
    def change(gradient):
        gradient = gradient.clone()
        gradient.view(-1)[3] *= factor
        return gradient

    return change


WRONG = {
    "factor 2": lambda gradient: 2 * gradient,
    "sign": torch.neg,
    "zero": torch.zeros_like,
    "sign of one entry": _in_one_entry(-1.0),
    "10 % in one entry": _in_one_entry(1.1),
}


@any_dtype
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gradient_is_found(name, dtype):
    report = check(lambda x: Spoiled.apply(x, WRONG[name]).tanh(), point(2, 3, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL, str(report)


@any_dtype
@pytest.mark.parametrize("factor", [3.0, 1.1, 1.00002])
@pytest.mark.parametrize("size", [6, 2000])
def test_an_error_that_passes_lies_below_the_resolution_reported(dtype, factor, size):
    report = check(lambda x: Spoiled.apply(x, _in_one_entry(factor)), point(size, dtype=dtype), seed=0)

    smallest = 0.5 * (factor - 1)  # the gradient is 1, and an incoming gradient has entries of at least one half
    assert not report.passed or report.resolution.absolute > smallest, str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64], ids=_names)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_gradient_that_is_wrong_in_low_precision_alone_is_found(dtype, seed):
    def only_here(gradient):
        return 1.5 * gradient if gradient.dtype == dtype else gradient

    report = check(lambda x: Spoiled.apply(x, only_here).sin(), point(6, dtype=dtype), seed=seed)

    assert report.verdict is Verdict.FAIL, str(report)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=_names)
@pytest.mark.parametrize("factor", [1 + 1e-3, 1 + 1e-4])
def test_a_slight_error_in_one_entry_of_a_thousand_is_found(dtype, factor):
    report = check(lambda x: Spoiled.apply(x, _in_one_entry(factor)).sin(), point(1000, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL, str(report)
    assert {entry.index for finding in report.findings for entry in finding.entries} == {(3,)}


@any_dtype
def test_the_wrong_entry_is_named(dtype):
    report = check(lambda x: Spoiled.apply(x, _in_one_entry(-1.0)).sin(), point(2, 3, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL
    assert {entry.index for finding in report.findings for entry in finding.entries} == {(1, 0)}


# ── complex numbers ──────────────────────────────────────────────────────────────────────────────────────────────────


def _conjugated(gradient):
    return gradient.conj().resolve_conj()


@every_complex
@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_conjugate_is_found(dtype, seed):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, gradient):
            x, y = ctx.saved_tensors
            return gradient * y, gradient * x.conj()

    report = check(Product.apply, (point(4, dtype=dtype), point(4, dtype=dtype, seed=2)), seed=seed)

    assert report.verdict is Verdict.FAIL
    assert {finding.argument for finding in report.findings} == {"x"}


@every_complex
@pytest.mark.parametrize("seed", SEEDS)
def test_a_conjugate_too_many_is_found(dtype, seed):
    assert check(lambda x: Spoiled.apply(x, _conjugated), point(4, dtype=dtype), seed=seed).verdict is Verdict.FAIL


@every_complex
def test_the_wrong_part_of_a_complex_entry_is_named(dtype):
    report = check(lambda x: Spoiled.apply(x, _conjugated), point(1, dtype=dtype), seed=0)

    assert {entry.part for finding in report.findings for entry in finding.entries} == {"imag"}


@every_complex
@pytest.mark.parametrize(
    ("function", "complex_input"),
    [
        (lambda x: x.sin() * x, True),
        (lambda x: x.abs(), True),
        (lambda x: torch.complex(x.cos(), x.sin()), False),
        (lambda x: x.sin() * x, False),
        (lambda x: x.conj() * x.exp(), True),
        (lambda x: (x.real, x.imag.sin(), x), True),
        (torch.view_as_real, True),
        (torch.angle, True),
    ],
    ids=["c to c", "c to r", "r to c", "r to r", "not holomorphic", "parts", "view as real", "angle"],
)
def test_any_combination_of_real_and_complex_passes(function, complex_input, dtype):
    x = point(5, dtype=dtype if complex_input else dtype.to_real())

    report = check(function, x, seed=0)

    assert report.passed, str(report)


@every_complex
@pytest.mark.parametrize(
    ("function", "complex_input"),
    [
        (lambda x: x.sin() * x, True),
        (lambda x: x.abs(), True),
        (lambda x: torch.complex(x.cos(), x.sin()), False),
        (lambda x: x.sin() * x, False),
    ],
    ids=["c to c", "c to r", "r to c", "r to r"],
)
def test_a_wrong_gradient_is_found_in_any_combination_of_real_and_complex(function, complex_input, dtype):
    x = point(5, dtype=dtype if complex_input else dtype.to_real())

    assert check(lambda x: function(Spoiled.apply(x, torch.neg)), x, seed=0).verdict is Verdict.FAIL


@every_complex
def test_real_and_complex_inputs_together_pass(dtype):
    inputs = (point(3, dtype=dtype.to_real()), point(4, 3, dtype=dtype), point(dtype=dtype.to_real(), seed=3))

    assert check(lambda a, b, c: b.exp() * a + c, inputs, seed=0).passed


@every_complex
def test_the_spectrum_of_a_real_signal_passes(dtype):
    assert check(torch.fft.rfft, point(9, dtype=dtype.to_real()), seed=0).passed
    assert check(torch.fft.irfft, point(5, dtype=dtype), seed=0).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=_names)
@pytest.mark.parametrize("seed", range(6))
def test_a_backward_in_which_large_numbers_cancel_is_not_blamed_for_what_rounding_leaves(dtype, seed):
    x = point(16, 3, dtype=dtype, seed=seed).requires_grad_()

    report = check(lambda x: functional.layer_norm(x, (3,)).pow(2).sum(-1), x, seed=seed)

    assert report.verdict is not Verdict.FAIL


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=_names)
@pytest.mark.parametrize("wrong", [0.0, -1.0, 3.0, torch.inf])
def test_a_backward_that_is_wrong_in_one_entry_in_low_precision_alone_is(dtype, wrong):
    def change(gradient):
        factor = torch.ones_like(gradient)
        factor[2, 1] = wrong if gradient.dtype is dtype else 1.0
        return gradient * factor

    x = point(16, 3, dtype=dtype).requires_grad_()
    report = check(lambda x: Spoiled.apply(x.sin(), change), x, seed=0)

    assert [entry.index for finding in report.findings for entry in finding.entries] == [(2, 1)]


def test_products_that_fade_below_the_smallest_numbers_are_not_blamed():
    x = point(20, 11, dtype=torch.float16, seed=501).mul(0.3).requires_grad_()

    assert check(lambda x: x.prod(-1), x, seed=5).verdict is not Verdict.FAIL


def test_single_precision_costs_a_few_times_what_double_precision_does_where_there_are_many_kinks():
    def cost(dtype):
        torch.manual_seed(0)
        layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
        report = check(nn.Sequential(*layers).to(dtype), torch.randn(128, 64, dtype=dtype), seed=0)
        assert report.passed
        return report.cost

    double, single = cost(torch.float64), cost(torch.float32)

    assert single.pullbacks <= 4 * double.pullbacks
    assert single.evaluations <= 4 * double.evaluations


def test_zeros_that_torch_represents_without_memory_are_no_obstacle():
    x = torch.linspace(0.1, 1, 70_000).requires_grad_()

    assert check(torch.sgn, x, contracts=(), seed=0).verdict is Verdict.PASS


def test_a_bias_that_rounding_ruins_is_asked_for_alone():
    torch.manual_seed(0)
    x = torch.randn(512, 1024, dtype=torch.bfloat16, requires_grad=True)
    weight, bias = (torch.full((1024,), start, dtype=torch.bfloat16, requires_grad=True) for start in (1.1, 0.0))

    report = check(lambda x, w, b: functional.layer_norm(x, (1024,), w, b), (x, weight, bias), contracts=(), seed=0)

    assert report.verdict is not Verdict.FAIL
    assert report.cost.pullbacks < 300
