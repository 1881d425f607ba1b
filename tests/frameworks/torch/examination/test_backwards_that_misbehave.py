"""Backwards that raise, return the wrong thing, or cannot be run twice."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gradproof import Verdict, check
from support.functions import rule
from support.marks import double_and_single
from support.points import point

pytestmark = double_and_single


class OwnError(Exception):
    pass


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
    assert check(function, point(4, dtype=dtype), seed=0).findings[0].kind == "no-mutation"


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
def test_a_checkpoint_that_gives_no_gradient_of_chosen_inputs_passes_by_an_ordinary_backward(dtype):
    def reentrant(x):
        return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)

    assert check(reentrant, point(4, dtype=dtype), seed=0).passed


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_the_second_derivative_of_such_a_checkpoint_is_inconclusive_and_explained_in_another_way(dtype):
    def reentrant(x):
        return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=True)

    report = check(reentrant, point(4, dtype=dtype), seed=0, order=2)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "use_reentrant=False" in report.hint
