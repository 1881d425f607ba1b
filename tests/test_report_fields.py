"""What a report holds: verdict, reason, resolution, readings, cost, subject, and the same as JSON."""

from __future__ import annotations

import json

import pytest
import torch

import gradproof
from gradproof import Reason, Verdict, check
from support.functions import scaled, wrong_sine
from support.points import point


def test_verdicts_have_three_values():
    assert {verdict.value for verdict in Verdict} == {"pass", "fail", "inconclusive"}


@pytest.mark.parametrize(
    ("function", "verdict"),
    [(torch.sin, Verdict.PASS), (wrong_sine(2.0), Verdict.FAIL), (torch.abs, Verdict.INCONCLUSIVE)],
)
def test_only_a_pass_has_passed(function, verdict):
    report = check(function, torch.zeros(3, dtype=torch.float64, requires_grad=True), seed=0)

    assert report.verdict is verdict
    assert report.passed is (verdict is Verdict.PASS)


def test_a_pass_has_neither_reason_nor_findings():
    report = check(torch.sin, point(4))

    assert (report.reason, report.message, report.findings) == (None, "", ())


def test_a_fail_and_an_inconclusive_say_why():
    assert check(wrong_sine(2.0), point(4)).message
    kinked = check(torch.abs, torch.zeros(3, dtype=torch.float64, requires_grad=True))
    assert kinked.reason is Reason.KINK
    assert kinked.message
    assert kinked.hint


def test_the_resolution_is_an_error_that_would_have_been_caught():
    resolution = check(torch.sin, point(4), seed=0).resolution

    assert 0 < resolution.absolute < 1e-6
    assert resolution.absolute * 1e3 > resolution.relative > resolution.absolute * 1e-3
    caught = check(wrong_sine(1 + 20 * resolution.relative), point(4), seed=0)
    assert caught.verdict is Verdict.FAIL


def test_the_resolution_is_relative_to_the_largest_gradient_entry():
    small, large = (check(lambda x, s=scale: s * x.sin(), point(4), seed=0).resolution for scale in (1.0, 1e6))

    assert large.absolute == pytest.approx(1e6 * small.absolute, rel=1.0)
    assert large.relative == pytest.approx(small.relative, rel=1.0)


def test_a_zero_gradient_has_an_infinite_relative_resolution():
    assert check(lambda x: 0 * x, point(4), seed=0).resolution.relative == float("inf")


def test_a_reading_holds_claim_slope_and_bar():
    (right,) = check(torch.sin, point(4), seed=0).readings
    wrong, *_ = check(wrong_sine(2.0), point(4), seed=0).readings

    assert right.agrees
    assert abs(right.claimed - right.numerical) <= right.bar
    assert not wrong.agrees
    assert wrong.claimed == pytest.approx(2 * wrong.numerical)


def test_the_cost_counts_calls_and_seconds():
    calls = 0

    def counted(x):
        nonlocal calls
        calls += 1
        return x.sin()

    cost = check(counted, point(4), contracts=(), seed=0).cost

    assert cost.evaluations == calls
    assert cost.pullbacks == 1
    assert 0 < cost.inside < cost.seconds


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_cost_counts_every_call_in_any_precision(dtype):
    calls = 0

    def counted(x):
        nonlocal calls
        calls += 1
        return scaled(x, 2.0).sin()

    cost = check(counted, point(4).detach().to(dtype).requires_grad_(), explain=False, seed=0).cost

    assert cost.evaluations == calls


def test_a_right_gradient_costs_five_evaluations_and_one_pullback():
    cost = check(torch.sin, point(100), contracts=(), seed=0).cost

    assert (cost.evaluations, cost.pullbacks) == (5, 1)


def test_the_subject_is_reported_in_the_users_words():
    subject = check(torch.sin, point(2, 3), seed=0).subject

    assert subject.name == "sin"
    assert subject.arguments == ("input: float64[2, 3]",)
    assert subject.outputs == ("output: float64[2, 3]",)
    assert (subject.coordinates, subject.output_coordinates) == (6, 6)


def test_a_report_cannot_be_changed():
    report = check(torch.sin, point(4))

    with pytest.raises(AttributeError):
        report.verdict = Verdict.FAIL


@pytest.mark.parametrize("function", [torch.sin, wrong_sine(2.0), torch.relu], ids=["right", "wrong", "kinked"])
def test_json_holds_every_field(function):
    report = check(function, torch.zeros(3, dtype=torch.float64, requires_grad=True), seed=7)

    data = json.loads(report.to_json())

    assert data["schema"] == 1
    assert data["verdict"] == report.verdict.value
    assert data["reason"] == (report.reason and report.reason.value)
    assert data["message"] == report.message
    assert data["hint"] == report.hint
    assert data["seed"] == 7
    assert data["notes"] == list(report.notes)
    assert data["unsupported"] == list(report.unsupported)
    assert data["cost"]["evaluations"] == report.cost.evaluations
    assert data["cost"]["seconds"] == report.cost.seconds
    assert data["subject"]["name"] == report.subject.name
    assert [each["numerical"] for each in data["readings"]] == [each.numerical for each in report.readings]
    assert [each["message"] for each in data["findings"]] == [each.message for each in report.findings]
    assert float(data["resolution"]["absolute"]) == report.resolution.absolute


def test_json_holds_the_wrong_entries():
    report = check(wrong_sine(2.0), point(1), seed=0)

    (finding,) = json.loads(report.to_json())["findings"]

    assert finding["argument"] == "inputs[0]"
    (entry,) = finding["entries"]
    assert entry["index"] == [0]
    assert entry["claimed"] == report.findings[0].entries[0].claimed
    assert entry["output"] == {"path": "output", "index": [0], "part": None, "stored": None}


def test_json_writes_infinity_as_text():
    data = json.loads(check(lambda x: 0 * x, point(4)).to_json())

    assert data["resolution"]["relative"] == "inf"


def test_json_writes_nan_as_text():
    report = check(wrong_sine(float("nan")), point(1), seed=0)

    data = json.loads(report.to_json())

    assert report.verdict is Verdict.FAIL
    assert data["findings"][0]["entries"][0]["claimed"] == "nan"


def test_a_custom_operator_is_called_by_its_name():
    @torch.library.custom_op("gradproof_tests::sine", mutates_args=())
    def sine(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    sine.register_autograd(
        lambda ctx, gradient: gradient * ctx.saved_tensors[0].cos(),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    report = gradproof.check(sine, torch.ones(3, dtype=torch.float64, requires_grad=True), seed=0)

    assert report.passed
    assert report.subject.name == "gradproof_tests::sine"
