"""`assert_gradients` raises with the report, and `check` replays from a seed."""

from __future__ import annotations

import pytest
import torch

from gradproof import GradientError, InputError, Verdict, assert_gradients
from support.functions import wrong_sine
from support.points import point


def test_assert_gradients_returns_nothing_on_right_gradients():
    assert assert_gradients(torch.sin, point(4)) is None


def test_assert_gradients_raises_an_assertion_error_with_the_report():
    with pytest.raises(AssertionError) as raised:
        assert_gradients(wrong_sine(2.0), point(4), seed=5)

    assert isinstance(raised.value, GradientError)
    assert raised.value.report.verdict is Verdict.FAIL
    assert raised.value.report.seed == 5


def test_assert_gradients_shows_the_findings():
    with pytest.raises(GradientError) as raised:
        assert_gradients(wrong_sine(2.0), point(1))

    report, text = raised.value.report, str(raised.value)
    assert text == str(report)
    assert report.findings[0].message in text
    assert "inputs[0][0]" in text


def test_assert_gradients_raises_on_an_inconclusive_verdict():
    with pytest.raises(GradientError, match="kink") as raised:
        assert_gradients(torch.relu, torch.zeros(1, dtype=torch.float64, requires_grad=True))

    assert raised.value.report.verdict is Verdict.INCONCLUSIVE


def test_assert_gradients_passes_its_options_on():
    assert_gradients(wrong_sine(1.01), point(1), rtol=0.1)
    with pytest.raises(InputError, match="probes"):
        assert_gradients(torch.sin, point(4), probes=0)
    with pytest.raises(InputError, match="order"):
        assert_gradients(torch.sin, point(4), order=3)
