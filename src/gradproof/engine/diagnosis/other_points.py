"""Claimed and right Jacobians at other points: which inputs the claims do not change with, and what stays the same.

Elsewhere a factor that is fixed is the same, and a term without an input does not change with this input. A matrix of a
bilinear form is what the Jacobian changes by. This takes the whole Jacobian, of a small function, a few times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, LEAST_FIT, Case
from gradproof.engine.diagnosis.index_maps import whole_of
from gradproof.engine.diagnosis.measurements import units
from gradproof.engine.diagnosis.regions import MISSING
from gradproof.engine.parts import Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, FEW, MANY, SHARE, TRACE

FORGOTTEN = "Look for what the forward computes with this input, and whether the backward reads it at all."
FIXED = "Look for weights, distances or scales of the forward that are no inputs, and that the backward does not apply."
MATRIX = "Look for a matrix of the forward that is not transposed in the backward, or is taken for a symmetric one."


@dataclass(frozen=True, slots=True)
class Jacobians:
    """The claimed and the right Jacobian at a point, with a row for every output."""

    claimed: Array
    right: Array

    @property
    def size(self) -> float:
        """The largest right entry."""
        return float(abs(self.right).max())


def fixed_factors(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose entries that lack a factor of their own, the same at other points, where outputs depend on one input."""
    here, there = _at_the_point(case, block), abs(block.claimed) > block.slack / TRACE
    if here is None or int(((abs(block.right) > block.slack) | there).sum(1).max()) > 1 or int(there.sum()) < 2 * FEW:
        return
    if bool((block.wrong & ~there).any()):
        return
    moved = _jacobians(case, _move(case, [part for part in case.measurements.inputs if not part.is_complex]))
    if moved is None or not bool((abs(moved.claimed[there]) > 0).all()):
        return
    first, second = (each.right[there] / each.claimed[there] for each in (here, moved))
    if _differ(first, second) or float(first.max() - first.min()) <= ALIKE * float(abs(first).max()):
        return
    others = [factor for factor in first.tolist() if abs(factor - 1) > TRACE]
    if len({f"{factor:.3g}" for factor in others}) > len(others) - 2:
        return  # entries that differ in different ways have no pattern
    if all(abs(factor) <= TRACE for factor in others):
        yield Diagnosis(
            name="mask",
            message=f"{case.subject_line} is not zero in {len(others)} entries in which it should be, at other points "
            "too; elsewhere it is right.",
            fit=CERTAIN,
            hint=MISSING,
        )
        return
    yield Diagnosis(
        name="wrong-factor",
        message=f"{case.subject_line} lacks a factor for each entry that does not depend on the inputs, from "
        f"{float(first.min()):.4g} to {float(first.max()):.4g}.",
        fit=CERTAIN,
        hint=FIXED,
    )


def forgotten_inputs(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose claims that do not change with another input, where the right ones do."""
    here = _at_the_point(case, block)
    for part in case.measurements.inputs if here is not None else ():
        if part == case.input or part.is_complex or here is None:
            continue
        moved = _jacobians(case, _move(case, [part]))
        if moved is None or _differ(moved.claimed, here.claimed) or not _differ(moved.right, here.right):
            continue
        own = _jacobians(case, _move(case, [case.input]))
        if own is None:
            continue
        used = abs(here.claimed) > TRACE * here.size
        ratios = [
            each.right[used] / each.claimed[used] for each in (here, own) if bool((each.claimed[used] != 0).all())
        ]
        factor = len(ratios) == 2 and not _differ(*ratios)
        what = "the factor" if factor else "a term"
        yield Diagnosis(
            name="wrong-factor" if factor else "missing-term",
            message=f"{case.subject_line} does not change with {part.path}, as the right one does: {what} with "
            f"{part.path} in it is left out.",
            fit=LEAST_FIT,
            hint=FORGOTTEN,
        )
        return


def bilinear(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a fixed matrix between two inputs, or in a quadratic form, that is not transposed."""
    here = _at_the_point(case, block)
    if here is None or int((abs(here.right) > block.slack).sum(1).max()) <= 1:
        return
    for part in case.measurements.inputs:
        own, length = case.input, part.shape[-1] if part.shape else 1
        if part.is_complex or own.shape[-1:] != part.shape[-1:] or length == 1 or part.size > 2 * MANY:
            continue
        changes = [_jacobians(case, place) for place in _steps(case, part)]
        known = [each for each in changes if each is not None]
        if len(known) < len(changes):
            continue
        claimed = case.xp.stack([(each.claimed - here.claimed).T for each in known])  # other input, own input, output
        right = case.xp.stack([(each.right - here.right).T for each in known])
        if part == own:
            turned = case.xp.swapaxes(claimed, 0, 1)
        else:
            pieces = claimed.reshape(-1, length, own.size // length, length, claimed.shape[-1])
            turned = case.xp.swapaxes(pieces, 1, 3).reshape(claimed.shape)
        if not _differ(claimed, right) or not bool((abs(right) > 0).any()):
            continue
        if part != own and not _differ(turned, right):
            yield _of_matrix(case, "transposed", f"has the matrix between it and {part.path} untransposed")
        elif part == own and not _differ(claimed + turned, 2 * right):
            yield _of_matrix(case, "transposed", "takes a matrix for a symmetric one, which it is not")
        elif part == own and not _differ(claimed + turned, right):
            yield _of_matrix(case, "missing-term", "has one of two terms that are transposes of each other")


def _of_matrix(case: Case, name: str, text: str) -> Diagnosis:
    return Diagnosis(name=name, message=f"{case.subject_line} {text}.", fit=CERTAIN, hint=MATRIX)


def _at_the_point(case: Case, block: Block) -> Jacobians | None:
    known = case.reverse and whole_of(case, block) is not None
    return Jacobians(block.claimed, block.right) if known else None


def _move(case: Case, parts: list[Part]) -> Array:
    """Return a move of some inputs by up to a fifth of their size, the same at every call."""
    signs = case.measurements.direction(60) / case.measurements.step
    place = case.xp.zeros_like(case.measurements.subject.point)
    for part in parts:
        size = part.of(case.measurements.subject.point)
        part.of(place)[:] = ALIKE * size * part.of(signs) / max(float(abs(part.of(signs)).max()), 1.0)
    return place


def _steps(case: Case, part: Part) -> Array:
    """Return a step of each entry of an input, as large as a tenth of its largest."""
    length = SHARE * float(abs(part.of(case.measurements.subject.point)).max())
    places = case.xp.arange(part.start, part.stop, device=case.measurements.subject.point.device)
    return length * units(case.xp, case.measurements.subject.point, places)


def _jacobians(case: Case, place: Array) -> Jacobians | None:
    """Return both Jacobians at the point plus `place`, None where an entry is not finite."""
    xp, own, measurements = case.xp, case.input, case.measurements
    output = case.only_operand_part
    if output is None:
        return None
    like = measurements.subject.point
    step = measurements.step * max(float(abs(own.of(like)).max()), TRACE)
    columns = step * units(xp, like, xp.arange(own.start, own.stop, device=like.device))
    right = output.of(measurements.rough_slopes(columns, place) / step).T
    rows = units(xp, measurements.subject.centre, xp.arange(output.start, output.stop, device=like.device))
    claimed = xp.stack([own.of(measurements.subject.pullback(row, place)) for row in rows])
    known = bool(xp.isfinite(right).all()) and bool(xp.isfinite(claimed).all())
    return Jacobians(claimed, right) if known else None


def _differ(one: Array, other: Array) -> bool:
    return float(abs(one - other).max()) > TRACE * float(abs(other).max())
