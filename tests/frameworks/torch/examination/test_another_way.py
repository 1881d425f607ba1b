"""Functions in low precision that choose a window by a rounded number, and take another one in double precision."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from gradproof import Verdict, check
from support.functions import scaled


def pooled(x):
    """Pool windows whose places are rounded in the dtype of `x`."""
    return functional.fractional_max_pool3d(x, (2, 2, 2), output_size=(2, 2, 3))


def volumes(seed):
    torch.manual_seed(seed)
    return torch.randn(2, 3, 5, 5, 5).to(torch.bfloat16).requires_grad_()


@pytest.mark.parametrize("seed", [3, 4, 7])
def test_second_derivatives_are_not_judged_by_other_windows(seed):
    report = check(pooled, volumes(seed), order=2, seed=seed)

    assert report.verdict is not Verdict.FAIL


@pytest.mark.parametrize("seed", [3, 4, 7])
def test_a_wrong_gradient_is_found_in_its_own_precision(seed):
    report = check(lambda x: scaled(pooled(x), 1.5), volumes(seed), seed=seed)

    assert report.verdict is Verdict.FAIL


def test_a_single_value_that_is_ill_conditioned_is_judged_in_double_precision():
    torch.manual_seed(3)
    x = (0.01 + 0.02 * torch.rand(40)).to(torch.bfloat16)
    x[7] = 3.05  # its sine below is off by 18 roundings, the others by less than one

    report = check(lambda x: (x * 41.3).sin(), x.requires_grad_())

    assert report.verdict is not Verdict.FAIL
    assert not any("judged in its own precision" in note for note in report.notes)
