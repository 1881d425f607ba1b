"""Difficulties of torch's own functions are explained, and a wrong rule beside each is not."""

import pytest
import torch

from gradproof import Reason, Verdict, check
from support.checks import BOTH
from support.findings import assert_inconclusive
from support.functions import rule
from support.points import numbers

SIGNS = numbers(0.5, -0.0, 0.9, -0.4)
SIZES = numbers(1.5, 0.7, 2.0, 1.1)

either_coverage = pytest.mark.parametrize("coverage", ["probe", "full"])
either_mode = pytest.mark.parametrize("mode", BOTH)


def checked(function, *inputs, coverage, mode, seed=0):
    leaves = tuple(each.clone().requires_grad_() for each in inputs)
    return check(function, leaves, coverage=coverage, modes=(mode,), seed=seed, contracts=())


COPIED = {
    "both inputs": (torch.copysign, (SIZES, SIGNS)),
    "signs alone": (lambda signs: torch.copysign(SIZES, signs), (SIGNS,)),
    "one output": (lambda sizes, signs: torch.copysign(sizes, signs).sum(), (SIZES, SIGNS)),
    "beside smooth terms": (lambda a, b: torch.copysign(a, b).sin() * a.exp() + b.cos(), (SIZES, SIGNS)),
    "every sign": (torch.copysign, (SIZES, -torch.zeros(4, dtype=torch.float64))),
}


@either_coverage
@either_mode
@pytest.mark.parametrize(("function", "inputs"), COPIED.values(), ids=COPIED)
def test_copysign_at_negative_zeros_is_a_jump_and_says_which_input(function, inputs, coverage, mode):
    report = checked(function, *inputs, coverage=coverage, mode=mode)

    assert_inconclusive(report, Reason.JUMP)
    assert "−0.0" in report.message


@either_coverage
@either_mode
def test_copysign_from_negative_zeros_that_are_no_inputs_passes(coverage, mode):
    report = checked(lambda sizes: torch.copysign(sizes, SIGNS), SIZES, coverage=coverage, mode=mode)

    assert report.verdict is Verdict.PASS


def copied_wrongly(entry):
    """copysign(sizes, signs) whose derivative by the sizes is half as much again in one entry."""
    off = 1 + 0.5 * (torch.arange(4) == entry)

    def slopes(sizes, signs):
        return off * torch.copysign(torch.ones_like(sizes), sizes) * torch.copysign(torch.ones_like(sizes), signs)

    return rule(
        torch.copysign,
        lambda incoming, sizes, signs: (incoming * slopes(sizes, signs), 0 * incoming),
        jvp=lambda first, second, sizes, signs: first * slopes(sizes, signs),
    )


@either_coverage
@either_mode
def test_a_wrong_rule_of_copysign_is_found_in_another_entry_than_that_of_a_negative_zero(coverage, mode):
    found = [checked(copied_wrongly(2), SIZES, SIGNS, coverage=coverage, mode=mode, seed=seed) for seed in range(6)]
    verdicts = [report.verdict for report in found]

    assert verdicts.count(Verdict.FAIL) >= (5 if coverage == "probe" else 6)  # a probe may leave all outputs out
    assert Verdict.PASS not in verdicts


@either_coverage
@either_mode
def test_the_same_rule_is_found_without_negative_zeros(coverage, mode):
    report = checked(copied_wrongly(2), SIZES, SIGNS.abs() + 0.1, coverage=coverage, mode=mode)

    assert report.verdict is Verdict.FAIL


@either_coverage
@either_mode
def test_a_negative_zero_whose_sign_does_not_count_excuses_nothing(coverage, mode):
    """torch says that copysign(x, x), which is x, has a slope of 0 at −0.0."""
    report = checked(lambda x: torch.copysign(x, x), SIGNS, coverage=coverage, mode=mode)

    assert report.verdict is Verdict.FAIL
