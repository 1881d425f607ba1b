"""What the segment test asks of a subject, in one place: steps, values and claims, as the subject rounds them."""

from __future__ import annotations

from dataclasses import dataclass

from gradproof.engine.subject import Array, Step, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A function, the coordinates that move, the tolerated errors, and the noise of values and claims.

    `moving` is one for the coordinates that move and zero for the others; None where all of them do. `scatter` is the
    variance of every value, `claim_noise` the standard deviation of a claim's entries, relative.
    """

    subject: Subject
    moving: Array
    rtol: float
    atol: float
    scatter: Array = None
    claim_noise: float = 0.0


def direction_of(question: Question, seed: int, width: float) -> Array:
    """Draw a direction, `width` times the point's scale, for the coordinates that move."""
    direction = question.subject.direction(seed, Step(width))
    return direction if question.moving is None else direction * question.moving


def cotangent_of(subject: Subject, seed: int) -> Array:
    """Draw a cotangent; in reverse mode one that the outputs' precision holds, since the pullback rounds it."""
    cotangent = subject.cotangent(seed)
    return cotangent if subject.mode == "forward" else subject.outputs.rounded(cotangent)


def place_of(subject: Subject, step: Array) -> Array:
    """Return the displacement at which the function is evaluated if `step` is asked for, rounded as both are."""
    asked, point = subject.inputs.rounded(step), subject.point
    return subject.arrays.where(asked == 0, 0.0, subject.inputs.rounded(point + asked) - point)


def value_at(subject: Subject, cotangent: Array, step: Array) -> Array:
    """Evaluate at the point plus `step`; zero for the outputs that have no weight."""
    value = subject.evaluate(subject.inputs.rounded(step), 1.0) if bool((step != 0).any()) else subject.centre
    return subject.arrays.where(cotangent == 0, 0.0, value)


def claimed_parts(subject: Subject, cotangent: Array, step: Array, across: Array) -> Array:
    """Ask at the point plus `step` for the change along `across`: a sum of the entries' or outputs' contributions."""
    place = subject.inputs.rounded(step)
    if subject.mode == "forward":
        claimed, weights = subject.pushforward(subject.inputs.rounded(across), place), cotangent
    else:
        claimed, weights = subject.pullback(cotangent, place), across
    return subject.arrays.where(weights == 0, 0.0, weights * claimed)
