"""Diagnoses are ranked by fit, cost a bounded number of calls, and take stored entries for a row."""

from __future__ import annotations

import numpy as np
import pytest

from gradproof.engine.diagnosis import diagnosed
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Place
from support.diagnosing import Shaped, diagnoses_of, elementwise, first_of


class Stored(Shaped):
    """A frame of a tensor of which some entries are coordinates, as of a sparse one."""

    def locate(self, coordinate):
        place = super().locate(coordinate)
        return Place(path=place.path, index=(place.index[0] * 3 + 1, place.index[0]))


def test_a_tensor_of_stored_entries_is_taken_for_a_row_of_them():
    subject = elementwise(lambda right, u, x: 2 * right, (9,))
    subject.inputs = Stored({"x": (9,)})
    doubled = first_of(subject)
    subject = elementwise(lambda right, u, x: right * (1 + 0.3 * np.arange(9) ** 2), (9,))
    subject.inputs = Stored({"x": (9,)})

    assert doubled == "factor"
    assert diagnoses_of(subject) == ()


def test_candidates_are_ranked_by_fit():
    found = diagnoses_of(elementwise(lambda right, u, x: right * (np.arange(5) < 2), (4, 5)))

    assert found[0].name == "block"
    assert [each.fit for each in found] == sorted((each.fit for each in found), reverse=True)


@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_a_diagnosis_takes_a_bounded_number_of_calls(size):
    noise = np.random.default_rng(0).normal(size=size)
    subject = elementwise(lambda right, u, x: right * (1 + noise), (size,))
    judgement = judge(subject, probes=1, seed=0, options=Probing())
    before = subject.evaluations + subject.pullbacks

    diagnosed(subject, judgement, 0)

    assert subject.evaluations + subject.pullbacks - before < 400
