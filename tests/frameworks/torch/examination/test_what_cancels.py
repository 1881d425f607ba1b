"""Entries in low precision that are left over from contributions a hundred times as large, which cancel."""

from __future__ import annotations

import pytest
import torch

from gradproof import Verdict, check
from support.functions import Spoiled


def logits(seed, *shape):
    torch.manual_seed(seed)
    return (18 * torch.rand(*shape) - 9).to(torch.bfloat16).requires_grad_()


@pytest.mark.parametrize("seed", [14, 62])
def test_the_tangent_of_a_softmax_near_one_may_be_rounded_to_zero(seed):
    rows, columns = (check(lambda x, d=d: x.softmax(d), logits(seed, 5, 5), modes="forward", seed=seed) for d in (1, 0))

    assert rows.verdict is Verdict.PASS
    assert columns.verdict is Verdict.PASS


def test_second_derivatives_of_a_masked_softmax_may_be_rounded():
    torch.manual_seed(0)
    mask = torch.rand(10, 5) < 0.6

    report = check(
        lambda x: torch.masked.softmin(x, 0, mask=mask),
        logits(29, 10, 5),
        modes=("reverse", "forward"),
        order=2,
        seed=29,
    )

    assert report.verdict is not Verdict.FAIL


@pytest.mark.parametrize("factor", [0.0, 1.5])
def test_a_wrong_entry_is_found_in_a_tensor_with_small_gradients(factor):
    torch.manual_seed(0)
    large, small = torch.randn(200).to(torch.bfloat16), torch.randn(40).to(torch.bfloat16)

    def function(large, small):
        return 300 * large.sin(), Spoiled.apply(small, one_entry).cos()

    def one_entry(gradient):
        return torch.where(torch.arange(40) == 7, factor * gradient, gradient)

    report = check(function, (large.requires_grad_(), small.requires_grad_()))

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].argument == "small"
