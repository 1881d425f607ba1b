"""The two sides of a comparison: the measured slopes of all outputs under a cotangent, and what a gradient claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gradproof.engine.estimators.differences import Estimates, best_slopes, extrapolated
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.estimators.rounding import Noise
from gradproof.engine.estimators.sample import Sample
from gradproof.engine.estimators.steps import BOTTOM, RATIO
from gradproof.engine.options import Probing
from gradproof.engine.pieces import CACHED, columns, extremes, piece_of, slices
from gradproof.engine.subject import Array, Subject
from gradproof.engine.thresholds import CLEARLY, TINY

SPREAD = 2.0  # root-sum-squares of the outputs' bars in the bar of their sum: random signs make errors independent
CLAIM_ACCURACY = 3e-10  # relative, of a claim: series of special functions give some ten digits in any precision
USUAL_WEIGHT = 0.76  # root mean square of a cotangent's entries: √(7/12) of a uniform variable in [½, 1]
CAUTION = 3.0  # times the bar of a ladder of more than two samples: the smallest of several bars may be too small
SAMPLED = 8  # outputs for one of which the bar is computed where the bars are sampled


@dataclass(frozen=True, slots=True)
class Contraction:
    """⟨u, slope⟩, its bar, the bar that rounding alone would give, and the root of the sum of the parts' squares.

    `ahead` has pairs of a step and ⟨u, change⟩ after it, where the values themselves are not kept.
    """

    slope: float
    bar: float
    floor: float
    size: float
    ahead: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """⟨gradient, v⟩, how far rounding may have moved it, what the user tolerates, and the sizes of its parts."""

    slope: float
    rounding: float
    tolerated: float
    largest_contribution: float
    largest_entry: float


def rounding_of_claims(precision: float) -> float:
    """Return how far rounding may have moved an entry of a claimed gradient, relative to its size."""
    return CLEARLY * precision + CLAIM_ACCURACY


def contract(ladder: Ladder, cotangent: Array, low: int = 0, high: int | None = None) -> Contraction:
    """Add the slopes of a range of outputs, weighted by the cotangent.

    The cotangent's signs are drawn independently of the errors, so the errors add like a random walk: the bar is a
    multiple of the root of the sum of squares, and never more than the sum of the bars.
    """
    (contraction,) = contract_each(ladder, [cotangent], low, high)
    return contraction


def contract_each(ladder: Ladder, cotangents: list[Array], low: int = 0, high: int | None = None) -> list[Contraction]:
    """Contract with several cotangents in one pass over the slopes."""
    xp, stop = ladder.subject.arrays, ladder.subject.outputs.size if high is None else high
    caution = CAUTION if len(ladder.samples) > 2 else 1.0
    return _contracted(xp, lambda: ladder.pieces(low, stop), cotangents, caution)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledValues:
    """A sample of the outputs: their values at the point and at the steps −1, 1, −4 and 4, and some cotangents."""

    centre: Array
    beside: Sequence[Array]
    cotangents: Sequence[Array]


def contract_with_sampled_bars(ladder: Ladder, cotangents: list[Array]) -> list[Contraction]:
    """Contract on the first two samples with bars from an eighth of the outputs: enough if claim and slope agree.

    The values at one step are dropped before those at the next are evaluated, unless the ladder has them. An output
    whose slope is unknown makes the sum NaN. A wide bar may be missed; then the bar of the sum is too small, and a
    disagreement with it is examined with the bars of all outputs.
    """
    subject, xp, noise = ladder.subject, ladder.subject.arrays, ladder.noise()
    near, far = (RATIO**exponent for exponent in BOTTOM)

    def at(t: float) -> tuple[Array, list[Array]]:
        values = ladder.values(t)
        return _sampled(xp, values), _changes(subject, values, cotangents)

    beside, changes = zip(*map(at, (-near, near, -far, far)), strict=True)
    chosen = [_sampled(xp, cotangent) for cotangent in cotangents]
    sampled = SampledValues(centre=_sampled(xp, subject.centre), beside=beside, cotangents=chosen)
    return contracted_by_sums(xp, columns(xp, changes), sampled, outputs=subject.outputs.size, noise=noise)


def contracted_by_sums(
    xp: Array, changes: Sequence[Sequence[float]], sampled: SampledValues, *, outputs: int, noise: Noise
) -> list[Contraction]:
    """Return the contractions whose four sums of changes are known, with the bars that a sample of the outputs has."""
    near, far = (RATIO**exponent for exponent in BOTTOM)

    def pieces() -> Iterator[tuple[slice, Estimates]]:
        for where in slices(0, sampled.centre.shape[0], piece_of(sampled.centre)):
            behind, ahead, far_behind, far_ahead = (values[where] for values in sampled.beside)
            samples = [Sample(near, behind, ahead), Sample(far, far_behind, far_ahead)]
            yield where, best_slopes(xp, sampled.centre[where], samples, noise)

    widen = math.sqrt(outputs / sampled.centre.shape[0])
    contractions = []
    for contraction, totals in zip(_contracted(xp, pieces, list(sampled.cotangents)), changes, strict=True):
        behind, ahead, far_behind, far_ahead = totals
        slope = extrapolated((ahead - behind) * (0.5 / near), (far_ahead - far_behind) * (0.5 / far))
        bar, floor, size = (widen * each for each in (contraction.bar, contraction.floor, contraction.size))
        contractions.append(Contraction(slope, bar, floor, size, ahead=((near, ahead), (far, far_ahead))))
    return contractions


def _changes(subject: Subject, values: Array, cotangents: list[Array]) -> list[Array]:
    """Return ⟨u, value − centre⟩ for each cotangent u."""
    changes: list[Array] = [0.0] * len(cotangents)
    for where in slices(0, subject.outputs.size, piece_of(values)):
        change = values[where] - subject.centre[where]
        changes = [total + cotangent[where] @ change for total, cotangent in zip(changes, cotangents, strict=True)]
    return changes


def _sampled(xp: Array, vector: Array) -> Array:
    """Return the first eighth of every piece of a vector, whatever its device."""
    whole = vector.shape[0] // CACHED * CACHED
    starts, rest = vector[:whole].reshape(-1, CACHED)[:, : CACHED // SAMPLED].reshape(-1), vector[whole:]
    return xp.concatenate([starts, rest[: math.ceil(rest.shape[0] / SAMPLED)]]) if rest.shape[0] else starts


def _contracted(
    xp: Array,
    pieces: Callable[[], Iterable[tuple[slice, Estimates]]],
    cotangents: list[Array],
    caution: float = 1.0,
) -> list[Contraction]:
    """Add up the slopes and bars of some outputs, piece by piece; all numbers are taken out at the end."""

    def totals(*, known: bool) -> list[float]:
        rows = (_row(xp, piece, [each[where] for each in cotangents], known=known) for where, piece in pieces())
        return [sum(column) for column in columns(xp, rows)]

    found = totals(known=True)
    if not math.isfinite(sum(found)):
        found = totals(known=False)
    floor = SPREAD * USUAL_WEIGHT * math.sqrt(found[0])
    if found[0] < TINY:
        floor = sum(float(piece.floor.sum()) for _, piece in pieces())
    contractions = []
    for slope, parts, squares, total in zip(*(found[start::4] for start in (1, 2, 3, 4)), strict=True):
        root = SPREAD * math.sqrt(squares) if squares > TINY else math.inf
        contractions.append(Contraction(slope, caution * min(total, root), floor, math.sqrt(parts)))
    return contractions


def _row(xp: Array, piece: Estimates, weights: list[Array], *, known: bool) -> list[Array]:
    """Return the sums of one piece: of the squared floors, and under each cotangent of the slopes and of the bars.

    Unless all slopes are `known`, outputs without weight are left out: an infinite bar times zero is NaN.
    """
    row = [piece.floor @ piece.floor]
    for u in weights:
        part, bar = u * piece.value, abs(u)
        bar *= piece.bar
        if not known:
            bar = xp.where(u == 0, 0.0, bar)
        row += [part.sum(), part @ part, bar @ bar, bar.sum()]
    return row


def claimed(subject: Subject, direction: Array, cotangent: Array, at: Array | None = None) -> tuple[Array, Array]:
    """Return the derivative under test, Jᵀu or Jv, and the vector whose inner product with it is ⟨u, Jv⟩."""
    if subject.mode == "forward":
        return subject.pushforward(direction, at), cotangent
    return subject.pullback(cotangent, at), direction


def predicted(subject: Subject, direction: Array, cotangent: Array) -> float:
    """Return ⟨u, Jv⟩ according to the derivative under test."""
    return inner(subject, *claimed(subject, direction, cotangent)[::-1])


def inner(subject: Subject, weights: Array, values: Array) -> float:
    """Return ⟨weights, values⟩ without the values that have no weight, finite or not."""
    total = float(weights @ values)
    if math.isfinite(total):
        return total
    return float(subject.arrays.where(weights == 0, 0.0, weights * values).sum())


def claim_of(subject: Subject, gradient: Array, direction: Array, options: Probing) -> Claim:
    """Return what a gradient predicts along a direction."""
    xp, precision, rows = subject.arrays, subject.numbers.precision, []
    for where in slices(0, gradient.shape[0], piece_of(gradient)):
        g, v = gradient[where], direction[where]
        part = g * v
        row = [part.sum(), part @ part, *extremes(xp, part), *extremes(xp, g)]
        if options.rtol or options.atol:
            allowed = abs(v) * (options.atol + options.rtol * abs(g))
            row.append(allowed @ allowed)
        rows.append(row)
    slopes, squares, least, most, low, high, *allowances = columns(xp, rows)
    slope, tolerated = sum(slopes), sum(map(sum, allowances))
    largest, entry = max(0.0, *most, *map(abs, least)), max(0.0, *high, *map(abs, low))  # zero, where all are NaN
    rounding = rounding_of_claims(precision) * max(math.sqrt(sum(squares)), largest)
    return Claim(slope, rounding + precision * abs(slope), SPREAD * math.sqrt(tolerated), largest, entry)


def restricted(subject: Subject, vector: Array, low: int, high: int) -> Array:
    """Return the vector within a range of coordinates, and zero elsewhere."""
    piece = subject.arrays.zeros_like(vector)
    piece[low:high] = vector[low:high]
    return piece
