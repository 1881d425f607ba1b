"""Segments that move parts of the inputs: rows, columns, tiles and entries whose errors vanish among all others.

Along a segment that moves all inputs, the rounding of all outputs counts. A segment that moves a block of them leaves
the outputs that do not depend on the block where they are, and an error in the block stands out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gradproof.engine.estimators.groups import Groups, groups_of
from gradproof.engine.estimators.groupwise import residuals_along
from gradproof.engine.estimators.problem import Alignment, Problem
from gradproof.engine.estimators.quick import quick_segment
from gradproof.engine.estimators.segment import SegmentOutcome, SegmentResult, segment_test
from gradproof.engine.localisation.confinement import confinement_of
from gradproof.engine.localisation.stripes import striped
from gradproof.engine.options import Probing
from gradproof.engine.parts import Axis, Part, parts_of
from gradproof.engine.results import Resolution
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import FEW, LARGE, MANY, UNRESOLVED


def in_parts(problem: Problem, whole: SegmentResult, seed: int, options: Probing) -> SegmentResult:
    """Test parts of the inputs where all of them together do not disagree: groups at once, then blocks.

    A part that disagrees on one segment is tested on several. The rule agrees if all parts do, and their bars
    would have shown an error of half of the largest entry, or those of the whole an error of a tenth in all entries.
    """
    every, absolute = problem.subject.arrays.ones_like(problem.subject.point), whole.resolution.absolute
    try:
        _error_needed(problem, every, whole, seed, options)
        groups = groups_of(problem, seed, whole.half_width)
        seen = [_by_groups(problem, groups, whole, seed, options)] if groups else []
        if whole.outcome is not SegmentOutcome.AGREES:
            rest = every - groups.inputs.spread(every, groups.separate) if groups else every
            within = dict.fromkeys(groups.covered if groups else (), rest)
            seen += _by_blocks(problem, within, whole, seed, options)
    except _DecidedError as decided:
        return decided.result
    if whole.outcome is SegmentOutcome.UNDECIDED or not seen:  # a single input has no parts
        return _without_parts(whole)
    needed = min([absolute, *seen])
    largest = absolute / whole.resolution.relative if whole.resolution.relative else 0.0
    resolution = Resolution(absolute=needed, relative=needed / largest if largest else float("inf"))
    agrees = whole.outcome is SegmentOutcome.AGREES or resolution.relative <= UNRESOLVED or whole.shows_a_tenth
    return replace(whole, outcome=SegmentOutcome.AGREES if agrees else SegmentOutcome.UNDECIDED, resolution=resolution)


def _without_parts(whole: SegmentResult) -> SegmentResult:
    """Return the result where no part could be tested: that of all inputs together."""
    return whole if whole.outcome is SegmentOutcome.AGREES else replace(whole, outcome=SegmentOutcome.UNDECIDED)


class _DecidedError(Exception):
    """A part disagrees, or cannot be tested."""

    def __init__(self, result: SegmentResult) -> None:
        super().__init__()
        self.result = result


def _by_groups(problem: Problem, groups: Groups, whole: SegmentResult, seed: int, options: Probing) -> float:
    """Return the error in one entry that all groups would have shown."""
    needed = []
    for alignment in (Alignment.RANDOM, Alignment.CLAIMED):
        found = residuals_along(problem, groups, seed, whole.half_width, alignment)
        if found is None:
            raise _DecidedError(_without_parts(whole))
        needed.append(found.error_needed)
        for mask in found.worst(FEW):
            result = _confirmed(problem, mask, whole, seed, options, alignment)
            if result is not None:
                large = problem.subject.inputs.size > LARGE
                raise _DecidedError(replace(result, moving=found.outside) if large else result)
    return min(needed)


def _by_blocks(
    problem: Problem, within: dict[int, Array], whole: SegmentResult, seed: int, options: Probing
) -> list[float]:
    """Return for each dimension the error in one entry that all its blocks would have shown.

    `within` says which coordinates are tested, for the dimensions of which that is not all.
    """
    needed = []
    for dimension, blocks in _partitions(problem.subject):
        rest = within.get(dimension, 1.0)
        parts = [mask * rest for mask in blocks if bool((mask * rest != 0).any())]
        if parts:
            needed.append(max(_error_needed(problem, part, whole, seed, options) for part in parts))
    return needed


def _error_needed(problem: Problem, part: Array, whole: SegmentResult, seed: int, options: Probing) -> float:
    """Return the error in one entry that a part of the inputs would have shown."""
    seen = quick_segment(replace(problem, moving=part), seed, whole.half_width, whole.unsmooth, Alignment.MEASURED)
    if seen is None:
        raise _DecidedError(_without_parts(whole))
    result = _confirmed(problem, part, whole, seed, options, Alignment.MEASURED) if seen.outside else None
    if result is not None:
        raise _DecidedError(result)
    return seen.error_needed


def _confirmed(
    problem: Problem, part: Array, whole: SegmentResult, seed: int, options: Probing, alignment: Alignment
) -> SegmentResult | None:
    """Test a part on several segments, first by itself if it is small; return the result if they disagree."""
    varied = replace(problem, moving=part)
    small = confinement_of(varied, seed, whole.half_width)
    for each in (small.problem, varied) if small else (varied,):
        result = segment_test(
            each.subject, seed=seed + 1, rtol=options.rtol, atol=options.atol, moving=each.moving, alignment=alignment
        )
        if result.outcome is SegmentOutcome.DISAGREES:
            return replace(result, moving=part)
    return None


def _partitions(subject: Subject) -> Iterator[tuple[int, list[Array]]]:
    """Yield the blocks along the first dimensions of all inputs, then those along their last ones.

    Of large inputs stripes are yielded instead, which test all indices along a dimension on one segment.
    """
    parts = [part for part in parts_of(subject.inputs) if part.axes]
    for number in (0, -1):
        if subject.inputs.size > LARGE:
            yield number, [sum(striped(subject, part, part.axes[number]) for part in parts)]
        else:
            yield number, [block for part in parts for block in _blocks(subject, part, part.axes[number])]
        if all(len(part.axes) < 2 for part in parts):
            return


def _blocks(subject: Subject, part: Part, axis: Axis) -> Iterator[Array]:
    """Yield blocks of equal length along a dimension of one tensor."""
    index, many = axis.indices(subject.arrays, part.size, subject.point), min(axis.length, MANY)
    for block in range(many):
        mask = subject.arrays.zeros_like(subject.point)
        mask[part.start : part.stop] = 1.0 * (index * many // axis.length == block)
        yield mask
