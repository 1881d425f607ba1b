"""Forward mode: pushforwards of torch functions, the jvp of Functions of one's own, and nothing left behind."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn
from torch.autograd import forward_ad

from gradproof import GradientError, InputError, Verdict, assert_gradients, check
from support.checks import BOTH, pushed
from support.functions import cosine, rule, twice_cosine
from support.marks import making_duals
from support.points import point

asked_both_ways = pytest.mark.parametrize("modes", [("forward",), BOTH], ids="+".join)


def broken(g, x):
    raise ValueError("no such shape")


# Functions of torch.


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

    assert report.verdict is Verdict.PASS, report.reason


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

    assert (finding.mode, finding.argument) == ("forward", "inputs[1]")
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
        return t * x.cos() if x.dtype == torch.float64 else broken(t, x)

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
    assert report.reason.startswith("kink")


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


@pytest.mark.parametrize("order", [1, 2])
def test_forward_mode_works_where_warnings_are_errors(order):
    program = (
        "import torch, gradproof\n"
        "x = torch.ones(3, dtype=torch.float64, requires_grad=True)\n"
        f"print(gradproof.check(torch.sin, x, modes='forward', order={order}, contracts=(), seed=0).verdict.value)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", program], capture_output=True, text=True
    )

    assert done.stdout.split() == ["pass"], done.stdout + done.stderr


# Functions of one's own.


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
def test_a_missing_jvp_is_a_failure_where_forward_mode_is_asked_for(modes):
    report = pushed(rule(torch.sin, backward=cosine), point(4), modes=modes)

    assert report.verdict is Verdict.FAIL
    assert [(finding.kind, finding.mode) for finding in report.findings] == [("no-forward-rule", "forward")]


def test_a_torch_function_without_a_pushforward_is_a_failure_where_forward_mode_is_asked_for():
    report = pushed(lambda x: torch.cdist(x, x + 1, p=1.5), point(3, 2))

    assert [finding.kind for finding in report.findings] == ["no-forward-rule"]


def test_a_missing_jvp_is_not_called_wrong():
    assert "the jvp is wrong" not in pushed(rule(torch.sin, backward=cosine), point(4), modes=BOTH).reason


def test_a_missing_backward_is_not_called_wrong():
    assert "the backward is wrong" not in pushed(rule(torch.sin, jvp=cosine), point(4), modes=BOTH).reason


@pytest.mark.parametrize("modes", [None, ("forward",), BOTH], ids=str)
def test_a_jvp_that_raises_is_a_failure_that_quotes_it(modes):
    report = pushed(rule(torch.sin, backward=cosine, jvp=broken), point(4), modes=modes)

    assert report.verdict is Verdict.FAIL
    assert [(finding.kind, finding.mode) for finding in report.findings] == [("forward-raised", "forward")]
    assert "no such shape" in report.reason


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


def test_a_wrong_jvp_beside_a_right_backward_is_told_from_the_reverse():
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
@pytest.mark.parametrize("forgiven", [{"rtol": 1e-3}, {"atol": 1e-3}], ids=str)
@pytest.mark.parametrize("wrong", ["backward", "jvp"])
def test_a_rule_within_the_tolerance_passes_beside_one_that_is_exact(coverage, forgiven, wrong):
    rules = {"backward": cosine, "jvp": cosine}
    near = rules | {wrong: lambda t, x: cosine(t, x) * (1 + 5e-4)}
    far = rules | {wrong: lambda t, x: cosine(t, x) * (1 + 5e-3)}
    options = {"modes": BOTH, "coverage": coverage, **forgiven}

    assert pushed(rule(torch.sin, **near), point(6), **options).verdict is Verdict.PASS
    assert pushed(rule(torch.sin, **far), point(6), **options).verdict is Verdict.FAIL


# Tangents that are there already.


@pytest.mark.parametrize("modes", [("reverse",), ("forward",), BOTH], ids="+".join)
@making_duals
def test_an_input_that_carries_a_tangent_is_refused(modes):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(point(3).detach(), torch.ones(3, dtype=torch.float64))
        with pytest.raises(InputError, match=r"inputs\[0\] carries a tangent already.*unpack_dual"):
            pushed(torch.sin, dual, wrt=0, modes=modes)
        with pytest.raises(InputError, match=r"inputs\[1\] carries a tangent already"):
            pushed(torch.mul, point(3), dual, modes=modes)


def test_reverse_mode_works_inside_an_open_level():
    with forward_ad.dual_level():
        right = pushed(torch.sin, point(3), modes=("reverse",))
        wrong = pushed(rule(torch.sin, backward=twice_cosine), point(3), modes=("reverse",))
        twice = pushed(torch.sin, point(3), modes=("reverse",), order=2)

        assert forward_ad._current_level == 0

    assert (right.verdict, wrong.verdict, twice.verdict) == (Verdict.PASS, Verdict.FAIL, Verdict.PASS)


def test_a_level_that_the_caller_opened_is_no_fault_of_the_function():
    with forward_ad.dual_level():
        with pytest.raises(InputError, match="dual_level is open"):
            pushed(torch.sin, point(3))

        assert forward_ad._current_level == 0


# Nothing of the caller's is changed.


def drawing(x, y):
    return x.sin() * y * (torch.rand(3, dtype=torch.float64) + random.random() + float(np.random.rand()))


def raising_beside(x, y):
    if forward_ad._current_level >= 0:
        raise KeyError("from the function")
    return x.sin() * y


CALLED = {
    "right": lambda x, y: x.sin() * y,
    "wrong": lambda x, y: rule(torch.sin, backward=cosine, jvp=twice_cosine)(x) * y,
    "raising": raising_beside,
    "drawing": drawing,
    "absent": lambda x, y: rule(torch.sin, backward=cosine)(x) * y,
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", CALLED)
def test_nothing_of_the_callers_is_changed(name, enabled, order):
    x, y = point(3), point(3, seed=2).detach()
    x.grad = torch.full((3,), 7.0, dtype=torch.float64)
    before = x.detach().clone(), y.clone()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with torch.set_grad_enabled(enabled):
        pushed(CALLED[name], x, y, modes=BOTH, order=order)
        assert torch.is_grad_enabled() is enabled

    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
    assert x.grad.tolist() == [7, 7, 7]
    assert (x.requires_grad, x.is_leaf, y.requires_grad) == (True, True, False)
    assert (x._version, y._version) == (0, 0)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
    assert random.getstate() == states[2]
    assert forward_ad._current_level == -1


def test_no_level_is_left_open_when_the_function_is_interrupted():
    def interrupted(x):
        if forward_ad._current_level >= 0:
            raise KeyboardInterrupt
        return x.sin()

    with pytest.raises(KeyboardInterrupt):
        pushed(interrupted, point(3))

    assert forward_ad._current_level == -1


def test_assert_gradients_raises_for_a_wrong_jvp():
    with pytest.raises(GradientError, match="the jvp is wrong"):
        assert_gradients(rule(torch.sin, backward=cosine, jvp=twice_cosine), point(3), seed=0, contracts=())


def test_a_forward_that_returns_a_view_of_its_own_tensor_is_told_what_dual_numbers_need():
    own = rule(lambda z: (z * z.conj()).real, backward=lambda g, z: 2 * g * z, jvp=lambda t, z: 2 * (z.conj() * t).real)

    report = pushed(own, point(3, dtype=torch.complex128), modes=("forward",))

    assert report.verdict is Verdict.FAIL
    assert "the forward returned a view" in report.reason
    assert "clone()" in report.reason


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

    assert "a tangent of (3,) (complex) for an output of (3,)" in report.reason


def test_a_contract_that_is_broken_says_nothing_of_which_rule_is_wrong():
    norm = torch.nn.BatchNorm1d(3).double()

    report = check(lambda x: norm(x), (point(5, 3),), modes=BOTH, contracts=("batched-forward",))

    assert report.verdict is Verdict.FAIL
    assert "is wrong" not in report.reason
