"""Full coverage of functions that have no derivative to compare with, at the point or beside it."""

from __future__ import annotations

import pytest
import torch

from gradproof import Verdict
from support.checks import full
from support.marks import both_modes
from support.points import point


def test_a_function_that_raises_beside_the_point_is_inconclusive():
    x = torch.ones(12, dtype=torch.float64, requires_grad=True)

    def picky(y):
        if not bool((y == 1).all()):
            raise ValueError("ones only")
        return y.sin()

    report = full(picky, x)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "ones only" in report.message


@pytest.mark.parametrize("size", [1, 12])
def test_an_output_that_changes_shape_is_never_called_wrong(size):
    x = torch.ones(size, dtype=torch.float64, requires_grad=True)

    assert full(lambda y: y[y >= 1].sin(), x).verdict is not Verdict.FAIL


def test_a_function_that_writes_to_its_input_is_inconclusive():
    def writing(x):
        with torch.no_grad():
            x.mul_(2.0)
        return x.sin()

    assert full(writing, point(12)).verdict is Verdict.INCONCLUSIVE


def test_a_function_that_writes_to_an_input_that_is_not_varied_passes():
    def writing(x, y):
        y.add_(1.0)
        return x * 1.0

    y = torch.zeros(12, dtype=torch.float64)

    assert full(writing, (point(12), y)).verdict is Verdict.PASS
    assert torch.equal(y, torch.zeros(12, dtype=torch.float64))


@pytest.mark.parametrize("size", [1, 4, 12, 40])
@both_modes
def test_a_kink_is_inconclusive(size, mode):
    x = torch.linspace(1, 2, size, dtype=torch.float64)
    x[size // 2] = 0.0

    assert full(torch.abs, x.requires_grad_(), mode).verdict is Verdict.INCONCLUSIVE
