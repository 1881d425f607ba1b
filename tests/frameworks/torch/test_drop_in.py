"""Every keyword of `torch.autograd.gradcheck` finds its planted bug, and misuse is the same kind of error."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention
from torch import nn

import gradproof
from support.functions import func_rule
from support.marks import both_speeds
from support.points import positive

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")

BOTH = [torch.autograd.gradcheck, gradproof.gradcheck]
TORCHS_ERROR = torch.autograd.gradcheck.__globals__["GradcheckError"]
both_checks = pytest.mark.parametrize("gradcheck", BOTH, ids=["torch", "gradproof"])
# ── the signature ────────────────────────────────────────────────────────────────────────────────────────────────────


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


# ── every flag finds its bug ─────────────────────────────────────────────────────────────────────────────────────────


def undefined_raises(first, second, x):
    return first + 2 * second


class Counter:
    calls = 0


def unsteady(incoming, x):
    Counter.calls += 1
    return incoming * x.cos() * (1 + 1e-13 * Counter.calls)


def stubborn(incoming, x):
    return incoming * x.cos() * incoming.detach().sum().item() ** 0


def plain(incoming, x):
    return incoming * x.cos()


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
        func_rule(torch.sin, plain, lambda tangent, x: tangent * x.cos() * 1.01),
        {"check_undefined_grad": False},
        {"check_undefined_grad": False, "check_forward_ad": True},
    ),
    "no jvp": (
        func_rule(torch.sin, plain),
        {"check_undefined_grad": False},
        {"check_undefined_grad": False, "check_forward_ad": True},
    ),
    "tangents that cannot be batched": (
        func_rule(torch.sin, plain, stubborn_tangent),
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


def wavering(factor):
    """A backward of the sine whose answers differ by a millionth from call to call, which is wrong by a factor."""
    turns = itertools.count()
    return func_rule(torch.sin, lambda g, x: factor * g * x.cos() + 1e-6 * g * math.sin(next(turns)))


@both_checks
@both_speeds
def test_how_much_a_gradient_may_waver_is_granted_to_it_and_no_more(gradcheck, fast_mode):
    options = {"fast_mode": fast_mode, "check_undefined_grad": False, "raise_exception": False, "nondet_tol": 1e-3}

    assert gradcheck(wavering(1.0), positive(4), **options) is True
    assert gradcheck(wavering(1.1), positive(4), **options) is False


def test_a_wavering_gradient_with_an_error_below_the_tolerance_is_found_and_the_wavering_noted():
    assert not gradproof.check(wavering(1.0001), positive(4), nondet_tol=1e-3, contracts=(), seed=0).passed

    passed = gradproof.check(wavering(1.0), positive(4), nondet_tol=1e-3, contracts=(), seed=0)

    assert passed.passed
    assert any("from call to call" in note for note in passed.notes)


@both_checks
@pytest.mark.parametrize("masked", [None, True, False])
def test_masked_makes_no_difference_to_dense_inputs(gradcheck, masked):
    assert gradcheck(torch.sin, positive(3), masked=masked) is True
    assert (
        gradcheck(func_rule(torch.sin, lambda g, x: 2 * g), positive(3), masked=masked, raise_exception=False) is False
    )


# ── a failure of the gradient never escapes ──────────────────────────────────────────────────────────────────────────


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
            ValueError("no"),
            KeyError("no"),
            TypeError("no"),
            AssertionError("no"),
            NotImplementedError("no"),
            IndexError("no"),
            ZeroDivisionError("no"),
            StopIteration("no"),
            MemoryError("no"),
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

    assert gradproof.gradcheck(func_rule(torch.sin, plain, jvp), positive(4), raise_exception=False, **options) is False


# ── misuse ───────────────────────────────────────────────────────────────────────────────────────────────────────────

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
def test_incoming_gradients_that_are_no_tensors_are_an_error_whatever_is_asked_for(given, gradgradcheck):
    with pytest.raises((ValueError, TypeError, AttributeError)):
        gradgradcheck(torch.sin, positive(3), given, raise_exception=False)


# ── right functions ──────────────────────────────────────────────────────────────────────────────────────────────────

COMPLEX = torch.complex128
RIGHT = {
    "sin": (torch.sin, positive(4)),
    "exp": (torch.exp, positive(4)),
    "log": (torch.log, positive(4)),
    "sqrt": (torch.sqrt, positive(4)),
    "tanh": (torch.tanh, positive(4)),
    "sigmoid": (torch.sigmoid, positive(4)),
    "erf": (torch.erf, positive(4)),
    "lgamma": (torch.lgamma, positive(4)),
    "pow": (torch.pow, (positive(4), positive(4, seed=2))),
    "atan2": (torch.atan2, (positive(4), positive(4, seed=2))),
    "relu": (torch.relu, positive(4)),
    "abs": (torch.abs, positive(4)),
    "max": (lambda x: x.max(), positive(4)),
    "sort": (lambda x: x.sort(), positive(4)),
    "topk": (lambda x: x.topk(2).values, positive(4)),
    "sum": (lambda x: x.sum(0), positive(3, 2)),
    "mean": (lambda x: x.mean(), positive(4)),
    "var": (lambda x: x.var(), positive(4)),
    "prod": (torch.prod, positive(4)),
    "cumsum": (lambda x: x.cumsum(0), positive(4)),
    "matmul": (torch.matmul, (positive(2, 3), positive(3, 2, seed=2))),
    "einsum": (lambda a, b: torch.einsum("ij,kj->ik", a, b), (positive(2, 3), positive(2, 3, seed=2))),
    "inv": (torch.linalg.inv, positive(3, 3)),
    "det": (torch.linalg.det, positive(3, 3)),
    "solve": (torch.linalg.solve, (positive(3, 3), positive(3, seed=2))),
    "svdvals": (torch.linalg.svdvals, positive(3, 2)),
    "conv1d": (F.conv1d, (positive(1, 2, 5), positive(2, 2, 3, seed=2))),
    "max pooling": (lambda x: F.max_pool1d(x, 2), positive(1, 1, 6)),
    "layer norm": (lambda x: F.layer_norm(x, (3,)), positive(2, 3)),
    "softmax": (lambda x: x.softmax(-1), positive(2, 3)),
    "cross entropy": (lambda x: F.cross_entropy(x, torch.tensor([0, 2])), positive(2, 3)),
    "embedding": (lambda w: F.embedding(torch.tensor([1, 0, 1]), w), positive(3, 2)),
    "index": (lambda x: x[[0, 0, 2]], positive(4)),
    "where": (lambda x: torch.where(x > 1, x**2, x.sin()), positive(4)),
    "a number": (lambda x: x**2, positive()),
    "empty": (lambda x: x.exp(), positive(0)),
    "two outputs": (lambda x: (x.sin(), x.sum()), positive(4)),
    "transposed": (lambda x: x.T.sin(), positive(2, 3)),
    "detached": (lambda x, y: x + y, (positive(4), positive(4, seed=2).detach())),
    "no influence": (lambda x, y: x.sin(), (positive(4), positive(4, seed=2))),
    "real of complex": (torch.abs, positive(3, dtype=COMPLEX)),
    "complex of real": (lambda x: torch.polar(x, x**2), positive(3)),
    "complex exp": (torch.exp, positive(3, dtype=COMPLEX)),
    "conj": (lambda z: z.conj() * z, positive(3, dtype=COMPLEX)),
    "angle": (torch.angle, positive(3, dtype=COMPLEX)),
    "complex matmul": (torch.matmul, (positive(2, 2, dtype=COMPLEX), positive(2, 2, seed=2, dtype=COMPLEX))),
    "fft": (torch.fft.fft, positive(4)),
    "irfft": (torch.fft.irfft, positive(3, dtype=COMPLEX)),
    "complex and real": (lambda x, z: x * z.exp(), (positive(3), positive(3, dtype=COMPLEX))),
}


@both_speeds
@pytest.mark.parametrize("name", RIGHT)
def test_right_functions_are_as_in_torch(name, fast_mode):
    function, inputs = RIGHT[name]

    assert torch.autograd.gradcheck(function, inputs, fast_mode=fast_mode) is True
    assert gradproof.gradcheck(function, inputs, fast_mode=fast_mode) is True


EVERY = dict.fromkeys(
    [
        "check_undefined_grad",
        "check_grad_dtypes",
        "check_batched_grad",
        "check_forward_ad",
        "check_batched_forward_grad",
    ],
    True,
)


@pytest.mark.parametrize("name", [name for name in RIGHT if name != "empty"])
def test_right_functions_are_true_with_every_flag(name):
    function, inputs = RIGHT[name]

    assert gradproof.gradcheck(function, inputs, **EVERY) is True


def test_a_module_is_true_with_every_flag():
    assert gradproof.gradcheck(nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double(), positive(2, 3), **EVERY)


@both_speeds
def test_nothing_of_the_callers_is_changed_with_every_flag(fast_mode):
    x = positive(4)
    before, state, filters = x.detach().clone(), torch.get_rng_state(), list(warnings.filters)
    threads = torch.get_num_threads()

    gradproof.gradcheck(torch.sin, x, fast_mode=fast_mode, **EVERY)

    assert torch.equal(x, before)
    assert (x.grad, x._version, x.requires_grad) == (None, 0, True)
    assert torch.equal(torch.get_rng_state(), state)
    assert warnings.filters == filters
    assert torch.get_num_threads() == threads
