"""The verdict: findings, obstacles, and a pass only where some error would have been caught."""

import math

import pytest

from gradproof.engine.results import Finding, Reason, Resolution, Verdict
from gradproof.engine.verdict import EMPTY, Judgement


@pytest.mark.parametrize("absolute", [math.inf, math.nan])
def test_a_resolution_that_is_not_finite_is_no_pass(absolute):
    judgement = Judgement(resolution=Resolution(absolute=absolute, relative=math.inf))

    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.obstacle_to_pass.reason is Reason.NON_FINITE
    assert "No error would have been caught" in judgement.message


def test_a_wrong_entry_is_a_failure_whatever_the_resolution():
    assert Judgement(findings=(Finding(kind="wrong-gradient", message=""),)).verdict is Verdict.FAIL


def test_a_gradient_of_zero_passes_by_its_absolute_resolution():
    assert Judgement(resolution=Resolution(absolute=1e-9, relative=math.inf)).verdict is Verdict.PASS


def test_nothing_to_check_is_a_pass():
    assert EMPTY.verdict is Verdict.PASS
