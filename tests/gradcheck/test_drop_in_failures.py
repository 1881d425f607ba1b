"""A failure of the gradient never escapes as an exception, and misuse is the same kind of error as in torch."""

from __future__ import annotations

import warnings

import pytest
import torch

import gradproof
from support.functions import cosine, func_rule
from support.marks import both_speeds
from support.points import positive

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")
BOTH = [torch.autograd.gradcheck, gradproof.gradcheck]
both_checks = pytest.mark.parametrize("gradcheck", BOTH, ids=["torch", "gradproof"])


def raising(error):
    def backward(g, x):
        raise error

    return backward


class PeculiarError(Exception):
    """An error of the user's own."""


FAILURES = {
    **{
        type(error).__name__: raising(error)
        for error in (
            RuntimeError("no"),
            KeyError("no"),
            AssertionError("no"),
            NotImplementedError("no"),
            StopIteration("no"),
            gradproof.InputError("no"),
            PeculiarError("no"),
        )
    },
    "too long": lambda g, x: torch.cat([g, g]),
    "too short": lambda g, x: g[:-1],
    "another shape": lambda g, x: g[None, None].expand(2, 2, -1),
    "too many": lambda g, x: (g, g),
    "none": lambda g, x: None,
    "a number": lambda g, x: 1.0,
    "nan": lambda g, x: g * torch.nan,
    "infinity": lambda g, x: g * torch.inf,
    "whole numbers": lambda g, x: (g * 100).long(),
    "complex": lambda g, x: torch.complex(2 * g, g),
    "zeros": lambda g, x: torch.zeros_like(x),
    "written to": lambda g, x: g.mul_(2),
}


@both_speeds
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_the_gradient_is_false_and_never_escapes(name, fast_mode):
    function = func_rule(lambda x: 2 * x, FAILURES[name])
    if name == "written to":
        function = func_rule(lambda x: x.clone(), FAILURES[name])
    options = {"fast_mode": fast_mode, "check_undefined_grad": False}

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Casting complex")
        assert gradproof.gradcheck(function, positive(4), raise_exception=False, **options) is False
        with pytest.raises(gradproof.GradcheckError):
            gradproof.gradcheck(function, positive(4), **options)


@both_speeds
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_the_second_gradient_is_false_and_never_escapes(name, fast_mode):
    inner = func_rule(lambda x: 2 * x, FAILURES[name])
    function = func_rule(lambda x: 2 * x, lambda g, x: inner(g))
    if name == "written to":
        inner = func_rule(lambda x: x.clone(), FAILURES[name])
        function = func_rule(lambda x: x.clone(), lambda g, x: inner(g))
    options = {"fast_mode": fast_mode, "check_undefined_grad": False}

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Casting complex")
        assert gradproof.gradgradcheck(function, positive(4), raise_exception=False, **options) is False


@both_speeds
@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError, NotImplementedError, PeculiarError])
def test_a_jvp_that_raises_is_false(error, fast_mode):
    def jvp(tangent, x):
        raise error("no")

    options = {"fast_mode": fast_mode, "check_undefined_grad": False, "check_forward_ad": True}

    assert (
        gradproof.gradcheck(func_rule(torch.sin, cosine, jvp), positive(4), raise_exception=False, **options) is False
    )


MISUSE = {
    "no tensor": (torch.sin, (1.0,)),
    "nothing": (lambda: torch.ones(3), ()),
    "whole numbers": (lambda x: x, torch.ones(3, dtype=torch.int64)),
    "nothing requires grad": (torch.sin, positive(3).detach()),
    "a function that raises": (lambda x: [][3], positive(3)),
    "too many inputs": (torch.sin, (positive(3), positive(3))),
    "a function that is none": (None, positive(3)),
}


@pytest.mark.parametrize("raise_exception", [True, False])
@pytest.mark.parametrize("name", [*list(MISUSE)[:-1], pytest.param("a function that is none")])
def test_misuse_is_the_same_kind_of_error_as_in_torch(name, raise_exception):
    function, inputs = MISUSE[name]
    with pytest.raises(Exception) as torchs:  # noqa: PT011  # whichever it is
        torch.autograd.gradcheck(function, inputs, raise_exception=raise_exception)

    with pytest.raises(torchs.type):
        gradproof.gradcheck(function, inputs, raise_exception=raise_exception)


@both_checks
def test_an_output_that_is_no_tensor_is_as_in_torch(gradcheck):
    with pytest.raises((ValueError, TypeError, AttributeError)):
        gradcheck(lambda x: "nothing", positive(3))


@both_checks
def test_whole_numbers_as_outputs_are_true(gradcheck):
    assert gradcheck(lambda x: (x > 0).long(), positive(3)) is True


@pytest.mark.parametrize(
    "gradgradcheck",
    [
        torch.autograd.gradgradcheck,
        pytest.param(
            gradproof.gradgradcheck,
        ),
    ],
    ids=["torch", "gradproof"],
)
@pytest.mark.parametrize("given", [5, "a", (None,)], ids=str)
def test_incoming_gradients_that_are_no_tensors_are_an_error_whatever_is_requested(given, gradgradcheck):
    with pytest.raises((ValueError, TypeError, AttributeError)):
        gradgradcheck(torch.sin, positive(3), given, raise_exception=False)


def test_memory_that_runs_out_says_nothing_of_the_gradient():
    function = func_rule(lambda x: 2 * x, raising(MemoryError("no")))

    with pytest.raises(gradproof.OutOfMemoryError):
        gradproof.gradcheck(function, positive(4), raise_exception=False)
