"""Judgements of NumPy subjects, in either coverage and mode, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from gradproof.engine import explanations
from gradproof.engine.explanations.comparison import Comparison, Explanation
from gradproof.engine.jacobian.cover import judge_fully
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Obstacle, Reason, Verdict
from gradproof.engine.verdict import Judgement
from gradproof.engine.views import in_mode
from support.numpy_subject import NumpySubject

seeds = st.integers(0, 99_999)
both_modes = pytest.mark.parametrize("mode", ["reverse", "forward"])
either_coverage = pytest.mark.parametrize("coverage", [judge, judge_fully], ids=["probe", "full"])
in_every_precision = pytest.mark.parametrize(
    "dtype", [np.float64, np.float32, np.float16], ids=lambda dtype: dtype.__name__
)


def judged(
    subject: Any,
    seed: int = 0,
    *,
    coverage: Callable[..., Judgement] = judge,
    mode: str = "reverse",
    probes: int = 1,
    **options: Any,
) -> Judgement:
    """Judge a subject by one probe, or in full with `coverage=judge_fully`; `options` are those of `Probing`."""
    return coverage(in_mode(subject, mode), probes=probes, seed=seed, options=Probing(**options))


def judged_fully(subject: Any, mode: str = "reverse", seed: int = 0, **options: Any) -> Judgement:
    """Judge every entry of the Jacobian."""
    return judged(subject, seed, coverage=judge_fully, mode=mode, **options)


def reason_of(judgement: Judgement) -> Reason | None:
    """Return the reason why a judgement is inconclusive; None where it is not."""
    return judgement.obstacle.reason if judgement.obstacle else None


def is_verified_on_segments(judgement: Judgement) -> bool:
    """Return True if a rule that small steps could not judge passes by the segment test, and a note says so."""
    return judgement.verdict is Verdict.PASS and any("verified on segments" in note for note in judgement.notes)


def places(judgement: Judgement) -> set[tuple[int, int | None]]:
    """Return the wrong entries, each as (column, row); a row that is only mentioned counts too."""
    return {
        (entry.index[0], output.index[0] if output else None)
        for entry in judgement.entries
        for output in (entry.output, *entry.also)
    }


def claiming(function: Callable[..., Any], claim: Any, point: Any, **options: Any) -> NumpySubject:
    """Return a subject whose Jacobian is said to be `claim`, a matrix or a function of x, in both modes."""

    def jacobian(x: Any) -> Any:
        return np.atleast_2d(claim(x) if callable(claim) else claim)

    return NumpySubject(
        function, lambda x, u: _times(jacobian(x).T, u), point, tangent=lambda x, v: _times(jacobian(x), v), **options
    )


def _times(matrix: Any, vector: Any) -> Any:
    """Multiply so that a zero of the vector takes out even what is NaN or infinite."""
    return np.where(vector != 0, matrix * vector, 0.0).sum(-1)


class Recorded:
    """An explanation that records under its class's name whenever it holds."""

    def __init__(self, explanation: Explanation, held: set[str]) -> None:
        self.explanation, self.held = explanation, held
        self.reason, self.kinds = explanation.reason, explanation.kinds

    def explains(self, comparison: Comparison) -> Obstacle | None:
        """Ask the explanation itself."""
        found = self.explanation.explains(comparison)
        if found is not None:
            self.held.add(type(self.explanation).__name__)
        return found


@pytest.fixture
def explained(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the explanations that held since the test began."""
    held: set[str] = set()
    recorded = tuple(Recorded(each, held) for each in explanations.EXPLANATIONS)
    monkeypatch.setattr(explanations, "EXPLANATIONS", recorded)
    return held
