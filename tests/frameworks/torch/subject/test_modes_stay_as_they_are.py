"""Torch's modes and defaults are as they were after a check, and make no difference to verdicts."""

from __future__ import annotations

import random

import pytest
import torch

from gradproof import GradientError, InputError, Verdict, assert_gradients, check
from support.endings import drawing_and_wrong, every_ending, every_precision, right, run, states, wrong
from support.points import point


@every_ending
@pytest.mark.parametrize("enabled", [True, False])
def test_the_grad_mode_stays_as_it_is(function, enabled):
    with torch.set_grad_enabled(enabled):
        run(function, point(4))
        assert torch.is_grad_enabled() is enabled


@every_precision
def test_a_check_inside_no_grad_gives_the_same_verdicts(dtype):
    with torch.no_grad():
        assert run(right, point(4, dtype=dtype)).passed
        assert run(wrong, point(4, dtype=dtype)).verdict is Verdict.FAIL


def test_a_check_inside_inference_mode_never_blames_a_right_gradient():
    x = point(4)
    with torch.inference_mode():
        try:
            verdict = run(right, x).verdict
        except InputError as error:
            assert "inference" in str(error)  # noqa: PT017  # a pass is as good
        else:
            assert verdict is Verdict.PASS
        assert torch.is_inference_mode_enabled()


@every_ending
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_dtype_stays_as_it_is(function, dtype):
    held = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        run(function, point(4, dtype=torch.float32))
        assert torch.get_default_dtype() is dtype
    finally:
        torch.set_default_dtype(held)


@pytest.mark.parametrize("default", [torch.float64, torch.float16])
@every_precision
def test_verdicts_do_not_depend_on_the_default_dtype(default, dtype):
    held = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        reports = run(right, point(4, dtype=dtype)), run(wrong, point(4, dtype=dtype))
    finally:
        torch.set_default_dtype(held)

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.FAIL]


def test_verdicts_do_not_depend_on_the_default_device():
    x = point(4)
    with torch.device("meta"):
        reports = run(right, x), run(wrong, x)

    assert [report.verdict for report in reports] == [Verdict.PASS, Verdict.FAIL]


@every_ending
def test_the_number_of_threads_stays_as_it_is(function):
    before = torch.get_num_threads(), torch.get_num_interop_threads()

    run(function, point(4))

    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == before


@every_ending
def test_anomaly_and_deterministic_modes_stay_as_they_are(function):
    before = torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()

    run(function, point(4))

    assert (torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()) == before


@pytest.mark.parametrize("function", [right, wrong])
def test_a_check_under_autocast_leaves_it_on(function):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        run(function, point(4))
        assert torch.is_autocast_enabled("cpu")


def test_a_failed_assertion_leaves_everything_as_it_is():
    x = point(4)
    assert "PASS" in str(run(right, x))  # what the first rendering of all does is looked at in tests/report
    before, generators = x.detach().clone(), states()

    with pytest.raises(GradientError):
        assert_gradients(drawing_and_wrong, x)

    assert torch.equal(x, before)
    assert x.grad is None
    assert x._version == 0
    assert states() == generators


def test_an_interrupt_inside_the_function_leaves_the_generators_as_they_are():
    calls = []

    def interrupted(x):
        torch.rand(3)
        random.random()
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return x.sin()

    before = states()

    with pytest.raises(KeyboardInterrupt):
        check(interrupted, point(4), seed=0)
    assert states() == before


def test_modes_that_the_function_changes_are_put_back():
    def changing(x):
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(before + 1)
        torch.use_deterministic_algorithms(True)
        y = x.sin()
        torch.set_grad_enabled(False)
        return y

    before = torch.get_num_threads()

    assert run(changing, point(4)).passed

    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()
