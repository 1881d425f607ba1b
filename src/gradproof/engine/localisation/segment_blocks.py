"""Segments that move blocks of the inputs: rows, columns, tiles and entries whose errors vanish among all others.

Along a segment that moves all inputs, the rounding of all outputs counts. A segment that moves a block of them leaves
the outputs that do not depend on the block where they are, and an error in the block stands out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gradproof.engine.estimators.panels import Segment, claims_along, values_along
from gradproof.engine.estimators.question import Question
from gradproof.engine.estimators.segment import Outcome, SegmentResult, error_needed, second_opinion
from gradproof.engine.options import Probing
from gradproof.engine.parts import parts_of
from gradproof.engine.results import Entry, Place, Resolution
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import FEW, MANY, UNRESOLVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Where a rule is wrong: the first and the last coordinate, how many there are, and the entry if it is one."""

    first: Place
    last: Place
    count: int
    entry: Entry | None = None

    def __str__(self) -> str:
        return str(self.first) if self.count == 1 else f"{self.first} to {self.last}"


def by_blocks(question: Question, whole: SegmentResult, seed: int, options: Probing) -> SegmentResult:
    """Ask along segments through blocks of rows, then of columns, where all inputs together agree.

    A block that disagrees on one segment is asked about on several. The rule agrees if all blocks do, and their bars
    would have shown an error of half of the largest entry, or those of the whole an error of a tenth in all entries.
    """
    subject, resolutions = question.subject, []
    for blocks in _partitions(subject):
        needed = 0.0
        for mask in blocks:
            segment = _segment(question, mask, seed, whole.half_width)
            if segment is None:
                return replace(whole, outcome=Outcome.UNDECIDED)
            if segment.excess > 1:
                result = second_opinion(subject, seed=seed + 1, rtol=options.rtol, atol=options.atol, moving=mask)
                if result.outcome is Outcome.DISAGREES:
                    return replace(result, moving=mask)
            needed = max(needed, error_needed(segment))
        resolutions.append(needed)
    if not any(resolutions):  # a single input has no blocks
        return replace(whole, outcome=Outcome.UNDECIDED)
    absolute = min([whole.resolution.absolute, *resolutions])
    largest = whole.resolution.absolute / whole.resolution.relative if whole.resolution.relative else 0.0
    resolution = Resolution.of(absolute, largest)
    agrees = resolution.relative <= UNRESOLVED or whole.shows_a_tenth
    return replace(whole, outcome=Outcome.AGREES if agrees else Outcome.UNDECIDED, resolution=resolution)


def region_of(question: Question, result: SegmentResult, seed: int) -> Region:
    """Narrow a disagreement down by halves, as long as it is in one of them alone."""
    subject, xp = question.subject, question.subject.arrays
    every = xp.ones_like(subject.point) if result.moving is None else result.moving
    chosen = xp.where(every > 0)[0]
    blocks = [mask for masks in _partitions(subject) for mask in masks] if result.moving is None else []
    outside = [mask for mask in blocks if _is_outside(question, mask, seed, result.half_width)]
    if 0 < len(outside) <= FEW:
        chosen = xp.where(outside[0] > 0)[0]
    while chosen.shape[0] > 1 and (len(outside) <= FEW or result.moving is not None):
        middle = chosen.shape[0] // 2
        halves = [chosen[:middle], chosen[middle:]]
        wrong = [half for half in halves if _is_outside(question, _mask(subject, half), seed, result.half_width)]
        if len(wrong) != 1:
            break
        chosen = wrong[0]
    first, last = (subject.inputs.locate(int(chosen[k])) for k in (0, -1))
    entry = _entry(question, int(chosen[0]), seed, result.half_width) if chosen.shape[0] == 1 else None
    return Region(first=first, last=last, count=int(chosen.shape[0]), entry=entry)


def _partitions(subject: Subject) -> Iterator[list[Array]]:
    """Yield the blocks along the first dimensions of all inputs, then those along their last ones."""
    parts = [part for part in parts_of(subject.inputs) if part.axes]
    for number in (0, -1):
        blocks = []
        for part in parts:
            axis = part.axes[number]
            index = axis.indices(subject.arrays, part.size, subject.point)
            many = min(axis.length, MANY)
            for block in range(many):
                mask = subject.arrays.zeros_like(subject.point)
                mask[part.start : part.stop] = 1.0 * (index * many // axis.length == block)
                blocks.append(mask)
        yield blocks
        if all(len(part.axes) < 2 for part in parts):
            return


def _mask(subject: Subject, chosen: Array) -> Array:
    mask = subject.arrays.zeros_like(subject.point)
    mask[chosen] = 1.0
    return mask


def _segment(question: Question, mask: Array, seed: int, width: float) -> Segment | None:
    block = replace(question, moving=mask)
    values = values_along(block, seed, width, aligned=True)
    return claims_along(block, values) if values else None


def _is_outside(question: Question, mask: Array, seed: int, width: float) -> bool:
    segment = _segment(question, mask, seed, width)
    return segment is not None and segment.excess > 1


def _entry(question: Question, coordinate: int, seed: int, width: float) -> Entry | None:
    """Compare the mean slope along one coordinate with the mean claim."""
    segment = _segment(question, _mask(question.subject, question.subject.arrays.asarray([coordinate])), seed, width)
    if segment is None or question.subject.mode == "forward":
        return None
    place, across = question.subject.inputs.locate(coordinate), segment.shortest
    sign = 1.0 if float(segment.values.step[coordinate]) > 0 else -1.0
    return Entry(
        index=place.index,
        part=place.part,
        stored=place.stored,
        claimed=sign * segment.claimed / across,
        numerical=sign * segment.measured / across,
        bar=segment.bar / across,
    )
