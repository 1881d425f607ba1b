"""The drop-ins apply torch's criterion where a check is inconclusive."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention

import gradproof
from gradproof import InconclusiveWarning
from support.functions import rule, with_context
from support.marks import both_speeds
from support.points import normal, numbers, point

pytestmark = pytest.mark.usefixtures("forward_mode_is_loaded")
TIED = (torch.zeros(2).double().requires_grad_(), numbers(1, 1, 2, 0).requires_grad_())


def largest_of_two(start, values):
    return start.scatter_reduce(0, torch.tensor([0, 0, 1, 1]), values, "amax")


def at_zero(claim):
    return rule(torch.abs, lambda g, x: g * claim), numbers(0.0, 2.0).requires_grad_()


@both_speeds
def test_ties_that_are_shared_evenly_pass_with_a_warning(fast_mode):
    with pytest.warns(InconclusiveWarning, match="kink|slope.*lies between"):
        assert gradproof.gradcheck(largest_of_two, TIED, fast_mode=fast_mode)


@both_speeds
def test_a_kink_passes_only_where_the_claim_is_the_central_difference(fast_mode):
    function, x = at_zero(numbers(0.0, 1.0))
    with pytest.warns(InconclusiveWarning):
        assert gradproof.gradcheck(function, x, fast_mode=fast_mode, check_undefined_grad=False)

    for wrong in (numbers(0.3, 1.0), numbers(1.0, 1.0)):
        function, x = at_zero(wrong)
        assert not gradproof.gradcheck(function, x, fast_mode=fast_mode, raise_exception=False)


def test_infinite_inputs_pass_only_where_values_and_claims_are_finite():
    x = torch.full((2, 3), -torch.inf, dtype=torch.float64, requires_grad=True)
    with pytest.warns(InconclusiveWarning, match="none could be measured"):
        assert gradproof.gradcheck(lambda x: torch.ops.aten._safe_softmax.default(x, -1), x)

    for function in (torch.neg, lambda x: x.softmax(-1), rule(torch.exp, lambda g, x: g * torch.nan)):
        assert not gradproof.gradcheck(function, x, raise_exception=False)


def test_tolerances_that_are_given_are_those_of_the_central_difference():
    function, x = at_zero(numbers(1e-4, 1.0))

    assert not gradproof.gradcheck(function, x, raise_exception=False)
    with pytest.warns(InconclusiveWarning):
        assert gradproof.gradcheck(function, x, atol=1e-3)


def test_second_derivatives_pass_in_the_same_way():
    x = numbers(0.0, 2.0).requires_grad_()

    with pytest.warns(InconclusiveWarning):
        assert gradproof.gradgradcheck(lambda x: x * x.abs(), x)


def test_a_function_that_never_repeats_its_values_does_not_pass_by_central_differences():
    calls = itertools.count()

    assert not gradproof.gradcheck(lambda x: x.sin() + 1e-3 * (next(calls) % 7), point(3), raise_exception=False)


@both_speeds
@pytest.mark.parametrize("name", ["x / x", "normalize", "sin² + cos²"])
def test_second_derivatives_that_are_zero_by_identity_pass_without_a_warning(name, fast_mode):
    functions = {
        "x / x": lambda x: x / x,
        "normalize": lambda x: F.normalize(x, dim=1),
        "sin² + cos²": lambda x: x.sin() ** 2 + x.cos() ** 2,
    }

    assert gradproof.gradgradcheck(functions[name], point(3, 1), fast_mode=fast_mode)


@both_speeds
def test_a_sparse_gradient_of_a_strided_input_is_an_incorrect_layout(fast_mode):
    function = rule(lambda x: x**2, lambda g, x: (2 * g * x).to_sparse())

    with pytest.raises(gradproof.GradcheckError, match="layout"):
        gradproof.gradcheck(function, point(3, 2), fast_mode=fast_mode)


@both_speeds
@pytest.mark.parametrize("change", [lambda y: y[:2], lambda y: y.float()], ids=["shape", "dtype"])
def test_outputs_that_change_beside_the_point_do_not_pass(change, fast_mode):
    x = point(3)
    here = x.detach().clone()

    def function(x):
        return 2 * x if torch.equal(x, here) else change(2 * x)

    with pytest.raises(gradproof.GradcheckError, match="changed from"):
        gradproof.gradcheck(function, x, fast_mode=fast_mode)


def test_the_words_of_an_error_that_a_backward_raises_are_in_one_piece(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    words = "The sizes of the first and the second tensor differ, so that their product is not defined."

    def backward(ctx, incoming):
        raise RuntimeError(words)

    with pytest.raises(RuntimeError, match=words):
        gradproof.gradcheck(with_context(lambda ctx, x: 2 * x, backward), point(3))


@pytest.mark.parametrize("fast_mode", [True, False])
@pytest.mark.parametrize("other", [lambda y: torch.cat([y, y]), torch.Tensor.float], ids=["shape", "dtype"])
@pytest.mark.parametrize("at_the_point", [True, False])
def test_outputs_that_change_on_one_side_of_the_point_do_not_pass(other, at_the_point, fast_mode):
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)

    def function(x):
        beyond = torch.all(x >= 1) if at_the_point else torch.all(x > 1)
        return other(2 * x) if beyond else 2 * x

    with pytest.raises(gradproof.GradcheckError, match="change beside the point"):
        gradproof.gradcheck(function, x, fast_mode=fast_mode)


def test_outputs_that_change_far_from_the_point_pass():
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)

    assert gradproof.gradcheck(lambda x: torch.cat([x, x]) if torch.all(x > 1.05) else x.sin(), x)


@pytest.mark.parametrize("check", [gradproof.gradcheck, gradproof.gradgradcheck])
@pytest.mark.parametrize("raise_exception", [True, False])
def test_an_input_whose_entries_share_memory_is_refused_as_torch_refuses_it(check, raise_exception):
    shared = normal(1).expand(3).requires_grad_()

    with pytest.raises(RuntimeError, match="stride 0"):
        torch.autograd.gradcheck(torch.sin, shared, raise_exception=raise_exception)
    with pytest.raises(RuntimeError, match="stride 0"):
        check(torch.sin, shared, raise_exception=raise_exception)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this build of torch has no MKLDNN")
def test_an_mkldnn_input_is_refused_in_forward_mode():
    opaque = normal(3, dtype=torch.float32).to_mkldnn().requires_grad_()

    with pytest.raises(ValueError, match="MKLDNN"):
        gradproof.gradcheck(lambda x: x.to_dense(), opaque, check_forward_ad=True, raise_exception=False)


def test_a_backward_that_cannot_be_differentiated_is_described_in_its_own_words():
    words = "reticulation: double backward is unsupported"

    def backward(g, x):
        return torch._C._functions.DelayedError(words.encode(), 1)(g * 2)

    with pytest.raises(NotImplementedError, match=words) as caught:
        gradproof.gradgradcheck(rule(lambda x: 2 * x, backward), point(3))
    assert "once_differentiable" not in str(caught.value)


def test_a_function_without_setup_context_is_pushed_in_batches():
    function = rule(lambda x: x**2, lambda g, x: 2 * g * x, jvp=lambda t, x: 2 * t * x)

    assert gradproof.gradcheck(function, point(3), check_forward_ad=True, check_batched_forward_grad=True)
    torch.autograd.gradcheck(function, point(3), check_forward_ad=True, check_batched_forward_grad=True)


def root_of_two(steps_without_a_graph, factor=1.0):
    """√x by Newton's method, which goes on for longer where autograd unrolls it."""

    def function(x):
        y = 0 * x + 1.5
        for _ in range(8 if x.requires_grad and torch.is_grad_enabled() else steps_without_a_graph):
            y = (y + x / y) / 2
        return y if factor == 1 else y + (factor - 1) * (y - y.detach())

    return function


@both_speeds
def test_a_function_is_evaluated_on_the_path_that_it_is_differentiated_on(fast_mode):
    x = 2 + normal(3).abs().requires_grad_()

    assert gradproof.gradcheck(root_of_two(2), x.detach().requires_grad_(), fast_mode=fast_mode)
    assert not gradproof.gradcheck(
        root_of_two(2, factor=1.01), x.detach().requires_grad_(), fast_mode=fast_mode, raise_exception=False
    )


@both_speeds
@pytest.mark.filterwarnings("ignore::gradproof.InconclusiveWarning")  # a quotient of 283 looks like a cast to half
@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_quotients_pass_whatever_the_seed(mode, fast_mode):
    for seed in range(10):
        pair = point(4, seed=2 * seed), point(4, seed=2 * seed + 1)
        assert gradproof.gradcheck(lambda a, b: torch.div(a, b, rounding_mode=mode), pair, fast_mode=fast_mode)


def test_a_jump_that_torchs_fast_mode_does_not_reach_passes_with_a_warning():
    dividend, divisor = normal(250).detach(), torch.linspace(1, 9, 250, dtype=torch.float64)
    dividend[100], divisor[100] = 1000.067 * 0.0036, 0.0036  # a divisor smaller by 2.4e-7 makes it 1,001

    def floored(x, y):
        return torch.div(x, y, rounding_mode="floor")

    inputs = (dividend.requires_grad_(), divisor.requires_grad_())
    with pytest.warns(InconclusiveWarning, match="central difference"):
        assert gradproof.gradcheck(floored, inputs, fast_mode=True)
    assert not gradproof.gradcheck(floored, inputs, raise_exception=False)
