"""Every keyword of `torch.autograd.gradcheck` finds its planted bug."""

from __future__ import annotations

import inspect
import itertools
import math

import pytest
import torch

import gradproof
from support.functions import cosine, func_rule
from support.marks import both_speeds
from support.points import positive

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")
BOTH = [torch.autograd.gradcheck, gradproof.gradcheck]
TORCHS_ERROR = torch.autograd.gradcheck.__globals__["GradcheckError"]
both_checks = pytest.mark.parametrize("gradcheck", BOTH, ids=["torch", "gradproof"])


def test_the_keywords_are_those_of_torch():
    torchs, ours = (inspect.signature(each).parameters for each in BOTH)

    assert list(ours) == list(torchs)
    assert [each.kind for each in ours.values()] == [each.kind for each in torchs.values()]


def test_the_defaults_are_those_of_torch_but_for_steps_and_tolerances():
    torchs, ours = (inspect.signature(each).parameters for each in BOTH)
    other = {name for name in ours if ours[name].default != torchs[name].default}

    assert other == {"eps", "atol", "rtol"}
    assert all(ours[name].default is None for name in other)


def test_the_error_is_a_kind_of_torchs():
    assert issubclass(gradproof.GradcheckError, TORCHS_ERROR)
    assert issubclass(gradproof.GradcheckError, RuntimeError)


def undefined_raises(first, second, x):
    return first + 2 * second


class Counter:
    calls = 0


def unsteady(incoming, x):
    Counter.calls += 1
    return incoming * x.cos() * (1 + 1e-13 * Counter.calls)


def stubborn(incoming, x):
    return incoming * x.cos() * incoming.detach().sum().item() ** 0


def with_own_batches(incoming, x):
    return _Product.apply(incoming, x)


class _Product(torch.autograd.Function):
    """g·cos(x), by a rule for batches that is wrong."""

    @staticmethod
    def forward(g, x):
        return g * x.cos()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, h):
        g, x = ctx.saved_tensors
        return h * x.cos(), -h * g * x.sin()

    @staticmethod
    def vmap(info, dims, g, x):
        return 2 * g * x.cos(), 0


def stubborn_tangent(tangent, x):
    return tangent * x.cos() * tangent.detach().sum().item() ** 0


BUGS = {
    "undefined gradients raise": (
        func_rule(lambda x: (x.clone(), 2 * x), undefined_raises),
        {"check_undefined_grad": False},
        {"check_undefined_grad": True},
    ),
    "gradients that cannot be batched": (
        func_rule(torch.sin, stubborn),
        {"check_undefined_grad": False},
        {"check_undefined_grad": False, "check_batched_grad": True},
    ),
    "gradients that are wrong in batches": (
        func_rule(torch.sin, with_own_batches),
        {"check_undefined_grad": False},
        {"check_undefined_grad": False, "check_batched_grad": True},
    ),
    "a wrong jvp": (
        func_rule(torch.sin, cosine, lambda tangent, x: tangent * x.cos() * 1.01),
        {"check_undefined_grad": False},
        {"check_undefined_grad": False, "check_forward_ad": True},
    ),
    "no jvp": (
        func_rule(torch.sin, cosine),
        {"check_undefined_grad": False},
        {"check_undefined_grad": False, "check_forward_ad": True},
    ),
    "tangents that cannot be batched": (
        func_rule(torch.sin, cosine, stubborn_tangent),
        {"check_undefined_grad": False, "check_forward_ad": True},
        {"check_undefined_grad": False, "check_forward_ad": True, "check_batched_forward_grad": True},
    ),
    "a wrong backward that is not asked for": (
        func_rule(torch.sin, lambda g, x: 2 * g, lambda tangent, x: tangent * x.cos()),
        {"check_undefined_grad": False, "check_forward_ad": True, "check_backward_ad": False},
        {"check_undefined_grad": False},
    ),
}


@both_speeds
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_found_by_its_flag_alone(name, fast_mode):
    function, without, with_flag = BUGS[name]

    assert gradproof.gradcheck(function, positive(4), fast_mode=fast_mode, raise_exception=False, **without) is True
    assert gradproof.gradcheck(function, positive(4), fast_mode=fast_mode, raise_exception=False, **with_flag) is False


@both_speeds
def test_undefined_gradients_that_are_taken_for_another_are_found(fast_mode):
    function = func_rule(
        lambda x: (x.clone(), 2 * x), lambda a, b, x: (0 if a is None else a) + (a if b is None else 2 * b)
    )
    options = {"fast_mode": fast_mode, "raise_exception": False}

    assert gradproof.gradcheck(function, positive(4), check_undefined_grad=True, **options) is False


@both_speeds
def test_a_gradient_of_another_dtype_is_found(fast_mode):
    x = positive(4)
    narrow = func_rule(lambda x: 2 * x, lambda g, x: (2 * g).float())
    options = {"fast_mode": fast_mode, "check_undefined_grad": False, "raise_exception": False, "rtol": 1e-5}

    assert gradproof.gradcheck(narrow, x, **options) is True
    assert gradproof.gradcheck(narrow, x, check_grad_dtypes=True, **options) is False


@both_checks
@both_speeds
def test_a_gradient_that_is_not_repeatable_is_found(gradcheck, fast_mode):
    options = {"fast_mode": fast_mode, "check_undefined_grad": False, "raise_exception": False}

    assert gradcheck(func_rule(torch.sin, unsteady), positive(4), **options) is False
    assert gradcheck(func_rule(torch.sin, unsteady), positive(4), nondet_tol=1e-8, **options) is True


def nondeterministic(factor):
    """A backward of the sine whose answers differ by a millionth from call to call, which is wrong by a factor."""
    turns = itertools.count()
    return func_rule(torch.sin, lambda g, x: factor * g * x.cos() + 1e-6 * g * math.sin(next(turns)))


@both_checks
@both_speeds
def test_a_nondeterministic_gradient_is_tolerated_within_nondet_tol_and_no_further(gradcheck, fast_mode):
    options = {"fast_mode": fast_mode, "check_undefined_grad": False, "raise_exception": False, "nondet_tol": 1e-3}

    assert gradcheck(nondeterministic(1.0), positive(4), **options) is True
    assert gradcheck(nondeterministic(1.1), positive(4), **options) is False


def test_an_error_below_nondet_tol_in_a_nondeterministic_gradient_is_found_and_a_note_tells_its_spread():
    assert not gradproof.check(nondeterministic(1.0001), positive(4), nondet_tol=1e-3, contracts=(), seed=0).passed

    passed = gradproof.check(nondeterministic(1.0), positive(4), nondet_tol=1e-3, contracts=(), seed=0)

    assert passed.passed
    assert any("from call to call" in note for note in passed.notes)


@both_checks
@pytest.mark.parametrize("masked", [None, True, False])
def test_masked_makes_no_difference_to_dense_inputs(gradcheck, masked):
    assert gradcheck(torch.sin, positive(3), masked=masked) is True
    assert (
        gradcheck(func_rule(torch.sin, lambda g, x: 2 * g), positive(3), masked=masked, raise_exception=False) is False
    )
