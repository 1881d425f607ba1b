"""Where a rule that disagrees along segments is wrong: a box of one tensor that holds all of the disagreement.

A piece of the box is left out if its claims agree with its values, although an error of the same relative size as that
of the rest would have been outside its bar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod

from gradproof.engine.estimators.panels import claims_along, values_along
from gradproof.engine.estimators.problem import Alignment, Problem
from gradproof.engine.estimators.quick import QuickSegment, quick_segment
from gradproof.engine.estimators.segment import SegmentResult
from gradproof.engine.localisation.confinement import Confinement, confinement_of
from gradproof.engine.localisation.stripes import striped
from gradproof.engine.parts import Axis, Part, parts_of
from gradproof.engine.results import Entry, Place
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import FEW, LARGE, TRACE

CLEAR = 2.0  # bars: an error so large is outside its bar but for a chance of four standard deviations

Span = tuple[int, int]
MaskOf = Callable[[int, int], Array]  # the coordinates of a range of tensors, or of indices along a dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Where a rule is wrong: the first and the last coordinate, how many there are, and the entry if it is one.

    `mask` is one for the coordinates. `part` is the tensor that holds them all, if one does; `box` is then the range
    of indices along each of its dimensions with more than one entry.
    """

    first: Place
    last: Place
    count: int
    mask: Array
    part: Part | None = None
    box: Mapping[Axis, Span] = field(default_factory=dict)
    entry: Entry | None = None

    def __str__(self) -> str:
        return str(self.first) if self.count == 1 else f"{self.first} to {self.last}"


@dataclass(frozen=True, slots=True)
class _Search:
    """Quick segments that move pieces of the inputs, of the width of the segments that disagreed."""

    problem: Problem
    result: SegmentResult
    seed: int
    confined: Confinement | None = None

    def within(self, mask: Array) -> _Search:
        """Return a search of a part of the inputs, by itself if it is small and all that is wrong shows there."""
        found = confinement_of(replace(self.problem, moving=mask), self.seed, self.result.half_width)
        search = replace(self, confined=found)
        return search if found and search.is_wrong(mask) else self

    def look(self, piece: Array, alignment: Alignment = Alignment.MEASURED) -> QuickSegment | None:
        problem = self.confined.moving(piece) if self.confined else replace(self.problem, moving=piece)
        return quick_segment(problem, self.seed, self.result.half_width, self.result.unsmooth, alignment)

    def is_wrong(self, piece: Array) -> bool:
        """Return True if a piece is outside its bar."""
        seen = self.look(piece) if bool((piece != 0).any()) else None
        return seen is not None and seen.outside

    def is_right(self, piece: Array, rest: Array) -> bool:
        """Return True if a piece agrees, and would not if it were as wrong as the rest is."""
        if not bool((piece > 0).any()):
            return True
        seen = self.look(piece)
        if seen is None or seen.outside:
            return False
        beside = self.look(rest)
        if beside is None or not beside.outside or CLEAR * seen.bar * beside.size > beside.residual * seen.size:
            return False
        again = self.look(piece, Alignment.RANDOM)
        return again is not None and not again.outside

    def striped_span(self, part: Part, axis: Axis, mask_of: MaskOf) -> Span:
        """Return the same along a dimension of a large tensor, with one look at every piece.

        Were a piece as wrong as all are together, its residual would be smaller by the root of its share. It is far
        smaller by chance alone; so what was left out is looked at again, all of it, several times.
        """
        subject, length = self.problem.subject, axis.length
        stripes, *others = (striped(subject, part, axis, seed) for seed in range(FEW))
        first, last = low, high = _extent(subject, part, axis, mask_of(0, length))
        if high - low < 2:
            return low, high

        def bar(start: int, stop: int) -> float:
            seen = self.look(mask_of(start, stop) * stripes)
            return math.inf if seen is None or seen.outside else seen.bar

        at_start, at_end = bar(low, low + 1) < math.inf, bar(high - 1, high) < math.inf
        whole = self.look(mask_of(low, high) * stripes) if at_start or at_end else None
        if whole is None or not whole.outside:
            return low, high

        def is_right(start: int, stop: int) -> bool:
            return CLEAR * bar(start, stop) <= whole.residual * math.sqrt((stop - start) / length)

        if at_start:
            low = _first_wrong(low, high, is_right)
        if at_end:
            high = length - _first_wrong(length - high, length - low, lambda a, b: is_right(length - b, length - a))
        left_out = mask_of(first, low) + mask_of(high, last)
        return (first, last) if any(self.is_wrong(left_out * each) for each in others) else (low, high)

    def span(self, length: int, mask_of: MaskOf) -> Span:
        """Return the shortest range found that holds all that is wrong, by bisection from either end."""
        low = self._wrong_from(0, length, lambda a, b: (mask_of(a, b), mask_of(b, length)))
        from_behind = self._wrong_from(
            0, length - low, lambda a, b: (mask_of(length - b, length - a), mask_of(low, length - b))
        )
        return low, length - from_behind

    def _wrong_from(self, start: int, stop: int, pieces: Callable[[int, int], tuple[Array, Array]]) -> int:
        """Return where the first wrong index is; `pieces` are those of a range, and of all behind it."""
        if stop < 2 or self.is_wrong(pieces(0, 1)[0]):
            return start
        while stop - start > 1:
            middle = (start + stop) // 2
            if self.is_right(*pieces(start, middle)):
                start = middle
            else:
                stop = middle
        return start


def _first_wrong(start: int, stop: int, is_right: Callable[[int, int], bool]) -> int:
    """Return the first wrong index of a range by bisection."""
    while stop - start > 1:
        middle = (start + stop) // 2
        if is_right(start, middle):
            start = middle
        else:
            stop = middle
    return start


def region_of(problem: Problem, result: SegmentResult, seed: int) -> Region:
    """Narrow a disagreement down to one tensor, and to a range of indices along each of its dimensions."""
    subject, parts = problem.subject, parts_of(problem.subject.inputs)
    xp, search = subject.arrays, _Search(problem, result, seed)
    mask = xp.ones_like(subject.point) if result.moving is None else 1.0 * (result.moving != 0)

    def of_parts(low: int, high: int) -> Array:
        held = xp.zeros_like(mask)
        for each in parts[low:high]:
            held[each.start : each.stop] = mask[each.start : each.stop]
        return held

    first, last = search.span(len(parts), of_parts)
    mask, part = of_parts(first, last), None
    box: dict[Axis, Span] = {}
    if last - first == 1:
        part = parts[first]
        mask, box = _narrowed(search, part, mask)
        if (
            result.moving is not None
            and subject.inputs.size <= LARGE
            and int((mask > 0).sum()) == _coordinates(part, box)
        ):
            mask, box = _widened(search, part, box)
    chosen = xp.where(mask > 0)[0]
    return Region(
        first=subject.inputs.locate(int(chosen[0])),
        last=subject.inputs.locate(int(chosen[-1])),
        count=int(chosen.shape[0]),
        mask=mask,
        part=part if part and int(chosen.shape[0]) == _coordinates(part, box) else None,
        box=box,
        entry=_entry(problem, int(chosen[0]), mask, seed, result.half_width) if chosen.shape[0] == 1 else None,
    )


def _narrowed(search: _Search, part: Part, mask: Array) -> tuple[Array, dict[Axis, Span]]:
    """Leave out what is right of a part of a tensor, one dimension after another."""
    subject, box = search.problem.subject, {}
    large = subject.inputs.size > LARGE
    if large:
        mask = _hull(subject, part, mask)
        search = search.within(mask)
    for axis in part.axes:
        within = _along(subject, part, axis, mask)
        box[axis] = search.striped_span(part, axis, within) if large else search.span(axis.length, within)
        mask = within(*box[axis])
    return mask, box


def _hull(subject: Subject, part: Part, mask: Array) -> Array:
    """Return the smallest box of a tensor that holds all coordinates of a mask: of groups that disagree.

    Some groups that are wrong agree by chance. So a box that all but reaches an edge of the tensor reaches it.
    """
    hull = part.alone(1.0 + 0 * mask)
    for axis in part.axes:
        low, high = _extent(subject, part, axis, mask)
        missed = 1 - float((axis.split(part.of(mask)) != 0).any(0).any(-1).sum()) / (high - low)
        low = 0 if missed**low > TRACE else low
        high = axis.length if missed ** (axis.length - high) > TRACE else high
        hull = _along(subject, part, axis, hull)(low, high)
    return hull


def _extent(subject: Subject, part: Part, axis: Axis, mask: Array) -> Span:
    """Return the range of indices along a dimension that a mask has."""
    held = axis.indices(subject.arrays, part.size, subject.point)[part.of(mask) != 0]
    return int(held.min()), int(held.max()) + 1


def _widened(search: _Search, part: Part, box: dict[Axis, Span]) -> tuple[Array, dict[Axis, Span]]:
    """Look on both sides of a box that was found in a part of the inputs, along one dimension after another."""
    subject = search.problem.subject
    mask = part.alone(subject.arrays.ones_like(subject.point))
    for axis in box:
        beside = part.alone(subject.arrays.ones_like(subject.point))
        for other, span in box.items():
            beside = beside if other == axis else _along(subject, part, other, beside)(*span)
        within = _along(subject, part, axis, beside)
        box = {**box, axis: search.span(axis.length, within)}
        mask = within(*box[axis])
    return mask, box


def _along(subject: Subject, part: Part, axis: Axis, mask: Array) -> MaskOf:
    """Return what selects a range of indices along one dimension from the coordinates of a mask."""
    index = axis.indices(subject.arrays, part.size, subject.point)
    return lambda low, high: part.changed(mask, lambda held: held * ((index >= low) & (index < high)))


def _coordinates(part: Part, box: Mapping[Axis, Span]) -> int:
    """Return how many coordinates a box has."""
    return prod(high - low for low, high in box.values()) * (2 if part.is_complex else 1)


def _entry(problem: Problem, coordinate: int, mask: Array, seed: int, width: float) -> Entry | None:
    """Compare the mean slope along one coordinate with the mean claim."""
    block = replace(problem, moving=mask)
    values = values_along(block, seed, width, problem.alignment)
    segment = claims_along(block, values) if values else None
    if segment is None or problem.subject.mode == "forward":
        return None
    place, across = problem.subject.inputs.locate(coordinate), segment.shortest
    sign = 1.0 if float(segment.values.chord.step[coordinate]) > 0 else -1.0
    return Entry.at(
        place,
        claimed=sign * segment.claimed / across,
        numerical=sign * segment.measured / across,
        bar=segment.bar / across,
    )
