"""Arguments, outputs and functions are called what the user calls them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import nn

from gradproof import check, compare
from support.findings import arguments_of, blamed
from support.functions import doubled
from support.points import point


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, batch, weight):
        ctx.save_for_backward(batch, weight)
        return batch * weight

    @staticmethod
    def backward(ctx, gradient):
        batch, weight = ctx.saved_tensors
        return gradient * weight, 2 * gradient * batch


class Moments(NamedTuple):
    mean: torch.Tensor
    spread: torch.Tensor


def outputs_of(report):
    return [label.split(":")[0] for label in report.subject.outputs]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x, weight: x * weight, ["x", "weight"]),
        (Scaled.apply, ["batch", "weight"]),
        (torch.mm, ["input", "mat2"]),
        (torch.ops.aten.mm, ["input", "mat2"]),
        (nn.functional.linear, ["input", "weight"]),
        (partial(lambda scale, x, weight: scale * x * weight, 2.0), ["x", "weight"]),
        (lambda *given: given[0] * given[1], ["inputs[0]", "inputs[1]"]),
        (lambda x, *more: x * more[0], ["x", "inputs[1]"]),
    ],
)
def test_arguments_have_the_names_of_the_signature_or_the_schema(function, names):
    report = check(function, (point(3, 3), point(3, 3, seed=2)), wrt=[0, 1], seed=0)

    assert arguments_of(report) == names


def test_a_dict_is_named_by_its_parameter_and_its_keys():
    report = check(lambda batch: batch["image"] * batch["mask"], {"image": point(3), "mask": point(3)}, seed=0)

    assert arguments_of(report) == ["batch['image']", "batch['mask']"]


@pytest.mark.parametrize("wrt", ['batch["image"]', "batch['image']", "image", "inputs[0]['image']"])
def test_a_key_may_be_written_in_either_quotes(wrt):
    inputs = {"image": point(3), "mask": point(3)}

    assert arguments_of(check(lambda batch: batch["image"] * batch["mask"], inputs, wrt=wrt, seed=0)) == [
        "batch['image']"
    ]


def test_an_argument_with_the_name_of_a_parameter_is_distinguished_from_it():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(point(3, seed=2).detach())

        def forward(self, x, weight):
            return x * weight * doubled(self.weight)

    report = check(Scale(), (point(3), point(3, seed=3)), seed=0)

    assert arguments_of(report) == ["x", "inputs[1]", "weight"]
    assert blamed(report) == {"weight"}


def test_outputs_have_the_names_of_fields_and_keys():
    moments = check(lambda x: Moments(x.mean(), x.square().mean()), point(3), seed=0)
    sorted_ = check(lambda x: torch.sort(x), point(3), seed=0)
    losses = check(lambda x: {"loss": x.sum()}, point(3), seed=0)

    assert outputs_of(moments) == ["output.mean", "output.spread"]
    assert outputs_of(sorted_) == ["output.values"]
    assert outputs_of(losses) == ["output['loss']"]


def test_a_kernel_may_return_a_named_tuple_where_its_reference_returns_a_tuple():
    report = compare(
        lambda x: Moments(x.mean(), 2 * x.square().mean()), lambda x: (x.mean(), x.square().mean()), point(9), seed=0
    )

    assert report.findings[0].argument == "output.spread"


def test_a_lambda_that_only_calls_a_function_is_called_after_it():
    inputs = (point(3), point(3, seed=2))

    assert check(lambda x, w: Scaled.apply(x, w), inputs, seed=0).subject.name == "Scaled"
    assert check(lambda x, w: Scaled.apply(x, w).sin(), inputs, seed=0).subject.name.endswith("<lambda>")
