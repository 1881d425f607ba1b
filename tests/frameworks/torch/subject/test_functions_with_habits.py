"""Functions that reuse memory, differentiate inside or call a check inside are checked like others."""

from __future__ import annotations

import functools

import torch

from gradproof import Verdict, check
from support.functions import rule
from support.marks import double_and_single
from support.points import point

pytestmark = double_and_single


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
