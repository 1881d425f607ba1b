"""Row blocks, batches and selections of columns bound the memory, and make no difference to what is found."""

import numpy as np
import pytest

from gradproof.engine.jacobian import cover as jacobian
from gradproof.engine.results import Verdict
from support.engine import both_modes, judged_fully, places
from support.jacobians import PATTERNS, mixing, with_a_zero
from support.numpy_subject import elementwise

SCENES = {
    "right": lambda claimed: claimed,
    "the last entry wrong": lambda claimed: (
        claimed + 1e-3 * (np.arange(claimed.size).reshape(claimed.shape) == claimed.size - 1)
    ),
    "all wrong": lambda claimed: 1.01 * claimed,
}


@pytest.mark.parametrize(("held", "large"), [(1, 0), (50, 7), (1 << 25, 0)])
@both_modes
@pytest.mark.parametrize("name", ["dense", "diagonal", "banded"])
def test_row_blocks_and_batches_make_no_difference(name, mode, held, large, monkeypatch):
    wholes = [judged_fully(mixing(name, 5, error), mode) for error in SCENES.values()]
    monkeypatch.setattr(jacobian, "WORK", held)
    monkeypatch.setattr("gradproof.engine.jacobian.columns.LARGE", large)
    judgements = [judged_fully(mixing(name, 5, error), mode) for error in SCENES.values()]

    assert [each.verdict for each in judgements] == [each.verdict for each in wholes]
    rows, columns = PATTERNS[name].shape
    assert places(judgements[1]) == places(wholes[1]) == {(columns - 1, rows - 1)}


@both_modes
def test_a_kink_is_inconclusive_in_any_row_block(mode, monkeypatch):
    monkeypatch.setattr(jacobian, "WORK", 20)

    assert judged_fully(elementwise(np.abs, np.sign, with_a_zero(10)), mode).verdict is Verdict.INCONCLUSIVE


def test_more_columns_than_are_judged_at_a_time_are_all_judged(monkeypatch):
    monkeypatch.setattr(jacobian, "SHOWN", 1)
    monkeypatch.setattr(jacobian, "HANDFUL", 2)
    point = np.linspace(0.5, 1.5, 30)
    point[[3, 9, 15, 21, 27]] = 0.0

    def slope(x):
        found = np.sign(x)
        found[20] = 1.01
        return found

    judgement = judged_fully(elementwise(np.abs, slope, point))

    assert judgement.verdict is Verdict.FAIL
    assert places(judgement) == {(20, 20)}


def test_more_wrong_entries_than_are_shown_are_at_least_as_many():
    (finding,) = judged_fully(elementwise(np.sin, lambda x: np.cos(x) * 1.5, np.linspace(0.3, 1.1, 100))).findings

    assert len(finding.entries) == 10
    assert "at least 10 entries" in finding.message
