"""Functions that cannot be checked as they are: a clear error, or an inconclusive verdict with its reason."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from gradproof import InputError, Verdict, check
from support.findings import assert_inconclusive
from support.functions import rule
from support.points import point

pytestmark = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])


# ── nothing to check ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("inputs", [(), [], None, 3.0, ("text", 1)], ids=repr)
def test_inputs_without_a_tensor_are_refused(inputs, dtype):
    with pytest.raises(InputError, match="no tensor among the inputs"):
        check(lambda *x: torch.ones(1), inputs)


def test_inputs_that_do_not_require_grad_are_refused_with_what_came(dtype):
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(InputError, match=rf"inputs\[0\]: {name}.*inputs\[1\]: int64.*requires_grad_\(\).*wrt="):
        check(torch.mul, (point(4, dtype=dtype).detach(), torch.ones(4, dtype=torch.int64)))


def test_a_module_without_parameters_on_a_fixed_input_is_refused(dtype):
    with pytest.raises(InputError, match="requires grad"):
        check(nn.Tanh(), point(4, dtype=dtype).detach())


@pytest.mark.parametrize("func", [None, 3, "sin", torch.ones(2), [torch.sin]], ids=lambda func: type(func).__name__)
def test_what_cannot_be_called_is_refused(func, dtype):
    with pytest.raises(InputError, match=f"{type(func).__name__}, which cannot be called"):
        check(func, point(4, dtype=dtype))


@pytest.mark.parametrize(
    ("result", "described"),
    [
        (None, "None"),
        (3.0, "a float"),
        ("text", "a str"),
        ((), "a tuple"),
        ({}, "a dict"),
        (torch.ones(2, dtype=torch.int64), "a tensor of torch.int64"),
        (torch.ones(2, dtype=torch.bool), "a tensor of torch.bool"),
        ([None, torch.ones(2, dtype=torch.int32)], "a list"),
    ],
    ids=str,
)
def test_a_function_that_returns_nothing_differentiable_is_refused(result, described, dtype):
    def function(x):
        return result

    with pytest.raises(InputError, match=rf"function returned {described}"):
        check(function, point(4, dtype=dtype))


def test_a_function_that_returns_integers_is_refused(dtype):
    with pytest.raises(InputError, match=r"argmax.* returned a tensor of torch\.int64"):
        check(torch.argmax, point(4, dtype=dtype))


def test_a_constant_passes(dtype):
    assert check(lambda x: torch.ones(3, dtype=dtype), point(4, dtype=dtype), seed=0).passed


def test_a_detached_output_that_depends_on_the_input_has_a_wrong_gradient(dtype):
    assert check(lambda x: x.detach().sin(), point(4, dtype=dtype), seed=0).verdict is Verdict.FAIL


# ── functions that raise ─────────────────────────────────────────────────────────────────────────────────────────────


class OwnError(Exception):
    pass


@pytest.mark.parametrize("kind", [OwnError, ValueError, RuntimeError, KeyError, AssertionError, StopIteration])
def test_an_exception_of_the_function_comes_through_with_a_note(kind, dtype):
    error = kind("from the function")

    def raising(x):
        raise error

    with pytest.raises(kind) as raised:
        check(raising, point(4, dtype=dtype))

    assert raised.value is error
    (note,) = raised.value.__notes__
    assert note.startswith("gradproof: ")
    assert "raising" in note


def test_a_call_with_too_many_arguments_is_a_type_error_with_a_note(dtype):
    with pytest.raises(TypeError) as raised:
        check(lambda x: x, (point(4, dtype=dtype), point(4, dtype=dtype)))

    assert raised.value.__notes__[0].startswith("gradproof: ")


def test_a_function_that_raises_beside_the_point_is_inconclusive_and_its_error_is_shown(dtype):
    x = point(4, dtype=dtype)
    there = x.detach().clone()

    def picky(y):
        if not torch.equal(y.detach().to(dtype), there) or (y.detach() != there).any():
            raise OwnError("not here")
        return y.sin()

    report = check(picky, x, seed=0)

    assert_inconclusive(report, "undefined")
    assert "OwnError: not here" in report.reason


def _raises_below_one(x):
    if (x < 1).any():
        raise OwnError("below one")
    return x.log()


def _is_nan_below_one(x):
    return torch.where(x < 1, torch.nan, x.log())


@pytest.mark.parametrize("function", [_raises_below_one, _is_nan_below_one])
@pytest.mark.parametrize("seed", range(4))
def test_a_right_gradient_at_an_edge_is_never_called_wrong(function, seed, dtype):
    report = check(function, torch.ones(1, dtype=dtype, requires_grad=True), seed=seed)

    assert report.verdict is not Verdict.FAIL, str(report)


def test_a_function_that_raises_far_from_the_point_passes(dtype):
    def bounded(x):
        if (x > 1.5).any():
            raise OwnError("too far")
        return x.sin()

    assert check(bounded, torch.ones(3, dtype=dtype, requires_grad=True), seed=0).passed


@pytest.mark.parametrize("calls_before", range(1, 12))
def test_a_function_that_raises_after_some_calls_never_raises_out_of_a_check(calls_before, dtype):
    calls = []

    def tired(x):
        calls.append(None)
        if len(calls) > calls_before:
            raise OwnError("tired")
        return x.sin()

    assert check(tired, point(4, dtype=dtype), seed=0).verdict is not Verdict.FAIL


# ── functions that do not hold still ─────────────────────────────────────────────────────────────────────────────────


def test_an_output_whose_shape_changes_beside_the_point_is_inconclusive(dtype):
    x = torch.ones(3, dtype=dtype, requires_grad=True)

    report = check(lambda x: x[x >= 1].sin(), x, seed=0)

    assert_inconclusive(report, "undefined")
    assert "changed from (3,)" in report.reason


def test_an_output_whose_shape_changes_with_every_call_is_inconclusive(dtype):
    calls = []

    def growing(x):
        calls.append(None)
        return x.sin().sum().expand(len(calls))

    report = check(growing, point(4, dtype=dtype), seed=0)

    assert_inconclusive(report, "undefined")
    assert "changed from (1,)" in report.reason


def test_an_output_that_is_missing_at_times_is_inconclusive(dtype):
    calls = []

    def forgetful(x):
        calls.append(None)
        return (x.sin(), x.cos()) if len(calls) == 1 else (x.sin(), None)

    assert_inconclusive(check(forgetful, point(4, dtype=dtype), seed=0), "undefined")


def test_an_output_that_turns_complex_at_times_is_inconclusive(dtype):
    calls = []

    def turning(x):
        calls.append(None)
        return x.sin() if len(calls) == 1 else x.sin() + 0j

    assert_inconclusive(check(turning, point(4, dtype=dtype), seed=0), "undefined")


def _writes_through_data(x):
    y = x.sin()
    x.data.mul_(2)
    return y


def _writes_in_place(x):
    with torch.no_grad():
        x.add_(1)
    return x.sin()


def _replaces_its_data(x):
    x.data = x.data * 2
    return x.sin()


def _replaces_its_data_by_less(x):
    x.data = x.data[:2].clone()
    return x.sin()


@pytest.mark.parametrize(
    "function", [_writes_through_data, _writes_in_place, _replaces_its_data, _replaces_its_data_by_less]
)
def test_a_function_that_writes_to_its_input_is_inconclusive(function, dtype):
    x = point(4, dtype=dtype)
    before = x.detach().clone()

    report = check(function, x, seed=0)

    assert_inconclusive(report, "mutation")
    assert "inputs[0]" in report.reason
    assert torch.equal(x, before)


def test_a_function_that_writes_to_one_input_names_it(dtype):
    def function(x, y):
        y.data.zero_()
        return x.sin() * y

    assert_inconclusive(
        check(function, (point(4, dtype=dtype), point(4, dtype=dtype)), seed=0),
        "mutation: the function writes to inputs[1]",
    )


def test_an_in_place_operation_on_a_leaf_is_torchs_own_error_with_a_note(dtype):
    with pytest.raises(RuntimeError, match="leaf") as raised:
        check(lambda x: x.mul_(2), point(4, dtype=dtype))

    assert raised.value.__notes__[0].startswith("gradproof: ")


def test_an_in_place_operation_on_a_copy_passes(dtype):
    assert check(lambda x: x.clone().mul_(2).sin_(), point(4, dtype=dtype), seed=0).passed


def test_a_function_with_a_generator_of_its_own_is_inconclusive(dtype):
    own = torch.Generator().manual_seed(0)

    def noisy(x):
        return x.sin() + torch.rand(x.shape, generator=own, dtype=x.dtype)

    assert_inconclusive(check(noisy, point(4, dtype=dtype), seed=0), "random")


def test_a_function_with_a_random_factor_is_inconclusive(dtype):
    own = torch.Generator().manual_seed(0)

    def noisy(x):
        return x.sin() * (1 + torch.rand(x.shape, generator=own, dtype=x.dtype))

    assert_inconclusive(check(noisy, point(4, dtype=dtype), seed=0), "random")


def test_a_function_that_reseeds_by_itself_passes(dtype):
    def seeded(x):
        return x.sin() * torch.rand(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(
            x.dtype
        )

    assert check(seeded, point(4, dtype=dtype), seed=0).passed


def test_a_function_that_counts_its_calls_is_inconclusive(dtype):
    calls = []

    def counting(x):
        calls.append(None)
        return x.sin() + len(calls)

    assert_inconclusive(check(counting, point(4, dtype=dtype), seed=0), "random")


# ── values that are not finite ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_function_that_is_nowhere_finite_is_inconclusive(value, dtype):
    assert_inconclusive(check(lambda x: x * value, point(4, dtype=dtype), seed=0), "non-finite: every output")


def test_a_nan_input_is_inconclusive(dtype):
    x = torch.full((3,), float("nan"), dtype=dtype, requires_grad=True)

    assert_inconclusive(check(torch.sin, x, seed=0), "non-finite")


def test_a_function_that_is_nan_in_some_outputs_is_inconclusive(dtype):
    x = torch.tensor([-1.0, 1.0, 2.0], dtype=dtype, requires_grad=True)

    report = check(torch.log, x, seed=0)

    assert_inconclusive(report, "non-finite")
    assert "1 of 3" in report.reason


def test_a_wrong_gradient_beside_a_nan_is_still_found(dtype):
    x = torch.tensor([-1.0, 1.0, 2.0], dtype=dtype, requires_grad=True)
    doubled = rule(torch.log, lambda gradient, x: 2 * gradient / x)

    assert check(doubled, x, seed=0).verdict is Verdict.FAIL


def test_a_constant_infinity_among_the_outputs_passes(dtype):
    masked = torch.tensor([True, False, False, True])

    assert check(lambda x: x.sin().masked_fill(masked, -float("inf")), point(4, dtype=dtype), seed=0).passed


def test_an_infinite_input_without_influence_passes(dtype):
    x = torch.tensor([1.0, float("inf"), 2.0], dtype=dtype, requires_grad=True)

    assert check(torch.atan, x, seed=0).passed


@pytest.mark.parametrize(
    ("function", "at"),
    [(torch.sqrt, 0.0), (torch.log, 0.0), (torch.asin, 1.0), (torch.acosh, 1.0), (torch.rsqrt, 0.0)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_the_edge_of_a_domain_is_inconclusive(function, at, dtype):
    report = check(function, torch.tensor([at], dtype=dtype, requires_grad=True), seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE, str(report)
    assert report.reason
    assert report.advice


@pytest.mark.parametrize("function", [torch.sqrt, torch.log, torch.rsqrt], ids=lambda function: function.__name__)
@pytest.mark.parametrize("at", [1e-6, 1e-12])
def test_a_point_near_the_edge_of_a_domain_never_fails(function, at, dtype):
    x = torch.tensor([at, 1.0, 2.0], dtype=dtype, requires_grad=True)

    assert check(function, x, seed=0).verdict is not Verdict.FAIL


def test_the_norm_at_zero_is_inconclusive(dtype):
    report = check(torch.linalg.vector_norm, torch.zeros(3, dtype=dtype, requires_grad=True), seed=0)

    assert_inconclusive(report, "kink")


def test_a_nan_gradient_of_a_finite_function_is_found(dtype):
    def trap(x):
        return torch.where(x > 1, (x - 1).sqrt(), 3 * x)

    report = check(trap, torch.tensor([0.5, 2.0], dtype=dtype, requires_grad=True), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].kind == "non-finite-gradient"
    assert report.findings[0].entries[0].index == (0,)


def test_an_infinite_gradient_of_a_finite_function_is_found(dtype):
    infinite = rule(torch.sin, lambda gradient, x: gradient / 0)

    report = check(infinite, point(4, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].kind == "non-finite-gradient"


# ── backward ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _raise(gradient, x):
    raise OwnError("in the backward")


def test_a_backward_that_raises_is_a_finding(dtype):
    report = check(rule(torch.sin, _raise), point(4, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].kind == "backward-raised"
    assert "OwnError: in the backward" in report.findings[0].message


def test_a_backward_that_raises_in_one_precision_alone_is_a_finding(dtype):
    def backward(gradient, x):
        if x.dtype == dtype:
            raise OwnError("not in this precision")
        return gradient * x.cos()

    report = check(rule(torch.sin, backward), point(4, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].kind == "backward-raised"


def test_a_backward_of_a_wrong_shape_is_a_finding(dtype):
    report = check(rule(torch.sin, lambda gradient, x: gradient[:2]), point(4, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL
    assert "shape" in report.findings[0].message


def test_a_backward_that_returns_nothing_is_a_wrong_gradient(dtype):
    report = check(rule(torch.sin, lambda gradient, x: None), point(4, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].entries[0].claimed == 0


def test_a_backward_that_writes_to_the_incoming_gradient_is_no_hindrance_and_breaks_a_contract(dtype):
    function = rule(torch.sin, lambda gradient, x: gradient.mul_(x.cos()))

    assert check(function, point(4, dtype=dtype), contracts=(), seed=0).passed
    assert check(function, point(4, dtype=dtype), seed=0).findings[0].kind == "undisturbed"


def test_a_backward_that_gives_a_sparse_gradient_passes(dtype):
    embedding = nn.Embedding(5, 3, sparse=True).to(dtype)

    assert check(embedding, torch.tensor([0, 2, 2]), seed=0).passed


def test_a_backward_that_is_random_is_not_verified(dtype):
    own = torch.Generator().manual_seed(0)

    def backward(gradient, x):
        return gradient * x.cos() * (1 + torch.rand(x.shape, generator=own, dtype=x.dtype))

    assert not check(rule(torch.sin, backward), point(4, dtype=dtype), seed=0).passed


def test_a_function_whose_graph_can_be_used_once_only_passes(dtype):
    def once(x):
        return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)

    assert check(once, point(4, dtype=dtype), seed=0).passed


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_a_checkpoint_that_gives_no_gradient_of_chosen_inputs_is_inconclusive_and_told_another_way(dtype):
    def reentrant(x):
        return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)

    report = check(reentrant, point(4, dtype=dtype), seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "use_reentrant=False" in report.advice


# ── functions with habits ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_function_that_returns_the_same_memory_at_every_call_passes(dtype):
    memory = {}

    def reusing(x):
        out = memory.setdefault(x.dtype, torch.empty(x.shape, dtype=x.dtype))
        return out.detach().copy_(x.sin())

    def forward(x):
        return reusing(x)

    function = rule(forward, lambda gradient, x: gradient * x.cos())

    assert check(function, point(4, dtype=dtype), seed=0).passed


def test_a_function_that_returns_the_same_memory_whenever_there_is_no_graph_passes(dtype):
    memory = {}

    def sparing(x):
        if torch.is_grad_enabled():
            return x.sin()
        out = memory.setdefault(x.dtype, torch.empty(x.shape, dtype=x.dtype))
        return torch.sin(x, out=out)

    assert check(sparing, point(4, dtype=dtype), seed=0).passed


def test_a_wrong_gradient_of_a_function_that_returns_the_same_memory_is_found(dtype):
    memory = {}

    def forward(x):
        out = memory.setdefault(x.dtype, torch.empty(x.shape, dtype=x.dtype))
        return out.detach().copy_(x.sin())

    function = rule(forward, lambda gradient, x: 2 * gradient * x.cos())

    assert check(function, point(4, dtype=dtype), seed=0).verdict is Verdict.FAIL


def test_a_function_that_differentiates_inside_passes(dtype):
    def slope(x):
        return torch.autograd.grad(x.sin().sum(), x, create_graph=True)[0]

    assert check(slope, point(4, dtype=dtype), seed=0).passed


def test_a_function_that_differentiates_inside_without_a_graph_has_a_wrong_gradient(dtype):
    def slope(x):
        return torch.autograd.grad(x.sin().sum(), x)[0]

    assert check(slope, point(4, dtype=dtype), seed=0).verdict is Verdict.FAIL


def test_a_function_that_turns_the_graph_on_by_itself_passes(dtype):
    def slope(x):
        with torch.enable_grad():
            y = x if x.requires_grad else x.detach().requires_grad_()
            return torch.autograd.grad((y**3).sum(), y, create_graph=True)[0]

    assert check(slope, point(4, dtype=dtype), seed=0).passed


def test_functions_of_torch_func_pass(dtype):
    assert check(torch.func.grad(lambda x: (x.sin() ** 2).sum()), point(4, dtype=dtype), seed=0).passed
    assert check(torch.func.vmap(lambda row: row.sin().sum()), point(3, 4, dtype=dtype), seed=0).passed
    assert check(torch.func.jacrev(torch.sin), point(3, dtype=dtype), seed=0).passed


def test_a_function_that_works_under_no_grad_has_a_wrong_gradient(dtype):
    assert check(torch.no_grad()(torch.sin), point(4, dtype=dtype), seed=0).verdict is Verdict.FAIL


def test_a_partial_function_passes(dtype):
    assert check(functools.partial(torch.sum, dim=0), point(3, 2, dtype=dtype), seed=0).passed


def test_a_check_inside_a_checked_function_is_no_hindrance(dtype):
    def nested(x):
        assert check(torch.sin, point(4, dtype=dtype), seed=0).passed
        return x.sin()

    assert check(nested, point(4, dtype=dtype), seed=0).passed


def test_a_running_mean_named_by_wrt_is_refused_with_what_torch_said(dtype):
    network = nn.Sequential(nn.BatchNorm1d(3)).to(dtype)

    with pytest.raises(InputError, match=r"0\.running_mean.*not differentiable.*Leave that out of wrt="):
        check(network, point(4, 3, dtype=dtype), wrt="0.running_mean")


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_are_refused(dtype, layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how new they are
        rows = torch.nested.nested_tensor([point(2, dtype=dtype), point(3, dtype=dtype)], layout=layout)

    with pytest.raises(InputError, match=r"inputs\[0\] is a nested tensor"):
        check(torch.sin, rows.requires_grad_())


def test_tensors_without_numbers_are_refused(dtype):
    with pytest.raises(InputError, match=r"inputs\[0\] is on the meta device"):
        check(torch.sin, torch.ones(3, dtype=dtype, device="meta", requires_grad=True))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_a_result_that_only_one_dnn_can_read_is_refused(dtype):
    with pytest.raises(InputError, match=r"output has the layout torch\._mkldnn.*to_dense"):
        check(lambda x: x.float().to_mkldnn(), point(3, dtype=dtype))


def test_a_tensor_that_wraps_others_is_refused_in_words(dtype):
    wrapped = TwoTensor(point(3, dtype=dtype).detach(), point(3, dtype=dtype).detach()).requires_grad_()

    with pytest.raises(InputError, match="TwoTensor, which wraps other tensors"):
        check(torch.sin, (wrapped,))
