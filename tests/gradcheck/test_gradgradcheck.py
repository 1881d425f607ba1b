"""The drop-in for `torch.autograd.gradgradcheck`: right and wrong second derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

import gradproof
from support.cubes import WRONG, _Slope, cube, two
from support.marks import both_speeds
from support.points import positive

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")
BOTH = [torch.autograd.gradgradcheck, gradproof.gradgradcheck]
TORCHS_ERROR = torch.autograd.gradcheck.__globals__["GradcheckError"]
both_checks = pytest.mark.parametrize("gradgradcheck", BOTH, ids=["torch", "gradproof"])


@both_speeds
@pytest.mark.parametrize("size", [1, 3, 12])
def test_a_right_second_derivative_is_true(fast_mode, size):
    assert gradproof.gradgradcheck(cube("right"), positive(size), fast_mode=fast_mode) is True


@pytest.mark.parametrize("size", [2, 12])
@pytest.mark.parametrize("second", WRONG)
def test_a_wrong_second_derivative_is_found_fast(second, size):
    assert gradproof.gradgradcheck(cube(second), positive(size), fast_mode=True, raise_exception=False) is False


@pytest.mark.parametrize(
    ("second", "size"),
    [(second, size) for second in WRONG for size in (1, 12) if (second, size) != ("one entry", 1)],
)
def test_a_wrong_second_derivative_is_found_in_full(second, size):
    assert gradproof.gradgradcheck(cube(second), positive(size), raise_exception=False) is False


@both_speeds
def test_a_wrong_second_derivative_raises_torchs_error(fast_mode):
    with pytest.raises(TORCHS_ERROR) as raised:
        gradproof.gradgradcheck(cube("twice as much"), positive(3), fast_mode=fast_mode)

    assert isinstance(raised.value, gradproof.GradcheckError)


def test_the_error_shows_the_wrong_entry():
    with pytest.raises(gradproof.GradcheckError, match=r"x\[1\]"):
        gradproof.gradgradcheck(cube("one entry"), positive(3))


def test_an_error_in_the_incoming_gradient_is_named():
    with pytest.raises(gradproof.GradcheckError, match=r"grad_outputs\[0\]\[0\]"):
        gradproof.gradgradcheck(cube("wrong in the incoming gradient"), positive(1))


@pytest.mark.parametrize("fast_mode", [True, pytest.param(False)], ids=["fast", "full"])
def test_a_detached_factor_is_found(fast_mode):
    class Detached(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, incoming):
            return incoming * ctx.saved_tensors[0].detach().cos()

    for gradgradcheck in BOTH:
        assert gradgradcheck(Detached.apply, positive(3), fast_mode=fast_mode, raise_exception=False) is False


@both_speeds
def test_a_derivative_that_is_differentiable_once_is_false(fast_mode):
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @once_differentiable
        def backward(ctx, incoming):
            return incoming * ctx.saved_tensors[0].cos()

    assert gradproof.gradcheck(Once.apply, positive(3), fast_mode=fast_mode)
    assert gradproof.gradgradcheck(Once.apply, positive(3), fast_mode=fast_mode, raise_exception=False) is False
    with pytest.raises(gradproof.GradcheckError, match="once_differentiable"):
        gradproof.gradgradcheck(Once.apply, positive(3), fast_mode=fast_mode)


@both_speeds
@pytest.mark.parametrize("error", [RuntimeError, KeyError, NotImplementedError])
@pytest.mark.parametrize("order", [1, 2])
def test_a_backward_that_raises_is_false(error, order, fast_mode):
    class Raising(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, incoming):
            if order == 1:
                raise error("from the backward")
            return _Slope.apply(incoming, ctx.saved_tensors[0], second)

    def second(h, g, x):
        raise error("from the backward")

    options = {"fast_mode": fast_mode, "raise_exception": False}

    assert gradproof.gradgradcheck(Raising.apply, positive(3), **options) is False
    if order == 1:
        assert gradproof.gradcheck(Raising.apply, positive(3), **options) is False
    with pytest.raises(gradproof.GradcheckError, match="from the backward"):
        gradproof.gradgradcheck(Raising.apply, positive(3), fast_mode=fast_mode)


@both_checks
@pytest.mark.parametrize("raise_exception", [True, False])
def test_an_exception_of_the_function_comes_through_as_in_torch(gradgradcheck, raise_exception):
    def raising(x):
        raise KeyError("from the function")

    with pytest.raises(KeyError, match="from the function"):
        gradgradcheck(raising, positive(3), raise_exception=raise_exception)


def test_tolerances_are_accepted():
    slight = {"atol": 1.0, "rtol": 0.5}

    assert gradproof.gradgradcheck(cube("wrong in the incoming gradient"), positive(3), **slight)
    assert not gradproof.gradgradcheck(cube("wrong in the incoming gradient"), positive(3), raise_exception=False)


def test_torchs_usual_tolerances_are_accepted():
    assert gradproof.gradgradcheck(torch.tanh, positive(5), eps=1e-6, atol=1e-5, rtol=1e-3, nondet_tol=0.0)


FLAGS = ["check_undefined_grad", "check_grad_dtypes", "check_batched_grad", "check_fwd_over_rev"]
COMPLEX = torch.complex128

RIGHT = {
    "sin": (torch.sin, positive(3)),
    "exp": (torch.exp, positive(3)),
    "log": (torch.log, positive(3)),
    "linear": (lambda x: 2 * x, positive(3)),
    "identity": (lambda x: x.clone(), positive(3)),
    "mul": (torch.mul, (positive(3), positive(3, seed=2))),
    "div": (torch.div, (positive(3), positive(3, seed=2))),
    "matmul": (torch.matmul, (positive(2, 3), positive(3, 2, seed=2))),
    "softmax": (lambda x: x.softmax(-1), positive(2, 3)),
    "norm": (lambda x: x.norm(), positive(4)),
    "logsumexp": (lambda x: x.logsumexp(0), positive(4)),
    "two outputs": (two, (positive(3), positive(3, seed=2))),
    "a number": (lambda x: x**3, positive()),
    "an empty input": (lambda a, b: a.sum() + b.sin(), (positive(0), positive(2))),
    "one input alone": (lambda x, y: x * y, (positive(3), positive(3, seed=2).detach())),
    "no influence": (lambda x, y: x.sin(), (positive(3), positive(3, seed=2))),
    "inv": (torch.linalg.inv, (positive(3, 3).detach() + 2 * torch.eye(3, dtype=torch.float64)).requires_grad_()),
    "prod": (torch.prod, positive(4)),
    "cumsum": (lambda x: x.cumsum(0) ** 2, positive(4)),
    "transpose": (lambda x: x.T.sin(), positive(2, 3)),
    "linear layer": (nn.functional.linear, (positive(2, 3), positive(2, 3, seed=2), positive(2, seed=3))),
    "real of complex": (lambda z: (z * z.conj()).real, positive(2, dtype=COMPLEX)),
    "complex of real": (lambda x: torch.polar(x, x**2), positive(2)),
    "complex of complex": (lambda z: z**3, positive(2, dtype=COMPLEX)),
    "conj": (lambda z: z.conj() * z.exp(), positive(2, dtype=COMPLEX)),
    "abs": (lambda z: z.abs() ** 2, positive(2, dtype=COMPLEX)),
    "complex and real": (lambda x, z: x * z.exp(), (positive(2), positive(2, dtype=COMPLEX))),
}


@both_speeds
@pytest.mark.parametrize("name", RIGHT)
def test_right_functions_are_as_in_torch(name, fast_mode):
    function, inputs = RIGHT[name]

    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=fast_mode) is True
    assert gradproof.gradgradcheck(function, inputs, fast_mode=fast_mode) is True


@pytest.mark.parametrize("name", [name for name in RIGHT if name not in ("an empty input", "softmax")])
def test_right_functions_are_true_with_every_flag(name):
    function, inputs = RIGHT[name]
    flags = dict.fromkeys(FLAGS, True)

    assert gradproof.gradgradcheck(function, inputs, gen_non_contig_grad_outputs=True, **flags) is True


def test_a_module_is_true():
    assert gradproof.gradgradcheck(nn.Sequential(nn.Linear(2, 2), nn.Tanh()).double(), positive(2, 2))


@both_checks
def test_no_differentiable_input_is_a_value_error_as_in_torch(gradgradcheck):
    with pytest.raises(ValueError, match="require"):
        gradgradcheck(lambda x: x.sin(), positive(3).detach(), torch.ones(3, dtype=torch.float64))


def test_nothing_of_the_callers_is_changed():
    x, g = positive(3), positive(3, seed=2)
    before, state = [x.detach().clone(), g.detach().clone()], torch.get_rng_state()

    gradproof.gradgradcheck(cube("twice as much"), x, g, raise_exception=False)

    assert torch.equal(x, before[0])
    assert torch.equal(g, before[1])
    assert (x.grad, g.grad, x._version, g._version) == (None, None, 0, 0)
    assert (x.requires_grad, g.requires_grad) == (True, True)
    assert torch.equal(torch.get_rng_state(), state)
