"""The data of a report's pictures: the remainders of the Taylor test, and a heat map of the Jacobian's errors.

Remainders come from values that a probe has sampled already. A heat map is computed for a wrong gradient only, from
blocks of inputs and of outputs, so that a Jacobian of any size takes a few calls.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from gradproof.engine.contraction import SPREAD, inner, restricted, rounding_of_claims
from gradproof.engine.estimators.directional import Measured, slopes_along
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.options import Probing
from gradproof.engine.parts import Part, parts_of
from gradproof.engine.pieces import columns
from gradproof.engine.probe import Probe, rounding_floor
from gradproof.engine.results import HeatMap, Reading, TaylorPoint
from gradproof.engine.subject import Array, DerivativeError, Frame, Subject
from gradproof.engine.thresholds import FEW, LARGE, MANY, SAMPLE, TINY, WORK

Span = tuple[int, int]


def reading_of(probe: Probe) -> Reading:
    """Return a probe as a report shows it."""
    return Reading(
        seed=probe.seed,
        claimed=probe.claim.slope,
        numerical=probe.contraction.slope,
        bar=probe.bar,
        steps=remainders(probe),
        rounding=probe.contraction.floor,
    )


def remainders(probe: Probe) -> tuple[TaylorPoint, ...]:
    """Return |⟨u, f(x + hv) − f(x)⟩ − h·claim| at the steps h of a probe's ladder, where it is finite.

    A passing check of very many outputs has none unless they were computed already.
    """
    claim, reach = probe.claim.slope, probe.ladder.reach
    if not math.isfinite(claim):
        return ()
    changes = probe.contraction.ahead or _changes(probe)
    return tuple(
        TaylorPoint(step=t * reach, remainder=abs(change - t * claim)) for t, change in changes if math.isfinite(change)
    )


def _changes(probe: Probe) -> Iterator[tuple[float, float]]:
    """Yield ⟨u, f(x + tv) − f(x)⟩ at each step t, from the values that the ladder holds."""
    ladder, centre = probe.ladder, probe.ladder.subject.centre
    if len(ladder.samples) == 2 and centre.shape[0] > 4 * SAMPLE:
        return
    totals = columns(ladder.subject.arrays, [[probe.cotangent @ (sample.plus - centre) for sample in ladder.samples]])
    for sample, (total,) in zip(ladder.samples, totals, strict=True):
        known = math.isfinite(total)
        yield sample.t, total if known else inner(ladder.subject, probe.cotangent, sample.plus - centre)


def heat_map(
    subject: Subject, seed: int, options: Probing, *, blocks: int = MANY, measured: Measured | None = None
) -> tuple[HeatMap, ...]:
    """Return the Jacobian's errors along a direction, in blocks; nothing if no block by itself is outside its bar.

    A Jacobian that was `measured` is not measured again. A large function has no map.
    """
    if max(subject.inputs.size, subject.outputs.size) > LARGE:
        return ()
    blocks = min(blocks, WORK // (16 * (subject.inputs.size + subject.outputs.size)))
    if blocks < FEW:
        return ()
    direction = subject.direction(seed, options.first(subject))
    rows, columns = _cut(subject.outputs, blocks), _cut(subject.inputs, blocks)
    try:
        errors = _errors(subject, direction, seed, rows, columns, measured)
    except DerivativeError:
        return ()
    if not any(map(any, errors)):
        return ()
    return (
        HeatMap(
            rows=tuple(subject.outputs.locate(low) for low, _ in rows),
            columns=tuple(subject.inputs.locate(low) for low, _ in columns),
            errors=tuple(tuple(row) for row in errors),
            exact=len(rows) == subject.outputs.size and len(columns) == subject.inputs.size,
        ),
    )


def _cut(frame: Frame, blocks: int) -> list[Span]:
    """Cut the coordinates into about as many blocks as asked for.

    The edges of tensors are edges of blocks, if these are few enough, and a block holds whole slices of a tensor: it
    does not begin in the middle of a row.
    """
    parts = parts_of(frame)
    if len(parts) > blocks:
        count = min(blocks, frame.size)
        edges = [frame.size * number // count for number in range(count)]
    else:
        edges = [edge for part in parts for edge in _edges(part, max(1, round(blocks * part.size / frame.size)))]
    return list(pairwise([*edges, frame.size]))


def _edges(part: Part, count: int) -> list[int]:
    """Return where the blocks of a tensor begin: at most `count`, of equally many whole slices or nearly so."""
    outer, inner = 1, part.size
    for axis in part.axes:
        if outer * axis.length > count:
            pieces = count // outer
            cuts = [axis.length * number // pieces * axis.below for number in range(pieces)]
            return [part.start + number * inner + cut for number in range(outer) for cut in cuts]
        outer, inner = outer * axis.length, axis.below
    if outer * inner <= count:  # the parts of complex numbers
        outer, inner = outer * inner, 1
    return [part.start + number * inner for number in range(outer)]


def _errors(
    subject: Subject, direction: Array, seed: int, rows: list[Span], columns: list[Span], measured: Measured | None
) -> list[list[float]]:
    xp, cotangent = subject.arrays, subject.cotangent(seed)
    pieces = [restricted(subject, direction, *column) for column in columns]
    if subject.mode == "reverse":
        pulled = xp.stack([subject.pullback(restricted(subject, cotangent, *row)) for row in rows])
        claims = _sums(xp, pulled, direction, columns)
        entry, change = float(abs(pulled).max()), float(abs(pulled * direction).max())
    else:
        pushed = xp.stack([subject.pushforward(piece) for piece in pieces])
        claims, entry, change = _sums(xp, pushed, cotangent, rows).T, 0.0, 0.0
    directions, ladders = xp.stack(pieces), [Ladder(subject, piece) for piece in pieces]
    values, bars = slopes_along(subject, directions, measured)
    gap = abs(claims - _sums(xp, values, cotangent, rows).T)
    total, spread = _sums(xp, bars, abs(cotangent), rows), SPREAD * _root_sums(xp, bars, cotangent, rows)
    bar = xp.where(spread * spread > TINY, xp.minimum(total, spread), total).T
    size = abs(claims) + _root_sums(xp, values, cotangent, rows).T
    reach = xp.asarray([ladder.reach for ladder in ladders], dtype=values.dtype, device=values.device)
    length = _root_sums(xp, xp.ones_like(values[:1]), cotangent, rows).T
    left = xp.asarray(
        [rounding_floor(each, entry, change) for each in ladders], dtype=values.dtype, device=values.device
    )
    allowed = 3 * bar + rounding_of_claims(subject.numbers.precision) * size + left
    errors: list[list[float]] = xp.where((gap > allowed) & (reach > 0), gap / (reach * length), 0.0).tolist()
    return errors


def _sums(xp: Array, vectors: Array, weights: Array, spans: list[Span]) -> Array:
    """Return ⟨weights, vector⟩ within each span, for each vector, without entries that have no weight."""
    parts = xp.where(weights == 0, 0.0, vectors * weights)
    return xp.stack([parts[:, low:high].sum(1) for low, high in spans]).T


def _root_sums(xp: Array, vectors: Array, weights: Array, spans: list[Span]) -> Array:
    """Return the root of the sum of squares within each span, for each vector."""
    return xp.sqrt(_sums(xp, vectors * vectors, weights * weights, spans))
