"""Groups of coordinates that a function treats one by one, such as the rows of a softmax.

If the outputs of a group depend on its inputs alone, ⟨u, f⟩ and ⟨Jᵀu, v⟩ split into a sum for every group, and one
segment tests all groups at once, each against the noise of its own outputs. That is what shows a wrong row, tile or
entry among many right ones in low precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import prod

from gradproof.engine.estimators.noise import last_places
from gradproof.engine.estimators.problem import Problem, claimed_parts, cotangent_of, value_at
from gradproof.engine.parts import Part, parts_of
from gradproof.engine.subject import Array, Frame, Step, Subject
from gradproof.engine.thresholds import CLEARLY, MANY, UNRESOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """The groups of a frame: of a tensor's coordinates, `count` along one dimension, or along its first ones.

    `parts` has the tensors that have groups, each with the number of coordinates below one step along the groups.
    """

    parts: tuple[tuple[Part, int], ...]
    count: int

    def sums(self, vector: Array) -> Array:
        """Return the sum of a vector's entries over every group."""
        return sum(part.of(vector).reshape(-1, self.count, below).sum((0, 2)) for part, below in self.parts)

    def spread(self, like: Array, weights: Array) -> Array:
        """Return a vector with every coordinate weighted as its group is, and zero for those in none."""
        result = like * 0.0
        for part, below in self.parts:
            piece = part.of(result).reshape(-1, self.count, below) + weights[:, None]
            result[part.start : part.stop] = piece.reshape(-1)
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The groups of inputs and outputs; `separate` is one for those whose outputs no other group's inputs move.

    `covered` has the dimensions, 0 and −1, along which every index is made of groups.
    """

    inputs: Cells
    outputs: Cells
    separate: Array
    covered: frozenset[int]


def groups_of(problem: Problem, seed: int, width: float) -> Groups | None:
    """Find the smallest groups of at least `MANY` coordinates of which half or more are separate; None without any."""
    subject = problem.subject
    step = subject.direction(seed, Step(width))
    together, coarsest = value_at(subject, _observed(subject), step), None
    for covered, inputs, outputs in _candidates(subject.inputs, subject.outputs):
        separate, claimed = _separate(problem, inputs, outputs, step, together)
        if float(separate.sum()) >= UNRESOLVED * inputs.count:
            coarsest = Groups(inputs=inputs, outputs=outputs, separate=separate, covered=covered)
            if claimed:
                return coarsest
    return coarsest


def _separate(problem: Problem, inputs: Cells, outputs: Cells, step: Array, together: Array) -> tuple[Array, bool]:
    """Return one for the groups whose values and claims do not depend on half of the others, and zero for the rest.

    Dependences below the noise of single values are seen in claims, but wrong claims may depend on anything.
    """
    subject, xp = problem.subject, problem.subject.arrays
    noise = outputs.sums(last_places(subject, together) ** 2 + problem.scatter)
    separate, claimed = 1.0 + 0 * noise, True
    for number in range(2):  # random halves move alone: what depends on many others is found by the first
        part, below = inputs.parts[0]
        first = part.of(subject.direction(1 + number, Step(1.0))).reshape(-1, inputs.count, below)[0, :, 0]
        chosen = xp.where(first > 0, 1.0, 0.0)
        moved, seen = step * inputs.spread(step, chosen), outputs.spread(together, chosen)
        value = value_at(subject, _observed(subject), moved)
        leaked = (
            outputs.sums((value - xp.where(seen > 0, together, value_at(subject, _observed(subject), 0 * step))) ** 2)
            / 2
        )
        separate = xp.where(leaked <= CLEARLY**2 * noise, separate, 0.0)  # NaN is not separate
        if float(separate.sum()) < UNRESOLVED * inputs.count:
            break
        cotangent = cotangent_of(subject, 1 + number)
        if subject.mode == "forward":
            squares = outputs.sums(claimed_parts(subject, cotangent, 0 * step, moved) ** 2)
        else:
            squares = inputs.sums(claimed_parts(subject, cotangent * seen, 0 * step, step) ** 2)
        total = float((chosen * squares).sum() / chosen.sum())
        claimed = claimed and not bool(((1 - chosen) * separate * squares > problem.claim_noise**2 * total).any())
    return separate, claimed


def _observed(subject: Subject) -> Array:
    """Return one for the outputs that are finite at the point, and zero for the others."""
    return 1.0 * subject.arrays.isfinite(subject.centre) + subject.arrays.zeros_like(subject.centre)


def _candidates(inputs: Frame, outputs: Frame) -> Iterator[tuple[frozenset[int], Cells, Cells]]:
    """Yield groupings that inputs and outputs have in common: chunks of rows, rows, stacks of rows, then columns."""
    here, there = parts_of(inputs), parts_of(outputs)
    shape = max(here, key=lambda part: part.size).shape
    if not shape:
        return

    def common(
        covered: set[int], alike: Callable[[Part], bool], count: int
    ) -> Iterator[tuple[frozenset[int], Cells, Cells]]:
        having = [[part for part in parts if alike(part)] for parts in (here, there)]
        if count > 1 and all(having):
            behind = -1 not in covered or 0 in covered  # the groups are made of consecutive coordinates
            one, other = (
                tuple((part, part.size // (count if behind else part.entries)) for part in each) for each in having
            )
            yield frozenset(covered), Cells(parts=one, count=count), Cells(parts=other, count=count)

    chunk = next((size for size in range(MANY, shape[-1]) if shape[-1] % size == 0), 0)
    if chunk:
        yield from common({0, -1}, lambda part: part.shape == shape, prod(shape) // chunk)
    for depth in range(len(shape) - 1, 0, -1):
        yield from common({0}, partial(_begins_with, shape[:depth]), prod(shape[:depth]))
    if len(shape) > 1:
        yield from common({-1}, lambda part: part.shape[-1:] == shape[-1:], shape[-1])


def _begins_with(shape: tuple[int, ...], part: Part) -> bool:
    return part.shape[: len(shape)] == shape
