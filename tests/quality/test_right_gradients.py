"""Right functions that tempt a checker into a false alarm: whatever else is said, they are never called wrong."""

import pytest
import torch
from benchmarks.temptations import TEMPTATIONS

import gradproof
from gradproof import Verdict
from support.functions import rule
from support.points import point as drawn_point

SEEDS = range(5)  # `python -m benchmarks.temptations` asks from twenty


@pytest.mark.parametrize("name", TEMPTATIONS)
def test_a_right_gradient_is_never_called_wrong(name):
    function, point = TEMPTATIONS[name]

    def verdict(seed):
        torch.manual_seed(seed)
        return gradproof.check(function, point(), seed=seed).verdict

    assert [seed for seed in SEEDS if verdict(seed) is Verdict.FAIL] == []


@pytest.mark.parametrize(
    ("function", "at"),
    [
        (lambda x: x.abs().sqrt(), 0.0),
        (lambda x: x.norm(), 0.0),
        (lambda x: torch.where(x > 0, x.clamp(min=0).sqrt(), 0.0), 0.0),
        (lambda x: x ** (1 / 3), 0.0),
        (torch.sqrt, 0.0),
        (torch.acos, 1.0),
        (torch.abs, 0.0),
        (torch.relu, 0.0),
        (torch.sign, 0.0),
        (torch.log, 0.0),
    ],
    ids=["sqrt-abs", "norm", "where-sqrt", "cube-root", "sqrt", "acos", "abs", "relu", "sign", "log"],
)
def test_a_convention_at_a_point_without_a_slope_is_not_called_wrong(function, at):
    verdicts = [
        gradproof.check(function, torch.full((3,), at, dtype=torch.float64, requires_grad=True), seed=seed).verdict
        for seed in SEEDS
    ]

    assert [seed for seed in SEEDS if verdicts[seed] is Verdict.FAIL] == []


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("function", [torch.var, torch.std, lambda x: x - x.mean()], ids=["var", "std", "centred"])
def test_claims_that_vary_with_rounding_are_not_called_wrong(function, coverage):
    def verdict(seed):
        x = 1e8 + torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        return gradproof.check(function, x.requires_grad_(), seed=seed, coverage=coverage, explain=False).verdict

    assert [seed for seed in range(20) if verdict(seed) is Verdict.FAIL] == []


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        torch.Tensor.sin,
        lambda x: x.softmax(0),
        lambda x: x.square().mean(),
        lambda x: torch.nn.functional.layer_norm(x, x.shape),
    ],
    ids=["sine", "softmax", "mean-square", "layer-norm"],
)
def test_a_right_gradient_through_a_cast_to_half_precision_is_not_called_wrong(function, low, dtype, coverage):
    def verdict(seed):
        torch.manual_seed(seed)
        x = torch.randn(30, dtype=dtype, requires_grad=True)
        return gradproof.check(
            lambda x: function(x.to(low)).to(dtype), x, contracts=(), coverage=coverage, seed=seed
        ).verdict

    assert verdict(0) is not Verdict.FAIL


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", [12, 30])  # beyond ten suspects full coverage judges columns by probes
@pytest.mark.parametrize("function", [torch.tanh, torch.sigmoid, torch.erf, lambda x: x.logsumexp(0, keepdim=True)])
def test_a_right_gradient_of_values_that_are_cast_and_then_scaled_is_not_called_wrong(function, size, low, coverage):
    """Scaled values are no numbers of the lower precision any more, and some of them are constant."""

    def verdict(seed):
        torch.manual_seed(seed)
        x = torch.randn(size, dtype=torch.float64, requires_grad=True)
        return gradproof.check(
            lambda x: 0.37 * (1 + 0.1 * function(x)).to(low).double(), x, contracts=(), coverage=coverage, seed=seed
        ).verdict

    assert [seed for seed in range(3) if verdict(seed) is Verdict.FAIL] == []


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.sort(x)[0],
        torch.median,
        lambda x: torch.kthvalue(x, 9)[0],
        lambda x: torch.topk(x, 7)[0],
        lambda x: torch.quantile(x, torch.tensor([0.2, 0.5, 0.7], dtype=x.dtype)),
        lambda x: torch.median(x) + x.sin().sum(),
        lambda x: torch.median(x, 0)[0] + x.sin(),
        lambda x: torch.quantile(x, 0.4) * x.exp(),
        lambda x: torch.clamp(x[:12], x[12:24], x[24:36]) + x[:12].sin(),
    ],
    ids=["sort", "median", "kthvalue", "topk", "quantile", "median+", "median dim+", "quantile*", "clamp+"],
)
def test_a_choice_between_inputs_that_tie_is_not_called_wrong(function, coverage):
    def verdict(seed):
        torch.manual_seed(seed)
        x = torch.randint(0, 10, (40,)).double().requires_grad_()
        return gradproof.check(function, x, contracts=(), coverage=coverage, seed=seed).verdict

    assert [seed for seed in range(3) if verdict(seed) is Verdict.FAIL] == []


def test_a_sort_of_thousands_with_ties_is_not_called_wrong():
    torch.manual_seed(0)
    x = (5 * torch.randn(3000)).half().double().requires_grad_()

    assert gradproof.check(lambda x: torch.sort(x)[0], x, contracts=(), seed=0).verdict is not Verdict.FAIL


@pytest.mark.parametrize("grid", [2.0**-10, 2.0**-14, 2.0**-18])
@pytest.mark.parametrize("rest", [torch.sin, lambda x: x.sin().half().double()])
@pytest.mark.parametrize("size", [8, 40])
def test_quantised_outputs_with_a_gradient_of_zero_beside_others_are_never_failed(size, rest, grid):
    quantised = rule(lambda x: (x / grid).round() * grid, lambda g, x: 0 * g)

    for seed in range(4):
        x = drawn_point(size, seed=seed)
        report = gradproof.check(lambda x: torch.cat([quantised(3 * x[:3].sin()), rest(x[3:])]), x, seed=seed)
        assert report.verdict is not Verdict.FAIL


NEAR_POLES = {
    "log": lambda x, t: t * (x + 1e-8).log(),
    "square root": lambda x, t: t * (x + 1e-8).sqrt(),
    "entropy": lambda x, t: t * x * (x + 1e-8).log(),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", NEAR_POLES)
def test_a_zero_beside_a_pole_is_not_called_wrong_in_low_precision(name, order):
    def verdict(seed):
        torch.manual_seed(seed)
        x, t = (9 * torch.rand(2, 25)).to(torch.bfloat16)
        x[0] = [0.0, 1e-6, 1e-9][seed]
        return gradproof.check(NEAR_POLES[name], (x.requires_grad_(), t), order=order, seed=seed).verdict

    assert [seed for seed in range(3) if verdict(seed) is Verdict.FAIL] == []
