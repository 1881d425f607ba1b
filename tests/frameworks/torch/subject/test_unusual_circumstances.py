"""Fake tensors, compiled regions, inference tensors, odd containers and seeds: they work, or are refused in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from gradproof import InputError, Verdict, check
from gradproof.frameworks.torch.examination.derivative_judge import DRAWS_NOTE
from support.points import point


def test_a_fake_tensor_is_refused_in_words():
    with FakeTensorMode():
        fake = torch.randn(3, dtype=torch.float64, requires_grad=True)

    with pytest.raises(InputError, match="fake tensor"):
        check(torch.sin, fake)


def test_a_check_inside_a_fake_mode_is_refused_in_words():
    x = point(3)

    with FakeTensorMode(), pytest.raises(InputError, match="FakeTensorMode"):
        check(torch.sin, x)


def test_a_container_that_contains_itself_is_refused_in_words():
    circle = [point(3)]
    circle.append(circle)

    with pytest.raises(InputError, match="contains itself"):
        check(lambda *values: values[0].sin(), circle)


class Pair(tuple):
    """A tuple that is made of two arguments, and holds more than its members."""

    def __new__(cls, first, second, scale=1.0):
        pair = super().__new__(cls, (first, second))
        pair.scale = scale
        return pair


def test_a_tuple_of_a_kind_of_its_own_reaches_the_function_as_one():
    def function(pair):
        assert type(pair) is Pair
        return pair.scale * pair[0] * pair[1]

    assert check(function, [Pair(point(3), point(3), scale=2.0)]).passed


def test_a_seed_of_numpy_is_a_seed():
    report = check(torch.sin, point(3), seed=np.int64(3))

    assert report.seed == 3
    assert type(report.seed) is int


@pytest.mark.filterwarnings("ignore")
def test_a_check_in_a_compiled_region_runs():
    reports = []

    @torch.compile(backend="eager")
    def compiled(x):
        y = 2 * x
        reports.append(check(torch.sin, x, seed=1))
        return y

    compiled(point(3))

    assert reports[0].passed


@pytest.mark.parametrize("wrt", [None, [0, 1]])
def test_tensors_that_were_made_in_inference_mode_are_not_called_written_to(wrt):
    with torch.inference_mode():
        weight = torch.full((3,), 2.0, dtype=torch.float64)

    report = check(lambda x, weight: x * weight, (point(3), weight), wrt=wrt)

    assert report.passed
    assert not report.notes


def test_hooks_that_change_a_gradient_are_said_to_be_left_out():
    layer = nn.Linear(3, 2).double()
    layer.weight.register_hook(lambda gradient: 2 * gradient)
    layer.bias.register_post_accumulate_grad_hook(lambda parameter: parameter.grad.mul_(2))

    report = check(layer, point(4, 3))

    assert report.passed
    assert any(note.startswith("weight, bias: the hooks") for note in report.notes)


def test_a_wrong_gradient_of_random_draws_comes_with_a_note_on_samplers():
    def sampled(shape):
        return torch.distributions.Gamma(shape, torch.ones_like(shape)).rsample()

    report = check(sampled, point(3), seed=0)

    assert report.verdict is not Verdict.PASS
    assert DRAWS_NOTE in report.notes or report.verdict is Verdict.INCONCLUSIVE


@torch.library.custom_op("gradproof_tests::halved", mutates_args=())
def halved(x: torch.Tensor) -> torch.Tensor:
    return x / 2


halved.register_autograd(lambda ctx, gradient: gradient / 2)


def test_an_operator_without_a_jvp_is_said_to_have_none():
    report = check(halved, point(3), modes="forward")

    assert "NotImplementedError" in report.message
    assert check(halved, point(3)).passed


def test_a_tangent_that_is_rightly_zero_passes():
    assert check(lambda x: torch.relu(-x.square() - 1), point(3), modes="forward").passed
