"""The pictures of a report as coordinates on a canvas, for a template to draw. All numbers come from the report."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.engine.results import Entry, ErrorMap, Reading, Report
from gradproof.report import words
from gradproof.report.axes import Axis, Dot, Line, Tick, axis_around, power_of_ten, short
from gradproof.report.error_picture import ErrorPicture, error_pictures
from gradproof.report.heat import HeatPicture, heat

LOPSIDED = 10.0  # ratio of the ranges of two axes, beyond which they do not share one
ABOVE_ROUNDING = 3.0  # times the rounding: the least remainder that is significant
TENSORS = 3  # of a comparison that are drawn, those with the largest errors
NO_ROUNDING = 1e-20  # of the largest remainder: below what double precision holds beside it, where no rounding is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """The base of all plots: the ticks of a horizontal axis, and a description for readers who cannot see it."""

    width = 360
    x: list[Tick]
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanePlot(Plot):
    """A plot with a vertical axis too."""

    height = 250
    bottom = 212
    y: list[Tick]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaylorPicture(PlanePlot):
    """Remainder against step, on logarithmic scales, with the slopes of a wrong and of a right gradient."""

    left = 48
    mode: str
    agrees: bool
    dots: list[Dot]
    guides: tuple[Line, Line] | None
    floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BarsPicture(Plot):
    """How many bars each claim lies from the measured number; within one it is right."""

    left = 136
    height: int
    rows: list[tuple[str, str, Dot]]
    band: tuple[float, float]
    zero: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterPicture(PlanePlot):
    """Claimed against measured entries: right ones lie on the diagonal."""

    left = 56
    dots: list[tuple[Dot, float, float]]
    diagonal: Line


Picture = TaylorPicture | BarsPicture | ScatterPicture | HeatPicture | ErrorPicture


def taylor(reading: Reading) -> TaylorPicture | None:
    """Return the picture of one probe's remainders, if there are at least two."""
    seen = [point for point in reading.steps if 0 < point.step < math.inf and math.isfinite(point.remainder)]
    points = [(math.log10(point.step), point.remainder) for point in seen]
    least = NO_ROUNDING * max((remainder for _, remainder in points), default=0.0) or 1e-300
    lowest = max(reading.rounding, least) if math.isfinite(reading.rounding) else least
    known = [(step, math.log10(max(remainder, lowest / 10)), remainder) for step, remainder in points]
    if len(known) < 2 or not any((reading.rounding, *(remainder for _, remainder in points))):
        return None
    x = axis_around([step for step, _, _ in known], 48.0, 352.0, margin=0.06, least=2.2)
    y = axis_around([*(log for _, log, _ in known), math.log10(lowest)], 212.0, 10.0, margin=0.05, least=2.0)
    above_rounding = [(step, log) for step, log, remainder in known if remainder > ABOVE_ROUNDING * lowest]
    return TaylorPicture(
        mode=reading.mode,
        agrees=reading.agrees,
        dots=[
            Dot(x(step), y(log), f"step {10**step:.2g}: remainder {remainder:.2g}", remainder <= lowest)
            for step, log, remainder in known
        ],
        guides=(_guide(x, y, above_rounding[0], 1), _guide(x, y, above_rounding[-1], 2)) if above_rounding else None,
        floor=y(math.log10(lowest)),
        x=x.decades(6),
        y=y.decades(6),
        says=_fall(above_rounding, len(known)),
    )


def _guide(x: Axis, y: Axis, through: tuple[float, float], slope: int) -> Line:
    at, height = through
    return Line(x(x.low), y(height + slope * (x.low - at)), x(x.high), y(height + slope * (x.high - at)))


def _fall(above_rounding: list[tuple[float, float]], count: int) -> str:
    if len(above_rounding) < 2:
        return f"At all {count} steps the remainder is rounding: the function is linear along this direction."
    (near, low), (far, high) = above_rounding[:2]
    slope = (high - low) / (far - near)
    return f"Of {count} steps, the two shortest above rounding show slope {slope:.1f}."


def bars(report: Report) -> BarsPicture | None:
    """Return the picture of how many bars each claim is off: of every wrong entry shown, or else of every probe."""
    named = [
        (words.entry_name(finding, entry), entry.claimed, entry.numerical, entry.bar)
        for finding in report.findings
        for entry in finding.entries
    ]
    named = named or [
        (f"{each.mode}, seed {each.seed}", each.claimed, each.numerical, each.bar) for each in report.readings
    ]
    rows = [
        (name, (claimed - numerical) / bar)
        for name, claimed, numerical, bar in named[:10]
        if bar > 0 and math.isfinite((claimed - numerical) / bar)
    ]
    if not rows:
        return None
    marks = [_symlog(off) for _, off in rows]
    x = Axis(min(-1.6, min(marks) - 0.5), max(1.6, max(marks) + 0.5), 136.0, 350.0)
    pace = max(1, math.ceil((x.high - x.low) / 6))
    powers = [
        power for power in range(math.ceil(x.low), math.floor(x.high) + 1) if power == 0 or abs(power) % pace == 0
    ]
    if pace > 1:
        powers = [power for power in powers if abs(power) != 1]
    pace_down = max(22, min(48, 144 // len(rows)))
    return BarsPicture(
        height=pace_down * len(rows) + 40,
        rows=[
            (short(name), name, Dot(x(mark), pace_down * (number + 0.5) + 4, f"{name}: {off:.3g} bars off"))
            for number, ((name, off), mark) in enumerate(zip(rows, marks, strict=True))
        ],
        band=(x(-1), x(1)),
        zero=x(0),
        x=[Tick(x(power), _bar_label(power)) for power in powers],
        says="; ".join(f"{name} is {off:.2g} bars off" for name, off in rows[:5]) + ".",
    )


def _symlog(off: float) -> float:
    """Scale a number of bars: linearly up to one, logarithmically beyond."""
    return off if abs(off) <= 1 else math.copysign(1 + math.log10(abs(off)), off)


def _bar_label(power: int) -> str:
    if power == 0:
        return "0"
    return ("−" if power < 0 else "") + power_of_ten(abs(power) - 1)


def scatter(report: Report) -> ScatterPicture | None:
    """Return the picture of claimed against measured, for two entries or more."""
    entries = [
        (words.entry_name(finding, entry), entry)
        for finding in report.findings
        for entry in finding.entries
        if _drawable(entry)
    ]
    if len(entries) < 2:
        return None
    numerical, claimed = [e.numerical for _, e in entries], [e.claimed for _, e in entries]
    narrow, wide = sorted(map(_extent, (numerical, claimed)))
    one_sided = not (any(numerical) and any(claimed))  # zeros have no scale of their own
    if one_sided or wide <= LOPSIDED * narrow:  # then the diagonal is one
        numerical_range = claimed_range = [*numerical, *claimed]
    else:
        numerical_range, claimed_range = numerical, claimed
    x = axis_around(numerical_range, 56.0, 350.0, margin=0.08, least=_extent(numerical_range))
    y = axis_around(claimed_range, 212.0, 10.0, margin=0.08, least=_extent(claimed_range))
    low, high = min(x.low, y.low), max(x.high, y.high)
    return ScatterPicture(
        dots=[
            (
                Dot(x(e.numerical), y(e.claimed), f"{name}: claimed {e.claimed:.6g}, numerical {e.numerical:.6g}"),
                x(e.numerical - e.bar),
                x(e.numerical + e.bar),
            )
            for name, e in entries
        ],
        diagonal=Line(x(low), y(low), x(high), y(high)),
        x=x.ticks(4),
        y=y.ticks(5),
        says=f"{len(entries)} wrong entries: claimed from {min(claimed):.3g} to {max(claimed):.3g}, "
        f"numerical from {min(numerical):.3g} to {max(numerical):.3g}.",
    )


def _extent(numbers: list[float]) -> float:
    """Return the range of some numbers, or a fraction of their size if the range is smaller; one if all are zero."""
    return max(max(numbers) - min(numbers), 0.1 * max(map(abs, numbers))) or 1.0


def _drawable(entry: Entry) -> bool:
    return all(map(math.isfinite, (entry.claimed, entry.numerical, entry.bar)))


def pictures(report: Report) -> list[Picture]:
    """Return all pictures that a report has the numbers for."""
    drawn: list[Picture | None] = [taylor(reading) for reading in _most_informative(report.readings)]
    drawn += [bars(report), scatter(report), *map(heat, report.maps)]
    drawn += [picture for found in _worst_first(report.errors)[:TENSORS] for picture in error_pictures(found)]
    return [picture for picture in drawn if picture is not None]


def _worst_first(found: tuple[ErrorMap, ...]) -> list[ErrorMap]:
    return sorted(found, key=lambda each: -max(map(max, each.bars)))


def _most_informative(readings: tuple[Reading, ...]) -> list[Reading]:
    """Return for each mode the most informative probe: one that disagrees, with the most steps."""
    best: dict[str, Reading] = {}
    for reading in readings:
        known = best.get(reading.mode)
        if known is None or (known.agrees, -len(known.steps)) > (reading.agrees, -len(reading.steps)):
            best[reading.mode] = reading
    return list(best.values())
