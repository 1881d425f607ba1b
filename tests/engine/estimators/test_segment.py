"""The second opinion by segments: planted bugs are found, rough functions with right gradients never fail."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from gradproof.engine.estimators.segment import SegmentOutcome, segment_test
from gradproof.engine.views import in_mode
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from support.numpy_subject import NumpySubject, elementwise, hashed

HALF = [torch.bfloat16, torch.float16]
PRECISIONS = [*HALF, torch.float32]
COLUMNS = 24


def gamma():
    return torch.linspace(0.5, 1.5, COLUMNS)


KERNELS = {
    "gelu": functional.gelu,
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: functional.layer_norm(x, (COLUMNS,), gamma(), 0.3 * gamma()),
    "rms norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * gamma(),
    "matmul": lambda x: x @ torch.cos(torch.arange(COLUMNS**2).reshape(COLUMNS, COLUMNS) * 1.7),
    "tanh": torch.tanh,
    "silu": functional.silu,
    "cumsum": lambda x: x.cumsum(-1),
    "log softmax": lambda x: x.log_softmax(-1),
    "cross entropy": lambda x: functional.cross_entropy(x, torch.arange(len(x)) % COLUMNS, reduction="none"),
}
LARGE_BUGS = {"zero": lambda g: 0 * g, "doubled": lambda g: 2 * g, "sign flipped": lambda g: -g}
SMALL_BUGS = {
    "last column zero": lambda g: torch.cat([g[:, :-1], 0 * g[:, -1:]], 1),
    "all + 10 %": lambda g: 1.1 * g,
}


def kernel(function, spoil):
    """A kernel that computes in single precision inside, and whose backward is spoiled."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return function(x.float()).to(x.dtype)

        @staticmethod
        def backward(ctx, incoming):
            (x,) = ctx.saved_tensors
            with torch.enable_grad():
                inside = x.detach().float().requires_grad_()
                (gradient,) = torch.autograd.grad(function(inside), inside, incoming.float())
            return spoil(gradient).to(x.dtype)

    return Kernel.apply


def subject_of(function, dtype, rows=8, seed=0):
    point = torch.randn(rows, COLUMNS, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return TorchSubject.of(function, point.requires_grad_(), None)


def opinion_on(name, spoil, dtype, rows=8, seed=0):
    return segment_test(subject_of(kernel(KERNELS[name], spoil), dtype, rows, seed), seed=seed)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("bug", LARGE_BUGS)
def test_gross_errors_are_found_in_every_kernel_and_precision(bug, dtype):
    outcomes = {name: opinion_on(name, LARGE_BUGS[bug], dtype).outcome for name in KERNELS}

    assert set(outcomes.values()) == {SegmentOutcome.DISAGREES}, outcomes


@pytest.mark.parametrize(("dtype", "at_least"), [(torch.bfloat16, 8), (torch.float16, 9), (torch.float32, 10)], ids=str)
@pytest.mark.parametrize("bug", SMALL_BUGS)
def test_small_errors_are_found_in_most_kernels(bug, dtype, at_least):
    found = [opinion_on(name, SMALL_BUGS[bug], dtype).outcome is SegmentOutcome.DISAGREES for name in KERNELS]

    assert sum(found) >= at_least


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("bug", LARGE_BUGS)
def test_gross_errors_are_found_among_many_entries(bug, dtype):
    names = ["gelu", "softmax", "layer norm"]

    assert {opinion_on(name, LARGE_BUGS[bug], dtype, rows=300).outcome for name in names} == {SegmentOutcome.DISAGREES}


@pytest.mark.parametrize("dtype", [*PRECISIONS, torch.float64])
@pytest.mark.parametrize("seed", range(2))
def test_right_kernels_lie_within_their_bars(dtype, seed):
    for name in KERNELS:
        result = opinion_on(name, lambda gradient: gradient, dtype, seed=seed)

        assert result.outcome is not SegmentOutcome.DISAGREES, name
        assert abs(result.claimed - result.measured) <= result.bar, name


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_right_kernels_agree_with_a_resolution(dtype):
    result = opinion_on("gelu", lambda gradient: gradient, dtype)

    assert result.outcome is SegmentOutcome.AGREES
    assert result.half_width == 0.3
    assert 0 < result.resolution.relative < 0.3


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_an_error_twice_the_resolution_in_the_largest_entry_does_not_agree(dtype):
    error = 2 * opinion_on("tanh", lambda gradient: gradient, dtype).resolution.absolute

    def spoil(gradient):
        spoiled = gradient.clone()
        spoiled[3, 5] += error
        return spoiled

    assert opinion_on("tanh", spoil, dtype).outcome is not SegmentOutcome.AGREES


def test_an_error_that_is_tolerated_agrees():
    subject = subject_of(kernel(torch.tanh, lambda gradient: 1.01 * gradient), torch.float32)

    assert segment_test(subject, seed=0).outcome is SegmentOutcome.DISAGREES
    assert segment_test(subject, seed=0, rtol=0.02).outcome is SegmentOutcome.AGREES


def test_a_range_of_coordinates_is_judged_by_itself():
    subject = subject_of(kernel(torch.tanh, lambda g: torch.cat([2 * g[:1], g[1:]])), torch.float32)

    first = 1.0 * (torch.arange(subject.inputs.size) < COLUMNS).double()

    assert segment_test(subject, seed=0, moving=first).outcome is SegmentOutcome.DISAGREES
    assert segment_test(subject, seed=0, moving=1 - first).outcome is SegmentOutcome.AGREES


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_mode_is_judged_by_its_pushforwards(dtype):
    def forward(x):
        return x.sin() * x.roll(1, 0)

    class Wrong(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return forward(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_forward(*inputs)

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return x.cos() * tangent * x.roll(1, 0)  # a term of the product rule is missing

    assert segment_test(in_mode(subject_of(forward, dtype), "forward"), seed=1).outcome is SegmentOutcome.AGREES
    assert segment_test(in_mode(subject_of(Wrong.apply, dtype), "forward"), seed=1).outcome is SegmentOutcome.DISAGREES


def zero(x):
    return np.zeros_like(x)


def one(x):
    return np.ones_like(x)


def through(dtype, x):
    return np.asarray(x).astype(dtype).astype(np.asarray(x).dtype)


def bfloat16(x):
    return torch.tensor(np.asarray(x, np.float64)).bfloat16().double().numpy().astype(np.asarray(x).dtype)


GRID = np.linspace(-8, 8, 257)
HEIGHTS = np.sin(GRID)
WITH_KINKS = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
    "abs": (abs, np.sign),
    "triangle wave": (lambda x: abs(np.mod(50 * x, 2) - 1), lambda x: np.where(np.mod(50 * x, 2) > 1, 50.0, -50.0)),
    "table": (
        lambda x: np.interp(x, GRID, HEIGHTS).astype(x.dtype),
        lambda x: np.diff(HEIGHTS)[np.searchsorted(GRID, x) - 1] * 16,
    ),
}
PIECEWISE_CONSTANT = {
    "round": (np.round, zero),
    "floor": (np.floor, zero),
    "sign": (np.sign, zero),
    "round(1000 x)": (lambda x: np.round(1000 * x), zero),
    "floor(1000 x)": (lambda x: np.floor(1000 * x), zero),
    "1000 sign": (lambda x: 1000 * np.sign(x), zero),
    "round(3.7 x)/3.7": (lambda x: np.round(x * 3.7) / 3.7, zero),
}
WITH_JUMPS = {
    "one jump": (lambda x: np.where(x > 0.1, x * x, x * x + 1), lambda x: 2 * x),
    "x + floor(x)": (lambda x: x + np.floor(x), one),
    "x - floor(x)": (lambda x: x - np.floor(x), one),
    "30 x - floor(30 x)": (lambda x: 30 * x - np.floor(30 * x), lambda x: 30 * one(x)),
    "x floor(x)": (lambda x: x * np.floor(x), np.floor),
}
OSCILLATING = {
    "sin(1e6 x)": (lambda x: np.sin(1e6 * x), lambda x: 1e6 * np.cos(1e6 * x)),
    "sin(300 x)": (lambda x: np.sin(300 * x), lambda x: 300 * np.cos(300 * x)),
    "x with an oscillation": (lambda x: x + 1e-3 * np.sin(1e3 * x), lambda x: 1 + np.cos(1e3 * x)),
}
NOISY = {
    f"noise of {level}": (lambda x, level=level: (np.exp(x) * (1 + level * hashed(x))).astype(x.dtype), np.exp)
    for level in (1e-10, 1e-8, 1e-6, 1e-4)
}
CAST = {
    "to bfloat16": (lambda x: bfloat16(np.exp(x)), np.exp),
    "to float16": (lambda x: through(np.float16, np.exp(x)), np.exp),
    "to float32": (lambda x: through(np.float32, np.exp(x)), np.exp),
    "the input to bfloat16": (lambda x: np.tanh(bfloat16(x)), lambda x: 1 - np.tanh(x) ** 2),
    "inside to bfloat16": (lambda x: 3 * bfloat16(np.exp(x)) + x, lambda x: 3 * np.exp(x) + 1),
    "inside to float16": (lambda x: np.sin(through(np.float16, np.exp(x))), lambda x: np.cos(np.exp(x)) * np.exp(x)),
}
ROUGH = {**WITH_KINKS, **PIECEWISE_CONSTANT, **WITH_JUMPS, **OSCILLATING, **NOISY, **CAST}


def summed(value, slope, point, dtype):
    return NumpySubject(
        lambda x: np.asarray(value(x)).sum(dtype=x.dtype).reshape(1), lambda x, u: slope(x) * u[0], point, dtype=dtype
    )


@pytest.mark.parametrize("name", ROUGH)
def test_rough_functions_with_right_gradients_are_never_called_wrong(name):
    value, slope = ROUGH[name]
    for seed in range(3):
        for size in (1, 30, 300):
            point = np.random.default_rng(seed).standard_normal(size)
            for dtype in (np.float64, np.float32):
                for make in (elementwise, summed):
                    result = segment_test(make(value, slope, point, dtype=dtype), seed=seed)

                    assert result.outcome is not SegmentOutcome.DISAGREES, (seed, size, dtype, make)


@pytest.mark.parametrize("name", [*CAST, *NOISY])
def test_doubled_gradients_of_rough_functions_are_found(name):
    value, slope = ROUGH[name]
    point = np.random.default_rng(0).standard_normal(100)

    assert segment_test(elementwise(value, lambda x: 2 * slope(x), point), seed=0).outcome is SegmentOutcome.DISAGREES
    assert segment_test(elementwise(value, slope, point), seed=0).outcome is not SegmentOutcome.DISAGREES


@pytest.mark.parametrize("name", ["to bfloat16", "to float16", "to float32"])
def test_a_gradient_of_zero_is_wrong_where_values_show_a_cast(name):
    point = np.random.default_rng(0).standard_normal(100)

    assert segment_test(elementwise(CAST[name][0], zero, point), seed=0).outcome is SegmentOutcome.DISAGREES


def test_an_oscillation_is_resolved_by_a_shorter_segment():
    value, slope = OSCILLATING["sin(300 x)"]
    result = segment_test(elementwise(value, slope, np.linspace(-1, 1, 20)), seed=0)

    assert result.outcome is SegmentOutcome.AGREES
    assert result.half_width < 0.01


def test_a_segment_that_leaves_the_domain_is_shortened():
    result = segment_test(elementwise(np.sqrt, lambda x: 0.5 / np.sqrt(x), np.linspace(0.05, 1, 20)), seed=0)

    assert result.outcome is SegmentOutcome.AGREES
    assert result.half_width < 0.3


def test_a_function_that_is_undefined_all_around_is_not_judged():
    result = segment_test(elementwise(lambda x: np.where(x == 1, x, np.nan), one, np.ones(3)), seed=0)

    assert result.outcome is SegmentOutcome.UNDECIDED
    assert np.isinf(result.resolution.absolute)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [5, 8, 10])
def test_ill_conditioned_solves_are_never_called_wrong(size, dtype):
    rows = torch.arange(size, dtype=torch.float64)
    hilbert = (1 / (rows[:, None] + rows[None] + 1)).to(dtype)
    for seed in range(3):
        right_side = torch.randn(size, dtype=dtype, generator=torch.Generator().manual_seed(seed))
        for inputs in ((hilbert, right_side.requires_grad_()), (hilbert.clone().requires_grad_(), right_side.detach())):
            subject = TorchSubject.of(torch.linalg.solve, inputs, None)

            assert segment_test(subject, seed=seed).outcome is not SegmentOutcome.DISAGREES


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_variance_of_large_numbers_is_never_called_wrong(dtype):
    for seed in range(5):
        noise = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        subject = TorchSubject.of(torch.var, (1e8 + 10 * noise).to(dtype).requires_grad_(), None)

        assert segment_test(subject, seed=seed).outcome is not SegmentOutcome.DISAGREES


def test_the_cost_is_bounded():
    for value, slope in (*OSCILLATING.values(), *WITH_KINKS.values(), *NOISY.values()):
        subject = elementwise(value, slope, np.linspace(-1, 1.1, 50))
        subject.evaluations = subject.pullbacks = 0
        segment_test(subject, seed=0)

        assert subject.evaluations + subject.pullbacks <= 80

    smooth = elementwise(np.exp, np.exp, np.linspace(-1, 1.1, 50))
    smooth.evaluations = 0
    segment_test(smooth, seed=0)

    assert (smooth.evaluations, smooth.pullbacks) == (16, 28)
