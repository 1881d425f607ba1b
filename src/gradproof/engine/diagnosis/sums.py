"""Mistakes of summation: one slice of a sum, a sum too many, duplicates overwritten."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, SAME, Case
from gradproof.engine.parts import Axis
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array


def missing_sum(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product that reads one slice of its operand where it should sum over all slices."""
    part = case.operand_part or case.operand_parts[0]
    for axis in part.axes:
        for index, which in ((0, "first"), (-1, "last")):
            yield Diagnosis(
                name="missing-sum",
                message=f"{case.subject_line} takes the {which} slice along dimension {axis.number} of "
                f"{part.path} alone, where it should sum over all {axis.length}.",
                fit=case.fit_changed_operand(partial(axis.only, case.xp, index=index), part),
                hint="An input that is broadcast receives the sum over the dimensions that it was broadcast "
                "along: sum, and do not take one slice.",
            )


def doubled_sum(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product that is summed, or averaged, over a dimension that it should keep."""
    xp, part = case.xp, case.result_part
    for axis in part.axes:
        if case.sample is not None and not _is_constant_along(case, axis):
            continue
        means = case.right_after(partial(axis.averaged, xp), partial(axis.averaged, xp))
        for how, size in (("averaged", 1), ("summed", axis.length)):
            yield Diagnosis(
                name="doubled-sum",
                message=f"{case.subject_line} is {how} over dimension {axis.number}, which it should keep.",
                fit=case.fit_claims(size * mean for mean in means),
                hint="Sum over the dimensions along which the forward broadcast this input, and over no others.",
            )


def summed_operand(case: Case) -> Iterator[Diagnosis]:
    """Diagnose a product for which the operand is summed, or averaged, over a dimension first."""
    part = case.only_operand_part
    for axis in part.axes if part is not None and len(part.axes) > 1 else []:
        for how, size in (("averaged", 1), ("summed", axis.length)):
            change = partial(_summed, case, axis, size)
            yield Diagnosis(
                name="doubled-sum",
                message=f"{case.subject_line} is that of an {case.given} which is {how} over dimension {axis.number}.",
                fit=case.fit_changed_operand(change, part) if part is not None else 0.0,
                hint=f"Look at a sum of the {case.given} that should keep a dimension, or go over segments.",
            )


def _summed(case: Case, axis: Axis, size: int, operand: Array) -> Array:
    return size * axis.averaged(case.xp, operand)


def _is_constant_along(case: Case, axis: Axis) -> bool:
    """Return True if the first claim has the same value at a sampled coordinate and at its neighbour along the axis."""
    place, claim = int(case.sample[-1]), case.claims[0]
    neighbour = place + axis.below if place // axis.below % axis.length == 0 else place - axis.below
    return math.isclose(float(claim[place]), float(claim[neighbour]), rel_tol=SAME)


def overwritten(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose inputs that several outputs read, but that receive the gradient of one of them alone."""
    if bool((block.wrong & ~block.dropped).any()):
        return
    present, dropped = (abs(block.right) > block.slack).T.tolist(), block.dropped.T.tolist()
    firsts = lasts = 0
    readers: list[int] = []
    for there, gone, complete in zip(present, dropped, block.complete, strict=True):
        if not complete:
            continue
        rows = [number for number, entry in enumerate(there) if entry]
        left = [number for number in rows if not gone[number]]
        if rows and len(left) != 1:  # nothing of it is left, or more than one
            return
        if len(rows) > 1:
            readers.append(len(rows))
            firsts, lasts = firsts + (left[0] == rows[0]), lasts + (left[0] == rows[-1])
    shared, alone = len(readers), max(map(sum, zip(*present, strict=True))) == 1  # every output reads one input
    shared_line = f"Entries of {case.input.path} that several outputs read have the gradient of"
    if alone and firsts == shared and len(set(readers)) == 1:  # an assignment leaves the last one
        yield Diagnosis(
            name="missing-sum",
            message=f"Every entry of {case.input.path} is read by {readers[0]} outputs, and has the gradient of the "
            "first of them alone.",
            fit=CERTAIN,
            hint="Gradients of copies add up: sum over the dimension that the forward repeats.",
        )
    elif shared and lasts == shared:
        yield Diagnosis(
            name="overwritten",
            message=f"{shared_line} the last of them alone.",
            fit=CERTAIN,
            hint="Gradients of an entry that is read several times add up: index_add_, scatter_add_ or "
            "index_put_(accumulate=True) in place of an assignment.",
        )
    elif shared and alone:
        yield Diagnosis(
            name="missing-term",
            message=f"{shared_line} one of them alone.",
            fit=CERTAIN,
            hint="Gradients of an entry that is read several times add up: look for a border, a neighbour or a copy "
            "that is left out, and for an assignment in the place of a sum.",
        )
