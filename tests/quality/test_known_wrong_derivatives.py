"""Derivatives that are wrong in torch 2.13: each is found in the modes in which it is wrong, and in no other.

That torch is wrong is shown beside it by plain central differences or by the analytic value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from gradproof import Verdict, check
from support.checks import BOTH
from support.functions import Sine
from support.points import normal

pytestmark = [
    pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="other versions have other mistakes"),
    # The first dual number of a process makes torch import what uses its own deprecated torch.jit.script.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]

OVER_FORWARD = {"reverse over forward", "forward over forward"}


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


def modes_found(function, x, *, order, seed=0, modes=BOTH):
    report = check(function, x.clone().requires_grad_(), modes=modes, order=order, seed=seed, contracts=())
    return {finding.mode for finding in report.findings}


# Torch's own derivatives, and central differences, each as one number: ⟨u, Df(x)v⟩ or ⟨u, D²f(x)(v, w)⟩.


def slope(function, x, u, v, h=1e-5):
    def central(step):
        return (function(x + step * v) - function(x - step * v)) / (2 * step)

    return float((u * (4 * central(h / 2) - central(h)) / 3).sum())


def pulled(function, x, u, v):
    x = x.clone().requires_grad_()
    return float((torch.autograd.grad(function(x), x, u)[0] * v).sum())


def pushed(function, x, u, v):
    with forward_ad.dual_level():
        return float((forward_ad.unpack_dual(function(forward_ad.make_dual(x, v))).tangent * u).sum())


def curvature(function, x, u, v, w, h=2e-3):
    def mixed(step):
        a, b = step * v, step * w
        values = function(x + a + b) - function(x + a - b) - function(x - a + b) + function(x - a - b)
        return values / (4 * step * step)

    return float((u * (4 * mixed(h / 2) - mixed(h)) / 3).sum())


def reverse_over_reverse(function, x, u, v, w):
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(x), x, u, create_graph=True)
    return float((torch.autograd.grad((gradient * v).sum(), x)[0] * w).sum())


def forward_over_reverse(function, x, u, v, w):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x.clone().requires_grad_(), w)
        (gradient,) = torch.autograd.grad(function(dual), dual, u, create_graph=True)
        return float((forward_ad.unpack_dual(gradient).tangent.detach() * v).sum())


def reverse_over_forward(function, x, u, v, w):
    x = x.clone().requires_grad_()
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, v))).tangent
        if not tangent.requires_grad:
            return 0.0
        (gradient,) = torch.autograd.grad((tangent * u).sum(), x, allow_unused=True)
    return 0.0 if gradient is None else float((gradient * w).sum())


def forward_over_forward(function, x, u, v, w):
    def inner(y):
        return torch.func.jvp(function, (y,), (v,))[1]

    return float((torch.func.jvp(inner, (x,), (w,))[1] * u).sum())


FIRST = {"reverse": pulled, "forward": pushed}
SECOND = {
    "reverse over reverse": reverse_over_reverse,
    "forward over reverse": forward_over_reverse,
    "reverse over forward": reverse_over_forward,
    "forward over forward": forward_over_forward,
}


def wrong_in_torch(function, x, order):
    """The modes in which torch's derivative is not what central differences say, by a thousandth or more."""
    directions = [normal(*x.shape, seed=seed) for seed in (1, 2)][:order]
    u = normal(*function(x).shape, seed=3)
    truth = (slope if order == 1 else curvature)(function, x, u, *directions)
    assert abs(truth) > 1e-2
    gaps = {mode: abs(f(function, x, u, *directions) - truth) for mode, f in (FIRST if order == 1 else SECOND).items()}
    doubtful = [mode for mode, gap in gaps.items() if 1e-6 * abs(truth) < gap < 1e-3 * abs(truth)]
    assert doubtful == []
    return {mode for mode, gap in gaps.items() if not gap < 1e-3 * abs(truth)}


@dataclass(frozen=True, kw_only=True)
class Case:
    function: Callable
    x: torch.Tensor
    wrong: set


MATRIX = normal(3, 3, seed=5)
FACTOR = torch.linalg.cholesky(MATRIX @ MATRIX.T + 3 * torch.eye(3, dtype=torch.float64))
FACTORS = torch.stack([FACTOR, 2 * FACTOR])
RIGHT_SIDE = normal(3, 2, seed=6)
EXPONENTS = torch.tensor([-1, 2, -3, 0])
REFLECTIONS, LENGTHS = normal(4, 2, seed=7), numbers(0.7, 1.2)


# Order one.

FIRST_ORDER = {
    "ldexp by negative integers": Case(
        function=lambda x: torch.ldexp(x, EXPONENTS), x=normal(4), wrong={"reverse", "forward"}
    ),
    "cholesky_inverse": Case(function=lambda m: torch.cholesky_inverse(m.tril()), x=FACTOR, wrong={"forward"}),
    "cholesky_inverse of a batch": Case(
        function=lambda m: torch.cholesky_inverse(m.tril()), x=FACTORS, wrong={"forward"}
    ),
    "cholesky_inverse of upper factors": Case(
        function=lambda m: torch.cholesky_inverse(m.triu(), upper=True), x=FACTORS.mT.contiguous(), wrong={"forward"}
    ),
    "cholesky_solve with more than a triangle": Case(
        function=lambda m: torch.cholesky_solve(RIGHT_SIDE, m),
        x=FACTOR + normal(3, 3, seed=8).triu(1),
        wrong={"reverse", "forward"},
    ),
    "logcumsumexp that rises by thirty": Case(
        function=lambda x: torch.logcumsumexp(x, 0), x=numbers(-50, 1, 0, 31, -20), wrong={"forward"}
    ),
    "logcumsumexp far below its largest": Case(
        function=lambda x: torch.logcumsumexp(x, 0), x=numbers(-900, -901, 0), wrong={"forward"}
    ),
    "logcumsumexp along rows": Case(
        function=lambda x: torch.logcumsumexp(x, 1), x=numbers(-40, 0, 3, 1, 0, 2).view(2, 3), wrong={"forward"}
    ),
    "logcumsumexp along columns": Case(
        function=lambda x: torch.logcumsumexp(x, -2), x=numbers(-40, 0, 3, 1, 0, 2).view(2, 3), wrong={"forward"}
    ),
}


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_central_differences_show_that_torch_is_wrong_at_order_one(name):
    case = FIRST_ORDER[name]

    assert wrong_in_torch(case.function, case.x, 1) == case.wrong


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", FIRST_ORDER)
def test_it_is_found_at_order_one_in_the_modes_that_are_wrong(name, seed):
    case = FIRST_ORDER[name]

    assert modes_found(case.function, case.x, order=1, seed=seed) == case.wrong


@pytest.mark.parametrize("name", [name for name, case in FIRST_ORDER.items() if case.wrong == {"forward"}])
def test_the_pushforward_is_blamed_where_the_pullback_is_right(name):
    case = FIRST_ORDER[name]
    report = check(case.function, case.x.clone().requires_grad_(), modes=BOTH, seed=0, contracts=())

    assert report.findings[0].kind == "wrong-gradient"
    assert report.reason.endswith("the jvp is wrong.")


@pytest.mark.parametrize("mode", BOTH)
def test_ldexp_is_wrong_in_the_entries_with_negative_exponents_and_claims_zero_there(mode):
    report = check(lambda x: torch.ldexp(x, EXPONENTS), normal(4).requires_grad_(), modes=mode, seed=0, contracts=())
    (finding,) = report.findings

    assert {entry.index: (entry.claimed, round(entry.numerical, 6)) for entry in finding.entries} == {
        (0,): (0.0, 0.5),
        (2,): (0.0, 0.125),
    }


def test_ldexp_by_floating_point_exponents_is_right():
    assert modes_found(lambda x: torch.ldexp(x, EXPONENTS.double()), normal(4), order=1) == set()


def test_the_first_tangent_of_logcumsumexp_is_the_first_tangent_given_and_torch_says_zero():
    x = numbers(-50, 0)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(torch.logcumsumexp(forward_ad.make_dual(x, numbers(1, 1)), 0)).tangent
    report = check(lambda x: torch.logcumsumexp(x, 0), x.requires_grad_(), modes="forward", seed=0, contracts=())
    (entry,) = report.findings[0].entries

    assert tangent[0] < 1e-8
    assert (entry.index, str(entry.output)) == ((0,), "output[0]")
    assert (entry.claimed, entry.numerical) == (pytest.approx(0, abs=1e-8), pytest.approx(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_logcumsumexp_of_ordinary_numbers_is_right(dtype):
    assert modes_found(lambda x: torch.logcumsumexp(x, 0), normal(3, 4, dtype=dtype), order=1) == set()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_cholesky_solve_with_one_triangle_is_right(batched, upper, order):
    def solve(m):
        return torch.cholesky_solve(RIGHT_SIDE, m.triu() if upper else m.tril(), upper=upper)

    x = FACTORS if batched else FACTOR

    assert modes_found(solve, x.mT.contiguous() if upper else x, order=order) == set()


# Order two.

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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SECOND_ORDER)
def test_it_is_found_at_order_two_in_the_nestings_that_are_wrong(name, seed):
    case = SECOND_ORDER[name]

    assert modes_found(case.function, case.x, order=2, seed=seed) == case.wrong


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


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("inner", BOTH)
def test_the_second_derivative_of_sinc_at_zero_never_passes_and_nan_fails(inner, seed):
    # Beside zero the first derivative is rough: it divides a difference of nearly equal numbers by x².
    report = check(torch.sinc, numbers(0, 0.5).requires_grad_(), modes=BOTH, order=2, seed=seed, contracts=())
    kinds = {finding.mode: finding.kind for finding in report.findings}
    outer = check(torch.sinc, numbers(0, 0.5).requires_grad_(), modes="forward", order=2, seed=seed, contracts=())

    assert check(torch.sinc, numbers(0, 0.5).requires_grad_(), modes=BOTH, seed=seed, contracts=()).passed
    assert kinds[f"reverse over {inner}"] == "non-finite-gradient"
    assert kinds.get(f"forward over {inner}") in ("wrong-gradient", None)
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


# RReLU under checkpoint: the noise that the recomputation would draw is never drawn, and memory is read as it was.


@pytest.fixture
def uninitialised_memory_is_nan():
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.utils.deterministic.fill_uninitialized_memory = before[1]


def rectified(x):
    return F.rrelu(x, training=True)


def checkpointed(x):
    return checkpoint(rectified, x, use_reentrant=False)


def with_the_same_draws(function, x):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return function(x)


@pytest.mark.usefixtures("uninitialised_memory_is_nan")
def test_central_differences_show_that_rrelu_is_wrong_under_checkpoint():
    x = numbers(-1, -2, 3, -0.5)
    truth = slope(lambda x: with_the_same_draws(rectified, x), x, torch.ones(4), torch.ones(4))
    leaf = x.clone().requires_grad_()

    assert pulled(lambda x: with_the_same_draws(rectified, x), x, torch.ones(4), torch.ones(4)) == pytest.approx(truth)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        (gradient,) = torch.autograd.grad(checkpointed(leaf), leaf, torch.ones(4))
    assert not abs(float(gradient.sum()) - truth) < 0.1


@pytest.mark.usefixtures("uninitialised_memory_is_nan")
@pytest.mark.parametrize("seed", range(3))
def test_rrelu_fails_under_checkpoint_and_passes_without(seed):
    x = numbers(-1, -2, 3, -0.5).requires_grad_()
    report = check(checkpointed, x, seed=seed, contracts=())

    assert report.verdict is Verdict.FAIL
    assert {finding.mode for finding in report.findings} == {"reverse"}
    assert check(rectified, x, seed=seed, modes=BOTH, contracts=()).passed
