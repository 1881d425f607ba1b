"""What a pass by the segment test claims to have resolved is what the segments show."""

import numpy as np
import pytest

from gradproof.engine.results import Verdict
from support.difficulties import rounded
from support.engine import claiming, either_coverage, is_verified_on_segments, judged


def value(x):
    """A smooth function of two numbers, of which the first is rounded to eight binary digits."""
    return np.exp(0.3 * (np.sin(rounded(x[:1], 8)) + x[1:]))


@either_coverage
@pytest.mark.parametrize("factor", [1.0, 1.001, 1.01])
@pytest.mark.parametrize("seed", range(3))
def test_a_pass_along_segments_does_not_claim_to_resolve_the_error_that_it_lets_through(coverage, factor, seed):
    subject = claiming(
        value, lambda x: 0.3 * value(x) * [np.cos(rounded(x[0], 8)) * factor, 1.0], np.array([0.71, 0.4])
    )

    judgement = judged(subject, seed, coverage=coverage)

    assert judgement.verdict is not Verdict.FAIL
    if is_verified_on_segments(judgement):
        assert judgement.resolution.relative > factor - 1
