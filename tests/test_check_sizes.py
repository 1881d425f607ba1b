"""One check for each of many sizes."""

from __future__ import annotations

import pytest
import torch

from gradproof import InputError, check_sizes
from gradproof._check_sizes import SIZES
from support.functions import rule
from support.points import point


def in_blocks_of_four(incoming, x):
    """The derivative of a sine, in whole blocks of four entries: the rest of a vector gets zeros."""
    gradient = incoming * x.cos()
    gradient[x.numel() // 4 * 4 :] = 0
    return gradient


def test_a_right_function_passes_at_every_usual_size():
    reports = check_sizes(torch.sin, point, seed=0)

    assert tuple(reports) == SIZES
    assert all(report.passed for report in reports.values())
    assert {report.seed for report in reports.values()} == {0}


def test_a_backward_in_whole_blocks_fails_where_a_size_is_no_multiple():
    reports = check_sizes(rule(torch.sin, in_blocks_of_four), point, seed=0)

    assert [size for size, report in reports.items() if report.passed] == [size for size in SIZES if size % 4 == 0]
    assert all(report.findings[0].kind == "wrong-gradient" for size, report in reports.items() if size % 4)


def test_a_forward_in_whole_blocks_of_fresh_memory_fails_the_contract():
    def forward(x):
        result = torch.empty_like(x)
        whole = x.numel() // 4 * 4
        result[:whole] = x[:whole].sin()
        return result

    reports = check_sizes(
        rule(forward, lambda g, x: g * x.cos()), point, sizes=(7, 8), contracts=("initialised",), seed=0
    )

    assert reports[8].passed
    assert "initialised" in [finding.kind for finding in reports[7].findings]


def test_all_sizes_share_a_seed_that_was_not_given():
    assert len({report.seed for report in check_sizes(torch.sin, point, sizes=(1, 2, 3)).values()}) == 1


def test_an_error_names_its_size():
    def picky(x):
        if x.numel() == 3:
            raise ValueError("not three")
        return x.sin()

    with pytest.raises(ValueError, match="not three") as caught:
        check_sizes(picky, point, sizes=(2, 3))

    assert any("size=3" in note for note in caught.value.__notes__)


def test_no_sizes_are_refused():
    with pytest.raises(InputError, match="sizes is empty"):
        check_sizes(torch.sin, point, sizes=())
