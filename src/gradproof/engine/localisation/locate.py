"""The wrong entries of a gradient, by bisection over coordinates.

The claimed gradient is known for every coordinate, so that the residual of a range of them costs an evaluation or two
and no pullback (in forward mode a pushforward). The range with the largest residual is split first; a lone wrong entry
among n takes log₂ n splits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gradproof.engine.localisation.bisection import SearchResult, search
from gradproof.engine.localisation.narrowing import Narrowed, narrow
from gradproof.engine.localisation.partial_slopes import PartialSlopes, Piece, best_exponent
from gradproof.engine.localisation.suspect import Suspect
from gradproof.engine.options import Probing
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry
from gradproof.engine.thresholds import LARGE, SAMPLE, SHOWN, STEADY


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEntries:
    """The wrong entries, worst first, each with its coordinate.

    `more` says whether there are others, `tolerated` whether the user tolerates all of them, and `adds_up` whether
    slopes along parts of the direction add up to the slope along it, if that is known.
    """

    entries: tuple[tuple[int, Entry], ...]
    more: bool
    tolerated: bool
    adds_up: bool | None = None


def localise(probe: Probe, options: Probing, *, most: int = SHOWN) -> WrongEntries:
    """Find the wrong entries behind a probe's disagreement, or the worst of them."""
    large = probe.ladder.subject.inputs.size > LARGE
    found = narrow(probe, options) if large else _bisected(probe, most)
    wrong = [suspect for suspect in found.suspects if not suspect.tolerated(options)]
    if probe.kinks:
        wrong = [suspect for suspect in wrong if not suspect.at_a_kink()]
    entries = [(suspect.coordinate, suspect.entry) for suspect in (_shown(wrong) if most <= SHOWN else wrong)]
    entries.sort(key=lambda pair: -abs(pair[1].claimed - pair[1].numerical))
    return WrongEntries(
        entries=tuple(entries),
        more=found.more or len(wrong) > SHOWN,
        tolerated=bool(found.suspects) and not wrong,
        adds_up=found.adds_up,
    )


def _bisected(probe: Probe, most: int) -> Narrowed:
    """Find the wrong coordinates, the worst first, and the outputs that each affects if they are few."""
    for two_sided in (False, True):
        outcome, one_sided = _found(probe, most, two_sided=two_sided)
        off = _wrong(probe, outcome.found)
        more = bool(outcome.left) or len(off) > SHOWN
        adds_up = None if more else _adds_up(probe, off)
        if not one_sided or adds_up or (more and off):
            break
    for column in off if probe.ladder.subject.outputs.size <= SAMPLE else off[:1]:
        column.follow()
    return Narrowed(off, more, adds_up)


def _wrong(probe: Probe, coordinates: list[int]) -> list[Suspect]:
    """Return those of some coordinates that move and are wrong by themselves, the worst first."""
    direction, exponent = probe.ladder.direction, best_exponent(probe)
    moving = [coordinate for coordinate in coordinates if bool((direction[coordinate] != 0).any())]
    columns = [Suspect(probe, coordinate, exponent) for coordinate in moving]
    return sorted((column for column in columns if column.excess > 0), key=lambda column: -column.excess)


def _found(probe: Probe, most: int, *, two_sided: bool) -> tuple[SearchResult, bool]:
    """Bisect for the coordinates that carry the residual, one of every argument; and say if one side was enough."""
    subject = probe.ladder.subject
    whole = slice(0, subject.outputs.size)
    partial_slopes = PartialSlopes(probe, whole, error=probe.error, two_sided=two_sided)
    piece = Piece(subject, probe.ladder.direction)

    def residual(low: int, high: int) -> float:
        part = piece.of(slice(low, high))
        slope = partial_slopes.slope(part)
        return probe.predicted(part) - slope if math.isfinite(slope) else 0.0

    outcome = search(
        subject.inputs.size,
        subject.inputs.spans,
        residual,
        threshold=partial_slopes.noise,
        whole=probe.error,
        most=most,
    )
    found = outcome.found + _elsewhere(outcome, subject.inputs.spans, residual, partial_slopes.noise)
    return SearchResult(found, outcome.left), partial_slopes.one_sided


def _adds_up(probe: Probe, columns: list[Suspect]) -> bool:
    """Return True if the errors of single coordinates add up to the whole, as they do where a derivative exists."""
    parts = sum(column.error for column in columns)
    slack = sum(column.bar * abs(column.step) for column in columns) + probe.bar
    whole = probe.error
    return not abs(parts - whole) > slack + STEADY * max(abs(parts), abs(whole))


def _elsewhere(
    outcome: SearchResult, spans: list[tuple[int, int]], residual: Callable[[int, int], float], threshold: float
) -> list[int]:
    """Find one coordinate of every argument that has none yet and that carries a part of what is left."""
    found: list[int] = []
    waiting = outcome.left[::-1]
    while waiting and len(found) < SHOWN:
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


def _shown(wrong: list[Suspect]) -> list[Suspect]:
    """Return the worst suspects, and the worst of every argument that has none among them."""
    shown = wrong[:SHOWN]
    for column in wrong[SHOWN:]:
        if all(column.argument != other.argument for other in shown):
            shown.append(column)
    return shown
