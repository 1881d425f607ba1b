"""Order two of right functions, in all combinations of the modes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

from gradproof import GradcheckError, Reason, Verdict, check, gradgradcheck
from support.checks import BOTH, NESTINGS, second_order
from support.functions import Sine
from support.points import point

SHARED = {
    "expanded": point(1, 3).detach().expand(4, 3).requires_grad_(),
    "of overlapping windows": point(6).detach().unfold(0, 3, 1).requires_grad_(),
}

RIGHT = {
    "sin": (torch.sin, point(4)),
    "exp": (torch.exp, point(4)),
    "a power": (lambda x: x**3, point(4)),
    "matmul": (torch.matmul, point(2, 3), point(3, 2, seed=2)),
    "the inverse": (torch.linalg.inv, point(3, 3)),
    "cholesky_solve": (
        lambda b, m: torch.cholesky_solve(b, m.tril() + 3 * torch.eye(3, dtype=m.dtype)),
        point(3, 2),
        point(3, 3, seed=2),
    ),
    "a softmax written out": (lambda x: x.exp() / x.exp().sum(), point(4)),
    "a complex exponential": (torch.exp, point(4, dtype=torch.complex128)),
    "a complex square modulus": (lambda z: (z * z.conj()).real, point(4, dtype=torch.complex128)),
    "real to complex": (lambda x: torch.exp(1j * x), point(4)),
    "complex with a conjugate": (lambda z: z.conj() * z * z, point(4, dtype=torch.complex128)),
    "several outputs": (lambda a, b: (a * b, {"c": a.sin()}), point(4), point(4, seed=2)),
    "a sum": (lambda x: x.square().sum(), point(2, 2)),
    "no dimensions": (torch.exp, point()),
    "no entries": (torch.exp, point(0)),
    "writes in place": (lambda x: x.clone().mul_(x.sin()), point(4)),
    "a linear function": (lambda x: 3 * x, point(4)),
    "the identity": (lambda x: x, point(4)),
    "a piecewise linear function": (torch.relu, point(6)),
    "an absolute value": (torch.abs, point(6)),
    "a maximum": (lambda x: x.max(), point(6)),
    "an input without influence": (lambda a, b: a.sin(), point(4), point(4, seed=2)),
    "an input with a factor of zero": (lambda a, b: a.sin() + 0 * b, point(4), point(4, seed=2)),
    "an output without influence": (lambda x: (x.sin(), torch.ones(3)), point(4)),
    "one linear input and one that is not": (lambda a, b: a * b.exp(), point(4), point(4, seed=2)),
    "dropout": (lambda x: F.dropout(x, 0.5).sin(), point(20)),
    "group_norm": (lambda x: F.group_norm(x, 1), point(2, 4)),
    "torch.func.grad inside": (torch.func.grad(lambda x: (x**4).sum()), point(4)),
}


@pytest.mark.parametrize("modes", [("reverse",), ("forward",), BOTH], ids="+".join)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes_in_every_nesting(name, modes):
    function, *inputs = RIGHT[name]
    report = second_order(function, *inputs, modes=modes)

    assert report.verdict is Verdict.PASS, report.message


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_a_softmax_passes_except_in_reverse_over_forward_where_torch_raises(name, seed):
    report = second_order(lambda x: getattr(torch, name)(x, 0), point(4), modes=BOTH, seed=seed)

    assert {(finding.kind, finding.mode) for finding in report.findings} <= {
        ("backward-raised", "reverse over forward")
    }


def test_every_nesting_is_read():
    assert {reading.mode for reading in second_order(torch.sin, point(4), modes=BOTH).readings} == NESTINGS


@pytest.mark.parametrize("mode", BOTH)
def test_one_mode_is_nested_in_itself(mode):
    report = second_order(torch.sin, point(4), modes=(mode,))

    assert {reading.mode for reading in report.readings} == {f"{mode} over {mode}"}


def test_a_module_passes():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()

    assert second_order(module, point(2, 3), modes=BOTH).verdict is Verdict.PASS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_precision_passes(dtype):
    x = torch.linspace(0.3, 1.2, 8).to(dtype).requires_grad_()

    assert second_order(torch.sin, x, modes=("reverse",)).verdict is Verdict.PASS


def test_the_second_derivative_at_its_own_kink_is_inconclusive():
    report = second_order(lambda x: x * x.abs(), torch.zeros(3, dtype=torch.float64, requires_grad=True), modes=BOTH)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason is Reason.KINK


@pytest.mark.parametrize("mode", ["reverse", "forward"])
@pytest.mark.parametrize("captured", [False, True], ids=["a constant", "another tensor that requires grad"])
def test_a_function_without_any_influence_passes(captured, mode):
    other = torch.ones(3, dtype=torch.float64, requires_grad=captured)

    assert second_order(lambda x: 2 * other, point(4), modes=(mode,)).verdict is Verdict.PASS


TENSORS_BESIDE = {
    "one that requires grad": point(3, seed=2),
    "one that does not": point(3, seed=2).detach(),
    "integers": torch.arange(3),
}


@pytest.mark.parametrize("name", TENSORS_BESIDE)
def test_nothing_is_checked_beyond_what_wrt_names(name):
    report = second_order(lambda a, b: a.sin() * b, point(3), TENSORS_BESIDE[name], wrt=0)

    assert report.verdict is Verdict.PASS
    assert report.subject.arguments == ("a: float64[3]",)


@pytest.mark.parametrize("name", TENSORS_BESIDE)
def test_a_tensor_that_is_not_varied_is_no_hindrance_to_forward_over_forward(name):
    report = second_order(lambda a, b: a.sin() * b, point(3), TENSORS_BESIDE[name], wrt=0, modes=("forward",))

    assert report.verdict is Verdict.PASS, report.message


def test_a_module_with_buffers_passes_in_forward_over_forward():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("scale", torch.tensor(2.0, dtype=torch.float64))

        def forward(self, x):
            return x.sin() * self.scale

    assert second_order(Scaled(), point(3), modes=("forward",)).verdict is Verdict.PASS


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("function", [torch.sin, Sine.apply, lambda x: x * x.sum()], ids=["torch's", "own", "coupled"])
def test_an_input_whose_entries_share_memory_passes(name, function):
    report = check(function, SHARED[name], modes=BOTH, order=2, seed=0)

    assert report.verdict is Verdict.PASS, report


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_cast_to_a_dtype_that_torch_cannot_compare_passes():
    x = torch.linspace(-1, 1, 3, dtype=torch.float64, requires_grad=True)

    assert check(lambda x: x.chalf(), x, order=2, modes="reverse", seed=0).passed


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_a_function_whose_graph_is_cut_does_not_pass(coverage):
    report = check(lambda x: x.detach() ** 3, point(4), order=2, coverage=coverage, seed=1)

    assert report.verdict is Verdict.FAIL
    assert "No output requires grad" in report.message
    assert report.subject.derivatives == ("reverse over reverse",)


def test_a_constant_has_second_derivatives_of_zero():
    assert check(lambda x: torch.ones(3), point(4), order=2, seed=1).passed


def test_gradgradcheck_refuses_a_function_whose_graph_is_cut():
    with pytest.raises(GradcheckError, match="No output requires grad"):
        gradgradcheck(lambda x: x.detach() ** 3, point(4))
