"""The jvp of a Function of one's own: wrong ones fail, missing ones are reported, both modes are distinguished."""

from __future__ import annotations

import pytest
import torch

from gradproof import GradientError, Verdict, assert_gradients
from support.checks import BOTH, pushed
from support.functions import cosine, raising_rule, rule, twice_cosine
from support.marks import asked_both_ways
from support.points import point


@pytest.mark.parametrize("seed", range(3))
def test_by_default_the_jvp_of_a_function_is_checked_where_it_has_one(seed):
    right = pushed(rule(torch.sin, backward=cosine, jvp=cosine), point(5), modes=None, seed=seed)
    wrong = pushed(rule(torch.sin, backward=cosine, jvp=twice_cosine), point(5), modes=None, seed=seed)

    assert right.verdict is Verdict.PASS
    assert {reading.mode for reading in right.readings} == set(BOTH)
    assert wrong.verdict is Verdict.FAIL
    assert {finding.mode for finding in wrong.findings} == {"forward"}


def test_by_default_torch_functions_are_checked_in_reverse_alone():
    report = pushed(torch.sin, point(4), modes=None)

    assert {reading.mode for reading in report.readings} == {"reverse"}
    assert report.notes == ()


def test_by_default_a_missing_jvp_is_a_note():
    report = pushed(rule(torch.sin, backward=cosine), point(4), modes=None)

    assert report.verdict is Verdict.PASS
    assert any("no jvp" in note for note in report.notes)


@asked_both_ways
def test_a_missing_jvp_is_a_failure_where_forward_mode_is_requested(modes):
    report = pushed(rule(torch.sin, backward=cosine), point(4), modes=modes)

    assert report.verdict is Verdict.FAIL
    assert [(finding.kind, finding.mode) for finding in report.findings] == [("no-forward-rule", "forward")]


def test_a_torch_function_without_a_pushforward_is_a_failure_where_forward_mode_is_requested():
    report = pushed(lambda x: torch.cdist(x, x + 1, p=1.5), point(3, 2))

    assert [finding.kind for finding in report.findings] == ["no-forward-rule"]


def test_a_missing_jvp_is_not_called_wrong():
    assert "the jvp is wrong" not in pushed(rule(torch.sin, backward=cosine), point(4), modes=BOTH).message


def test_a_missing_backward_is_not_called_wrong():
    assert "the backward is wrong" not in pushed(rule(torch.sin, jvp=cosine), point(4), modes=BOTH).message


@pytest.mark.parametrize("modes", [None, ("forward",), BOTH], ids=str)
def test_a_jvp_that_raises_is_a_failure_that_quotes_it(modes):
    report = pushed(rule(torch.sin, backward=cosine, jvp=raising_rule), point(4), modes=modes)

    assert report.verdict is Verdict.FAIL
    assert [(finding.kind, finding.mode) for finding in report.findings] == [("forward-raised", "forward")]
    assert "no such shape" in report.message


def test_a_jvp_of_the_wrong_shape_is_a_failure():
    report = pushed(rule(torch.sin, backward=cosine, jvp=lambda t, x: t.sum()), point(4))

    assert [finding.kind for finding in report.findings] == ["forward-raised"]


def test_a_jvp_that_gives_nan_fails_and_names_the_output():
    def tangent(t, x):
        pushed = t * x.cos()
        pushed[3] = torch.nan
        return pushed

    report = pushed(rule(torch.sin, backward=cosine, jvp=tangent), point(5))

    assert [finding.kind for finding in report.findings] == ["non-finite-gradient"]
    assert str(report.findings[0].entries[0].output) == "output[3]"


def test_a_function_with_a_jvp_and_no_backward_passes_in_forward_mode():
    assert pushed(rule(torch.sin, jvp=cosine), point(4)).verdict is Verdict.PASS


def test_a_function_with_a_jvp_and_no_backward_fails_in_reverse():
    report = pushed(rule(torch.sin, jvp=cosine), point(4), modes=BOTH)

    assert [(finding.kind, finding.mode) for finding in report.findings] == [("no-backward-rule", "reverse")]


def test_a_wrong_jvp_beside_a_right_backward_is_distinguished_from_the_reverse():
    wrong_jvp = pushed(rule(torch.sin, backward=cosine, jvp=twice_cosine), point(4), modes=BOTH)
    wrong_backward = pushed(rule(torch.sin, backward=twice_cosine, jvp=cosine), point(4), modes=BOTH)

    assert [finding.mode for finding in wrong_jvp.findings] == ["forward"]
    assert wrong_jvp.findings[0].message.endswith("the jvp is wrong.")
    assert [finding.mode for finding in wrong_backward.findings] == ["reverse"]
    assert wrong_backward.findings[0].message.endswith("the backward is wrong.")


def test_where_both_are_wrong_neither_is_blamed_for_the_other():
    report = pushed(rule(torch.sin, backward=twice_cosine, jvp=twice_cosine), point(4), modes=BOTH)

    assert [finding.mode for finding in report.findings] == ["reverse", "forward"]
    assert not any("agrees" in finding.message for finding in report.findings)


@pytest.mark.parametrize("seed", range(5))
def test_a_mismatch_that_noisy_values_cannot_show_is_found_by_holding_the_two_against_each_other(seed):
    def rough(x):
        return x.sin() * (1 + 1e-6 * torch.sin(x * 1e14))

    twins = pushed(rule(rough, backward=cosine, jvp=cosine), point(6), modes=BOTH, seed=seed)
    report = pushed(
        rule(rough, backward=cosine, jvp=lambda t, x: cosine(t, x) * (1 + 1e-7)), point(6), modes=BOTH, seed=seed
    )

    assert twins.verdict is Verdict.PASS
    assert report.verdict is Verdict.FAIL
    assert [(finding.kind, finding.mode) for finding in report.findings] == [("adjoint-mismatch", "forward")]


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("tolerated", [{"rtol": 1e-3}, {"atol": 1e-3}], ids=str)
@pytest.mark.parametrize("wrong", ["backward", "jvp"])
def test_a_rule_within_the_tolerance_passes_beside_one_that_is_exact(coverage, tolerated, wrong):
    rules = {"backward": cosine, "jvp": cosine}
    near = rules | {wrong: lambda t, x: cosine(t, x) * (1 + 5e-4)}
    far = rules | {wrong: lambda t, x: cosine(t, x) * (1 + 5e-3)}
    options = {"modes": BOTH, "coverage": coverage, **tolerated}

    assert pushed(rule(torch.sin, **near), point(6), **options).verdict is Verdict.PASS
    assert pushed(rule(torch.sin, **far), point(6), **options).verdict is Verdict.FAIL


def test_assert_gradients_raises_for_a_wrong_jvp():
    with pytest.raises(GradientError, match="the jvp is wrong"):
        assert_gradients(rule(torch.sin, backward=cosine, jvp=twice_cosine), point(3), seed=0, contracts=())


def test_a_forward_that_returns_a_view_of_its_own_tensor_is_reported_with_what_dual_numbers_need():
    own = rule(lambda z: (z * z.conj()).real, backward=lambda g, z: 2 * g * z, jvp=lambda t, z: 2 * (z.conj() * t).real)

    report = pushed(own, point(3, dtype=torch.complex128), modes=("forward",))

    assert report.verdict is Verdict.FAIL
    assert "the forward returned a view" in report.message
    assert "clone()" in report.message


@asked_both_ways
@pytest.mark.parametrize("factor", [2.0, 3.0])
def test_a_jvp_that_writes_to_its_tangent_is_judged_by_what_it_gives(factor, modes):
    own = rule(lambda x: 2 * x, backward=lambda g, x: 2 * g, jvp=lambda t, x: t.mul_(factor))

    assert pushed(own, point(4), modes=modes).passed == (factor == 2)


def test_a_wrong_jvp_of_the_identity_that_writes_to_its_tangent_fails():
    own = rule(lambda x: x.clone(), backward=lambda g, x: g, jvp=lambda t, x: t.mul_(3))

    assert pushed(own, point(4), modes=("forward",)).verdict is Verdict.FAIL


def test_a_complex_tangent_of_a_real_output_is_called_complex():
    own = rule(lambda z: z.abs(), backward=lambda g, z: g * z.sgn(), jvp=lambda t, z: z.sgn().conj() * t)

    report = pushed(own, point(3, dtype=torch.complex128), modes=("forward",))

    assert "a tangent of (3,) (complex) for an output of (3,)" in report.message


def test_a_contract_that_is_broken_says_nothing_of_which_rule_is_wrong():
    def by_numbers(tangent, _):
        return 2 * tangent + 0 * float(tangent.sum())

    own = rule(lambda x: 2 * x, backward=lambda g, x: 2 * g, jvp=by_numbers)

    report = pushed(own, point(5), modes=BOTH, contracts=("batched-forward",))

    assert report.verdict is Verdict.FAIL
    assert "is wrong" not in report.message
