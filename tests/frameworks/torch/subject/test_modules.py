"""Modules: their parameters are checked by name, and given to functions as parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import InputError, Verdict, check, gradcheck
from support.findings import arguments_of, blamed
from support.modules import Outer, Scale
from support.points import point


def test_the_parameters_of_a_module_are_checked_by_name():
    report = check(Scale(), point(3), seed=0)

    assert report.passed
    assert arguments_of(report) == ["x", "weight", "bias"]


def test_the_parameters_of_a_module_are_checked_even_where_no_input_requires_grad():
    report = check(Scale(), point(3).detach(), seed=0)

    assert report.passed
    assert arguments_of(report) == ["weight", "bias"]


def test_a_frozen_parameter_is_not_checked():
    module = Scale(lambda gradient: 2 * gradient)
    module.weight.requires_grad_(False)

    report = check(module, point(3), seed=0)

    assert report.passed
    assert arguments_of(report) == ["x", "bias"]


def test_a_wrong_parameter_gradient_is_named():
    assert blamed(check(Scale(lambda gradient: 2 * gradient), point(3), seed=0)) == {"weight"}


def test_a_wrong_parameter_gradient_of_an_inner_module_is_named_by_its_path():
    report = check(Outer(Scale(lambda gradient: 2 * gradient)), point(3), seed=0)

    assert blamed(report) == {"layer.weight"}
    assert "layer.weight[" in str(report)


def test_a_wrong_parameter_gradient_of_a_sequence_is_named_by_its_path():
    assert blamed(check(nn.Sequential(nn.Tanh(), Scale(torch.neg)), point(3), seed=0)) == {"1.weight"}


def test_buffers_are_not_varied_and_not_checked():
    module = Scale()
    module.offset.requires_grad_()

    assert "offset" not in arguments_of(check(module, point(3), seed=0))


def test_a_buffer_may_be_chosen_by_name():
    assert arguments_of(check(Scale(), point(3), wrt="offset", seed=0)) == ["offset"]


def test_parameters_are_not_reported_as_captured():
    assert check(Scale(), point(3), seed=0).notes == ("Spoiled: no jvp, so forward mode was not checked.",)


def test_tied_parameters_are_one():
    module = nn.Sequential(Scale(), Scale())
    module[1].weight = module[0].weight

    report = check(module, point(3), seed=0)

    assert report.passed
    assert "1.weight" not in arguments_of(report)


def test_a_dict_reaches_keyword_only_parameters_of_a_module():
    report = check(Scale(), {"x": point(3), "shift": point(3, seed=2)}, seed=0)

    assert report.passed
    assert "shift" in arguments_of(report)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_passes_and_keeps_its_running_statistics(training, dtype):
    module = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Tanh()).to(dtype).train(training)
    before = {name: value.clone() for name, value in module.state_dict().items()}

    assert check(module, point(4, 2, 6, dtype=dtype), seed=0).passed
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training is training


@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU], ids=lambda module: module.__name__)
def test_recurrent_modules_pass(module):
    assert check(module(2, 3).double(), point(4, 1, 2), seed=0).passed


def test_attention_passes():
    attention = nn.MultiheadAttention(4, 2, batch_first=True).double()
    x = point(1, 3, 4)

    assert check(attention, (x, x, x), seed=0).passed


class _Scaled(nn.Module):
    """A module that knows its parameters by what torch registers."""

    def forward(self, x):
        (weight,) = self.parameters()
        return torch.sin(weight) * x


def put_into_a_module(weight, x):
    module = _Scaled()
    module.weight = weight
    return module(x)


def take_the_place_of_its_weight(weight, x):
    layer = nn.Linear(3, 2, bias=False)
    layer.weight = weight
    return layer(x)


@pytest.mark.parametrize("function", [put_into_a_module, take_the_place_of_its_weight])
@pytest.mark.parametrize(
    "options", [{}, {"coverage": "full"}, {"order": 2}, {"modes": ("reverse", "forward")}], ids=str
)
def test_a_parameter_is_given_to_the_function_as_a_parameter(function, options):
    weight = nn.Parameter(point(2, 3).detach())
    x = point(2, 3)

    assert check(function, (weight, x), **options).verdict is Verdict.PASS
    assert check(function, {"weight": weight, "x": x}, **options).verdict is Verdict.PASS


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_parameter_that_is_not_checked_is_given_as_a_parameter_too(requires_grad):
    weight = nn.Parameter(point(2, 3).detach(), requires_grad=requires_grad)
    x = point(2, 3)

    assert check(take_the_place_of_its_weight, (weight, x), wrt="x").verdict is Verdict.PASS


def test_a_plain_tensor_is_not_given_as_a_parameter():
    def function(x):
        assert not isinstance(x, nn.Parameter)
        return x.sin()

    assert check(function, (point(3),)).verdict is Verdict.PASS


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("wrap", [torch.jit.script, lambda net: torch.jit.trace(net, point(4, 3)), nn.DataParallel])
def test_a_compiled_or_spread_module_is_a_function_of_its_inputs(wrap):
    net = wrap(nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double())

    assert check(net, (point(4, 3),)).verdict is Verdict.PASS
    assert gradcheck(net, (point(4, 3),))


def test_a_lazy_module_is_refused_in_words():
    with pytest.raises(InputError, match="have no size yet"):
        check(nn.LazyLinear(3), (point(4, 3),))
