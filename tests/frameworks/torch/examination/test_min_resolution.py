"""With `min_resolution` a pass that would have caught too little is inconclusive."""

from __future__ import annotations

import pytest
import torch

from gradproof import InputError, Reason, Verdict, check
from support.functions import wrong_sine
from support.points import point


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_a_weak_pass_is_inconclusive(coverage):
    usual = check(torch.sin, point(50), coverage=coverage, seed=0)
    below, above = usual.resolution.relative / 2, usual.resolution.relative * 2

    report = check(torch.sin, point(50), coverage=coverage, seed=0, min_resolution=below)

    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, Reason.RESOLUTION)
    assert report.resolution == usual.resolution
    assert f"min_resolution={below:g}" in report.hint
    assert check(torch.sin, point(50), coverage=coverage, seed=0, min_resolution=above).passed


def test_a_wrong_gradient_fails_whatever_resolution_is_wanted():
    assert check(wrong_sine(2.0), point(5), seed=0, min_resolution=1e-300).verdict is Verdict.FAIL


def test_nothing_to_check_leaves_nothing_undetected():
    assert check(torch.sin, torch.zeros(0, requires_grad=True), seed=0, min_resolution=1e-9).passed


@pytest.mark.parametrize("wanted", [0, -1e-3, float("nan"), True, "fine"])
def test_a_resolution_that_is_no_size_is_refused(wanted):
    with pytest.raises(InputError, match="min_resolution="):
        check(torch.sin, point(3), min_resolution=wanted)
