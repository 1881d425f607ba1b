"""Claims at points a few units of rounding away: they are asked for once, whatever they are needed for."""

import numpy as np

from gradproof.engine.perturbed import PerturbedClaims
from support.engine import judged
from support.numpy_subject import NumpySubject


class Counted(NumpySubject):
    beside = 0

    def pullback(self, cotangent, at=None):
        self.beside += at is not None
        return super().pullback(cotangent, at)


def test_several_slightly_wrong_entries_take_no_more_claims_at_perturbed_points_than_one():
    def claims(wrong):
        factors = np.ones(40)
        factors[wrong] = 1.001
        subject = Counted(np.sin, lambda x, incoming: factors * np.cos(x) * incoming, np.linspace(0.3, 1.2, 40))
        judgement = judged(subject)
        assert {entry.index[0] for entry in judgement.entries} == set(wrong)
        return subject.beside

    assert claims([3, 17, 30]) == claims([17])


def test_perturbed_claims_vary_by_the_amplified_rounding_of_each_entry():
    subject = NumpySubject(np.sin, lambda x, incoming: np.array([1.0, 1e6]) * x * incoming, np.array([1.0, 1.0]))
    found = PerturbedClaims.of(subject, np.ones(2), np.array([0.5, 0.0]), seed=0)
    calm, amplified = found.high - found.low

    assert 0 < calm < 1e-14
    assert 1e5 < amplified / calm < 1e7
    assert max(found.slopes) - min(found.slopes) == calm / 2
