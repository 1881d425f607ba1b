"""Contractions with a cotangent: of the measured slopes of all outputs, with their bars, and of claimed ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.engine.estimators.differences import Estimates, Sample, best_slopes, extrapolated
from gradproof.engine.estimators.ladder import Ladder, slices
from gradproof.engine.estimators.steps import BOTTOM, RATIO
from gradproof.engine.options import Probing
from gradproof.engine.subject import Array, Subject

SPREAD = 2.0  # bars of many outputs add like independent errors; this many of their root-sum-squares count
CLAIM_ROUNDING = 4.0  # units of rounding granted to every entry of a claimed gradient
CLAIM_ACCURACY = 3e-10  # and this much of it: special functions' series give some ten digits, whatever their type
USUAL_WEIGHT = 0.76  # root mean square of a cotangent's entries
HANDFUL = 64  # outputs, up to which the plain sum of bars may be the smaller
CAUTION = 3.0  # bars of a ladder with more than two samples
GLIMPSE = 8  # of this many outputs the bar of one is looked at
UNDERFLOW = 1e-290  # a sum of squares below this has lost its terms


@dataclass(frozen=True, slots=True)
class Contraction:
    """⟨u, slope⟩, its bar, the bar that rounding alone would give, and the root of the sum of the parts' squares.

    `ahead` are the steps and ⟨u, change⟩ after each, where the values behind them were let go.
    """

    slope: float
    bar: float
    floor: float
    size: float
    ahead: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """⟨gradient, v⟩, how far rounding may have moved it, what the user forgives, and the sizes of its parts."""

    slope: float
    rounding: float
    tolerated: float
    largest_contribution: float
    largest_entry: float


def contract(ladder: Ladder, cotangent: Array, low: int = 0, high: int | None = None) -> Contraction:
    """Add the slopes of a range of outputs, weighted by the cotangent.

    The cotangent's signs are drawn independently of the errors, so the errors add like a random walk: the bar is a
    multiple of the root of the sum of squares, and never more than the plain sum.
    """
    (sums,) = contract_each(ladder, [cotangent], low, high)
    return sums


def contract_each(ladder: Ladder, cotangents: list[Array], low: int = 0, high: int | None = None) -> list[Contraction]:
    """The same for several cotangents, in one pass over the slopes."""
    totals = [_Total(ladder.subject.arrays, cotangent) for cotangent in cotangents]
    floors = plain_floors = 0.0
    for where, piece in ladder.pieces(low, ladder.subject.outputs.size if high is None else high):
        squares = float(piece.floor @ piece.floor)
        floors += squares
        if squares < UNDERFLOW:
            plain_floors += float(piece.floor.sum())
        for total in totals:
            total.add(where, piece)
    caution = CAUTION if len(ladder.samples) > 2 else 1.0
    floor = SPREAD * USUAL_WEIGHT * math.sqrt(floors) + plain_floors
    return [total.sums(caution, floor) for total in totals]


def glance(ladder: Ladder, cotangents: list[Array]) -> list[Contraction]:
    """Contract very many outputs on two samples, with bars from an eighth of them: enough where nothing is in doubt.

    The values are let go one after the other, the cotangents read slice by slice, and only the eighth is held.
    An output of which the slope is not known makes the sum NaN, and one with an odd bar may go unseen: then the bar is
    too small, not too wide, and what disagrees with it is contracted in full.
    """
    subject, around = ladder.subject, ladder.noise()
    xp = subject.arrays
    changes: list[list[float]] = []
    forward: list[list[tuple[float, float]]] = []
    samples: list[Sample] = []
    for t in (RATIO**exponent for exponent in BOTTOM):
        (minus, behind), (plus, ahead) = (_glimpsed(ladder, side, cotangents) for side in (-t, t))
        samples.append(Sample(t, minus, plus))
        forward.append([(t, change) for change in ahead])
        changes.append([0.5 / t * (after - before) for after, before in zip(ahead, behind, strict=True)])
    centre = _some(subject, subject.centre)
    totals = [_Total(xp, _some(subject, cotangent)) for cotangent in cotangents]
    floors = 0.0
    for where in slices(0, centre.shape[0]):
        cut = [Sample(sample.t, sample.minus[where], sample.plus[where]) for sample in samples]
        piece = best_slopes(xp, centre[where], cut, around)
        floors += float(piece.floor @ piece.floor)
        for total in totals:
            total.add(where, piece)
    widen = math.sqrt(subject.outputs.size / centre.shape[0])
    answers = []
    for total, near, far, *after in zip(totals, *changes, *forward, strict=True):
        seen = total.sums(1.0, SPREAD * USUAL_WEIGHT * math.sqrt(floors))
        bar, floor, size = widen * seen.bar, widen * seen.floor, widen * seen.size
        answers.append(Contraction(extrapolated(near, far), bar, floor, size, ahead=tuple(after)))
    return answers


def _glimpsed(ladder: Ladder, t: float, cotangents: list[Array]) -> tuple[Array, list[float]]:
    """An eighth of the values at one step, and how much all of them change under each cotangent."""
    subject, values = ladder.subject, ladder.values(t)
    changes = [0.0] * len(cotangents)
    for where in slices(0, subject.outputs.size):
        change = values[where] - subject.centre[where]
        for number, cotangent in enumerate(cotangents):
            changes[number] += float(cotangent[where] @ change)
    return _some(subject, values), changes


def _some(subject: Subject, vector: Array) -> Array:
    """The first eighth of every piece of a vector."""
    pieces = slices(0, subject.outputs.size)
    starts = [slice(piece.start, piece.start + -(-(piece.stop - piece.start) // GLIMPSE)) for piece in pieces]
    return subject.arrays.concatenate([vector[start] for start in starts])


@dataclass(slots=True)
class _Total:
    """Contraction in the making."""

    xp: Array
    cotangent: Array
    slope: float = 0.0
    plain: float = 0.0
    square: float = 0.0
    parts: float = 0.0

    def add(self, where: slice, piece: Estimates) -> None:
        u = self.cotangent[where]
        weighted = abs(u)
        weighted *= piece.bar
        square = float(weighted @ weighted)
        if not math.isfinite(square):  # an unknown slope with no weight is no loss
            weighted = self.xp.where(u == 0, 0.0, weighted)
            square = float(weighted @ weighted)
        self.square += square
        part = u * piece.value
        self.slope += float(part.sum())
        self.parts += float(part @ part)
        if u.shape[0] <= HANDFUL or square < UNDERFLOW:
            self.plain += float(weighted.sum())
        else:
            self.plain = math.inf

    def sums(self, caution: float, floor: float) -> Contraction:
        """The bar takes caution: of several bars for one slope the smallest is taken, which may be too small."""
        bar = min(self.plain, SPREAD * math.sqrt(self.square)) if self.square > UNDERFLOW else self.plain
        return Contraction(self.slope, caution * bar, floor, math.sqrt(self.parts))


def claimed(subject: Subject, direction: Array, cotangent: Array) -> tuple[Array, Array]:
    """What the derivative under test says, and what to weigh it with: together they predict ⟨u, Jv⟩."""
    if subject.mode == "forward":
        return subject.pushforward(direction), cotangent
    return subject.pullback(cotangent), direction


def predicted(subject: Subject, direction: Array, cotangent: Array) -> float:
    """⟨u, Jv⟩ as the derivative under test has it."""
    return inner(subject, *claimed(subject, direction, cotangent)[::-1])


def inner(subject: Subject, weights: Array, values: Array) -> float:
    """⟨weights, values⟩, leaving out what has no weight, finite or not."""
    total = float((weights * values).sum())
    if math.isfinite(total):
        return total
    return float(subject.arrays.where(weights == 0, 0.0, weights * values).sum())


def claim_of(gradient: Array, direction: Array, precision: float, options: Probing) -> Claim:
    """What a gradient predicts along a direction."""
    slope = square = largest = tolerated = entry = 0.0
    for where in slices(0, gradient.shape[0]):
        g, v = gradient[where], direction[where]
        contribution = g * v
        slope += float(contribution.sum())
        square += float(contribution @ contribution)
        largest = max(largest, float(contribution.max()), -float(contribution.min()))
        entry = max(entry, float(g.max()), -float(g.min()))
        if options.rtol or options.atol:
            allowed = abs(v) * (options.atol + options.rtol * abs(g))
            tolerated += float(allowed @ allowed)
    together = max(math.sqrt(square), largest)
    rounding = (CLAIM_ROUNDING * precision + CLAIM_ACCURACY) * together + precision * abs(slope)
    return Claim(slope, rounding, SPREAD * math.sqrt(tolerated), largest, entry)


def restricted(subject: Subject, vector: Array, low: int, high: int) -> Array:
    """The vector within a range of coordinates, and zero elsewhere."""
    piece = subject.arrays.zeros_like(vector)
    piece[low:high] = vector[low:high]
    return piece
