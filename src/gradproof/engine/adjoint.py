"""The adjoint test: ⟨Jv, u⟩ = ⟨v, Jᵀu⟩ for pushforward and pullback, to rounding accuracy, without a step."""

from __future__ import annotations

import math

from gradproof.engine.contraction import SPREAD, inner, rounding_of_claims
from gradproof.engine.options import Probing
from gradproof.engine.results import Finding
from gradproof.engine.subject import Array, DerivativeError, Step, Subject
from gradproof.engine.thresholds import CLEARLY, FEW, ROUNDINGS


def adjoint_disagreement(subject: Subject, seed: int, options: Probing) -> Finding | None:
    """Return a finding if pullback and pushforward contradict each other, even if both agree with the values.

    The user's tolerances apply to each of the two.
    """
    gap = allowed = 0.0
    for number in range(FEW):
        try:
            gap, allowed, tolerated = _gap(subject, seed + 31 * number, options)
        except DerivativeError:  # raised for a direction of length one, though not for short ones
            return None
        if not (math.isfinite(gap) and gap > ROUNDINGS * allowed + tolerated):
            return None
    return Finding(
        kind="adjoint-mismatch",
        message=f"Pullback and pushforward contradict each other by {gap:.2g} along random directions, where rounding "
        f"explains {allowed:.1g}; both lie within the bars of the slopes.",
        hint="Compare the backward with the jvp: they must be transposes of each other.",
        mode="forward",
    )


def _gap(subject: Subject, seed: int, options: Probing) -> tuple[float, float, float]:
    """Return |⟨Jv, u⟩ − ⟨v, Jᵀu⟩| for a random v and u, what rounding explains of it, and what the user tolerates."""
    direction, cotangent = subject.direction(seed, Step(1.0)), subject.cotangent(seed)
    gradient, pushed = subject.pullback(cotangent), subject.pushforward(direction)
    gap = abs(inner(subject, direction, gradient) - inner(subject, cotangent, pushed))
    sizes = [_length(part) for part in (gradient * direction, pushed * cotangent)]
    values = subject.arrays.where(subject.arrays.isfinite(subject.centre), subject.centre, 0.0) * cotangent
    rounding_floor = CLEARLY * subject.numbers.precision * _length(values)  # what is left where all cancels
    rounding = rounding_of_claims(subject.numbers.precision) * max(sizes) + rounding_floor
    across, along = _length(cotangent), _length(direction)
    tolerated = options.rtol * sum(sizes) + 2 * options.atol * across * along + options.nondet_tol * (across + along)
    return gap, SPREAD * rounding, SPREAD * tolerated


def _length(vector: Array) -> float:
    return math.sqrt(float(vector @ vector))
