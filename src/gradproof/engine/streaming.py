"""A large function in low precision, passed by sums alone.

A check of millions of entries is paid in memory traffic. Here no vector is kept: directions and incoming gradients are
drawn where they are used, and gradients and values are summed as they come. What the sums cannot settle beyond doubt
is left to `judge_rounded`, which asks the same questions of whole vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gradproof.engine.contraction import Claim, SampledValues, contracted_by_sums, rounding_of_claims
from gradproof.engine.estimators.extent import Lengths
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.rounding import Noise
from gradproof.engine.estimators.steps import BOTTOM, RATIO, first_step
from gradproof.engine.pictures import reading_of
from gradproof.engine.probe import Probe
from gradproof.engine.results import Resolution
from gradproof.engine.subject import Numbers, Subject
from gradproof.engine.thresholds import FEW, HANDFUL, ROUNDINGS, SLIGHT, TRACE, UNRESOLVED
from gradproof.engine.trust import enough_beside
from gradproof.engine.verdict import Judgement

OTHERS = (0, 2, 6)  # further incoming gradients, asked for as they are needed: hardly an entry is small for all seven
SECOND_DIRECTION = 7919  # added to the seed for a second direction, as `Evidence` does


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """What rounding may change in an entry: `share` of the root of its squares for several operands, plus `least`."""

    share: float
    least: float

    @classmethod
    def of(cls, numbers: Numbers, others: int) -> Rounding:
        """Return the rounding of entries whose squares are known for one operand and some others.

        With few others it is less than `allowances` has in the end; with more it is that of the root mean square.
        """
        operands = 1 + max(others, FEW)
        return cls(share=ROUNDINGS * numbers.precision / math.sqrt(operands), least=ROUNDINGS * numbers.tiny)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientSums:
    """Sums over the entries of a gradient g in double precision, along a direction v and beside low precision.

    `slope` is ⟨g, v⟩, `squares` the sum of squares of its parts, and `contribution` the largest part. `entry` is the
    largest entry. In low precision `outside` entries differ by more than rounding explains, and `hidden` is the largest
    error that rounding may hide.
    """

    slope: float
    squares: float
    contribution: float
    entry: float
    outside: int
    hidden: float


class Stream(Protocol):
    """A function in low precision and the same in double precision, whose vectors are summed as they come."""

    @property
    def numbers(self) -> Numbers:
        """The number format of the function in low precision."""
        ...

    @property
    def wide(self) -> Subject:
        """The function in double precision."""
        ...

    def gradients(self, rounding: Rounding, others: int) -> GradientSums | None:
        """Return the sums over both gradients, where rounding is known from some other incoming gradients too.

        None where the sums cannot be had.
        """
        ...

    def explains_outside(self) -> bool:
        """Return True if each entry outside moves as much when the point moves by a rounding: it is ill-conditioned."""
        ...

    def along_another(self) -> GradientSums | None:
        """Turn to another direction, and return the sums over the same gradients; None where they are gone."""
        ...

    def changes(self, steps: Sequence[float]) -> tuple[list[float], SampledValues] | None:
        """Return ⟨u, change in value⟩ at some steps, and a sample of the outputs; None where a call fails."""
        ...

    def lengths(self) -> Lengths:
        """Return how far the direction reaches."""
        ...


def judge_streamed(stream: Stream, seed: int) -> Judgement | None:
    """Return the judgement of a derivative that sums verify, or None where they leave a doubt."""
    gradients = _within_rounding(stream)
    probes = [] if gradients is None else _probes(stream, gradients, seed)
    if gradients is None or not probes:
        return None
    largest = max(gradients.hidden, *(probe.resolution for probe in probes))
    resolution = Resolution.of(largest, gradients.entry)
    if not resolution.relative <= UNRESOLVED:
        return None
    return Judgement(readings=tuple(map(reading_of, probes)), resolution=resolution)


def _within_rounding(stream: Stream) -> GradientSums | None:
    """Return the sums over both gradients, which differ by no more than rounding explains; None where they do."""
    for others in OTHERS:
        found = stream.gradients(Rounding.of(stream.numbers, others), others)
        if found is None or not math.isfinite(found.slope + found.squares) or not found.contribution:
            return None
        if not found.outside or (others == OTHERS[-1] and found.outside <= HANDFUL and stream.explains_outside()):
            return found
    return None


def _probes(stream: Stream, gradients: GradientSums, seed: int) -> list[Probe]:
    """Return the probe that settles the slope, or two of a function of one output; none where they leave a doubt.

    Of a single output another incoming gradient says nothing new, and another direction does.
    """
    first = _probe(stream, gradients, seed)
    if first is None or not _is_clear(first):
        return []
    if _suffices(first):
        return [first]
    further = stream.along_another() if stream.wide.outputs.size == 1 else None
    second = None if further is None else _probe(stream, further, seed + SECOND_DIRECTION)
    return [] if second is None or not _is_clear(second) else [first, second]


def _probe(stream: Stream, gradients: GradientSums, seed: int) -> Probe | None:
    """Return the claim along the direction beside the measured slope; None where it cannot be measured."""
    wide = stream.wide
    near, far = (RATIO**exponent for exponent in BOTTOM)
    found = stream.changes((-near, near, -far, far))
    if found is None:
        return None
    (contraction,) = contracted_by_sums(
        wide.arrays, [found[0]], found[1], outputs=wide.outputs.size, noise=Noise.of_type(wide.numbers)
    )
    precision = wide.numbers.precision
    rounded = rounding_of_claims(precision) * max(math.sqrt(gradients.squares), gradients.contribution)
    claim = Claim(
        slope=gradients.slope,
        rounding=rounded + precision * abs(gradients.slope),
        tolerated=0.0,
        largest_contribution=gradients.contribution,
        largest_entry=gradients.entry,
    )
    ladder = Ladder(wide, None, extent=stream.lengths()).without_values()
    return Probe(
        seed=seed,
        ladder=ladder,
        cotangent=None,
        claimed=None,
        contraction=contraction,
        claim=claim,
        enough=enough_beside(stream.numbers.precision),
    )


def _is_clear(probe: Probe) -> bool:
    return probe.agrees and not probe.coarse


def _suffices(probe: Probe) -> bool:
    """Return True if the bar hides no error of more than a few roundings, and the pass is not a weak one."""
    if probe.bar > SLIGHT * min(1.0, probe.enough) * probe.claim.largest_contribution:
        return False
    tensors = sum(start < stop for start, stop in probe.ladder.subject.inputs.spans)
    resolution = Resolution.of(probe.resolution, probe.claim.largest_entry)
    return resolution.relative <= (SLIGHT if tensors == 1 else TRACE)


def first_length(scale: float, precision: float) -> float:
    """Return the power of two nearest to the first step of a tensor of this scale, so that steps have few digits."""
    return 2.0 ** round(math.log2(first_step(precision) * scale))
