"""Which entries of a gradient are wrong: bisection over coordinates.

The claimed gradient is known for every coordinate, so asking about a range of them costs two evaluations and no
pullback (in forward mode a pushforward). The range whose disagreement is largest is split first; a lone wrong entry
among n takes log₂ n splits.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gradproof.engine.contraction import CLAIM_ACCURACY, CLAIM_ROUNDING, contract, inner, predicted, restricted
from gradproof.engine.estimators.differences import Estimates
from gradproof.engine.estimators.ladder import Ladder
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry
from gradproof.engine.subject import Subject

SHOWN = 10  # entries at most, and one of every further argument
ARGUMENTS = 10  # further ones at most
OUTPUTS_SHOWN = 4  # affected outputs of one entry
ADDITIVE = 0.02  # of the whole: so much may be missing of it, or too much, where there is a derivative
STEADY = 0.02  # of a leap in slope: by so much it may differ from sample to sample
CHEAP = 1 << 13  # outputs for which every wrong entry, and not only the worst, is followed to the outputs it affects


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """The wrong entries, worst first, each with its coordinate; whether there are more; or whether all are tolerated."""

    entries: tuple[tuple[int, Entry], ...]
    more: bool
    tolerated: bool
    adds_up: bool | None = None  # whether these, each measured by itself, make up what the probe disagrees by, if known


@dataclass(frozen=True, slots=True)
class Search:
    """The single coordinates found, and the ranges left over in which there is more."""

    found: list[int]
    left: list[tuple[int, int]]


def search(
    size: int,
    spans: list[tuple[int, int]],
    residual: Callable[[int, int], float],
    *,
    threshold: float,
    whole: float,
    most: int,
) -> Search:
    """Find up to `most` coordinates that carry the residual, from the worst range down, between tensors first.

    >>> hidden = {3: 1.0, 700: -0.5}
    >>> asked = lambda low, high: sum(value for at, value in hidden.items() if low <= at < high)
    >>> search(1000, [(0, 600), (600, 1000)], asked, threshold=1e-6, whole=0.5, most=10).found
    [3, 700]
    """
    edges = sorted({start for start, _ in spans})
    waiting = [(-abs(whole), 0, size, whole)]
    budget = (most + 2) * (2 + math.ceil(math.log2(max(2, size))))
    found: list[int] = []
    while waiting and len(found) < most and budget > 0:
        _, low, high, value = heapq.heappop(waiting)
        while high - low > 1:  # down to one coordinate, into the worse half each time
            budget -= 1
            middle = _middle(low, high, edges)
            left = residual(low, middle)
            halves = [(low, middle, left), (middle, high, value - left)]
            worse, other = sorted(halves, key=lambda half: -abs(half[2]))
            if abs(other[2]) > threshold:
                heapq.heappush(waiting, (-abs(other[2]), *other))
            low, high, value = worse
            if not abs(value) > threshold:
                break
        else:
            found.append(low)
    return Search(found, [(low, high) for _, low, high, _ in waiting])


def _middle(low: int, high: int, edges: list[int]) -> int:
    half = (low + high) // 2
    inside = [edge for edge in edges if low < edge < high]
    return min(inside, key=lambda edge: abs(edge - half)) if inside else half


def localise(probe: Probe, options: Probing, *, most: int = SHOWN) -> Located:
    """The wrong entries behind a probe's disagreement, or the worst of them; each may be tolerated by itself."""
    subject = probe.ladder.subject
    exponent = best_exponent(probe)
    t = 4.0**exponent
    direction, cotangent = probe.ladder.direction, probe.cotangent

    def residual(low: int, high: int) -> float:
        piece = restricted(subject, direction, low, high)
        change = subject.evaluate(piece, t) - subject.evaluate(piece, -t)
        slope = inner(subject, cotangent, change) / (2 * t)
        return probe.predicted(piece) - slope if math.isfinite(slope) else 0.0

    sample = next(sample for sample in probe.ladder.samples if sample.t == t)
    central = inner(subject, cotangent, sample.plus - sample.minus) / (2 * t)
    threshold = probe.bar + abs(central - probe.sums.slope)
    outcome = search(
        subject.inputs.size,
        subject.inputs.spans,
        residual,
        threshold=threshold,
        whole=probe.claim.slope - central,
        most=most,
    )
    found = outcome.found + _elsewhere(outcome, subject.inputs.spans, residual, threshold)
    moving = [coordinate for coordinate in found if bool((direction[coordinate] != 0).any())]
    columns = [_Column(subject, probe, coordinate, exponent) for coordinate in moving]
    off = sorted((column for column in columns if column.excess > 0), key=lambda column: -column.excess)
    for column in off if subject.outputs.size <= CHEAP else off[:1]:
        column.follow()
    wrong = [column for column in off if not column.tolerated(options)]
    if probe.kinks:
        wrong = [column for column in wrong if not column.at_a_kink()]
    entries = [(column.coordinate, column.entry) for column in _shown(wrong)]
    entries.sort(key=lambda pair: -abs(pair[1].claimed - pair[1].numerical))
    more = bool(outcome.left) or len(wrong) > SHOWN
    return Located(
        entries=tuple(entries),
        more=more,
        tolerated=bool(off) and not wrong,
        adds_up=None if more else _adds_up(probe, off),
    )


def _adds_up(probe: Probe, columns: list[_Column]) -> bool:
    """Whether errors of single coordinates make up the whole: of a function that has a derivative they do."""
    parts = sum((column.claimed - column.numerical) * column.step for column in columns)
    slack = sum(column.bar * abs(column.step) for column in columns) + probe.bar
    whole = probe.claim.slope - probe.sums.slope
    return not abs(parts - whole) > slack + ADDITIVE * max(abs(parts), abs(whole))


def _elsewhere(
    outcome: Search, spans: list[tuple[int, int]], residual: Callable[[int, int], float], threshold: float
) -> list[int]:
    """One coordinate each of the arguments that none was found in, and that have a part in what is left."""
    found: list[int] = []
    waiting = outcome.left[::-1]
    while waiting and len(found) < ARGUMENTS:
        low, high = waiting.pop()
        inside = [(start, stop) for start, stop in spans if start < high and low < stop]
        if any(start <= place < stop for start, stop in inside for place in (*outcome.found, *found)):
            continue
        more = search(
            high - low,
            [(max(start, low) - low, min(stop, high) - low) for start, stop in inside],
            partial(_from, low, residual),
            threshold=threshold,
            whole=residual(low, high),
            most=1,
        )
        found += [low + place for place in more.found]
        waiting += [(low + first, low + last) for first, last in reversed(more.left)]
    return found


def _from(low: int, residual: Callable[[int, int], float], first: int, last: int) -> float:
    return residual(low + first, low + last)


def _shown(wrong: list[_Column]) -> list[_Column]:
    """The worst, and the worst of every argument that has none among them."""
    shown = wrong[:SHOWN]
    for column in wrong[SHOWN:]:
        if all(column.argument != other.argument for other in shown):
            shown.append(column)
    return shown


def best_exponent(probe: Probe) -> int:
    """The sample whose slope, with its upper neighbour's, has the narrowest bar for the whole."""
    samples = probe.ladder.samples
    bars = []
    for k in range(len(samples) - 1):
        sums = contract(probe.ladder.between(k), probe.cotangent)
        bars.append(sums.bar + abs(sums.slope - probe.sums.slope))
    best = min(range(len(bars)), key=lambda k: bars[k] if math.isfinite(bars[k]) else math.inf)
    return round(math.log(samples[best].t, 4))


class _Column:
    """One coordinate under suspicion: the slopes of all outputs along it alone."""

    def __init__(self, subject: Subject, probe: Probe, coordinate: int, exponent: int) -> None:
        self.subject, self.probe, self.coordinate = subject, probe, coordinate
        piece = restricted(subject, probe.ladder.direction, coordinate, coordinate + 1)
        self.piece, self.step = piece, float(piece[coordinate].sum())
        self.ladder = ladder = Ladder(subject, piece)
        ladder.add(exponent, exponent + 1)
        self.estimates: Estimates = ladder.estimates()
        sums = contract(ladder, probe.cotangent)
        self.claimed = probe.predicted(piece) / self.step
        self.numerical = sums.slope / self.step
        rounding = (CLAIM_ROUNDING * subject.numbers.precision + CLAIM_ACCURACY) * abs(self.claimed)
        self.bar = sums.bar / abs(self.step) + rounding + probe.rounding_floor(ladder) / abs(self.step)
        self.excess = abs(self.claimed - self.numerical) - self.bar

        place = subject.inputs.locate(coordinate)
        self.argument = place.path
        self.entry = Entry(
            index=place.index,
            part=place.part,
            stored=place.stored,
            claimed=self.claimed,
            numerical=self.numerical,
            bar=self.bar,
        )

    def tolerated(self, options: Probing) -> bool:
        """Whether the user accepts the error: of all outputs together, and of the worst, where it is known."""
        accepted = options.atol + (options.rtol / abs(self.step)) * abs(self.estimates.value)
        if self.excess > float((abs(self.probe.cotangent) * accepted).sum()):
            return False
        worst = self.entry
        error = abs(worst.claimed - worst.numerical) - worst.bar
        return worst.output is None or error <= options.atol + options.rtol * abs(worst.numerical)

    def at_a_kink(self) -> bool:
        """Whether the slope of another output leaps, at the point, by as much as this entry is off.

        Where several inputs tie, an order of them is claimed that each alone does not show.
        """
        finer, coarser = (abs(after - before) for before, after in map(self.ladder.sides, self.ladder.samples))
        stays = abs(finer - coarser) <= STEADY * finer
        leap = float(self.subject.arrays.where(stays, finer, 0.0).max()) / abs(self.step)
        return abs(self.entry.claimed - self.entry.numerical) <= (1 + STEADY) * leap

    def follow(self) -> None:
        """Make the entry that of the one output in which it is most wrong, where there is one."""
        subject, cotangent = self.subject, self.probe.cotangent

        def residual(low: int, high: int) -> float:
            piece = restricted(subject, cotangent, low, high)
            claimed = predicted(subject, self.piece, piece)
            return (claimed - inner(subject, piece, self.estimates.value)) / self.step

        outcome = search(
            subject.outputs.size,
            subject.outputs.spans,
            residual,
            threshold=self.bar,
            whole=self.claimed - self.numerical,
            most=OUTPUTS_SHOWN,
        )
        singled = [entry for entry in map(self._for_output, outcome.found) if entry is not None]
        if not singled:
            return
        singled.sort(key=lambda entry: -abs(entry.claimed - entry.numerical))
        worst, *others = singled
        self.entry = replace(worst, also=tuple(entry.output for entry in others if entry.output is not None))

    def _for_output(self, output: int) -> Entry | None:
        """The Jacobian's entry, unless the claim for this output alone is right."""
        subject = self.subject
        unit = subject.arrays.zeros_like(self.probe.cotangent)
        unit[output] = 1.0
        claimed = predicted(subject, self.piece, unit) / self.step
        numerical = float(self.estimates.value[output]) / self.step
        bar = float(self.estimates.bar[output]) / abs(self.step)
        bar += CLAIM_ROUNDING * subject.numbers.precision * abs(numerical)  # no slope is known better than its digits
        if not abs(claimed - numerical) > bar:
            return None
        return replace(self.entry, claimed=claimed, numerical=numerical, bar=bar, output=subject.outputs.locate(output))
