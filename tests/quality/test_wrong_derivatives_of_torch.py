"""First derivatives that are wrong in torch 2.13: each is found in the modes in which it is wrong.

That torch is wrong is shown beside it by plain central differences or by the analytic value.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from gradproof import Verdict, check
from support.checks import BOTH
from support.marks import making_duals
from support.oracles import Case, modes_found, pulled, slope, wrong_in_torch
from support.points import normal, numbers

pytestmark = [
    pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="other versions have other mistakes"),
    making_duals,
]

MATRIX = normal(3, 3, seed=5)
FACTOR = torch.linalg.cholesky(MATRIX @ MATRIX.T + 3 * torch.eye(3, dtype=torch.float64))
FACTORS = torch.stack([FACTOR, 2 * FACTOR])
RIGHT_SIDE = normal(3, 2, seed=6)
EXPONENTS = torch.tensor([-1, 2, -3, 0])

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
    assert report.message.endswith("the jvp is wrong.")


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


def test_a_maximum_of_a_segment_whose_ties_share_gradients_of_one_sign_alone_is_found():
    def largest(x):
        return torch.segment_reduce(x, "max", lengths=torch.tensor([3]))

    x = numbers(4, 5, 5).requires_grad_()
    up, down = (torch.autograd.grad(largest(x), x, numbers(sign))[0] for sign in (1, -1))
    report = check(largest, x, contracts="linear", seed=1)

    assert not torch.equal(up, -down)
    assert report.verdict is Verdict.FAIL
    assert report.findings[-1].kind == "linear"
