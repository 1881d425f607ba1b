"""Functions of hundreds of tensors: a check takes time in proportion to them."""

from __future__ import annotations

import time

import pytest
import torch

from gradproof import Verdict, check
from support.points import point


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
