"""Intermediate numbers that move by a unit in the last place."""

from __future__ import annotations

import pytest
import torch

from gradproof import compare
from gradproof.frameworks.torch.comparison.intermediates import MovedIntermediates


def grid(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).double()


@pytest.mark.parametrize(
    "exact", [torch.neg, torch.relu, torch.clone, lambda x: x.t().contiguous(), lambda x: x * (x > 0), lambda x: 2 * x]
)
def test_operations_that_need_no_rounding_are_left_alone(exact):
    x = grid(6, 5)
    with MovedIntermediates(1):
        found = exact(x)

    assert torch.equal(found, exact(x))


def test_results_that_are_rounded_move_by_a_unit_in_the_last_place():
    x = grid(40, 50)
    with MovedIntermediates(1):
        found = x.exp()
    change = (found / x.exp() - 1).abs()

    assert float(change.min()) > 0.2 * 2**-23
    assert float(change.max()) < 2.1 * 2**-23
    assert torch.equal(found.float().double(), found)


def test_backward_operations_move_as_well():
    x = grid(40).requires_grad_()
    (right,) = torch.autograd.grad(x.tanh().sum(), x)
    with MovedIntermediates(1):
        (found,) = torch.autograd.grad(x.tanh().sum(), x)

    assert 0 < float((found - right).abs().max()) < 1e-5


def test_writing_in_place_moves_and_views_of_other_tensors_stay():
    x, captured = grid(4, 5), torch.full((4, 5), 1 / 3, dtype=torch.float64)
    with MovedIntermediates(1):
        y = x.clone().exp_()
        view = captured.t()

    assert not torch.equal(y, x.exp())
    assert torch.equal(captured, torch.full((4, 5), 1 / 3, dtype=torch.float64))
    assert view.data_ptr() == captured.data_ptr()


def test_a_kernel_that_approximates_a_saturated_function_passes():
    x = 2 * torch.randn(16, 32, generator=torch.Generator().manual_seed(9000))

    def plain(x):
        return 0.5 * x * (1 + torch.erf(x / 2**0.5))

    for seed in range(3):
        assert compare(torch.nn.functional.gelu, plain, x.clone().requires_grad_(), seed=seed).passed
