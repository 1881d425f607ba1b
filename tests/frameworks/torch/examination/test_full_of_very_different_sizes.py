"""Full coverage where derivatives vanish, or are tiny beside others, or below what rounding leaves."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention

from gradproof import Verdict, check
from support.checks import full
from support.marks import both_modes, coverages
from support.points import point


class Meddled(torch.autograd.Function):
    """The identity of its first input, which says that it moves a little with the second."""

    @staticmethod
    def forward(ctx, value, x):
        ctx.save_for_backward(x)
        return value.clone()

    @staticmethod
    def backward(ctx, incoming):
        return incoming, 1e-3 * incoming.sum() * torch.ones_like(ctx.saved_tensors[0])


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x**3,
        lambda x: x**5,
        lambda x: (x**4).sum(),
        lambda x: x.prod(),
        lambda x: x[:, None] ** 3 * x,
        lambda x: x.tanh() - x,
    ],
)
def test_every_entry_is_verified_where_the_whole_jacobian_vanishes(function, order):
    still = torch.zeros(4, dtype=torch.float64, requires_grad=True)

    assert all(full(function, still, order=order, seed=seed).passed for seed in range(4))
    assert full(lambda x: Meddled.apply(function(x), x), still).verdict is Verdict.FAIL


class Ledger(torch.autograd.Function):
    """A tiny output beside a large one, of which the backward gets the tiny one's part wrong by a factor."""

    factor = 1.0

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return 1e-12 * (a * b).sum(), 1e6 * (a - b).pow(2).sum()

    @staticmethod
    def backward(ctx, tiny, large):
        a, b = ctx.saved_tensors
        return tiny * 1e-12 * b + large * 2e6 * (a - b), Ledger.factor * tiny * 1e-12 * a - large * 2e6 * (a - b)


@coverages
@pytest.mark.parametrize("factor", [0.0, -1.0, 1.001])
def test_a_wrong_gradient_of_a_tiny_output_beside_a_large_one_is_warned_of_and_found_by_itself(
    factor, coverage, monkeypatch
):
    monkeypatch.setattr(Ledger, "factor", factor)
    inputs = point(6), point(6, seed=2)
    together = check(Ledger.apply, inputs, coverage=coverage, contracts=(), seed=0)
    alone = check(lambda a, b: Ledger.apply(a, b)[0], inputs, coverage=coverage, contracts=(), seed=0)

    assert any(note.startswith("output[0]: tiny compared with other outputs") for note in together.notes)
    assert {finding.argument for finding in alone.findings} == {"b"}


@coverages
def test_a_right_gradient_of_a_tiny_output_beside_a_large_one_passes(coverage):
    assert check(Ledger.apply, (point(6), point(6, seed=2)), coverage=coverage, seed=0).passed


@coverages
@pytest.mark.parametrize("seed", range(3))
def test_an_output_of_rounding_alone_beside_a_large_one_passes(seed, coverage):
    def with_residual(a):
        inverse = torch.linalg.inv(a)
        return 10 * inverse, a @ inverse - torch.eye(4, dtype=a.dtype)

    assert check(with_residual, point(4, 4), coverage=coverage, seed=seed).passed


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_what_rounding_leaves_of_tiny_second_derivatives_is_not_called_wrong(seed):
    torch.manual_seed(seed)
    q, k, v = ((12 * torch.randn(3, 2, dtype=torch.float64)).requires_grad_() for _ in range(3))

    assert check(lambda q, k, v: F.softmax(q @ k.T, -1) @ v, (q, k, v), order=2, contracts=(), seed=0).passed


@pytest.mark.parametrize("seed", range(8))
def test_a_derivative_of_the_smallest_numbers_is_judged_without_dividing_by_nothing(seed):
    torch.manual_seed(seed)
    q, k, v = ((20 * torch.randn(3, 2, dtype=torch.float64)).requires_grad_() for _ in range(3))

    def gradients(q, k, v):
        return torch.autograd.grad((F.softmax(q @ k.T, -1) @ v).square().sum(), (q, k, v), create_graph=True)

    assert check(gradients, (q, k, v), coverage="full", contracts=(), seed=seed).verdict in Verdict


class Overwriting(torch.autograd.Function):
    """Twice its argument, with rules that write to what they are given."""

    @staticmethod
    def forward(x, factor):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, incoming):
        return incoming.mul_(ctx.factor), None

    @staticmethod
    def jvp(ctx, tangent, _):
        return tangent.mul_(ctx.factor)


@both_modes
@pytest.mark.parametrize("size", [3, 50, 200])
def test_rules_that_write_to_what_they_are_given_are_judged_by_what_they_give(size, mode):
    assert full(lambda x: Overwriting.apply(x, 2), point(size), mode).passed
    assert full(lambda x: Overwriting.apply(x, 3), point(size), mode).verdict is Verdict.FAIL


@pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("after", [torch.tanh, torch.sigmoid], ids=["tanh", "sigmoid"])
def test_entries_that_move_less_than_the_quantum_of_a_cast_are_not_called_wrong(low, after):
    for seed in range(3):
        draw = torch.Generator().manual_seed(117 + 2 * seed)
        x, w = (torch.randn(shape, dtype=torch.float64, generator=draw).requires_grad_() for shape in ((5, 4), (4, 4)))
        report = check(lambda x, w: after((x.to(low) @ w.to(low)).float()), (x, w), coverage="full", seed=seed)

        assert report.verdict is not Verdict.FAIL, str(report)


@pytest.mark.parametrize("claimed", [0.5, 1e-5])
def test_a_slope_that_is_claimed_of_a_constant_is_wrong_however_small(claimed):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.cat([x[:3].clone(), torch.ones_like(x[3:])])

        @staticmethod
        def backward(ctx, incoming):
            return torch.cat([incoming[:3], claimed * incoming[3:]])

    x = torch.linspace(0.3, 2.2, 4, dtype=torch.float64).requires_grad_()

    assert check(Half.apply, x, coverage="full", seed=0).verdict is Verdict.FAIL


def test_values_that_differ_by_a_rounding_and_are_defined_only_near_the_point_are_verified():
    """A distribution, for instance, accepts a covariance only if it is symmetric."""

    def variances(matrix):
        if not torch.isclose(matrix, matrix.mT, atol=1e-6).all():
            raise ValueError("not symmetric")
        return torch.linalg.cholesky(matrix).pow(2).sum(-1)

    verdicts = []
    for seed in range(10):
        factor = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        matrix = (factor @ factor.mT + torch.eye(3)).requires_grad_()
        verdicts.append(check(variances, (matrix,), coverage="full", seed=seed, contracts=()).verdict)

    assert Verdict.FAIL not in verdicts
    assert verdicts.count(Verdict.PASS) >= 8
