"""An input of −0.0 whose sign counts: its right slopes are not called wrong, and other wrong slopes are."""

import numpy as np
import pytest

from gradproof.engine.results import Reason, Verdict
from support.engine import both_modes, claiming, either_coverage, judged, judged_fully, places, reason_of

SEEDS = range(8)


def signed(signs, errors=0.0, dtype=np.float32):
    """sin(x) with the signs of other inputs, at x = 0: the slopes, and no values, change with the sign of a zero.

    The coordinates are x first, then the inputs that give the signs.
    """
    size = len(signs)

    def function(x):
        return np.sin(x[:size]) * np.copysign(np.ones(size, x.dtype), x[size:])

    def claim(x):
        slopes = np.cos(x[:size]) * np.copysign(1.0, x[size:])
        return np.hstack([np.diag(slopes + errors), np.zeros((size, size))])

    return claiming(function, claim, np.append(np.zeros(size), signs), dtype=dtype)


@both_modes
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("signs", [[-0.0], [-0.0, 0.7, -0.9, 1.1], [-0.0] * 4], ids=["one", "one of four", "all"])
def test_slopes_that_change_with_the_sign_of_a_zero_are_not_called_wrong(mode, dtype, signs):
    verdicts = {judged_fully(signed(signs, dtype=dtype), mode, seed).verdict for seed in SEEDS}

    assert verdicts == {Verdict.INCONCLUSIVE}


@both_modes
def test_they_are_explained_by_the_sign(mode, explained):
    judgements = [judged_fully(signed([-0.0, 0.7, -0.9, 1.1]), mode, seed) for seed in SEEDS]

    assert "SignedZero" in explained
    assert Reason.JUMP in set(map(reason_of, judgements))


@both_modes
def test_a_wrong_slope_of_another_output_is_found(mode):
    found = [places(judged_fully(signed([-0.0, 0.7, -0.9, 1.1], [0, 0, 0.3, 0]), mode, seed)) for seed in SEEDS]

    assert found == [{(2, 2)}] * len(SEEDS)


@either_coverage
def test_a_zero_whose_sign_does_not_count_excuses_nothing(coverage, explained):
    subject = claiming(np.sin, lambda x: np.diag(np.where(np.signbit(x), 2.0, 1.0) * np.cos(x)), [0.5, -0.0, 0.9])

    assert judged(subject, coverage=coverage).verdict is Verdict.FAIL
    assert explained == set()


@either_coverage
def test_a_jump_by_the_sign_is_reported_with_the_input_and_what_to_pass_instead(coverage):
    subject = claiming(lambda x: np.copysign(np.arange(1.0, 4), x), np.zeros((3, 3)), [0.5, -0.0, 0.9])

    obstacle = judged(subject, coverage=coverage).obstacle

    assert obstacle.reason is Reason.JUMP
    assert "x[1]" in obstacle.message
    assert "+0.0" in obstacle.hint
