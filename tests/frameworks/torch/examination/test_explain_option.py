"""`explain=False`: the verdict and the wrong entries of a wrong gradient, and nothing that takes calls beyond them."""

import math

import pytest
import torch
from torch import nn

from gradproof import GradientError, assert_gradients, check
from gradproof.errors import InputError
from support.functions import doubled, rule, wrong_sine
from support.points import point


class Wrong(nn.Module):
    def forward(self, x):
        return doubled(x)


function = nn.Sequential(nn.Tanh(), Wrong(), nn.Tanh())


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("modes", [None, "reverse"])
def test_an_explanation_is_left_out_and_the_entries_stay(coverage, modes):
    explained, plain = (
        check(function, point(4), coverage=coverage, modes=modes, seed=0, contracts=(), explain=explain)
        for explain in (True, False)
    )
    (known,), (found,) = explained.findings, plain.findings

    assert known.diagnoses
    assert known.culprits
    assert explained.maps
    assert (found.diagnoses, found.culprits, plain.maps) == ((), (), ())
    assert (found.message, found.entries) == (known.message, known.entries)
    assert plain.verdict is explained.verdict
    assert plain.cost.evaluations < explained.cost.evaluations


def test_second_derivatives_are_not_explained_either():
    wrong_twice = rule(torch.sin, lambda incoming, x: incoming * wrong_sine(2.0)(x + math.pi / 2))
    report = check(wrong_twice, point(4), order=2, modes="reverse", seed=0, contracts=(), explain=False)

    assert report.findings
    assert not report.maps
    assert not any(finding.diagnoses or finding.culprits for finding in report.findings)


def test_a_passing_check_is_the_same():
    first, second = (check(torch.sin, point(4), seed=0, explain=explain) for explain in (True, False))

    assert first.passed
    assert second.passed
    assert first.cost.evaluations == second.cost.evaluations


def test_an_assertion_takes_the_option():
    with pytest.raises(GradientError) as raised:
        assert_gradients(function, point(4), seed=0, explain=False)

    assert not raised.value.report.findings[0].diagnoses


def test_another_value_is_refused():
    with pytest.raises(InputError, match="explain='no': choose True or False"):
        check(torch.sin, point(4), explain="no")
