"""Every flag of `gradgradcheck` finds its planted bug."""

from __future__ import annotations

import inspect

import pytest
import torch

import gradproof
from support.cubes import cube
from support.marks import both_speeds
from support.points import positive

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")
BOTH = [torch.autograd.gradgradcheck, gradproof.gradgradcheck]


@both_speeds
@pytest.mark.parametrize("reverse", [True, False])
def test_forward_over_reverse_is_true(fast_mode, reverse):
    options = {"check_fwd_over_rev": True, "check_rev_over_rev": reverse, "check_undefined_grad": reverse}

    assert gradproof.gradgradcheck(torch.sin, positive(3), fast_mode=fast_mode, **options) is True


class _Tangent(torch.autograd.Function):
    """3·g·x², whose jvp is off by a factor."""

    @staticmethod
    def forward(g, x):
        return 3 * g * x**2

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, h):
        g, x = ctx.saved_tensors
        return 3 * h * x**2, 6 * h * g * x

    @staticmethod
    def jvp(ctx, dg, dx):
        g, x = ctx.saved_tensors
        return 3 * dg * x**2 + 6.1 * g * x * dx


class TangentCube(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, incoming):
        return _Tangent.apply(incoming, ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx, tangent):
        return 3 * ctx.saved_tensors[0] ** 2 * tangent


@both_speeds
def test_a_wrong_forward_over_reverse_is_found_where_it_is_requested(fast_mode):
    options = {"fast_mode": fast_mode, "raise_exception": False}

    assert gradproof.gradgradcheck(TangentCube.apply, positive(3), **options) is True
    assert gradproof.gradgradcheck(TangentCube.apply, positive(3), check_fwd_over_rev=True, **options) is False


@both_speeds
def test_a_wrong_reverse_over_reverse_does_not_matter_where_it_is_not_requested(fast_mode):
    options = {"check_rev_over_rev": False, "check_fwd_over_rev": True, "check_undefined_grad": False}
    found = gradproof.gradgradcheck(
        TangentCube.apply, positive(3), fast_mode=fast_mode, raise_exception=False, **options
    )

    assert found is False


@pytest.mark.parametrize(
    "flags",
    [
        {"check_rev_over_rev": False},
        {"check_rev_over_rev": False, "check_fwd_over_rev": True, "check_batched_grad": True},
        pytest.param(
            {"check_rev_over_rev": False, "check_fwd_over_rev": True},
        ),
    ],
    ids=["nothing", "batched", "undefined"],
)
def test_flags_that_contradict_each_other_are_an_assertion_error_as_in_torch(flags):
    for gradgradcheck in BOTH:
        with pytest.raises(AssertionError):
            gradgradcheck(torch.sin, positive(3), **flags)


def test_the_keywords_are_those_of_torch():
    torchs, ours = (inspect.signature(each).parameters for each in BOTH)

    assert list(ours) == list(torchs)
    assert [each.kind for each in ours.values()] == [each.kind for each in torchs.values()]


def test_the_defaults_are_those_of_torch_but_for_steps_and_tolerances():
    torchs, ours = (inspect.signature(each).parameters for each in BOTH)
    other = {name for name in ours if ours[name].default != torchs[name].default}

    assert other == {"eps", "atol", "rtol"}
    assert all(ours[name].default is None for name in other)


FLAGS = ["check_undefined_grad", "check_grad_dtypes", "check_batched_grad", "check_fwd_over_rev"]


@pytest.mark.parametrize("flag", FLAGS)
@pytest.mark.parametrize("on", [True, False])
def test_every_flag_may_be_on_or_off(flag, on):
    for gradgradcheck in BOTH:
        assert gradgradcheck(torch.sin, positive(3), **{flag: on}) is True


def test_a_second_backward_that_cannot_be_batched_is_found():
    def stubborn(h, g, x):
        if float(h.detach().sum()) == 1e99:
            raise AssertionError
        return 3 * h * x**2, 6 * h * g * x

    for gradgradcheck in BOTH:
        assert gradgradcheck(cube(stubborn), positive(3), raise_exception=False) is True
        assert gradgradcheck(cube(stubborn), positive(3), check_batched_grad=True, raise_exception=False) is False


def test_a_second_backward_that_is_not_repeatable_is_found():
    numbers = torch.Generator().manual_seed(0)

    def shaky(h, g, x):
        return 3 * h * x**2, 6 * h * g * x * (1 + 1e-12 * torch.rand(1, generator=numbers, dtype=torch.float64))

    for gradgradcheck in BOTH:
        assert gradgradcheck(cube(shaky), positive(3), raise_exception=False) is False
        assert gradgradcheck(cube(shaky), positive(3), nondet_tol=1e-8, raise_exception=False) is True
