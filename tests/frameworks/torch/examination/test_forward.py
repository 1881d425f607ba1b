"""Forward mode of torch functions: pushforwards of every kind are judged as pullbacks are."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn
from torch.autograd import forward_ad

from gradproof import Reason, Verdict
from support.checks import BOTH, pushed
from support.functions import cosine, raising_rule, rule, twice_cosine
from support.marks import asked_both_ways, making_duals
from support.points import point


def copied_into_a_slice(x):
    buffer = torch.zeros(6, dtype=x.dtype)
    buffer[1:5].copy_(x.sin())
    return buffer


def put_by_index(x):
    return torch.zeros(6, dtype=x.dtype).index_put_((torch.tensor([0, 2, 2, 5]),), x.exp(), accumulate=True)


def assigned_by_mask(x):
    y = x.clone()
    y[y > 0] = 0
    return y


def written_through_a_view(x):
    y = x.clone()
    y.view(2, 2)[0].mul_(x[2:])
    return y


def differentiated_inside(x):
    (gradient,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return gradient


FUNCTIONS = {
    "sin": torch.sin,
    "the identity": lambda x: x,
    "a clone that is multiplied in place": lambda x: x.clone().mul_(x.sin()),
    "a clone that is added to in place": lambda x: x.sin().add_(x, alpha=2),
    "a view": lambda x: x.view(2, 2).T,
    "a slice": lambda x: x[1:3],
    "a view of a view that was written to": written_through_a_view,
    "a copy into a slice of a buffer": copied_into_a_slice,
    "index_put_": put_by_index,
    "an assignment by mask": assigned_by_mask,
    "a list of results": lambda x: [x.sin(), x * 2],
    "a dict of results": lambda x: {"a": x.sin(), "b": (x * 2, 3, "text")},
    "a result without influence": lambda x: (x.sin(), torch.ones(3)),
    "a constant": lambda x: torch.ones(3, dtype=torch.float64),
    "an integer result": lambda x: (x.sin(), x.argmax()),
    "a sum to no dimensions": lambda x: x.square().sum(),
    "an empty result": lambda x: x[:0],
    "autograd.grad inside": differentiated_inside,
    "torch.func.grad inside": torch.func.grad(lambda x: (x**3).sum()),
    "torch.vmap inside": torch.vmap(torch.sin),
    "a sort": lambda x: x.sort().values,
    "a where": lambda x: torch.where(x > 0, x.clamp(min=0).sqrt(), torch.zeros_like(x)),
}


@asked_both_ways
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_pushforward_passes(name, modes):
    report = pushed(FUNCTIONS[name], point(4), modes=modes)

    assert report.verdict is Verdict.PASS, report.message


@pytest.mark.parametrize("name", ["torch.func.jvp", "dual_level"])
@making_duals
def test_a_function_that_pushes_tangents_forward_itself_is_not_called_wrong(name):
    def by_level(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, torch.ones_like(x)).sin()).tangent

    def by_jvp(x):
        return torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]

    report = pushed(by_jvp if name == "torch.func.jvp" else by_level, point(4))

    assert [finding.kind for finding in report.findings] in ([], ["no-forward-rule"])


COMPLEX = {
    "complex to complex": (torch.exp, torch.complex128),
    "complex to complex with a conjugate": (lambda z: z.conj() * z * z, torch.complex128),
    "complex to real": (torch.abs, torch.complex128),
    "real to complex": (lambda x: torch.exp(1j * x), torch.float64),
    "real to real": (torch.exp, torch.float64),
    "real and imaginary part": (lambda z: (z.sin().real, z.sin().imag), torch.complex128),
}


@asked_both_ways
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_pushforwards_pass(name, modes):
    function, dtype = COMPLEX[name]

    assert pushed(function, point(5, dtype=dtype), modes=modes).verdict is Verdict.PASS


@pytest.mark.parametrize("name", ["complex to complex", "real to complex"])
def test_a_conjugated_tangent_fails(name):
    function, dtype = COMPLEX[name]
    derivative = {"complex to complex": torch.exp, "real to complex": lambda x: 1j * torch.exp(1j * x)}[name]
    right = rule(function, jvp=lambda t, x: t * derivative(x))
    wrong = rule(function, jvp=lambda t, x: (t * derivative(x)).conj())

    assert pushed(right, point(5, dtype=dtype)).verdict is Verdict.PASS
    assert pushed(wrong, point(5, dtype=dtype)).verdict is Verdict.FAIL


def test_a_wrong_imaginary_part_is_located():
    def tangent(t, z):
        pushed = t * z.exp()
        pushed[2] = torch.complex(pushed[2].real, 2 * pushed[2].imag)
        return pushed

    report = pushed(rule(torch.exp, jvp=tangent), point(5, dtype=torch.complex128))
    (finding,) = report.findings

    assert {entry.index for entry in finding.entries} == {(2,)}
    assert {str(entry.output) for entry in finding.entries} == {"output[2].imag"}


@asked_both_ways
def test_several_inputs_and_outputs_pass(modes):
    report = pushed(
        lambda a, b, c: (a @ b, {"c": c * a.sum()}), point(2, 3), point(3, 2, seed=2), point(4), modes=modes
    )

    assert report.verdict is Verdict.PASS
    assert report.subject.coordinates == 16


def test_the_input_and_the_output_of_a_wrong_entry_are_named():
    def tangent(s, t, a, b):
        pushed = s * b + t * a
        return pushed + torch.tensor([0, 0, 1.0], dtype=a.dtype) * t

    report = pushed(lambda a, b: (a.sin(), rule(torch.mul, jvp=tangent)(a, b)), point(3), point(3, seed=2))
    (finding,) = report.findings

    assert (finding.mode, finding.argument) == ("forward", "b")
    assert [(entry.index, str(entry.output)) for entry in finding.entries] == [((2,), "output[1][2]")]
    assert finding.entries[0].claimed - finding.entries[0].numerical == pytest.approx(1, abs=1e-6)


def test_an_error_in_one_of_many_outputs_is_found_although_the_others_are_large():
    sizes = torch.full((50,), 1e6, dtype=torch.float64)
    sizes[31] = 1.0

    def tangent(t, x):
        pushed = t * x.cos() * sizes
        pushed[31] *= 1.001
        return pushed

    report = pushed(rule(lambda x: x.sin() * sizes, jvp=tangent), point(50))

    assert report.verdict is Verdict.FAIL
    assert [entry.index for finding in report.findings for entry in finding.entries] == [(31,)]


def test_the_softmax_of_widely_spread_numbers_is_never_called_wrong():
    def verdict(seed):
        x = (10 * point(20, 300, seed=seed)).detach().requires_grad_()
        return pushed(lambda x: x.softmax(-1), x, seed=seed).verdict

    assert [seed for seed in range(12) if verdict(seed) is Verdict.FAIL] == []


def test_the_gelu_of_numbers_far_below_zero_is_never_called_wrong():
    def verdict(seed):
        x = (4 * point(3000, seed=seed)).detach().requires_grad_()
        return pushed(F.gelu, x, seed=seed).verdict

    assert [seed for seed in range(12) if verdict(seed) is Verdict.FAIL] == []


@asked_both_ways
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_is_judged_through_double_precision(dtype, modes):
    x = torch.linspace(0.3, 1.2, 20).to(dtype).requires_grad_()

    assert pushed(torch.sin, x, modes=modes).verdict is Verdict.PASS
    assert pushed(rule(torch.sin, backward=cosine, jvp=twice_cosine), x, modes=modes).verdict is Verdict.FAIL


def test_a_jvp_that_is_wrong_in_single_precision_alone_fails():
    def tangent(t, x):
        return t * x.cos() * (2 if x.dtype == torch.float32 else 1)

    x = torch.linspace(0.3, 1.2, 20).requires_grad_()

    assert pushed(rule(torch.sin, backward=cosine, jvp=tangent), x).verdict is Verdict.FAIL


def test_a_jvp_that_raises_in_single_precision_alone_fails():
    def tangent(t, x):
        return t * x.cos() if x.dtype == torch.float64 else raising_rule(t, x)

    x = torch.linspace(0.3, 1.2, 20).requires_grad_()

    assert pushed(rule(torch.sin, backward=cosine, jvp=tangent), x).verdict is Verdict.FAIL


def test_in_single_precision_a_function_with_a_jvp_and_no_backward_passes_in_forward_mode():
    x = torch.linspace(0.3, 1.2, 20).requires_grad_()

    assert pushed(rule(torch.sin, jvp=cosine), x).verdict is Verdict.PASS


@asked_both_ways
def test_a_module_passes_by_the_names_of_its_parameters(modes):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    report = pushed(module, point(5, 3), modes=modes)

    assert report.verdict is Verdict.PASS
    assert any("0.weight" in label for label in report.subject.arguments)


@asked_both_ways
def test_a_module_that_counts_its_calls_passes_and_keeps_its_count(modes):
    module = nn.BatchNorm1d(3).double()

    assert pushed(module, point(5, 3), modes=modes).verdict is Verdict.PASS
    assert int(module.num_batches_tracked) == 0
    assert module.running_mean.tolist() == [0, 0, 0]


LAYOUTS = {
    "non-contiguous": point(4, 5).detach().T[::2].requires_grad_(),
    "expanded": point(3, 1).detach().expand(3, 4).requires_grad_(),
    "conjugated": point(4, dtype=torch.complex128).detach().conj().requires_grad_(),
    "negated": point(4, dtype=torch.complex128).detach().conj().imag.requires_grad_(),
    "0-dimensional": torch.tensor(0.3, dtype=torch.float64, requires_grad=True),
    "empty": torch.zeros(0, 3, dtype=torch.float64, requires_grad=True),
    "channels last": point(2, 3, 4, 5).detach().to(memory_format=torch.channels_last).requires_grad_(),
}


@asked_both_ways
@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout_passes_and_its_wrong_twin_fails(name, modes):
    wrong = pushed(rule(torch.sin, backward=cosine, jvp=twice_cosine), LAYOUTS[name], modes=modes)

    assert pushed(lambda x: x.sin() * x, LAYOUTS[name], modes=modes).verdict is Verdict.PASS
    assert wrong.verdict is (Verdict.PASS if name == "empty" else Verdict.FAIL)


@asked_both_ways
def test_random_draws_are_held(modes):
    assert pushed(lambda x: F.dropout(x, 0.5).sin(), point(40), modes=modes).verdict is Verdict.PASS


def test_a_kink_is_inconclusive():
    report = pushed(torch.relu, torch.zeros(3, dtype=torch.float64, requires_grad=True))

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason is Reason.KINK


def test_a_detached_factor_fails_in_both_modes():
    report = pushed(lambda x: x.detach() * x, point(4), modes=BOTH)

    assert {finding.mode for finding in report.findings} == set(BOTH)


def test_pushforwards_are_counted_and_not_taken_for_evaluations():
    forward, reverse = pushed(torch.sin, point(4)), pushed(torch.sin, point(4), modes=("reverse",))

    assert (forward.cost.pullbacks, reverse.cost.pushforwards) == (0, 0)
    assert forward.cost.pushforwards == reverse.cost.pullbacks == 1
    assert forward.cost.evaluations == reverse.cost.evaluations


def test_readings_say_which_mode_they_are_of():
    assert [reading.mode for reading in pushed(torch.sin, point(4), modes=BOTH).readings] == list(BOTH)


def test_forward_mode_of_either_order_works_where_warnings_are_errors():
    program = (
        "import torch, gradproof\n"
        "x = torch.ones(3, dtype=torch.float64, requires_grad=True)\n"
        "for order in (1, 2):\n"
        "    print(gradproof.check(torch.sin, x, modes='forward', order=order, contracts=(), seed=0).verdict.value)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", program], capture_output=True, text=True
    )

    assert done.stdout.split() == ["pass", "pass"], done.stdout + done.stderr
