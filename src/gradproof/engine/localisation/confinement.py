"""A few inputs and the outputs that they change, as a problem of their own.

A segment that moves a few of millions of coordinates costs as much as one that moves all, if every vector holds all.
Between the calls of the function and its rule, vectors of the few that matter are enough. What the rule claims of
other outputs is left out, so that an error which lies in that alone is seen by the whole problem only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradproof.engine.estimators.panels import affected_by
from gradproof.engine.estimators.problem import Problem, direction_of
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import LARGE, MANY
from gradproof.engine.views import confined


@dataclass(frozen=True, slots=True)
class Confinement:
    """A problem with few coordinates, and which coordinates of the whole problem these are."""

    problem: Problem
    chosen: Array

    def moving(self, weights: Array) -> Problem:
        """Return the problem that moves coordinates with these weights, a vector of the whole problem."""
        return replace(self.problem, moving=weights[self.chosen])


def confinement_of(problem: Problem, seed: int, width: float) -> Confinement | None:
    """Confine a large problem to the coordinates that move and the outputs that they change; None if those are many."""
    subject = problem.subject
    if problem.moving is None or subject.inputs.size <= LARGE:
        return None
    inputs = subject.arrays.where(problem.moving != 0)[0]
    if MANY * inputs.shape[0] > subject.inputs.size:
        return None
    above, below = subject.evaluate_along(direction_of(problem, seed, width), (1.0, -1.0))
    every = subject.arrays.ones_like(subject.centre)
    outputs = subject.arrays.where(affected_by(subject, (below, subject.centre, above), every) != 0)[0]
    if not 0 < MANY * outputs.shape[0] <= max(LARGE, subject.outputs.size):
        return None
    narrow = replace(
        problem,
        subject=confined(subject, inputs, outputs),
        moving=problem.moving[inputs],
        scatter=problem.scatter[outputs],
    )
    return Confinement(narrow, inputs)
