"""What cannot be checked is refused with a clear error."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from gradproof import InputError, Verdict, check
from support.marks import double_and_single
from support.points import point


@pytest.mark.parametrize("inputs", [(), [], None, 3.0, ("text", 1)], ids=repr)
def test_inputs_without_a_tensor_are_refused(inputs):
    with pytest.raises(InputError, match="no tensor among the inputs"):
        check(lambda *x: torch.ones(1), inputs)


@double_and_single
def test_inputs_that_do_not_require_grad_are_refused_with_what_came(dtype):
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(InputError, match=rf"input: {name}.*other: int64.*requires_grad_\(\).*wrt="):
        check(torch.mul, (point(4, dtype=dtype).detach(), torch.ones(4, dtype=torch.int64)))


def test_a_module_without_parameters_on_a_fixed_input_is_refused():
    with pytest.raises(InputError, match="requires grad"):
        check(nn.Tanh(), point(4).detach())


@pytest.mark.parametrize("func", [None, 3, "sin", torch.ones(2), [torch.sin]], ids=lambda func: type(func).__name__)
def test_what_cannot_be_called_is_refused(func):
    with pytest.raises(InputError, match=f"{type(func).__name__}, which cannot be called"):
        check(func, point(4))


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
def test_a_function_that_returns_nothing_differentiable_is_refused(result, described):
    def function(x):
        return result

    with pytest.raises(InputError, match=rf"function returned {described}"):
        check(function, point(4))


def test_a_function_that_returns_integers_is_refused():
    with pytest.raises(InputError, match=r"argmax.* returned a tensor of torch\.int64"):
        check(torch.argmax, point(4))


@double_and_single
def test_a_constant_passes(dtype):
    assert check(lambda x: torch.ones(3, dtype=dtype), point(4, dtype=dtype), seed=0).passed


@double_and_single
def test_a_detached_output_that_depends_on_the_input_has_a_wrong_gradient(dtype):
    assert check(lambda x: x.detach().sin(), point(4, dtype=dtype), seed=0).verdict is Verdict.FAIL


def test_a_running_mean_named_by_wrt_is_refused_with_what_torch_said():
    network = nn.Sequential(nn.BatchNorm1d(3)).double()

    with pytest.raises(InputError, match=r"0\.running_mean.*not differentiable.*Leave that out of wrt="):
        check(network, point(4, 3), wrt="0.running_mean")


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_are_refused(layout):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of how new they are
        rows = torch.nested.nested_tensor([point(2), point(3)], layout=layout)

    with pytest.raises(InputError, match=r"input is a nested tensor"):
        check(torch.sin, rows.requires_grad_())


def test_tensors_without_numbers_are_refused():
    with pytest.raises(InputError, match=r"input is on the meta device"):
        check(torch.sin, torch.ones(3, device="meta", requires_grad=True))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
def test_a_result_that_only_one_dnn_can_read_is_refused():
    with pytest.raises(InputError, match=r"output has the layout torch\._mkldnn.*to_dense"):
        check(lambda x: x.float().to_mkldnn(), point(3))


def test_a_tensor_that_wraps_others_is_refused_in_words():
    wrapped = TwoTensor(point(3).detach(), point(3).detach()).requires_grad_()

    with pytest.raises(InputError, match="TwoTensor, which wraps other tensors"):
        check(torch.sin, (wrapped,))


def test_a_tensor_that_handles_every_operation_by_itself_is_refused_in_words():
    class Logging(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            return function(*(arg.plain if isinstance(arg, Logging) else arg for arg in args), **(kwargs or {}))

    plain = point(3)
    wrapped = torch.Tensor._make_wrapper_subclass(Logging, plain.shape, dtype=plain.dtype, requires_grad=True)
    wrapped.plain = plain

    with pytest.raises(InputError, match="Logging, which wraps other tensors"):
        check(torch.sin, wrapped)
