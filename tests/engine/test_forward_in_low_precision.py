"""Pushforwards in low precision are judged in double precision, without any pullback."""

import numpy as np
import pytest
from hypothesis import settings

from gradproof.engine.options import Probing
from gradproof.engine.precision import judge_rounded
from gradproof.engine.results import Verdict
from gradproof.engine.views import in_mode
from support.forward import never
from support.numpy_subject import NumpySubject

thoroughly = settings(max_examples=50, deadline=None, derandomize=True)


def in_two_precisions(tangent, gradient=never):
    points = np.linspace(0.3, 1.2, 20).astype(np.float32)
    return [
        in_mode(NumpySubject(np.sin, gradient, points, dtype=dtype, tangent=tangent(dtype)), "forward")
        for dtype in (np.float32, np.float64)
    ]


def rounded(tangent, gradient=never):
    return judge_rounded(*in_two_precisions(tangent, gradient), probes=1, seed=0, options=Probing())


def test_a_right_pushforward_in_low_precision_passes_without_any_pullback():
    assert rounded(lambda dtype: lambda x, v: np.cos(x) * v).verdict is Verdict.PASS


def test_a_pushforward_that_is_wrong_in_low_precision_alone_fails():
    judgement = rounded(
        lambda dtype: lambda x, v: np.cos(x) * v * (2 if dtype is np.float32 else 1),
        lambda x, u: np.cos(x) * u,
    )

    assert judgement.verdict is Verdict.FAIL


def test_a_pullback_that_is_wrong_in_low_precision_is_no_fault_of_the_pushforward():
    wrong = iter([2, 1, 1, 1, 1, 1, 1, 1, 1])
    judgement = rounded(lambda dtype: lambda x, v: np.cos(x) * v, lambda x, u: np.cos(x) * u * next(wrong))

    assert judgement.verdict is Verdict.PASS


@pytest.mark.parametrize("factor", [0.0, 2.0, 1.01])
def test_a_pushforward_that_is_wrong_in_both_precisions_fails(factor):
    assert rounded(lambda dtype: lambda x, v: factor * np.cos(x) * v).verdict is Verdict.FAIL
