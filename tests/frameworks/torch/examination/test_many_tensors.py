"""Functions of hundreds of tensors: a check takes time in proportion to them."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import torch
from torch import nn

from gradproof import Verdict, check
from support.points import normal, point


class Sines(torch.autograd.Function):
    """A sum over many tensors, whose backward is wrong for the sixth by a factor."""

    @staticmethod
    def forward(ctx, factor, *tensors):
        ctx.factor = factor
        ctx.save_for_backward(*tensors)
        return torch.stack([tensor.sin().sum() for tensor in tensors]).sum()

    @staticmethod
    def backward(ctx, incoming):
        slopes = [incoming * tensor.cos() for tensor in ctx.saved_tensors]
        slopes[5] = ctx.factor * slopes[5]
        return None, *slopes


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (2.0, Verdict.FAIL)])
def test_the_time_of_a_check_grows_no_faster_than_the_number_of_its_input_tensors(factor, verdict):
    def seconds(count):
        """Return the least processor time of some checks of functions of so many tensors."""
        tensors = [point(4) for _ in range(count)]
        spent = []
        for _ in range(3):
            began = time.process_time()
            report = check(lambda *given: Sines.apply(factor, *given), tensors, seed=1)
            spent.append(time.process_time() - began)
            assert report.verdict is verdict
        return min(spent)

    few, many = seconds(50), seconds(400)

    assert many <= 3 * 8 * few  # a check that asks about every tensor by itself takes 64 times as long


class Residual(nn.Module):
    """Two convolutions with batch norms, added to a shortcut: a block of ResNet-18."""

    def __init__(self, entering, leaving, stride):
        super().__init__()
        first = nn.Conv2d(entering, leaving, 3, stride, padding=1, bias=False), nn.BatchNorm2d(leaving), nn.ReLU()
        second = nn.Conv2d(leaving, leaving, 3, padding=1, bias=False), nn.BatchNorm2d(leaving)
        shorter = nn.Conv2d(entering, leaving, 1, stride, bias=False), nn.BatchNorm2d(leaving)
        self.body = nn.Sequential(*first, *second)
        self.shortcut = nn.Sequential(*shorter) if stride > 1 else nn.Identity()

    def forward(self, x):
        return (self.body(x) + self.shortcut(x)).relu()


def resnet_18(width, seed):
    """Return ResNet-18 with `width` channels in its first layer in place of 64; it has 62 parameters."""
    torch.manual_seed(seed)
    stem = nn.Conv2d(3, width, 7, 2, padding=3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    sizes = [width * 2**stage for stage in (0, 0, 0, 1, 1, 2, 2, 3, 3)]
    blocks = (Residual(before, after, after // before) for before, after in pairwise(sizes))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(sizes[-1], 10)).double()


@pytest.mark.parametrize(("width", "seed"), [(2, 6), (16, 4)])
def test_a_long_module_takes_few_evaluations_and_pullbacks_beside_its_kinks(width, seed):
    report = check(resnet_18(width, seed), normal(2, 3, 32, 32), seed=seed)

    assert report.passed
    assert report.cost.evaluations <= 100  # one that asks about every tensor by itself takes 596
    assert report.cost.pullbacks <= 80  # and 138
