"""Smaller inputs at which a case still fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from gradproof.audit.shrink import shrink
from gradproof.errors import InputError
from support import audit_cases
from support.audit_cases import case


class LastColumn(torch.autograd.Function):
    """A product whose gradient misses the last column, where there is more than one."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        first = gradient @ y.T
        if first.shape[1] > 1:
            first = torch.cat([first[:, :-1], first[:, -1:] * 0], 1)
        return first, x.T @ gradient


def column():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(size, dtype=torch.float64, generator=generator) for size in ((4, 7), (7, 5)))
    return LastColumn.apply, (x.requires_grad_(), y.requires_grad_())


def test_sizes_that_belong_together_are_shrunk_as_far_as_the_error_stays():
    shrunk = shrink(case(column))

    assert [tuple(each.shape) for each in shrunk.inputs] == [(1, 2), (2, 1)]
    assert shrunk.inputs[0].tolist() == [[1, 1]]
    assert shrunk.attempts < 60
    assert shrunk.report.findings[0].kind == "wrong-gradient"


def right_at_one():
    def function(x):
        claimed = x + x * x / 2
        return (x * x).detach() + claimed - claimed.detach()

    return function, torch.tensor([1.2345, -0.6789], requires_grad=True)


def test_numbers_are_simple_where_one_is_right():
    assert shrink(case(right_at_one)).inputs[0].tolist() == 2


def test_the_script_shows_the_error_by_itself(tmp_path):
    shrunk = shrink(case(audit_cases.wrong))
    (tmp_path / "again.py").write_text(shrunk.script)
    folders = [str(Path(__file__).parents[2] / each) for each in ("src", "tests")]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {folders}; exec(open('again.py').read())"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert len(shrunk.script.splitlines()) <= 12
    assert done.stdout.startswith("FAIL")


def test_a_case_that_passes_is_not_shrunk():
    with pytest.raises(InputError, match="does not fail here"):
        shrink(case(audit_cases.right))
