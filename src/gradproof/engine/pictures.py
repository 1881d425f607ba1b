"""What pictures of a check show, as data: the Taylor test's remainders, and where a Jacobian is wrong.

Remainders come from values that a probe has seen anyway. A heat map is drawn of a wrong gradient only: blocks of inputs
are moved one after the other, and blocks of outputs are asked about, so that a Jacobian of any size costs a few calls.
"""

from __future__ import annotations

import math

from gradproof.engine.ladder import Ladder, first_step
from gradproof.engine.probe import DUST, Probe
from gradproof.engine.results import HeatMap, TaylorPoint
from gradproof.engine.subject import Array, DerivativeError, Frame, Subject
from gradproof.engine.weighing import CLAIM_ACCURACY, CLAIM_ROUNDING, Probing, combine, restricted, weighed

BLOCKS = 16  # of inputs and of outputs, for a gradient that was probed
FULL_BLOCKS = 64  # and for one of which every entry was looked at, which costs more calls than that in any case
WORK = 1 << 25  # numbers that may be computed for a map; a larger function gets fewer blocks
FEWEST = 4  # blocks that make a map worth its calls
TRIFLE = 1 << 14  # outputs of a plain check, up to which its remainders cost next to nothing

Span = tuple[int, int]


def remainders(probe: Probe) -> tuple[TaylorPoint, ...]:
    """|⟨u, f(x + hv) − f(x)⟩ − h·claim| at the steps h of a probe's ladder, where it is finite.

    Nothing where it would cost a plain check of very many outputs more than a trifle.
    """
    ladder, claim, centre = probe.ladder, probe.claim.slope, probe.ladder.subject.centre
    if not math.isfinite(claim) or (len(ladder.rungs) == 2 and centre.shape[0] > TRIFLE):
        return ()
    reach = ladder.reach
    points = []
    for rung in ladder.rungs:
        change = rung.plus - centre
        total = float(probe.cotangent @ change)
        if not math.isfinite(total):
            total = weighed(ladder.subject, probe.cotangent, change)
        if math.isfinite(total):
            points.append(TaylorPoint(step=rung.t * reach, remainder=abs(total - rung.t * claim)))
    return tuple(points)


def heat_map(subject: Subject, seed: int, options: Probing, *, blocks: int = BLOCKS) -> tuple[HeatMap, ...]:
    """The Jacobian's error along a direction, in blocks; nothing where no block by itself lies outside its bar."""
    blocks = min(blocks, WORK // (4 * (subject.inputs.size + subject.outputs.size)))
    if blocks < FEWEST:
        return ()
    direction = subject.direction(seed, options.step or first_step(subject.precision), options.step is not None)
    rows, columns = _cut(subject.outputs, blocks), _cut(subject.inputs, blocks)
    try:
        errors = _errors(subject, direction, seed, rows, columns)
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
    """Blocks of coordinates, about as many as asked for, none of them across two tensors where that can be."""
    spans = [span for span in frame.spans if span[0] < span[1]]
    if len(spans) > blocks:
        spans = [(0, frame.size)]
    cut = []
    for low, high in spans:
        size = high - low
        count = max(1, min(size, round(blocks * size / frame.size)))
        cut += [(low + size * number // count, low + size * (number + 1) // count) for number in range(count)]
    return cut


def _errors(subject: Subject, direction: Array, seed: int, rows: list[Span], columns: list[Span]) -> list[list[float]]:
    cotangent = subject.cotangent(seed)
    weights = [restricted(subject, cotangent, *row) for row in rows]
    reverse = subject.mode == "reverse"
    pulled = [subject.pullback(weight) for weight in weights] if reverse else []
    size = max((float(abs(gradient).max()) for gradient in pulled), default=0.0)
    errors = [[0.0] * len(columns) for _ in rows]
    for j, column in enumerate(columns):
        piece = restricted(subject, direction, *column)
        ladder = Ladder(subject, piece)
        ladder.add(0)
        ladder.add(1)
        ladder.estimates()
        pushed = None if reverse else subject.pushforward(piece)
        for i, (row, weight) in enumerate(zip(rows, weights, strict=True)):
            claim = weighed(subject, piece, pulled[i]) if reverse else weighed(subject, weight, pushed)
            measured = combine(ladder, weight, *row)
            rounding = (CLAIM_ROUNDING * subject.gradient_precision + CLAIM_ACCURACY) * (abs(claim) + measured.size)
            gap = abs(claim - measured.slope)
            if gap > 3 * measured.bar + rounding + DUST * size * ladder.reach and ladder.reach:
                errors[i][j] = gap / (ladder.reach * _length(weight, row))
    return errors


def _length(weight: Array, row: Span) -> float:
    part = weight[slice(*row)]
    return math.sqrt(float(part @ part))
