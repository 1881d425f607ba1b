"""Every row of "Wrong derivatives in torch 2.13": what torch, mpmath and torch's own check say."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mpmath
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

from gradproof import check
from support.checks import BOTH
from support.marks import making_duals
from support.oracles import FIRST, SECOND, curvature, slope

pytestmark = [
    pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="other versions have other mistakes"),
    pytest.mark.filterwarnings("ignore"),  # of deprecated functions, and of sparse tensors
    making_duals,
]

PAGE = (Path(__file__).parents[2] / "docs" / "wrong_derivatives.md").read_text(encoding="utf-8")
TABLES, _, _ = PAGE.partition("## How they were found")
ROWS = {
    (name, mode): (claimed, right, verdict)
    for name, mode, claimed, right, verdict in re.findall(
        r"^\| (.*?`.*?) \| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", TABLES, re.M
    )
}
UNDECIDED = {"`sinc` at 0": {"forward over reverse"}}  # beside zero the first derivative is rough
INFINITY = float("inf")
ONES = torch.ones(2, 1, dtype=torch.float64)


@dataclass(frozen=True)
class Row:
    """⟨u, Df(x) v⟩, or ⟨u, D²f(x)(v, w)⟩ if there is a `w`; `truth` is the same of the same f in mpmath."""

    f: Callable
    x: torch.Tensor
    u: torch.Tensor
    v: torch.Tensor
    truth: Callable[[], mpmath.mpf]
    w: torch.Tensor | None = None

    def claims(self, modes):
        """What torch claims in each of the modes, which is to be the same."""
        if self.w is None:
            return [FIRST[mode](self.f, self.x, self.u, self.v) for mode in modes]
        return [SECOND[mode](self.f, self.x, self.u, self.v, self.w) for mode in modes]


@pytest.fixture(autouse=True)
def one_thread():
    """Which of two values with one index `max_unpool1d` keeps depends on the threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def at(*values):
    return torch.tensor(values, dtype=torch.float64)


def diff(f, *point, by):
    """The derivative of a function of numbers, by the arguments at these places, with fifty digits."""
    with mpmath.workdps(50):
        return mpmath.diff(f, point, tuple(by.count(place) for place in range(len(point))))


def scattered(x):
    return torch.as_strided_scatter(x, torch.zeros(2, dtype=x.dtype), (2,), (1,), 1)


def unpooled(x):
    return F.max_unpool1d(x.view(1, 2), torch.tensor([[0, 0]]), 2)


def multiplied(x):
    return torch.ones(1, dtype=x.dtype).scatter_reduce(0, torch.tensor([0, 0]), x, "prod")


def largest(x):
    return at(2).scatter_reduce(0, torch.tensor([0]), x, "amax", include_self=False)


def loss(x):
    chunked = {"options": LinearCrossEntropyOptions(), "reduction": "none"}
    return F.linear_cross_entropy(x, torch.eye(2, dtype=x.dtype), torch.tensor([0]), **chunked)


def loss_and_square(x):
    chunked = {"options": LinearCrossEntropyOptions(), "reduction": "sum"}
    return F.linear_cross_entropy(x, torch.eye(2, dtype=x.dtype), torch.tensor([0]), **chunked) + x[0, 0] ** 2


def masked_sum(x):
    return torch.masked.sum(torch.sparse_coo_tensor([[0, 1], [0, 1]], x, (2, 2)), 0).to_dense()


def temporal(x):
    one = torch.tensor([1])
    return F.ctc_loss(x, one.view(1, 1), one, one)


def reflected(x):
    return torch.linalg.householder_product(x.view(2, 1), at(0.7))


def after_infinity(x):
    return torch.logcumsumexp(torch.cat([at(-INFINITY), x]), 0)[1:]


def masked_logaddexp(x):
    masks = {"input_mask": torch.tensor([False]), "other_mask": torch.tensor([True])}
    return torch.masked.logaddexp(x[:1], x[1:], **masks)


def squared_entry(m):
    return torch.linalg.eigh((m + m.mT) / 2).eigenvectors[0, 0] ** 2


def normed(a, b, c):
    mean = (a + b + c) / 3
    variance = ((a - mean) ** 2 + (b - mean) ** 2 + (c - mean) ** 2) / 3
    return (a - mean) / mpmath.sqrt(variance + mpmath.mpf("1e-5"))


def first_of_solution(a, b, c, d):
    return (d - b) / (a * d - b * c)


def squared_entry_of(a):
    """The square of the first entry of the first eigenvector of [[a, 1], [1, 5]]."""
    return (1 + (5 - a) / mpmath.sqrt((5 - a) ** 2 + 4)) / 2


def inverse_first(a, c, d):
    """The first entry of (LLᵀ)⁻¹ for L = [[a, 0], [c, d]]."""
    return (c * c + d * d) / (a * d) ** 2


def solved_sum(a, c, d):
    """1ᵀ(LLᵀ)⁻¹1 for the lower triangle L = [[a, 0], [c, d]] of a matrix, whatever is above it."""
    return (c * c + d * d - 2 * a * c + a * a) / (a * d) ** 2


def solved_upper(a, c, d):
    """The sum of U⁻¹1 for U = [[a, c], [0, d]]."""
    return (1 - c / d) / a + 1 / d


UNIT = torch.tensor(1.0, dtype=torch.float64)
FIRST_OF_TWO, FIRST_OF_THREE = at(1, 0), at(1, 0, 0)
MATRIX, TOP_LEFT, TOP_RIGHT, BOTTOM_RIGHT = (
    at([1, 2], [3, 5]),
    at([1, 0], [0, 0]),
    at([0, 1], [0, 0]),
    at([0, 0], [0, 1]),
)
OVER_FORWARD = ["reverse over forward", "forward over forward"]


def across_channels(x):
    return torch.nn.CrossMapLRN2d(5, alpha=1)(x.view(1, 3, 1, 1)).flatten()


def third_of_channels(a, b, c):
    return c * (1 + (a * a + b * b + c * c) / 5) ** mpmath.mpf("-0.75")


def by_a_and_d(f, x, truth, u=UNIT):
    return Row(f, x, u, TOP_LEFT, truth, BOTTOM_RIGHT)


def at_a_peak(f, u):
    return Row(f, at(1, 2, 4), u, FIRST_OF_THREE, lambda: diff(normed, 1, 2, 4, by=[0, 0]), FIRST_OF_THREE)


NORMALISED = at_a_peak(lambda x: F.layer_norm(x, (3,)), FIRST_OF_THREE)
CUMULATED = Row(
    lambda x: x.cumprod(0), at(2, 0, 3), at(0, 0, 1), FIRST_OF_THREE,
    lambda: diff(lambda a, b, c: a * b * c, 2, 0, 3, by=[0, 1]), at(0, 1, 0),
)  # fmt: skip
SINC = Row(
    torch.sinc, at(0), at(1), at(1),
    lambda: diff(lambda x: mpmath.sinc(mpmath.pi * x), 0, by=[0, 0]), at(1),
)  # fmt: skip

JUDGED = {
    "`hardsigmoid` at 0.5": Row(F.hardsigmoid, at(0.5), at(1), at(1), lambda: diff(lambda x: (x + 3) / 6, 0.5, by=[0])),
    "`ldexp` by −1": Row(
        lambda x: torch.ldexp(x, torch.tensor([-1])), at(1), at(1), at(1),
        lambda: diff(lambda x: mpmath.ldexp(x, -1), 1, by=[0]),
    ),
    "`as_strided_scatter`, by an entry that is overwritten": Row(
        scattered, at(1, 2, 3, 4), torch.ones(4, dtype=torch.float64), at(0, 1, 0, 0),
        lambda: diff(lambda a, b, c, d: a + d, 1, 2, 3, 4, by=[1]),
    ),
    "`max_unpool1d` with an index twice": Row(
        unpooled, at(1, 2), at([1, 1, 1, 1]), FIRST_OF_TWO, lambda: diff(lambda a, b: b, 1, 2, by=[0])
    ),
    "`nextafter` of two equal numbers, by the first": Row(
        lambda x: torch.nextafter(x, at(1)), at(1), at(1), at(1), lambda: diff(lambda x: x, 1, by=[0])
    ),
    "`cholesky_inverse`": Row(
        torch.cholesky_inverse, at([2, 0], [1, 3]), TOP_LEFT, TOP_LEFT, lambda: diff(inverse_first, 2, 1, 3, by=[0])
    ),
    "`cholesky_solve`, above the triangle that is read": Row(
        lambda m: torch.cholesky_solve(ONES, m), at([2, 5], [1, 3]), ONES, TOP_RIGHT,
        lambda: diff(lambda a, b, c, d: solved_sum(a, c, d), 2, 5, 1, 3, by=[1]),
    ),
    "`logcumsumexp` of −50, 0, first entry": Row(
        lambda x: torch.logcumsumexp(x, 0), at(-50, 0), FIRST_OF_TWO, at(1, 1),
        lambda: diff(lambda x: mpmath.log(mpmath.exp(x)), -50, by=[0]),
    ),
    "`logcumsumexp` of 800, 1, complex, first entry": Row(
        lambda x: torch.logcumsumexp(x + 0j, 0).real, at(800, 1), FIRST_OF_TWO, at(1, 1),
        lambda: diff(lambda x: mpmath.log(mpmath.exp(x)), 800, by=[0]),
    ),
    '`scatter_reduce` with `"prod"`': Row(
        multiplied, at(2, 3), at(1), at(1, 1), lambda: diff(lambda t: (2 + t) * (3 + t), 0, by=[0])
    ),
    '`scatter_reduce` with `"amax"`, by a value that is in the target too': Row(
        largest, at(2), at(1), at(1), lambda: diff(lambda x: x, 2, by=[0])
    ),
    "`poisson_nll_loss` with `full=True`, by a target of 0": Row(
        lambda t: F.poisson_nll_loss(at(1), t, full=True), at(0), UNIT, at(1),
        lambda: diff(lambda t: mpmath.e - t, 0, by=[0]),
    ),
    "`linear_cross_entropy` with `options=`": Row(
        loss, at([1, 2]), at(1), at([1, 0]),
        lambda: diff(lambda a, b: mpmath.log(mpmath.exp(a) + mpmath.exp(b)) - a, 1, 2, by=[0]),
    ),
    "`masked.sum` of a COO tensor": Row(
        masked_sum, at(1, 1), at(1, 1), FIRST_OF_TWO, lambda: diff(lambda a, b: a + b, 1, 1, by=[0])
    ),
    "`ctc_loss` by log probabilities alone, of the blank": Row(
        temporal, at([[0.5, 0.5]]).log(), UNIT, at([[1, 0]]),
        lambda: diff(lambda blank, label: -label, mpmath.log(0.5), mpmath.log(0.5), by=[0]),
    ),
    "`CrossMapLRN2d` of size 5, the third channel by the first": Row(
        across_channels, at(1, 2, 3), at(0, 0, 1), FIRST_OF_THREE, lambda: diff(third_of_channels, 1, 2, 3, by=[0])
    ),
    "`linalg.det`": by_a_and_d(torch.linalg.det, MATRIX, lambda: diff(lambda a, d: a * d - 6, 1, 5, by=[0, 1])),
    "`linalg.slogdet`": by_a_and_d(
        lambda m: torch.linalg.slogdet(m)[1], MATRIX, lambda: diff(lambda a, d: mpmath.log(6 - a * d), 1, 5, by=[0, 1])
    ),
    "`logdet`": by_a_and_d(
        torch.logdet, at([5, 2], [3, 2]), lambda: diff(lambda a, d: mpmath.log(a * d - 6), 5, 2, by=[0, 1])
    ),
    "`linalg.solve`": by_a_and_d(
        lambda m: torch.linalg.solve(m, ONES)[0], MATRIX, lambda: diff(first_of_solution, 1, 2, 3, 5, by=[0, 3]), at(1)
    ),
    "`layer_norm`": NORMALISED,
    "`batch_norm` in training": at_a_peak(
        lambda x: F.batch_norm(x.view(3, 1), None, None, training=True), FIRST_OF_THREE.view(3, 1)
    ),
    "`linalg.householder_product`": Row(
        reflected, at(1, 2), ONES, at(0, 1),
        lambda: diff(lambda x: 1 - mpmath.mpf("0.7") - mpmath.mpf("0.7") * x, 2, by=[0, 0]), at(0, 1),
    ),
    "`cumprod` at a zero": CUMULATED,
    "`sinc` at 0": SINC,
    "`pow` at a base of 0, twice by the exponent": Row(
        lambda x: x[:1] ** x[1:], at(0, 3), at(1), at(0, 1),
        lambda: diff(lambda a, b: a**b, 0, 3, by=[1, 1]), at(0, 1),
    ),
    "`pow` at an exponent of 0, by the base and then by the exponent": Row(
        lambda x: x[:1] ** x[1:], at(2, 0), at(1), FIRST_OF_TWO,
        lambda: diff(lambda a, b: a**b, 2, 0, by=[0, 1]), at(0, 1),
    ),
    "`linalg.eigh`, an eigenvector's entry squared": Row(
        squared_entry, at([2, 1], [1, 5]), UNIT, TOP_LEFT, lambda: diff(squared_entry_of, 2, by=[0, 0]), TOP_LEFT
    ),
    "`linear_cross_entropy` with `options=`, plus a square": Row(
        loss_and_square, at([1, 2]), UNIT, at([1, 0]),
        lambda: diff(lambda a, b: mpmath.log(mpmath.exp(a) + mpmath.exp(b)) - a + a * a, 1, 2, by=[0, 0]), at([1, 0]),
    ),
    "`nn.utils.weight_norm`": Row(
        lambda v: torch._weight_norm(v, torch.ones(1, 1, dtype=v.dtype), 0), at([1, 2]), at([1, 0]), at([1, 0]),
        lambda: diff(lambda a, b: a / mpmath.sqrt(a * a + b * b), 1, 2, by=[0, 0]), at([1, 0]),
    ),
    "`triangular_solve`": Row(
        lambda m: torch.triangular_solve(ONES, m)[0], at([2, 1], [0, 3]), ONES, TOP_LEFT,
        lambda: diff(solved_upper, 2, 1, 3, by=[0, 1]), TOP_RIGHT,
    ),
    "`logcumsumexp` after −∞": Row(after_infinity, at(1), at(1), at(1), lambda: diff(lambda x: x, 1, by=[0, 0]), at(1)),
    "`masked.logaddexp`, one input masked": Row(
        masked_logaddexp, at(1, 1), at(1), at(0, 1), lambda: diff(lambda x: x, 1, by=[0, 0]), at(0, 1)
    ),
}  # fmt: skip


def nestings(mode):
    return {"over forward": OVER_FORWARD, "every": list(SECOND)}.get(mode) or mode.split(", ")


def rounded(text):
    return pytest.approx(float(text), rel=1e-10, abs=1e-10, nan_ok=True)


def test_every_row_is_judged():
    assert {name for name, _ in ROWS} == set(JUDGED)
    assert len(ROWS) == 35


@pytest.mark.parametrize(("name", "mode"), ROWS)
def test_torch_says_what_the_page_says_and_mpmath_something_else(name, mode):
    claimed, right, _ = ROWS[name, mode]
    row = JUDGED[name]

    assert row.claims(nestings(mode)) == [rounded(claimed)] * len(nestings(mode))
    assert float(row.truth()) == rounded(right)
    assert claimed != right


@pytest.mark.parametrize("name", JUDGED)
def test_central_differences_say_what_mpmath_says(name):
    row = JUDGED[name]
    direct = slope(row.f, row.x, row.u, row.v) if row.w is None else curvature(row.f, row.x, row.u, row.v, row.w)

    assert direct == pytest.approx(float(row.truth()), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("name", "mode"), ROWS)
def test_torchs_own_check_says_what_the_page_says(name, mode):
    verdict, row = ROWS[name, mode][2], JUDGED[name]
    x = row.x.clone().requires_grad_()
    if row.w is None:
        said = gradcheck(row.f, x, check_forward_ad=True, raise_exception=False)
    else:
        said = gradgradcheck(row.f, x, check_fwd_over_rev=True, raise_exception=False)

    assert verdict == ("passes" if said else "fails")


@pytest.mark.parametrize(("name", "mode"), ROWS)
def test_it_is_found_in_the_mode_that_is_wrong(name, mode):
    row = JUDGED[name]
    order = 1 if row.w is None else 2
    report = check(row.f, row.x.clone().requires_grad_(), modes=BOTH, order=order, seed=0, contracts=())

    assert set(nestings(mode)) - UNDECIDED.get(name, set()) <= {finding.mode for finding in report.findings}
