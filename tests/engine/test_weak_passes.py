"""A pass within wide bars rests on two directions, along which small errors of both signs hardly cancel."""

import numpy as np

from gradproof.engine.results import Verdict
from support.engine import judged
from support.numpy_subject import NumpySubject, elementwise

SIZE = 50


def sine_in_single_precision(seed, wrong):
    """Values that are cast to single precision, and slopes with small errors of both signs."""
    draw = np.random.default_rng(seed)
    point, errors = draw.standard_normal(SIZE), wrong * draw.standard_normal(SIZE)
    return elementwise(lambda x: np.sin(x.astype(np.float32)).astype(float), lambda x: np.cos(x) + errors, point)


def test_errors_that_cancel_along_one_direction_are_found_along_another():
    verdicts = [judged(sine_in_single_precision(seed, 0.01), seed).verdict for seed in range(60)]

    assert verdicts.count(Verdict.FAIL) >= 59


def test_right_slopes_within_wide_bars_pass_along_both():
    verdicts = {judged(sine_in_single_precision(seed, 0.0), seed).verdict for seed in range(20)}

    assert verdicts == {Verdict.PASS}


def test_two_errors_that_nearly_cancel_in_single_precision_are_found_along_another_direction():
    """At this seed the two add 0.331 and -0.333 to the change along the first direction, with a bar of a hundredth."""
    point, slopes = np.random.default_rng(218).standard_normal(SIZE), np.ones(SIZE)
    slopes[:2] = 0.0
    subject = NumpySubject(
        lambda x: np.array([np.sin(x).sum() + 100]),
        lambda x, cotangent: cotangent[0] * np.cos(x) * slopes,
        point,
        dtype=np.float32,
    )

    assert judged(subject, 218).verdict is Verdict.FAIL
