"""Tangents and levels of the caller's, and that a check leaves none behind."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from gradproof import InputError, Verdict
from support.checks import BOTH, pushed
from support.functions import cosine, rule, twice_cosine
from support.marks import making_duals
from support.points import point


@pytest.mark.parametrize("modes", [("reverse",), ("forward",), BOTH], ids="+".join)
@making_duals
def test_an_input_that_carries_a_tangent_is_refused(modes):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(point(3).detach(), torch.ones(3, dtype=torch.float64))
        with pytest.raises(InputError, match=r"input carries a tangent already.*unpack_dual"):
            pushed(torch.sin, dual, wrt=0, modes=modes)
        with pytest.raises(InputError, match=r"other carries a tangent already"):
            pushed(torch.mul, point(3), dual, modes=modes)


def test_reverse_mode_works_inside_an_open_level():
    with forward_ad.dual_level():
        right = pushed(torch.sin, point(3), modes=("reverse",))
        wrong = pushed(rule(torch.sin, backward=twice_cosine), point(3), modes=("reverse",))
        twice = pushed(torch.sin, point(3), modes=("reverse",), order=2)

        assert forward_ad._current_level == 0

    assert (right.verdict, wrong.verdict, twice.verdict) == (Verdict.PASS, Verdict.FAIL, Verdict.PASS)


def test_a_level_that_the_caller_opened_is_no_fault_of_the_function():
    with forward_ad.dual_level():
        with pytest.raises(InputError, match="dual_level is open"):
            pushed(torch.sin, point(3))

        assert forward_ad._current_level == 0


def drawing(x, y):
    return x.sin() * y * (torch.rand(3, dtype=torch.float64) + random.random() + float(np.random.rand()))


def raising_beside(x, y):
    if forward_ad._current_level >= 0:
        raise KeyError("from the function")
    return x.sin() * y


CALLED = {
    "right": lambda x, y: x.sin() * y,
    "wrong": lambda x, y: rule(torch.sin, backward=cosine, jvp=twice_cosine)(x) * y,
    "raising": raising_beside,
    "drawing": drawing,
    "absent": lambda x, y: rule(torch.sin, backward=cosine)(x) * y,
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("name", CALLED)
def test_nothing_of_the_callers_is_changed(name, enabled, order):
    x, y = point(3), point(3, seed=2).detach()
    x.grad = torch.full((3,), 7.0, dtype=torch.float64)
    before = x.detach().clone(), y.clone()
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    with torch.set_grad_enabled(enabled):
        pushed(CALLED[name], x, y, modes=BOTH, order=order)
        assert torch.is_grad_enabled() is enabled

    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])
    assert x.grad.tolist() == [7, 7, 7]
    assert (x.requires_grad, x.is_leaf, y.requires_grad) == (True, True, False)
    assert (x._version, y._version) == (0, 0)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]
    assert random.getstate() == states[2]
    assert forward_ad._current_level == -1


def test_no_level_is_left_open_when_the_function_is_interrupted():
    def interrupted(x):
        if forward_ad._current_level >= 0:
            raise KeyboardInterrupt
        return x.sin()

    with pytest.raises(KeyboardInterrupt):
        pushed(interrupted, point(3))

    assert forward_ad._current_level == -1
