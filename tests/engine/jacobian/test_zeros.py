"""A claim of zero agrees with a plateau: where others show that the values are quantised, that verifies nothing."""

import numpy as np
import pytest

from gradproof.engine.results import Reason, Verdict
from support.difficulties import half
from support.engine import both_modes, claiming, judged_fully

POINT = np.array([-0.9, -0.4, -0.2, 0.4, -0.9, 0.6, 0.7, 0.3, -0.1])
SUMS = np.repeat(np.eye(3)[:, :, None], 2, -1).reshape(3, 6)  # of the first six inputs, two by two
seeds = pytest.mark.parametrize("seed", range(3))


def scale_of(x):
    return 1 + 0.1 * np.sin(x[6:]).mean()


def values(x):
    """Sums of inputs, cast to half precision and scaled by the other inputs."""
    return half(np.tanh(SUMS @ x[:6])) * scale_of(x)


def derivative(x):
    left = SUMS * (1 - np.tanh(SUMS @ x[:6]) ** 2)[:, None] * scale_of(x)
    return np.hstack([left, np.outer(half(np.tanh(SUMS @ x[:6])), 0.1 * np.cos(x[6:]) / 3)])


def without(rows, columns):
    def claimed(x):
        jacobian = derivative(x)
        jacobian[rows, columns] = 0.0
        return jacobian

    return claimed


@both_modes
@seeds
def test_outputs_that_do_not_depend_on_an_input_are_no_obstacle(mode, seed):
    assert judged_fully(claiming(values, derivative, POINT), mode, seed=seed).verdict is Verdict.PASS


@both_modes
@seeds
@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (slice(None), 3), (slice(2), slice(4))])
def test_an_entry_that_is_wrongly_claimed_to_be_zero_does_not_pass_on_a_plateau(rows, columns, mode, seed):
    judgement = judged_fully(claiming(values, without(rows, columns), POINT), mode, seed=seed)

    assert judgement.verdict is Verdict.FAIL or judgement.obstacle.reason is Reason.QUANTISED
