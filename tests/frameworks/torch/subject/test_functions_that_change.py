"""Functions that change from call to call, or write to their inputs: inconclusive, with the reason."""

from __future__ import annotations

import pytest
import torch

from gradproof import Reason, Verdict, check
from support.findings import assert_inconclusive
from support.marks import double_and_single
from support.points import point

pytestmark = double_and_single


def test_an_output_whose_shape_changes_beside_the_point_is_inconclusive(dtype):
    x = torch.ones(3, dtype=dtype, requires_grad=True)

    report = check(lambda x: x[x >= 1].sin(), x, seed=0)

    assert_inconclusive(report, Reason.DOMAIN)
    assert "changed from (3,)" in report.message


def test_an_output_whose_shape_changes_with_every_call_is_inconclusive(dtype):
    calls = []

    def growing(x):
        calls.append(None)
        return x.sin().sum().expand(len(calls))

    report = check(growing, point(4, dtype=dtype), seed=0)

    assert_inconclusive(report, Reason.DOMAIN)
    assert "changed from (1,)" in report.message


def test_an_output_that_is_missing_at_times_is_inconclusive(dtype):
    calls = []

    def forgetful(x):
        calls.append(None)
        return (x.sin(), x.cos()) if len(calls) == 1 else (x.sin(), None)

    assert_inconclusive(check(forgetful, point(4, dtype=dtype), seed=0), Reason.DOMAIN)


def test_an_output_that_turns_complex_at_times_is_inconclusive(dtype):
    calls = []

    def turning(x):
        calls.append(None)
        return x.sin() if len(calls) == 1 else x.sin() + 0j

    assert_inconclusive(check(turning, point(4, dtype=dtype), seed=0), Reason.DOMAIN)


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


def test_a_function_that_writes_to_its_input_gets_a_copy_in_every_call(dtype):
    x = point(4, dtype=dtype)
    before = x.detach().clone()

    report = check(_writes_in_place, x, seed=0)

    assert report.passed
    assert any("writes to x" in note for note in report.notes)
    assert torch.equal(x, before)


def test_a_function_that_overwrites_what_autograd_saved_of_its_input_is_wrong(dtype):
    report = check(_writes_through_data, point(4, dtype=dtype), seed=0)

    assert report.verdict is Verdict.FAIL
    assert any("writes to x" in note for note in report.notes)


@pytest.mark.parametrize("function", [_replaces_its_data, _replaces_its_data_by_less])
def test_a_function_of_what_it_wrote_to_its_input_is_inconclusive(function, dtype):
    x = point(4, dtype=dtype)
    before = x.detach().clone()

    report = check(function, x, seed=0)

    assert_inconclusive(report, Reason.MUTATION)
    assert "writes to x," in report.message
    assert torch.equal(x, before)


def test_a_function_that_writes_to_one_input_names_it(dtype):
    def function(x, y):
        y.data.zero_()
        return x.sin() * y

    report = check(function, (point(4, dtype=dtype), point(4, dtype=dtype)), seed=0)

    assert_inconclusive(report, Reason.MUTATION)
    assert report.message.startswith("The function writes to y,")


def test_an_in_place_operation_on_a_leaf_is_torchs_own_error_with_a_note(dtype):
    with pytest.raises(RuntimeError, match="leaf") as raised:
        check(lambda x: x.mul_(2), point(4, dtype=dtype))

    assert raised.value.__notes__[0].startswith("gradproof: ")


def test_an_in_place_operation_on_a_copy_passes(dtype):
    assert check(lambda x: x.clone().mul_(2).sin_(), point(4, dtype=dtype), seed=0).passed


def numbers_out_of_reach():
    """Return an iterator over random numbers, whose state no check can see."""
    return iter(torch.rand(10_000, generator=torch.Generator().manual_seed(0)).tolist())


def test_a_function_with_draws_out_of_reach_is_inconclusive(dtype):
    own = numbers_out_of_reach()

    def noisy(x):
        return x.sin() + next(own)

    assert_inconclusive(check(noisy, point(4, dtype=dtype), seed=0), Reason.NONDETERMINISTIC)


def test_a_function_with_a_random_factor_is_inconclusive(dtype):
    own = numbers_out_of_reach()

    def noisy(x):
        return x.sin() * (1 + next(own))

    assert_inconclusive(check(noisy, point(4, dtype=dtype), seed=0), Reason.NONDETERMINISTIC)


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

    assert_inconclusive(check(counting, point(4, dtype=dtype), seed=0), Reason.NONDETERMINISTIC)
