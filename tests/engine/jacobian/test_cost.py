"""Full coverage takes two evaluations for a group of columns, and a pullback for a row, or a pushforward a column."""

import numpy as np
import pytest

from gradproof.engine.jacobian.cover import judge_fully
from gradproof.engine.options import Probing
from gradproof.engine.results import Verdict
from gradproof.engine.views import in_mode
from support.engine import both_modes, claiming, judged_fully
from support.jacobians import PATTERNS, joined, mixing
from support.numpy_subject import elementwise


def test_a_failure_does_not_cost_more_for_more_wrong_entries():
    few, many = (elementwise(np.sin, lambda x: np.cos(x) * 1.5, np.linspace(0.3, 1.1, size)) for size in (20, 500))
    judged_fully(few)
    judged_fully(many)

    assert many.evaluations < 2 * few.evaluations


@both_modes
def test_a_diagonal_takes_two_evaluations(mode):
    subject = elementwise(np.sin, np.cos, np.linspace(0.3, 1.1, 200))
    judged_fully(subject, mode)

    assert subject.evaluations == 2


@both_modes
def test_a_dense_jacobian_takes_two_evaluations_a_column(mode):
    subject = mixing("dense", 0)
    judged_fully(subject, mode)

    assert subject.evaluations == 2 * PATTERNS["dense"].shape[1]


def test_a_pullback_is_computed_once_a_row():
    subject = mixing("dense", 0)
    judged_fully(subject)

    assert (subject.pullbacks, subject.pushforwards) == (PATTERNS["dense"].shape[0], 0)


def test_a_pushforward_is_computed_once_a_column():
    subject = mixing("dense", 0)
    judged_fully(subject, "forward")

    assert (subject.pullbacks, subject.pushforwards) == (0, PATTERNS["dense"].shape[1])


@both_modes
def test_progress_is_reported_and_ends_with_all_of_it(mode, monkeypatch):
    monkeypatch.setattr("gradproof.engine.jacobian.columns.LARGE", 0)
    reported = []
    judge_fully(
        in_mode(mixing("dense", 0), mode),
        probes=1,
        seed=0,
        options=Probing(),
        progress=lambda done, of: reported.append(done / of),
    )

    assert reported == sorted(reported)
    assert reported[-1] == 1.0
    assert all(0 < share <= 1 for share in reported)


@both_modes
def test_a_seed_gives_the_same_judgement_again(mode):
    wrong = mixing("banded", 0, lambda claimed: 1.001 * claimed)

    assert judged_fully(wrong, mode, seed=5) == judged_fully(wrong, mode, seed=5)


@both_modes
@pytest.mark.parametrize("size", [2, 5, 60])
def test_columns_that_do_together_what_none_does_alone_need_no_further_care(mode, size):
    product = claiming(lambda x: np.array([x.prod()]), lambda x: np.zeros((1, size)), np.zeros(size))
    product.evaluations = 0

    judgement = judged_fully(product, mode)

    assert judgement.verdict is Verdict.PASS
    assert product.evaluations <= 2 + 2 * size


@both_modes
@pytest.mark.parametrize("points", [[0, 3, 4, 5], [0, 3, 0, -5], [0, 3]], ids=str)
def test_a_kink_of_the_curvature_passes_after_a_few_finer_steps(mode, points):
    subject = joined(points)
    subject.evaluations = 0

    judgement = judged_fully(subject, mode)

    assert judgement.verdict is Verdict.PASS
    assert subject.evaluations <= 6 + 6 * points.count(0)


@both_modes
def test_a_column_that_noise_hides_is_measured_with_care_alone(mode):
    saturated = [30.0, 31.0, 32.0, 33.0]
    margins = np.array([0.5, 1.0, 2.0, *saturated])
    subject = claiming(lambda x: np.array([np.logaddexp(0, -x).sum()]), lambda x: -1 / (1 + np.exp(x))[None], margins)
    subject.evaluations = 0

    judgement = judged_fully(subject, mode)

    assert judgement.verdict is Verdict.PASS
    assert subject.evaluations == 2 * 3 + 4 * len(saturated)
