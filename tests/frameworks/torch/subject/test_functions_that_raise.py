"""Functions that raise: at the point the error comes through, beside it the check is inconclusive."""

from __future__ import annotations

import pytest
import torch

from gradproof import Reason, Verdict, check
from support.findings import assert_inconclusive
from support.marks import double_and_single
from support.points import point

pytestmark = double_and_single


class OwnError(Exception):
    pass


@pytest.mark.parametrize("kind", [OwnError, RuntimeError, KeyError, AssertionError, StopIteration])
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

    assert_inconclusive(report, Reason.DOMAIN)
    assert "OwnError: not here" in report.message


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


@pytest.mark.parametrize("calls_before", [1, 2, 3, 5, 8])
def test_a_function_that_raises_after_some_calls_never_raises_out_of_a_check(calls_before, dtype):
    calls = []

    def tired(x):
        calls.append(None)
        if len(calls) > calls_before:
            raise OwnError("tired")
        return x.sin()

    assert check(tired, point(4, dtype=dtype), seed=0).verdict is not Verdict.FAIL
