"""The drop-in for `torch.autograd.gradgradcheck`."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable

import gradproof
from support.marks import both_speeds
from support.points import positive

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")

BOTH = [torch.autograd.gradgradcheck, gradproof.gradgradcheck]
TORCHS_ERROR = torch.autograd.gradcheck.__globals__["GradcheckError"]
both_checks = pytest.mark.parametrize("gradgradcheck", BOTH, ids=["torch", "gradproof"])


class Cube(torch.autograd.Function):
    """x³ with a derivative that is right, and a second derivative of choice."""

    @staticmethod
    def forward(ctx, x, second):
        ctx.save_for_backward(x)
        ctx.second = second
        return x**3

    @staticmethod
    def backward(ctx, incoming):
        (x,) = ctx.saved_tensors
        return _Slope.apply(incoming, x, ctx.second), None


class _Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, incoming, x, second):
        ctx.save_for_backward(incoming, x)
        ctx.second = second
        return 3 * incoming * x**2

    @staticmethod
    def backward(ctx, incoming):
        first, x = ctx.saved_tensors
        return (*ctx.second(incoming, first, x), None)


SECOND = {
    "right": lambda h, g, x: (3 * h * x**2, 6 * h * g * x),
    "twice as much": lambda h, g, x: (3 * h * x**2, 12 * h * g * x),
    "the other sign": lambda h, g, x: (3 * h * x**2, -6 * h * g * x),
    "nothing in x": lambda h, g, x: (3 * h * x**2, 0 * x),
    "no gradient in x": lambda h, g, x: (3 * h * x**2, None),
    "wrong in the incoming gradient": lambda h, g, x: (3.1 * h * x**2, 6 * h * g * x),
    "nothing in the incoming gradient": lambda h, g, x: (0 * h, 6 * h * g * x),
    "one entry": lambda h, g, x: (3 * h * x**2, 6 * h * g * x * (1 + 1e-4 * (torch.arange(x.numel()) == 1))),
    "wrong with gaps": lambda h, g, x: (3 * h * x**2, (6 if g.is_contiguous() else 7) * h * g * x),
    "not a number": lambda h, g, x: (3 * h * x**2, 6 * h * g * x * torch.nan),
}
WRONG = [name for name in SECOND if name not in ("right", "wrong with gaps")]


def cube(second):
    return lambda x: Cube.apply(x, SECOND.get(second, second))


# ── right and wrong ──────────────────────────────────────────────────────────────────────────────────────────────────


@both_speeds
@pytest.mark.parametrize("size", [1, 3, 12])
def test_a_right_second_derivative_is_true(fast_mode, size):
    assert gradproof.gradgradcheck(cube("right"), positive(size), fast_mode=fast_mode) is True


@pytest.mark.parametrize("size", [2, 3, 12])
@pytest.mark.parametrize("second", WRONG)
def test_a_wrong_second_derivative_is_found_fast(second, size):
    assert gradproof.gradgradcheck(cube(second), positive(size), fast_mode=True, raise_exception=False) is False


@pytest.mark.parametrize(
    ("second", "size"),
    [(second, size) for second in WRONG for size in (1, 3, 12) if (second, size) != ("one entry", 1)],
)
def test_a_wrong_second_derivative_is_found_in_full(second, size):
    assert gradproof.gradgradcheck(cube(second), positive(size), raise_exception=False) is False


@both_speeds
def test_a_wrong_second_derivative_raises_torchs_error(fast_mode):
    with pytest.raises(TORCHS_ERROR) as raised:
        gradproof.gradgradcheck(cube("twice as much"), positive(3), fast_mode=fast_mode)

    assert isinstance(raised.value, gradproof.GradcheckError)


def test_the_error_shows_the_wrong_entry():
    with pytest.raises(gradproof.GradcheckError, match=r"inputs\[0\]\[1\]"):
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
@pytest.mark.parametrize("error", [RuntimeError, ValueError, KeyError, NotImplementedError, TypeError, AssertionError])
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


# ── incoming gradients ───────────────────────────────────────────────────────────────────────────────────────────────


def two(x, y):
    return x * y, (x + y).sin().sum()


def incoming(requires_grad=(True, True)):
    given = [positive(3, seed=5), positive(seed=6)]
    return tuple(tensor.detach().requires_grad_(needs) for tensor, needs in zip(given, requires_grad, strict=True))


@both_checks
@both_speeds
@pytest.mark.parametrize("needs", [(True, True), (True, False), (False, True), (False, False)])
def test_given_incoming_gradients_are_true(gradgradcheck, fast_mode, needs):
    assert gradgradcheck(two, (positive(3), positive(3, seed=2)), incoming(needs), fast_mode=fast_mode) is True


@both_checks
def test_a_lone_incoming_gradient_need_not_be_in_a_tuple(gradgradcheck):
    assert gradgradcheck(torch.sin, positive(3), positive(3, seed=4)) is True
    assert gradgradcheck(torch.sin, positive(3), grad_outputs=[positive(3, seed=4)]) is True


@both_checks
@both_speeds
def test_an_incoming_gradient_that_does_not_require_grad_is_not_checked(gradgradcheck, fast_mode):
    wrong, x, g = cube("wrong in the incoming gradient"), positive(3), positive(3, seed=4)

    assert gradgradcheck(wrong, x, g, fast_mode=fast_mode, raise_exception=False) is False
    assert gradgradcheck(wrong, x, g.detach(), fast_mode=fast_mode, raise_exception=False) is True


@both_speeds
def test_the_incoming_gradients_that_are_given_are_those_that_count(fast_mode):
    wrong = cube("twice as much")
    nothing = torch.zeros(3, dtype=torch.float64)

    assert gradproof.gradgradcheck(wrong, positive(3), nothing, fast_mode=fast_mode, raise_exception=False) is True


@both_speeds
@pytest.mark.parametrize("output", [lambda x: x.sin(), lambda x: x.exp().sum(), lambda x: (x[:, 0], x.sum(1))])
def test_incoming_gradients_with_gaps_are_true(output, fast_mode):
    assert gradproof.gradgradcheck(output, positive(3, 4), gen_non_contig_grad_outputs=True, fast_mode=fast_mode)


@both_checks
@both_speeds
def test_a_second_backward_that_is_wrong_of_an_incoming_gradient_with_gaps_is_found(gradgradcheck, fast_mode):
    options = {"fast_mode": fast_mode, "raise_exception": False}

    assert gradgradcheck(cube("wrong with gaps"), positive(3), **options) is True
    assert gradgradcheck(cube("wrong with gaps"), positive(3), gen_non_contig_grad_outputs=True, **options) is False


@both_checks
@pytest.mark.parametrize(
    "given",
    [
        lambda: (positive(4),),
        lambda: (positive(3, 1),),
        lambda: (),
    ],
    ids=["another size", "another shape", "none"],
)
def test_incoming_gradients_that_do_not_fit_are_refused(gradgradcheck, given):
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        gradgradcheck(torch.sin, positive(3), given())


@pytest.mark.parametrize("given", [lambda: (positive(4),), lambda: (positive(3),)], ids=["another size", "too few"])
def test_what_does_not_fit_is_the_same_kind_of_error_as_in_torch(given):
    for gradgradcheck in BOTH:
        with pytest.raises(RuntimeError):
            gradgradcheck(two, (positive(3), positive(3, seed=2)), given())


# ── modes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


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
def test_a_wrong_forward_over_reverse_is_found_where_it_is_asked_for(fast_mode):
    options = {"fast_mode": fast_mode, "raise_exception": False}

    assert gradproof.gradgradcheck(TangentCube.apply, positive(3), **options) is True
    assert gradproof.gradgradcheck(TangentCube.apply, positive(3), check_fwd_over_rev=True, **options) is False


@both_speeds
def test_a_wrong_reverse_over_reverse_does_not_matter_where_it_is_not_asked_for(fast_mode):
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


# ── right functions ──────────────────────────────────────────────────────────────────────────────────────────────────

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


@pytest.mark.parametrize("raise_exception", [True, False])
@pytest.mark.parametrize(("output", "given"), [("real", "complex"), ("complex", "real")])
def test_incoming_gradients_are_complex_where_the_outputs_are(output, given, raise_exception):
    kinds = {"real": torch.float64, "complex": torch.complex128}
    x, incoming = (torch.ones(3, dtype=kinds[kind], requires_grad=True) for kind in (output, given))

    with pytest.raises(RuntimeError, match=rf"grad_outputs\[0\] is {kinds[given]}, and its output {kinds[output]}"):
        gradproof.gradgradcheck(torch.sin, x, grad_outputs=incoming, raise_exception=raise_exception)
