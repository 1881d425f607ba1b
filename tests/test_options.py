"""The options of `check`: their defaults, what they accept, and what they refuse."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

import gradproof
from gradproof import InputError, Reason, Verdict, check
from gradproof._options import BY_REQUEST, CheckOptions, ContractName, Options
from gradproof.frameworks.torch.contracts import CONTRACTS
from support.functions import wrong_sine
from support.points import point

KEYWORDS = {
    "wrt": None,
    "modes": None,
    "order": 1,
    "coverage": "probe",
    "masked": False,
    "contracts": None,
    "rtol": 0.0,
    "atol": 0.0,
    "nondet_tol": 0.0,
    "probes": 1,
    "min_resolution": None,
    "budget": None,
    "seed": None,
    "explain": True,
    "progress": None,
}


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
        ("contracts", "linear"),
        ("contracts", "kernel"),
        ("contracts", ("kernel", "linear")),
        ("rtol", 1),
        ("atol", 1e-3),
        ("nondet_tol", 1e-3),
        ("probes", 3),
        ("seed", 2**32 - 1),
        ("explain", False),
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
        ("contracts", "sideways"),
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
def test_the_rtol_that_the_hint_on_a_slight_error_names_is_enough(tolerance, coverage):
    a = torch.linspace(0.05, 0.9, 5, dtype=torch.float64, requires_grad=True)

    def check(rtol):
        return gradproof.check(
            lambda a: FixedPoint.apply(a, tolerance), a, seed=0, contracts=(), coverage=coverage, rtol=rtol
        )

    finding = check(0.0).findings[0]
    hint = finding.diagnoses[0].hint if finding.diagnoses else finding.hint
    named = re.search(r"pass rtol=([-.e\d]+\d)", hint)

    assert named
    assert check(float(named[1])).passed


@pytest.mark.parametrize(("atol", "verdict"), [(0.05, Verdict.PASS), (1e-4, Verdict.FAIL)])
def test_atol_accepts_an_absolute_error(atol, verdict):
    assert check(wrong_sine(1.01), point(1), atol=atol, seed=0).verdict is verdict


def test_nondet_tol_accepts_calls_that_differ_a_little():
    own = iter(torch.rand(10_000, generator=torch.Generator().manual_seed(3)).tolist())  # which no check can see

    def shaky(x):
        return x.sin() + 1e-2 * next(own)

    strict, lenient = check(shaky, point(4), seed=0), check(shaky, point(4), seed=0, nondet_tol=1.0)

    assert strict.reason is Reason.NONDETERMINISTIC
    assert lenient.reason is not Reason.NONDETERMINISTIC


def test_every_probe_gives_a_reading_with_a_seed_of_its_own():
    report = check(torch.sin, point(4), probes=5, seed=0)

    assert len({reading.seed for reading in report.readings}) == 5
    assert len({reading.numerical for reading in report.readings}) == 5


def test_more_probes_cost_more_evaluations():
    one, four = (check(torch.sin, point(4), probes=probes, seed=0).cost for probes in (1, 4))

    assert four.evaluations > one.evaluations
    assert four.pullbacks > one.pullbacks


def test_every_contract_has_one_name_and_every_name_a_contract():
    assert set(CONTRACTS) == set(ContractName)
    assert {name for name, contract in CONTRACTS.items() if contract.mode == "forward"} == {
        name for name in ContractName if name.endswith("-forward")
    }


def test_contracts_of_memory_and_streams_are_tested_by_request():
    usual, kernel = Options(), Options(contracts="kernel")

    assert {name for name in ContractName if not usual.asks_for(name)} == BY_REQUEST
    assert {name for name in ContractName if kernel.asks_for(name)} == {*BY_REQUEST, "repeatable"}
    assert {name for name in ContractName if Options(contracts=("linear", "bounds")).asks_for(name)} == {
        "linear",
        "bounds",
    }


def test_keywords_that_are_passed_on_have_the_types_of_check():
    own = inspect.get_annotations(check)

    assert inspect.get_annotations(CheckOptions) == {name: CheckOptions.__annotations__[name] for name in KEYWORDS}
    assert {name: CheckOptions.__annotations__[name].__forward_arg__ for name in KEYWORDS} == {
        name: own[name] for name in KEYWORDS
    }
