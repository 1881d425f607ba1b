"""The public surface: keywords, errors, replay, and what a report holds."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys

import pytest
import torch

import gradproof
from gradproof import GradientError, InputError, Verdict, assert_gradients, check
from gradproof._session import session
from support.functions import scaled, wrong_sine
from support.points import point

KEYWORDS = {
    "wrt": None,
    "modes": None,
    "order": 1,
    "coverage": "probe",
    "masked": None,
    "contracts": None,
    "rtol": 0.0,
    "atol": 0.0,
    "nondet_tol": 0.0,
    "probes": 1,
    "seed": None,
    "progress": None,
}


# ── keywords ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_check_has_the_documented_keywords_and_defaults():
    parameters = inspect.signature(check).parameters

    assert {name: each.default for name, each in list(parameters.items())[2:]} == KEYWORDS


def test_every_option_is_keyword_only():
    parameters = list(inspect.signature(check).parameters.values())

    assert [each.name for each in parameters[:2]] == ["func", "inputs"]
    assert all(each.kind is each.KEYWORD_ONLY for each in parameters[2:])


@pytest.mark.parametrize(("name", "value"), KEYWORDS.items())
def test_every_keyword_may_be_given_its_default(name, value):
    assert check(torch.sin, point(4), **{name: value}).passed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wrt", 0),
        ("modes", "reverse"),
        ("modes", ["reverse"]),
        ("modes", "forward"),
        ("modes", ("forward", "reverse")),
        ("order", 2),
        ("masked", True),
        ("masked", False),
        ("contracts", []),
        ("contracts", ("linear",)),
        ("rtol", 1),
        ("atol", 1e-3),
        ("nondet_tol", 1e-3),
        ("probes", 3),
        ("seed", 2**32 - 1),
        ("progress", False),
        ("progress", True),
        ("coverage", "full"),
    ],
)
def test_every_keyword_takes_other_values(name, value):
    assert check(torch.sin, point(4), **{name: value}).passed


def test_sparse_inputs_that_require_grad_are_checked():
    sparse = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()

    assert check(lambda a: a.to_dense().sin(), sparse, masked=True).passed


def test_sparse_inputs_are_chosen_by_wrt():
    sparse = torch.eye(3, dtype=torch.float64).to_sparse()

    assert check(lambda a: a.to_dense().sin(), (sparse,), wrt=0, masked=True).passed


def test_sparse_outputs_are_checked():
    assert check(lambda x: x.to_sparse(), point(3)).passed


def test_a_sparse_input_that_is_not_checked_is_no_hindrance():
    sparse = torch.eye(3, dtype=torch.float64).to_sparse()

    assert check(torch.sparse.mm, (sparse, point(3, 2))).passed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modes", ()),
        ("modes", ("sideways",)),
        ("modes", 3),
        ("contracts", ("sideways",)),
        ("contracts", "linear"),
        ("contracts", 3),
        ("order", 0),
        ("order", 3),
        ("order", True),
        ("order", "first"),
        ("coverage", "some"),
        ("coverage", None),
        ("masked", "yes"),
        ("rtol", -1e-3),
        ("rtol", float("nan")),
        ("rtol", float("inf")),
        ("rtol", "small"),
        ("rtol", True),
        ("rtol", None),
        ("atol", -1.0),
        ("atol", float("inf")),
        ("nondet_tol", -1.0),
        ("nondet_tol", float("nan")),
        ("probes", 0),
        ("probes", -1),
        ("probes", 1.5),
        ("probes", True),
        ("probes", 10_001),
        ("seed", -1),
        ("seed", 2**32),
        ("seed", 1.0),
        ("seed", "a"),
        ("seed", False),
    ],
)
def test_an_option_out_of_range_is_refused_with_its_name_and_value(name, value):
    with pytest.raises(InputError) as raised:
        check(torch.sin, point(4), **{name: value})

    message = str(raised.value)
    assert f"{name}={value!r}" in message
    assert len(message) > len(f"{name}={value!r}: ") + 10, "the message says what to do"


def test_an_input_error_is_a_value_error():
    assert issubclass(InputError, ValueError)


def test_an_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError, match="tolerance"):
        check(torch.sin, point(4), tolerance=1e-3)


def test_options_are_judged_before_the_function_is_called():
    def never(x):
        pytest.fail("the function was called")

    with pytest.raises(InputError):
        check(never, point(4), probes=0)


@pytest.mark.parametrize(("rtol", "verdict"), [(0.05, Verdict.PASS), (1e-4, Verdict.FAIL)])
def test_rtol_accepts_an_error_relative_to_the_gradient(rtol, verdict):
    assert check(wrong_sine(1.01), point(1), rtol=rtol, seed=0).verdict is verdict


class FixedPoint(torch.autograd.Function):
    """y = tanh(y / 2 + a), iterated until it moves by less than a tolerance; differentiated as if it had arrived."""

    @staticmethod
    def forward(ctx, a, tolerance):
        before, after = torch.full_like(a, torch.inf), torch.zeros_like(a)
        while (after - before).abs().max() > tolerance:
            before, after = after, torch.tanh(after / 2 + a)
        ctx.save_for_backward(after)
        return after

    @staticmethod
    def backward(ctx, incoming):
        slope = 1 - ctx.saved_tensors[0] ** 2
        return incoming * slope / (1 - slope / 2), None


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("tolerance", [1e-5, 1e-6, 1e-7, 1e-8])
def test_the_rtol_that_the_advice_on_a_slight_error_names_is_enough(tolerance, coverage):
    a = torch.linspace(0.05, 0.9, 5, dtype=torch.float64, requires_grad=True)

    def check(rtol):
        return gradproof.check(
            lambda a: FixedPoint.apply(a, tolerance), a, seed=0, contracts=(), coverage=coverage, rtol=rtol
        )

    finding = check(0.0).findings[0]
    advice = finding.diagnoses[0].advice if finding.diagnoses else finding.advice
    named = re.search(r"pass rtol=([-.e\d]+\d)", advice)

    assert named
    assert check(float(named[1])).passed


@pytest.mark.parametrize(("atol", "verdict"), [(0.05, Verdict.PASS), (1e-4, Verdict.FAIL)])
def test_atol_accepts_an_absolute_error(atol, verdict):
    assert check(wrong_sine(1.01), point(1), atol=atol, seed=0).verdict is verdict


def test_nondet_tol_accepts_calls_that_differ_a_little():
    own = torch.Generator().manual_seed(3)

    def shaky(x):
        return x.sin() + 1e-2 * torch.rand(x.shape, generator=own, dtype=x.dtype)

    strict, lenient = check(shaky, point(4), seed=0), check(shaky, point(4), seed=0, nondet_tol=1.0)

    assert strict.reason.startswith("random")
    assert not lenient.reason.startswith("random")


def test_every_probe_gives_a_reading_with_a_seed_of_its_own():
    report = check(torch.sin, point(4), probes=5, seed=0)

    assert len({reading.seed for reading in report.readings}) == 5
    assert len({reading.numerical for reading in report.readings}) == 5


def test_more_probes_cost_more_evaluations():
    one, four = (check(torch.sin, point(4), probes=probes, seed=0).cost for probes in (1, 4))

    assert four.evaluations > one.evaluations
    assert four.pullbacks > one.pullbacks


# ── assert_gradients ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_assert_gradients_returns_nothing_on_right_gradients():
    assert assert_gradients(torch.sin, point(4)) is None


def test_assert_gradients_raises_an_assertion_error_with_the_report():
    with pytest.raises(AssertionError) as raised:
        assert_gradients(wrong_sine(2.0), point(4), seed=5)

    assert isinstance(raised.value, GradientError)
    assert raised.value.report.verdict is Verdict.FAIL
    assert raised.value.report.seed == 5


def test_assert_gradients_shows_the_findings():
    with pytest.raises(GradientError) as raised:
        assert_gradients(wrong_sine(2.0), point(1))

    report, text = raised.value.report, str(raised.value)
    assert text == str(report)
    assert report.findings[0].message in text
    assert "inputs[0][0]" in text


def test_assert_gradients_raises_on_an_inconclusive_verdict():
    with pytest.raises(GradientError, match="kink") as raised:
        assert_gradients(torch.relu, torch.zeros(1, dtype=torch.float64, requires_grad=True))

    assert raised.value.report.verdict is Verdict.INCONCLUSIVE


def test_assert_gradients_passes_its_options_on():
    assert_gradients(wrong_sine(1.01), point(1), rtol=0.1)
    with pytest.raises(InputError, match="probes"):
        assert_gradients(torch.sin, point(4), probes=0)
    with pytest.raises(InputError, match="order"):
        assert_gradients(torch.sin, point(4), order=3)


# ── seeds ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", [torch.sin, wrong_sine(2.0), torch.relu], ids=["right", "wrong", "kinked"])
def test_the_same_seed_replays_the_same_report(function):
    x = point(20)
    first, second = (check(function, x, seed=11) for _ in range(2))

    assert first.readings == second.readings
    assert first.findings == second.findings
    assert (first.verdict, first.reason, first.resolution) == (second.verdict, second.reason, second.resolution)


def test_different_seeds_ask_along_different_directions():
    first, second = (check(torch.sin, point(4), seed=seed) for seed in (1, 2))

    assert first.readings != second.readings


def test_a_check_without_a_seed_names_one_that_replays_it():
    first = check(torch.sin, point(4))

    assert check(torch.sin, point(4), seed=first.seed).readings == first.readings


@pytest.fixture
def unseeded(monkeypatch):
    """As where no seed was given to the test run."""
    monkeypatch.setattr(session, "seed", None)


def test_checks_without_a_seed_choose_different_ones(unseeded):
    assert len({check(torch.sin, point(4)).seed for _ in range(4)}) > 1


def test_a_chosen_seed_does_not_depend_on_the_global_generator(unseeded):
    seeds = set()
    for _ in range(2):
        torch.manual_seed(0)
        seeds.add(check(torch.sin, point(4)).seed)

    assert len(seeds) == 2


def test_consecutive_seeds_share_no_readings():
    readings = [check(torch.sin, point(4), seed=seed, probes=3).readings for seed in range(4)]

    assert len({reading.numerical for each in readings for reading in each}) == 12


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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

    assert (report.reason, report.findings) == ("", ())


def test_a_fail_and_an_inconclusive_say_why():
    assert check(wrong_sine(2.0), point(4)).reason
    kinked = check(torch.abs, torch.zeros(3, dtype=torch.float64, requires_grad=True))
    assert kinked.reason
    assert kinked.advice


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

    cost = check(counted, point(4).detach().to(dtype).requires_grad_(), seed=0).cost

    assert cost.evaluations == calls


def test_a_right_gradient_costs_five_evaluations_and_one_pullback():
    cost = check(torch.sin, point(100), contracts=(), seed=0).cost

    assert (cost.evaluations, cost.pullbacks) == (5, 1)


def test_the_subject_is_told_in_the_users_words():
    subject = check(torch.sin, point(2, 3), seed=0).subject

    assert subject.name == "sin"
    assert subject.arguments == ("inputs[0]: float64[2, 3]",)
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
    assert data["reason"] == report.reason
    assert data["advice"] == report.advice
    assert data["seed"] == 7
    assert data["notes"] == list(report.notes)
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


# ── importing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fresh(code: str, **environment: str) -> str:
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=known | environment).stdout


@pytest.mark.parametrize("name", ["torch", "rich", "numpy", "scipy", "jax"])
def test_importing_gradproof_does_not_import(name):
    assert _fresh(f"import sys, gradproof; print({name!r} in sys.modules)").strip() == "False"


def test_importing_gradproof_takes_less_than_a_tenth_of_a_second(tmp_path):
    code = "import time; t = time.process_time(); import gradproof; print(time.process_time() - t)"

    times = [float(_fresh(code, PYTHONPYCACHEPREFIX=str(tmp_path))) for _ in range(8)]

    assert min(times) < 0.1, "with compiled files at hand, as after an installation"


def test_a_pass_does_not_import_rich():
    code = (
        "import sys, torch, gradproof; x = torch.ones(2, dtype=torch.float64, requires_grad=True); "
        "gradproof.check(torch.sin, x); print('rich' in sys.modules)"
    )

    assert _fresh(code).strip() == "False"


def test_every_public_name_exists():
    assert all(getattr(gradproof, name) is not None for name in gradproof.__all__)
    assert set(dir(gradproof)) >= set(gradproof.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="gradients"):
        gradproof.gradients  # noqa: B018  # the access itself is the test


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
