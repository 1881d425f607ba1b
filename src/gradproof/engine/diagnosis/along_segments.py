"""Name the kind of a mistake that only segments show, from claimed and measured changes along several of them.

The signs of every segment and its cotangent are drawn afresh, so that the changes are all but independent. A hypothesis
says what would be claimed, or measured, were it true. It is named if bars explain what it leaves of the disagreement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gradproof.engine.estimators.problem import Alignment, Problem
from gradproof.engine.estimators.quick import GAUSS, QuickSegment, quick_segment
from gradproof.engine.estimators.segment import SegmentResult
from gradproof.engine.localisation.segment_region import Region
from gradproof.engine.parts import Axis
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import ALIKE, FEW

SEGMENTS = 6  # a disagreement that is a multiple of six independent numbers to a fifth is no chance: 0.2⁵ / 2


@dataclass(frozen=True, slots=True)
class _Segments:
    """Changes along several segments through a region."""

    looks: list[QuickSegment]

    def rest(self, predicted: Iterable[float], weight: float = 1.0) -> float:
        """Return the share of the disagreement that predictions of the measured changes leave; infinite beyond bars."""
        left = [value - each.measured for value, each in zip(predicted, self.looks, strict=True)]
        if any(abs(off) > weight * each.bar for off, each in zip(left, self.looks, strict=True)):
            return math.inf
        whole = math.hypot(*(each.residual for each in self.looks))
        return math.hypot(*left) / whole if whole else math.inf


def diagnoses(problem: Problem, result: SegmentResult, region: Region, seed: int) -> tuple[Diagnosis, ...]:
    """Return what a disagreement along segments looks like: zero, a sign, a factor, a shift, a block; at most one."""
    scattered = region.part is None and result.moving is not None
    if region.count < FEW or scattered:
        return ()
    segments = _segments(problem, result, region.mask, seed)
    found = list(_of_size(segments, problem.subject, region)) if segments else []
    found = found or list(_shifted(problem, result, region, seed))
    return tuple(found or _block(region))


def _segments(problem: Problem, result: SegmentResult, moving: Array, seed: int) -> _Segments | None:
    varied, seeds = replace(problem, moving=moving), range(seed, seed + SEGMENTS)
    looks = (quick_segment(varied, each, result.half_width, result.unsmooth, Alignment.RANDOM) for each in seeds)
    seen = [each for each in looks if each is not None]
    return _Segments(seen) if len(seen) == SEGMENTS else None


def _of_size(segments: _Segments, subject: Subject, region: Region) -> Iterator[Diagnosis]:
    """Diagnose claims that are one multiple of the measured changes."""
    looks, where = segments.looks, _where(region)
    square = math.fsum(each.measured**2 for each in looks)
    size = math.fsum(each.claimed * each.measured for each in looks) / square if square else 0.0
    line = _line(subject, region)
    if square and not any(each.claimed for each in looks):
        yield Diagnosis(
            name="block" if where else "detached",
            message=f"{line} is zero{where or ' throughout'}, and should not be.",
            fit=1.0,
            hint="Look for a result that is not stored, a detach(), and a mask or a range that leaves entries out.",
        )
        return
    rest = abs(size) * segments.rest((each.claimed / size for each in looks), max(1.0, 1 / abs(size))) if size else 1.0
    if rest > ALIKE:
        return
    uncertain = math.hypot(*(each.bar for each in looks)) / math.sqrt(square)
    sign = abs(size + 1) <= uncertain
    yield Diagnosis(
        name="sign" if sign else "factor",
        message=f"{line} has the wrong sign{where}."
        if sign
        else f"{line} is about {size:.2g} times the right one{where}.",
        fit=1 - rest,
        hint="Look for a minus or a scale that is missing or applied twice, and for a sum where a mean is meant.",
    )


def _shifted(problem: Problem, result: SegmentResult, region: Region, seed: int) -> Iterator[Diagnosis]:
    """Diagnose claims that are right for the neighbour along a dimension, of a tensor that is wrong throughout."""
    subject, part = problem.subject, region.part
    axes = [axis for axis in part.axes if axis.length > FEW] if part else []
    if part is None or not axes or _where(region) or subject.mode == "forward":
        return
    inner = region.mask * 1.0
    for axis in axes:  # what is shifted in at the ends is unknown
        index = axis.indices(subject.arrays, part.size, subject.point)
        part.of(inner)[(index == 0) | (index == axis.length - 1)] = 0.0
    segments = _segments(problem, result, inner, seed)
    if segments is None:
        return
    claims = [part.of(_claim(subject, each)) for each in segments.looks]
    fits: list[tuple[float, Axis, int]] = []
    for axis in axes:
        for offset in (1, -1):
            predicted = (
                float(axis.rolled(subject.arrays, claim, offset=-offset) @ part.of(each.across))
                for claim, each in zip(claims, segments.looks, strict=True)
            )
            fits.append((segments.rest(predicted), axis, offset))
    (rest, axis, offset), (second, *_) = sorted(fits, key=lambda fit: fit[0])[:2]
    if rest <= ALIKE and 2 * rest < second:
        yield Diagnosis(
            name="shifted",
            message=f"{_line(subject, region)} is shifted by one{'' if offset > 0 else ' back'} along dimension "
            f"{axis.number}.",
            fit=1 - rest,
            hint="Look for an index that is off by one, and a range that starts or ends one too early.",
        )


def _claim(subject: Subject, seen: QuickSegment) -> Array:
    """Return the mean claim along a segment."""
    chord = seen.chord
    claims = [subject.pullback(chord.cotangent, subject.inputs.rounded(t * chord.step)) for t in GAUSS]
    return (claims[0] + claims[1]) / 2


def _block(region: Region) -> Iterator[Diagnosis]:
    """Diagnose a tensor that is wrong in one block of it, of half of its coordinates at most."""
    if region.part and 2 * region.count <= region.part.size:
        yield Diagnosis(
            name="block",
            message=f"What is wrong lies{_where(region)} of {region.first.path}.",
            fit=1.0,
            hint="Look at the mask or the bound of the last block, or at the block that computes this part.",
        )


def _line(subject: Subject, region: Region) -> str:
    first, last = region.first.path, region.last.path
    paths = first if first == last else f"{first} to {last}"
    return f"The gradient with respect to {paths}" if subject.mode == "reverse" else f"The tangent along {paths}"


def _where(region: Region) -> str:
    """Describe the block of a tensor that a region covers; empty if it covers the tensor."""
    places = []
    for axis, (low, high) in region.box.items():
        count = high - low
        if region.part is None or count == axis.length:
            continue
        ends = "first" if low == 0 else "last" if high == axis.length else ""
        place = f"in the {ends} {count} of {axis.length}" if ends else f"at indices {low} to {high - 1}"
        places.append(f"{place} along dimension {axis.number}")
    return " " + " and ".join(places) if places else ""
