"""The drop-in for `torch.autograd.gradcheck`."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from torch import nn

import gradproof
from gradproof import InputError
from support.points import positive

FLAGS = [
    "check_undefined_grad",
    "check_grad_dtypes",
    "check_batched_grad",
    "check_batched_forward_grad",
    "check_forward_ad",
]


class Shifted(torch.autograd.Function):
    """The identity, whose backward is off by a constant and by a factor."""

    @staticmethod
    def forward(ctx, x, shift, factor):
        ctx.shift, ctx.factor = shift, factor
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor + ctx.shift, None, None


def off_by(shift: float = 0.0, factor: float = 1.0):
    return lambda x: Shifted.apply(x.sin(), shift, factor)


def test_a_right_gradient_is_true():
    assert gradproof.gradcheck(torch.sin, (positive(5),)) is True


@pytest.mark.parametrize("fast_mode", [True, False])
def test_both_modes_tell_right_from_wrong(fast_mode):
    assert gradproof.gradcheck(torch.sin, positive(5), fast_mode=fast_mode) is True
    assert gradproof.gradcheck(off_by(factor=2.0), positive(5), fast_mode=fast_mode, raise_exception=False) is False


def test_inputs_may_be_one_tensor_or_several():
    assert gradproof.gradcheck(torch.mul, (positive(3), positive(3)))
    assert gradproof.gradcheck(torch.mul, [positive(3), positive(3)])
    assert gradproof.gradcheck(torch.exp, positive(3))


def test_a_module_is_true():
    assert gradproof.gradcheck(nn.Linear(2, 3).double(), positive(4, 2))


def test_a_wrong_gradient_raises_torchs_error():
    with pytest.raises(torch.autograd.gradcheck.__globals__["GradcheckError"]) as raised:
        gradproof.gradcheck(off_by(factor=2.0), positive(5))

    assert isinstance(raised.value, gradproof.GradcheckError)
    assert isinstance(raised.value, RuntimeError)


def test_the_error_shows_the_wrong_entries():
    with pytest.raises(gradproof.GradcheckError, match=r"x\[0\]"):
        gradproof.gradcheck(off_by(factor=2.0), positive(1))


def test_a_wrong_gradient_is_false_where_no_exception_is_wanted():
    assert gradproof.gradcheck(off_by(factor=2.0), positive(5), raise_exception=False) is False


def test_an_error_that_torchs_fast_mode_accepts_is_found():
    x = positive(1000)
    slight = off_by(factor=1 + 1e-5)

    assert torch.autograd.gradcheck(slight, x, fast_mode=True)
    assert not gradproof.gradcheck(slight, x, fast_mode=True, raise_exception=False)


def test_a_kink_is_not_verified():
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)

    assert gradproof.gradcheck(torch.relu, x, raise_exception=False) is False
    with pytest.raises(gradproof.GradcheckError, match="kink"):
        gradproof.gradcheck(torch.relu, x)


def test_the_keywords_are_those_of_torch():
    torchs, ours = (inspect.signature(each).parameters for each in (torch.autograd.gradcheck, gradproof.gradcheck))

    assert list(ours) == list(torchs)
    assert [each.kind for each in ours.values()] == [each.kind for each in torchs.values()]


# ── steps and tolerances ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("atol", "accepted"), [(1e-2, True), (1e-4, False), (None, False), (0.0, False)])
def test_an_error_below_atol_is_accepted(atol, accepted):
    assert gradproof.gradcheck(off_by(factor=1.001), positive(1), atol=atol, raise_exception=False) is accepted


@pytest.mark.parametrize(("rtol", "accepted"), [(1e-2, True), (1e-4, False), (None, False), (0.0, False)])
def test_an_error_below_rtol_is_accepted(rtol, accepted):
    assert gradproof.gradcheck(off_by(factor=1.001), positive(1), rtol=rtol, raise_exception=False) is accepted


@pytest.mark.parametrize("atol", [1e-2, 1e-4])
@pytest.mark.parametrize("fast_mode", [True, False])
def test_atol_decides_for_many_entries_as_for_one(atol, fast_mode):
    accepted = gradproof.gradcheck(
        lambda x: Shifted.apply(2 * x, 0.0, 1.0005), positive(20), atol=atol, fast_mode=fast_mode, raise_exception=False
    )

    assert accepted is (atol > 1e-3)


def test_torchs_usual_tolerances_are_accepted():
    assert gradproof.gradcheck(torch.tanh, positive(5), eps=1e-6, atol=1e-5, rtol=1e-3, nondet_tol=0.0)


@pytest.mark.parametrize("eps", [1e-6, 1e-4, 1e-3])
def test_eps_is_the_size_of_the_step(eps):
    distances = []
    x = positive(3)

    def watched(y):
        distances.append(float((y.detach() - x.detach()).abs().max()))
        return y.sin()

    assert gradproof.gradcheck(watched, x, eps=eps)
    smallest = min(distance for distance in distances if distance)
    assert 0.4 * eps <= smallest <= 1.01 * eps
    assert max(distances) <= 5 * eps


@pytest.mark.parametrize("eps", [1e-6, 1e-3])
def test_a_wrong_gradient_is_found_with_any_eps(eps):
    assert not gradproof.gradcheck(off_by(factor=1.1), positive(3), eps=eps, raise_exception=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("eps", 0.0), ("eps", -1e-6), ("eps", float("nan")), ("atol", -1.0), ("rtol", -1.0), ("nondet_tol", -1.0)],
)
def test_options_out_of_range_are_refused_by_their_torch_names(name, value):
    with pytest.raises(ValueError, match=f"{name}="):
        gradproof.gradcheck(torch.sin, positive(3), **{name: value})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("options", [{}, {"eps": 1e-2, "atol": 0.1, "rtol": 0.1}], ids=["chosen", "given"])
def test_low_precision_is_checked(dtype, options):
    assert gradproof.gradcheck(torch.sin, positive(3, dtype=dtype), raise_exception=False, **options)


def test_float32_as_torchs_users_check_it():
    assert gradproof.gradcheck(torch.tanh, positive(4, dtype=torch.float32), eps=1e-3, atol=1e-2, rtol=1e-2)


# ── what is not built, and misuse ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_may_be_off(flag):
    assert gradproof.gradcheck(torch.sin, positive(3), **{flag: False})


def test_what_does_not_multiply_by_the_incoming_gradient_is_wrong_whatever_the_tolerance_as_in_torch():
    for gradcheck in (torch.autograd.gradcheck, gradproof.gradcheck):
        assert gradcheck(off_by(shift=1e-3), positive(3), atol=0.1, raise_exception=False) is False


@pytest.mark.parametrize(
    "flags",
    [
        {"check_backward_ad": False},
        {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True},
        {"check_batched_forward_grad": True},
    ],
)
def test_flags_that_contradict_each_other_are_an_assertion_error_as_in_torch(flags):
    for gradcheck in (torch.autograd.gradcheck, gradproof.gradcheck):
        with pytest.raises(AssertionError):
            gradcheck(torch.sin, positive(3), **flags)


@pytest.mark.parametrize("masked", [None, True, False])
def test_masked_semantics_make_no_difference_to_dense_inputs(masked):
    assert gradproof.gradcheck(torch.sin, positive(3), masked=masked)


@pytest.mark.parametrize("fast_mode", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_sparse_inputs_are_checked_under_either_semantics(masked, fast_mode):
    sparse = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()

    assert gradproof.gradcheck(lambda a: a.to_dense(masked_grad=masked), sparse, masked=masked, fast_mode=fast_mode)
    if not masked:
        with pytest.raises(gradproof.GradcheckError, match="nothing is stored"):
            gradproof.gradcheck(lambda a: a.to_dense(masked_grad=True), sparse, masked=masked, fast_mode=fast_mode)


@pytest.mark.parametrize("raise_exception", [True, False])
def test_no_differentiable_input_is_a_value_error_as_in_torch(raise_exception):
    inputs = (torch.ones(3, dtype=torch.float64),)

    for gradcheck in (torch.autograd.gradcheck, gradproof.gradcheck):
        with pytest.raises(ValueError, match="require"):
            gradcheck(torch.sin, inputs, raise_exception=raise_exception)


def test_integer_inputs_are_a_value_error_as_in_torch():
    for gradcheck in (torch.autograd.gradcheck, gradproof.gradcheck):
        with pytest.raises(ValueError, match="require"):
            gradcheck(lambda x: x, (torch.ones(3, dtype=torch.int64),))


def test_what_cannot_be_called_is_refused():
    with pytest.raises(InputError, match="cannot be called"):
        gradproof.gradcheck(None, positive(3))


@pytest.mark.parametrize("raise_exception", [True, False])
def test_an_exception_of_the_function_comes_through_as_in_torch(raise_exception):
    def raising(x):
        raise KeyError("from the function")

    for gradcheck in (torch.autograd.gradcheck, gradproof.gradcheck):
        with pytest.raises(KeyError, match="from the function"):
            gradcheck(raising, positive(3), raise_exception=raise_exception)


def test_options_are_keywords_as_in_torch():
    for gradcheck in (torch.autograd.gradcheck, gradproof.gradcheck):
        with pytest.raises(TypeError):
            gradcheck(torch.sin, positive(3), 1e-6)


def test_an_unknown_keyword_is_a_type_error():
    with pytest.raises(TypeError, match="tolerance"):
        gradproof.gradcheck(torch.sin, positive(3), tolerance=1e-3)


def test_nothing_of_the_callers_is_changed():
    x = positive(5)
    before, state = x.detach().clone(), torch.get_rng_state()

    gradproof.gradcheck(off_by(factor=2.0), x, raise_exception=False)

    assert torch.equal(x, before)
    assert x.grad is None
    assert x._version == 0
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("fast_mode", [True, False])
def test_a_gradient_of_another_sparse_layout_fails_whatever_is_requested_of_dtypes(fast_mode):
    class AsCoo(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            return a.detach().values().clone()

        @staticmethod
        def backward(ctx, gradient):
            return torch.diag(gradient).to_sparse()

    a = torch.eye(3, dtype=torch.float64).to_sparse_csc().requires_grad_()

    with pytest.raises(gradproof.GradcheckError, match="where the input has"):
        gradproof.gradcheck(AsCoo.apply, a, masked=True, fast_mode=fast_mode)


def test_a_forward_rule_that_is_missing_is_not_implemented_as_in_torch():
    with pytest.raises(NotImplementedError, match="jvp"):
        gradproof.gradcheck(off_by(), positive(3), check_forward_ad=True)


def test_a_wrong_gradient_beside_a_forward_rule_that_is_missing_is_a_wrong_gradient():
    with pytest.raises(torch.autograd.gradcheck.__globals__["GradcheckError"]) as caught:
        gradproof.gradcheck(off_by(factor=2.0), positive(3), check_forward_ad=True)

    assert not isinstance(caught.value, NotImplementedError)


@pytest.mark.parametrize("nothing", [(), []])
def test_a_function_that_returns_nothing_has_nothing_wrong_as_torch_says(nothing):
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(lambda x: nothing, (x,))
    assert gradproof.gradcheck(lambda x: nothing, (x,))


@pytest.mark.parametrize("number", [np.float32(1e-3), np.float64(1e-3), torch.tensor(1e-3)], ids=repr)
def test_tolerances_may_be_numbers_of_numpy_or_torch(number):
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)

    assert gradproof.gradcheck(torch.sin, (x,), eps=number, atol=number, rtol=number, nondet_tol=number)
