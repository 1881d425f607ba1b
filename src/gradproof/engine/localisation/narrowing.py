"""The wrong entries of a very large gradient, from few evaluations.

The slopes of all outputs along a probe's direction are known, so that bisection over the outputs takes pullbacks alone.
It ends at the outputs that a wrong entry affects. The entry is looked for among the inputs that the claim connects with
these outputs, and among all others only if it is not there. For a convolution that takes 7 evaluations at any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from gradproof.engine.contraction import CAUTION, CLAIM_ACCURACY, SPREAD, claimed, inner, restricted
from gradproof.engine.estimators.steps import BOTTOM
from gradproof.engine.localisation.bisection import middle_of, search
from gradproof.engine.localisation.partial_slopes import PartialSlopes, Piece, best_exponent
from gradproof.engine.localisation.suspect import Suspect
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CLEARLY, COARSEST, FEW, HANDFUL, MANY, SHARE, STEADY


@dataclass(slots=True)
class Narrowed:
    """The suspected coordinates; whether there are more; and whether slopes along parts add up, if known."""

    suspects: list[Suspect] = field(default_factory=list)
    more: bool = False
    adds_up: bool | None = None


def narrow(probe: Probe, options: Probing) -> Narrowed:
    """Find the worst wrong entries behind a probe's disagreement, as many as a few evaluations show."""
    found = _Narrowing(probe)
    while len(found.suspects) < FEW and found.can_afford_another() and found.is_left():
        if not found.find_another():
            break
    if found.is_left():
        found.find_in_other_arguments()
    more = found.is_left()
    return Narrowed(found.suspects, more, found.halves_add_up(options) if more else True)


@dataclass(frozen=True, slots=True)
class _Range:
    """A range of outputs, and their claimed slope less the measured one."""

    low: int
    high: int
    error: float


class _Narrowing:
    """A probe's disagreement, less what the suspects found so far explain of it."""

    def __init__(self, probe: Probe) -> None:
        self.probe, self.subject = probe, probe.ladder.subject
        self.exponent = best_exponent(probe)
        estimates = probe.ladder.estimates()
        xp, self.direction = self.subject.arrays, probe.ladder.direction * 1.0
        self.slopes = xp.where(xp.isfinite(estimates.bar), estimates.value, 0.0)
        self.bars = xp.where(probe.cotangent == 0, 0.0, abs(probe.cotangent) * estimates.bar)
        self.whole = self.rest = probe.error
        self.suspects: list[Suspect] = []
        self._tried = self._first = 0
        self._measured_parts: list[PartialSlopes] = []
        self._siblings: list[_Range] = []
        self._cotangents = Piece(self.subject, probe.cotangent)
        self._neighbours: list[tuple[int, _Range]] = []

    @property
    def evaluations(self) -> int:
        """The evaluations so far."""
        return 2 * len(BOTTOM) * self._tried + sum(each.evaluations for each in self._measured_parts)

    def _partial_slopes(self, outputs: _Range, *, two_sided: bool = False) -> PartialSlopes:
        within = slice(outputs.low, outputs.high)
        self._measured_parts.append(PartialSlopes(self.probe, within, error=outputs.error, two_sided=two_sided))
        return self._measured_parts[-1]

    def is_left(self) -> bool:
        """Return True if the errors of the suspects do not add up to the whole."""
        slack = sum(suspect.bar * abs(suspect.step) for suspect in self.suspects) + self.probe.bar
        return abs(self.rest) > slack + STEADY * max(abs(self.whole - self.rest), abs(self.whole))

    @property
    def _throughout(self) -> bool:
        """Whether the first suspect is a small part of the error. Then its neighbours are likely to be wrong too."""
        return bool(self.suspects) and abs(self.suspects[0].error) < SHARE * abs(self.whole)

    def can_afford_another(self) -> bool:
        """Return True if another suspect fits into the budget, going by the evaluations that the first one took."""
        if not self._throughout:
            return self.evaluations + self._first <= HANDFUL
        return self.evaluations + (2 * len(BOTTOM) if self._neighbours else self._first) <= MANY

    def find_another(self) -> bool:
        """Narrow the rest down to outputs and then to one coordinate; return True if that is wrong."""
        if self._throughout and self._neighbours:
            return self._is_wrong(*self._neighbours.pop())
        if not (self._throughout and self._siblings):
            self._siblings = [_Range(0, self.subject.outputs.size, self.rest)]
        outputs = self._narrowed(self._siblings.pop())
        found = any(self._is_wrong(coordinate, outputs) for coordinate in self._candidates(outputs))
        self._first = self._first or self.evaluations
        return found

    def _is_wrong(self, coordinate: int, outputs: _Range | None) -> bool:
        """Return True if a coordinate is wrong by itself, and add it to the suspects."""
        suspect = Suspect(self.probe, coordinate, self.exponent)
        self._tried += 1
        if not suspect.excess > 0:
            return False
        if outputs is not None and outputs.high - outputs.low == 1:
            suspect.follow_to(outputs.low)
        self.suspects.append(suspect)
        self.rest -= suspect.error
        self.direction = self.direction * 1.0  # a new object: subjects cache by identity
        self.direction[coordinate] = 0.0
        self.slopes[slice(None) if suspect.moving is None else suspect.moving] -= suspect.estimates.value
        return True

    def _narrowed(self, outputs: _Range) -> _Range:
        """Bisect for the outputs that carry the error, as few as their noise allows, and keep the other halves."""
        edges = sorted({start for start, _ in self.subject.outputs.spans})
        while outputs.high - outputs.low > 1:
            middle = middle_of(outputs.low, outputs.high, edges)
            left = self._residual(outputs.low, middle)
            halves = [_Range(outputs.low, middle, left), _Range(middle, outputs.high, outputs.error - left)]
            other, worse = sorted(halves, key=lambda half: abs(half.error))
            if not abs(worse.error) > CLEARLY * self._noise(worse):
                break
            if abs(other.error) > CLEARLY * self._noise(other):
                self._siblings.append(other)
            outputs = worse
        return outputs

    def _residual(self, low: int, high: int) -> float:
        """Return the claimed slope of a range of outputs less the measured one."""
        cotangent = self._cotangents.of(slice(low, high))
        vector, weights = claimed(self.subject, self.direction, cotangent)
        measured = float(cotangent[low:high] @ self.slopes[low:high])
        return inner(self.subject, weights, vector) - measured

    def _noise(self, outputs: _Range) -> float:
        """Return the error that bars and rounding may give the residual of a range of outputs."""
        within = slice(outputs.low, outputs.high)
        bars, slopes = self.bars[within], self.probe.cotangent[within] * self.slopes[within]
        squares = (CAUTION * SPREAD) ** 2 * float(bars @ bars) + CLAIM_ACCURACY**2 * float(slopes @ slopes)
        return math.sqrt(squares)

    def _candidates(self, outputs: _Range) -> Iterator[int]:
        """Yield coordinates that may move these outputs otherwise than claimed.

        The first is that of a lone error, if there is one. The others come from bisection, with slopes from one side of
        the point, if that is enough, and from both.
        """
        cotangent = restricted(self.subject, self.probe.cotangent, outputs.low, outputs.high)
        line, error = _Line(self.subject, self.direction, cotangent), outputs.error
        for two_sided in (False, True):
            partial_slopes = self._partial_slopes(outputs, two_sided=two_sided)

            def residual(low: int, high: int, slopes: PartialSlopes = partial_slopes) -> float:
                part, claim = line.part(low, high)
                slope = slopes.slope(part)
                return claim - slope if math.isfinite(slope) else 0.0

            if not two_sided and line.connected > 2 and line.connected * partial_slopes.noise < COARSEST * abs(error):
                part, claim = line.weighted()
                place = line.connected * (claim - partial_slopes.slope(part)) / error - 1
                if -0.5 < place < line.connected - 0.5 and abs(place - round(place)) < COARSEST:
                    yield line.coordinate(round(place))
            outcome = search(line.size, line.spans, residual, threshold=partial_slopes.noise, whole=error, most=1)
            alone = [low for low, high in outcome.left if high - low == 1]
            self._neighbours = [(line.coordinate(place), outputs) for place in alone]
            yield from map(line.coordinate, outcome.found)
            if not partial_slopes.one_sided:
                return

    def find_in_other_arguments(self) -> None:
        """Find one wrong coordinate in each argument that has none among the suspects."""
        spans = self.subject.inputs.spans
        named = {suspect.argument for suspect in self.suspects}
        others = [span for span in spans if span[0] < span[1] and self.subject.inputs.locate(span[0]).path not in named]
        if not others or not self.suspects:
            return
        partial_slopes = self._partial_slopes(_Range(0, self.subject.outputs.size, self.rest))
        piece = Piece(self.subject, self.direction)

        def residual(low: int, high: int) -> float:
            part = piece.of(slice(low, high))
            slope = partial_slopes.slope(part)
            return self.probe.predicted(part) - slope if math.isfinite(slope) else 0.0

        for start, stop in others:
            whole = residual(start, stop)
            if not abs(whole) > partial_slopes.noise or self.evaluations > HANDFUL:
                continue
            terms = {"threshold": partial_slopes.noise, "whole": whole}
            outcome = search(stop - start, [(0, stop - start)], partial(_from, start, residual), most=1, **terms)
            for place in outcome.found:
                self._is_wrong(start + place, None)

    def halves_add_up(self, options: Probing) -> bool:
        """Return True if slopes along two random halves of the inputs add up to the slope along all.

        They do where a derivative exists, and do not where inputs tie: there the difference is as large as the error.
        """
        subject = self.subject
        partial_slopes = self._partial_slopes(_Range(0, subject.outputs.size, self.whole))
        whole = self.probe.ladder.direction
        sides = subject.direction(self.probe.seed + 1, options.first(subject))
        half = subject.arrays.where(sides > 0, whole, 0.0)
        missing = partial_slopes.slope(half) + partial_slopes.slope(whole - half) - self.probe.contraction.slope
        return abs(missing) <= STEADY * abs(self.whole) + CLEARLY * partial_slopes.noise


class _Line:
    """The inputs in an order for bisection: first those that a claim connects with some outputs, then all others.

    In forward mode no connections are known, and all inputs are others.
    """

    def __init__(self, subject: Subject, direction: Array, cotangent: Array) -> None:
        self._subject, self._direction, self._cotangent = subject, direction, cotangent
        self._reverse = subject.mode == "reverse"
        self._gradient = subject.pullback(cotangent) if self._reverse else subject.arrays.zeros_like(direction)
        self._connected = subject.arrays.where((self._gradient != 0) & (direction != 0))[0]
        self.connected = int(self._connected.shape[0])
        others = direction * 1.0
        others[self._connected] = 0.0
        self._connected_part, self._other_part = Piece(subject, direction), Piece(subject, others)
        self.size = self.connected + subject.inputs.size
        self.spans = [span for span in ((0, self.connected), (self.connected, self.size)) if span[0] < span[1]]

    def weighted(self) -> tuple[Array, float]:
        """Return the direction of the connected inputs, each times its place, and the slope claimed along it.

        The residual of a lone error, divided by the error, is then its place: places are numbered from 1/n to 1.
        """
        xp, part = self._subject.arrays, self._connected_part.of(self._connected)
        places = xp.arange(1, self.connected + 1, dtype=part.dtype, device=part.device) / self.connected
        part[self._connected] *= places
        return part, float(self._gradient @ part)

    def part(self, low: int, high: int) -> tuple[Array, float]:
        """Return the direction within a range of places, all connected or none, and the slope claimed along it."""
        if high <= self.connected:
            where = self._connected[low:high]
            return self._connected_part.of(where), float(self._gradient[where] @ self._direction[where])
        part = self._other_part.of(slice(max(0, low - self.connected), high - self.connected))
        return part, 0.0 if self._reverse else float(self._cotangent @ self._subject.pushforward(part))

    def coordinate(self, place: int) -> int:
        """Return the input at a place."""
        return int(self._connected[place]) if place < self.connected else place - self.connected


def _from(low: int, residual: Callable[[int, int], float], first: int, last: int) -> float:
    return residual(low + first, low + last)
