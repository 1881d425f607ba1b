"""Second derivatives that are wrong in torch 2.13: each is found in the modes in which it is wrong.

That torch is wrong is shown beside it by plain central differences or by the analytic value.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch.autograd import gradcheck, gradgradcheck

from gradproof import Verdict, check
from support.checks import BOTH
from support.functions import Sine
from support.marks import making_duals
from support.oracles import (
    SECOND,
    Case,
    curvature,
    forward_over_forward,
    modes_found,
    reverse_over_forward,
    reverse_over_reverse,
    wrong_in_torch,
)
from support.points import normal, numbers

pytestmark = [
    pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="other versions have other mistakes"),
    making_duals,
]

OVER_FORWARD = {"reverse over forward", "forward over forward"}
MATRIX = normal(3, 3, seed=5)
RIGHT_SIDE = normal(3, 2, seed=6)
REFLECTIONS, LENGTHS = normal(4, 2, seed=7), numbers(0.7, 1.2)

SECOND_ORDER = {
    "householder_product by its vectors": Case(
        function=lambda a: torch.linalg.householder_product(a, LENGTHS), x=REFLECTIONS, wrong=OVER_FORWARD
    ),
    "householder_product by its lengths": Case(
        function=lambda t: torch.linalg.householder_product(REFLECTIONS, t), x=LENGTHS, wrong=OVER_FORWARD
    ),
    "layer_norm": Case(function=lambda x: F.layer_norm(x, (4,)), x=normal(2, 4), wrong=OVER_FORWARD),
    "batch_norm": Case(
        function=lambda x: F.batch_norm(x, None, None, training=True), x=normal(4, 2), wrong=OVER_FORWARD
    ),
    "cumprod at a zero": Case(function=lambda x: x.cumprod(0), x=numbers(0.5, 0, 1.5, 2), wrong=OVER_FORWARD),
    "cumprod at two zeros": Case(function=lambda x: x.cumprod(0), x=numbers(0.5, 0, 1.5, 0, 3), wrong=OVER_FORWARD),
    "det": Case(function=torch.linalg.det, x=MATRIX, wrong=OVER_FORWARD),
    "det of two by two": Case(function=torch.linalg.det, x=MATRIX[:2, :2].contiguous(), wrong=OVER_FORWARD),
    "slogdet": Case(function=lambda m: torch.linalg.slogdet(m)[1], x=MATRIX, wrong=OVER_FORWARD),
    "solve": Case(function=lambda m: torch.linalg.solve(m, RIGHT_SIDE), x=MATRIX, wrong=OVER_FORWARD),
}


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_central_differences_show_that_torch_is_wrong_at_order_two(name):
    case = SECOND_ORDER[name]

    assert wrong_in_torch(case.function, case.x, 2) == case.wrong


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_it_is_found_at_order_two_in_the_nestings_that_are_wrong(name):
    case = SECOND_ORDER[name]

    assert modes_found(case.function, case.x, order=2) == case.wrong


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_what_is_wrong_at_order_two_is_right_at_order_one(name):
    case = SECOND_ORDER[name]

    assert check(case.function, case.x.clone().requires_grad_(), modes=BOTH, seed=0, contracts=()).passed


@pytest.mark.parametrize("name", SECOND_ORDER)
def test_gradcheck_and_gradgradcheck_miss_it(name):
    case = SECOND_ORDER[name]
    x = case.x.clone().requires_grad_()

    assert gradcheck(case.function, x, check_forward_ad=True)
    assert gradgradcheck(case.function, x, check_fwd_over_rev=True, check_rev_over_rev=True)


def test_the_second_derivative_of_a_two_by_two_determinant_is_one_and_torch_says_otherwise():
    # det = ad − bc, so ∂²det/∂a∂d = 1 everywhere.
    x = MATRIX[:2, :2].contiguous()
    a, d = numbers(1, 0, 0, 0).view(2, 2), numbers(0, 0, 0, 1).view(2, 2)
    u = torch.tensor(1.0, dtype=torch.float64)

    assert reverse_over_reverse(torch.linalg.det, x, u, a, d) == pytest.approx(1)
    assert abs(reverse_over_forward(torch.linalg.det, x, u, a, d) - 1) > 0.1
    assert abs(forward_over_forward(torch.linalg.det, x, u, a, d) - 1) > 0.1


def test_every_second_derivative_of_sinc_at_zero_is_zero_or_nan_in_torch():
    one = numbers(1)  # sinc(x) = 1 − π²x²/6 + …
    claims = {nesting: second(torch.sinc, numbers(0), one, one, one) for nesting, second in SECOND.items()}

    assert curvature(torch.sinc, numbers(0), one, one, one) == pytest.approx(-(math.pi**2) / 3, rel=1e-6)
    assert {nesting for nesting, claim in claims.items() if claim == 0} == {
        "forward over reverse",
        "forward over forward",
    }
    assert {nesting for nesting, claim in claims.items() if math.isnan(claim)} == {
        "reverse over reverse",
        "reverse over forward",
    }


def test_gradcheck_misses_sinc_and_gradgradcheck_does_not():
    assert gradcheck(torch.sinc, numbers(0, 0.5).requires_grad_(), check_forward_ad=True)
    assert not gradgradcheck(torch.sinc, numbers(0, 0.5).requires_grad_(), raise_exception=False)


@pytest.mark.parametrize("seed", range(3))
def test_the_second_derivative_of_sinc_at_zero_never_passes_and_nan_fails(seed):
    # Beside zero the first derivative is rough: it divides a difference of nearly equal numbers by x².
    report = check(torch.sinc, numbers(0, 0.5).requires_grad_(), modes=BOTH, order=2, seed=seed, contracts=())
    kinds = {finding.mode: finding.kind for finding in report.findings}
    outer = check(torch.sinc, numbers(0, 0.5).requires_grad_(), modes="forward", order=2, seed=seed, contracts=())

    assert check(torch.sinc, numbers(0, 0.5).requires_grad_(), modes=BOTH, seed=seed, contracts=()).passed
    assert {kinds[f"reverse over {inner}"] for inner in BOTH} == {"non-finite-gradient"}
    assert {kinds.get(f"forward over {inner}") for inner in BOTH} <= {"wrong-gradient", None}
    assert outer.verdict is not Verdict.PASS


def test_the_second_derivative_of_sinc_at_zero_is_measured():
    report = check(torch.sinc, numbers(0, 0.5).requires_grad_(), modes="forward", order=2, seed=0, contracts=())
    (entry,) = report.findings[0].entries

    assert (entry.index, entry.claimed) == ((0,), 0)
    assert math.pi**2 / 6 <= abs(entry.numerical) + entry.bar
    assert abs(entry.numerical) - entry.bar <= math.pi**2 / 3


def test_reverse_over_forward_of_softmax_raises_through_dual_numbers_which_is_noted_and_gradgradcheck_misses():
    def softmax(x):
        return x.softmax(0)

    x = normal(4)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        reverse_over_forward(softmax, x, normal(4, seed=1), normal(4, seed=2), normal(4, seed=3))
    report = check(softmax, x.clone().requires_grad_(), modes=BOTH, order=2, seed=0, contracts=())

    assert report.passed
    assert any("modified by an inplace operation" in note for note in report.notes)
    assert gradgradcheck(softmax, x.requires_grad_(), check_fwd_over_rev=True, check_rev_over_rev=True)


def test_the_outer_tangent_of_a_jvp_of_ones_own_is_lost_in_forward_over_forward():
    x = numbers(0.3, 0.7)
    ones = torch.ones(2, dtype=torch.float64)

    assert forward_over_forward(torch.sin, x, ones, ones, ones) == pytest.approx(-float(x.sin().sum()))
    assert forward_over_forward(Sine.apply, x, ones, ones, ones) == 0
    assert modes_found(Sine.apply, x, order=2) == set()
    assert modes_found(Sine.apply, x, order=2, modes="forward") == {"forward over forward"}
