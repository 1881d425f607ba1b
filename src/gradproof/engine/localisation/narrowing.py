"""The wrong entries of a very large gradient, for few evaluations.

The slopes of all outputs along a probe's direction are known. So the outputs in which a wrong entry shows are found by
bisection with pullbacks alone. The entry is looked for among the inputs that the claim connects with these outputs, and
among all others only if it is not there: of a convolution that takes 7 evaluations, whatever its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from gradproof.engine.contraction import CAUTION, CLAIM_ACCURACY, SPREAD, claimed, inner, restricted
from gradproof.engine.localisation.bisection import middle_of, search
from gradproof.engine.localisation.partial_slopes import PartialSlopes, Piece, best_exponent
from gradproof.engine.localisation.suspect import Suspect
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe
from gradproof.engine.subject import Array, Subject

THROUGHOUT = 16  # evaluations for entries of a gradient that is wrong throughout: one example, and its neighbours
SCATTERED = 64  # and where errors are few, or in several arguments, each of which is to be named
ENTRY = 4  # evaluations that tell whether a single coordinate is wrong
FEW = 3  # entries at most
CLEAR = 4.0  # times its noise that the residual of a range of outputs must be
SHARE = 0.1  # of the whole: if the first entry makes up less, the gradient is wrong throughout, and its neighbours do
ADDITIVE = 0.02  # of the whole: so much may be missing of it, or too much, where there is a derivative


@dataclass(slots=True)
class Narrowed:
    """The coordinates under suspicion; whether there are more; and whether slopes along parts add up, if known."""

    suspects: list[Suspect] = field(default_factory=list)
    more: bool = False
    adds_up: bool | None = None


def narrow(probe: Probe, options: Probing) -> Narrowed:
    """The worst wrong entries behind a probe's disagreement, as many as a few evaluations show."""
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
    """A range of outputs, and what is claimed too much of them."""

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
        self.whole = self.rest = probe.claim.slope - probe.sums.slope
        self.suspects: list[Suspect] = []
        self.evaluations = self._first = 0
        self._siblings: list[_Range] = []
        self._neighbours: list[tuple[int, _Range]] = []

    def is_left(self) -> bool:
        """Whether the suspects do not make up the whole: of a function that has a derivative their errors add up."""
        slack = sum(suspect.bar * abs(suspect.step) for suspect in self.suspects) + self.probe.bar
        return abs(self.rest) > slack + ADDITIVE * max(abs(self.whole - self.rest), abs(self.whole))

    @property
    def _throughout(self) -> bool:
        """Whether the first suspect makes up so little of the whole that its neighbours are as good as any other."""
        return bool(self.suspects) and abs(self.suspects[0].error) < SHARE * abs(self.whole)

    def can_afford_another(self) -> bool:
        """Whether another suspect fits into the budget, as far as the first one tells."""
        if not self._throughout:
            return self.evaluations + self._first <= SCATTERED
        return self.evaluations + (ENTRY if self._neighbours else self._first) <= THROUGHOUT

    def find_another(self) -> bool:
        """Narrow the rest down to outputs and then to one coordinate; whether that is wrong."""
        if self._throughout and self._neighbours:
            return self._is_wrong(*self._neighbours.pop())
        if not (self._throughout and self._siblings):
            self._siblings = [_Range(0, self.subject.outputs.size, self.rest)]
        outputs = self._narrowed(self._siblings.pop())
        for two_sided in (False, True):
            coordinate, telling = self._coordinate(outputs, two_sided)
            if coordinate is not None and self._is_wrong(coordinate, outputs):
                self._first = self._first or self.evaluations
                return True
            if telling:
                break
        return False

    def _is_wrong(self, coordinate: int, outputs: _Range | None) -> bool:
        """Whether a coordinate is wrong by itself; then it is one of the suspects, and explained."""
        suspect = Suspect(self.probe, coordinate, self.exponent)
        self.evaluations += ENTRY
        if not suspect.excess > 0:
            return False
        if outputs is not None and outputs.high - outputs.low == 1:
            suspect.follow_to(outputs.low)
        self.suspects.append(suspect)
        self.rest -= suspect.error
        self.direction = self.direction * 1.0  # another object, by which a subject knows it as new
        self.direction[coordinate] = 0.0
        self.slopes[slice(None) if suspect.moving is None else suspect.moving] -= suspect.estimates.value
        return True

    def _narrowed(self, outputs: _Range) -> _Range:
        """The outputs that carry the error, as few as their noise allows; the rest of them is remembered."""
        edges = sorted({start for start, _ in self.subject.outputs.spans})
        while outputs.high - outputs.low > 1:
            middle = middle_of(outputs.low, outputs.high, edges)
            left = self._residual(outputs.low, middle)
            halves = [_Range(outputs.low, middle, left), _Range(middle, outputs.high, outputs.error - left)]
            other, worse = sorted(halves, key=lambda half: abs(half.error))
            if not abs(worse.error) > CLEAR * self._noise(worse):
                break
            if abs(other.error) > CLEAR * self._noise(other):
                self._siblings.append(other)
            outputs = worse
        return outputs

    def _residual(self, low: int, high: int) -> float:
        """What is claimed too much of a range of outputs along the direction."""
        cotangent = restricted(self.subject, self.probe.cotangent, low, high)
        vector, weights = claimed(self.subject, self.direction, cotangent)
        measured = float(cotangent[low:high] @ self.slopes[low:high])
        return inner(self.subject, weights, vector) - measured

    def _noise(self, outputs: _Range) -> float:
        """How far bars and rounding may set that off."""
        within = slice(outputs.low, outputs.high)
        bars, slopes = self.bars[within], self.probe.cotangent[within] * self.slopes[within]
        squares = (CAUTION * SPREAD) ** 2 * float(bars @ bars) + CLAIM_ACCURACY**2 * float(slopes @ slopes)
        return math.sqrt(squares)

    def _coordinate(self, outputs: _Range, two_sided: bool) -> tuple[int | None, bool]:
        """The coordinate that moves these outputs otherwise than claimed; and whether it was asked about both sides."""
        within = slice(outputs.low, outputs.high)
        contraction = PartialSlopes(self.probe, within, error=outputs.error, two_sided=two_sided)
        line = _Line(
            self.subject, self.direction, restricted(self.subject, self.probe.cotangent, within.start, within.stop)
        )

        def residual(low: int, high: int) -> float:
            part, claim = line.part(low, high)
            slope = contraction.slope(part)
            return claim - slope if math.isfinite(slope) else 0.0

        outcome = search(line.size, line.spans, residual, threshold=contraction.noise, whole=outputs.error, most=1)
        self.evaluations += contraction.evaluations
        alone = [low for low, high in outcome.left if high - low == 1]
        self._neighbours = [(line.coordinate(place), outputs) for place in alone]
        return (line.coordinate(outcome.found[0]) if outcome.found else None), not contraction.one_sided

    def find_in_other_arguments(self) -> None:
        """Look for one wrong coordinate in each argument that has none among the suspects."""
        spans = self.subject.inputs.spans
        named = {suspect.argument for suspect in self.suspects}
        others = [span for span in spans if span[0] < span[1] and self.subject.inputs.locate(span[0]).path not in named]
        if not others or not self.suspects:
            return
        contraction = PartialSlopes(self.probe, slice(0, self.subject.outputs.size), error=self.rest)
        piece = Piece(self.subject, self.direction)

        def residual(low: int, high: int) -> float:
            part = piece.of(slice(low, high))
            slope = contraction.slope(part)
            return self.probe.predicted(part) - slope if math.isfinite(slope) else 0.0

        for start, stop in others:
            whole = residual(start, stop)
            if not abs(whole) > contraction.noise or self.evaluations + contraction.evaluations > SCATTERED:
                continue
            terms = {"threshold": contraction.noise, "whole": whole}
            outcome = search(stop - start, [(0, stop - start)], partial(_from, start, residual), most=1, **terms)
            for place in outcome.found:
                self._is_wrong(start + place, None)
        self.evaluations += contraction.evaluations

    def halves_add_up(self, options: Probing) -> bool:
        """Whether slopes along two random halves of the inputs make up that along all, as where there is a derivative.

        Of inputs that tie it is not so, and what they are said to be wrong by is no less than what is missing.
        """
        subject = self.subject
        contraction = PartialSlopes(self.probe, slice(0, subject.outputs.size), error=self.whole)
        whole = self.probe.ladder.direction
        sides = subject.direction(self.probe.seed + 1, options.first(subject))
        half = subject.arrays.where(sides > 0, whole, 0.0)
        missing = contraction.slope(half) + contraction.slope(whole - half) - self.probe.sums.slope
        return abs(missing) <= ADDITIVE * abs(self.whole) + CLEAR * contraction.noise


class _Line:
    """The inputs in a row: first those that a claim connects with some outputs, then all others.

    Nothing is known of connections in forward mode, where all inputs are others.
    """

    def __init__(self, subject: Subject, direction: Array, cotangent: Array) -> None:
        self._subject, self._direction, self._cotangent = subject, direction, cotangent
        self._reverse = subject.mode == "reverse"
        self._gradient = subject.pullback(cotangent) if self._reverse else subject.arrays.zeros_like(direction)
        self._connected = subject.arrays.where((self._gradient != 0) & (direction != 0))[0]
        self._near = int(self._connected.shape[0])
        others = direction * 1.0
        others[self._connected] = 0.0
        self._nearby, self._others = Piece(subject, direction), Piece(subject, others)
        self.size = self._near + subject.inputs.size
        self.spans = [span for span in ((0, self._near), (self._near, self.size)) if span[0] < span[1]]

    def part(self, low: int, high: int) -> tuple[Array, float]:
        """The direction within a range of places, all of them connected or none; and the slope claimed along it."""
        if high <= self._near:
            where = self._connected[low:high]
            return self._nearby.of(where), float(self._gradient[where] @ self._direction[where])
        part = self._others.of(slice(max(0, low - self._near), high - self._near))
        return part, 0.0 if self._reverse else float(self._cotangent @ self._subject.pushforward(part))

    def coordinate(self, place: int) -> int:
        """The input at a place."""
        return int(self._connected[place]) if place < self._near else place - self._near


def _from(low: int, residual: Callable[[int, int], float], first: int, last: int) -> float:
    return residual(low + first, low + last)
