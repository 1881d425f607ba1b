"""Judge an implementation by the statistics of its errors: findings, notes and the resolution of each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradproof.engine.reference.boxes import BoxError, box_error
from gradproof.engine.reference.errors import RATE, Allowance, ErrorStatistics
from gradproof.engine.reference.patterns import diagnoses, place_of, regions
from gradproof.engine.reference.picture import error_map
from gradproof.engine.results import Diagnosis, Entry, Finding, Obstacle, Place, Reason, Resolution
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import SHOWN, TWO_DIGITS
from gradproof.engine.verdict import EMPTY, Judgement, together


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A value or a gradient with the statistics of its errors. A complex tensor has two numbers for each entry."""

    path: str
    is_gradient: bool
    shape: tuple[int, ...]
    is_complex: bool
    statistics: ErrorStatistics

    def index(self, coordinate: int) -> tuple[tuple[int, ...], str | None]:
        """Return the index of a coordinate, and which part of a complex number it is."""
        part = None
        if self.is_complex:
            coordinate, imaginary = divmod(coordinate, 2)
            part = "imag" if imaginary else "real"
        index = []
        for length in reversed(self.shape):
            coordinate, position = divmod(coordinate, length)
            index.append(position)
        return tuple(reversed(index)), part

    @property
    def coordinates(self) -> tuple[int, ...]:
        """The shape of the coordinates: a complex number has two."""
        return (*self.shape, 2) if self.is_complex else self.shape

    @property
    def short_name(self) -> str:
        """What it is, as a title."""
        return f"gradient of {self.path}" if self.is_gradient else self.path

    @property
    def name(self) -> str:
        """What it is, in words."""
        return f"The gradient with respect to {self.path}" if self.is_gradient else f"The value of {self.path}"


def judged(compared: Sequence[Compared]) -> Judgement:
    """Return the judgement of all values and gradients of an implementation."""
    entries = sum(each.statistics.size for each in compared)
    present = [each for each in compared if each.statistics.size]
    if not present:
        return EMPTY
    whole = together([_judged(each, entries) for each in present])
    deviations = present[0].statistics.allowance(entries).deviations
    note = (
        f"False alarms: at most {RATE:.0e} for a right implementation, over {entries:,} entries at "
        f"{present[0].statistics.draws} draws; the bars are {deviations:.1f} standard deviations."
    )
    return replace(whole, notes=(*whole.notes, note))


def _judged(compared: Compared, entries: int) -> Judgement:
    statistics = compared.statistics
    allowance = statistics.allowance(entries)
    xp = statistics.arrays
    exact = xp.where(xp.isfinite(statistics.exact), statistics.exact, xp.zeros_like(statistics.exact))
    largest, widest = float(abs(exact).max()), float(allowance.bar.max())
    resolution = Resolution.of(widest, largest)
    notes = (_errors(compared), *_left_out(compared))
    judgement = Judgement(
        obstacle=_obstacle(compared, entries),
        notes=notes,
        resolution=resolution,
        errors=(error_map(compared.short_name, compared.coordinates, statistics, allowance),),
    )
    if judgement.obstacle is not None:
        return judgement
    finding = _finding(compared, allowance, entries)
    if (
        finding is not None
        and statistics.is_reference_alike
        and statistics.largest_error <= TWO_DIGITS * statistics.unit * largest
    ):
        return replace(judgement, obstacle=_no_more_precise(compared))
    return replace(judgement, findings=() if finding is None else (finding,))


def _obstacle(compared: Compared, entries: int) -> Obstacle | None:
    statistics = compared.statistics
    races = statistics.races(entries)
    if bool(races.any()):
        index, _ = compared.index(int(races.nonzero()[0]))
        return Obstacle(
            Reason.NONDETERMINISTIC,
            f"{compared.name} differs between calls at the same inputs by more than the order of sums explains, in "
            f"{int(races.sum())} of {statistics.size} entries, such as {Place(path=compared.path, index=index)}.",
            "Look for a race: memory that is read before it is written, or a missing synchronisation.",
        )
    if statistics.is_reference_unsteady:
        return _unsteady(compared)
    if statistics.left_out == statistics.size:
        return Obstacle(
            Reason.NON_FINITE,
            f"{compared.name} is not finite in any entry, neither in the kernel nor in the reference.",
            "Pass smaller inputs.",
        )
    return None


def _no_more_precise(compared: Compared) -> Obstacle:
    return _fault_of_reference(
        compared,
        Reason.QUANTISED,
        "differs by more than the rounding of the kernel, and the reference gives the same in a higher precision: it "
        "computes in a fixed one, and may err itself.",
        remedy="Let the reference compute in the dtype of its inputs.",
    )


def _unsteady(compared: Compared) -> Obstacle:
    return _fault_of_reference(
        compared,
        Reason.NONDETERMINISTIC,
        "is not the same in the kernel's precision and in a higher one by the reference, and rounding does not explain "
        "it.",
        remedy="Pass random numbers, such as a mask, as inputs: drawn inside they differ from precision to precision.",
    )


def _fault_of_reference(compared: Compared, reason: Reason, fault: str, *, remedy: str) -> Obstacle:
    return Obstacle(reason, f"{compared.name} {fault} {_errors(compared, short=True)}", remedy)


def _left_out(compared: Compared) -> list[str]:
    count = compared.statistics.left_out
    return [f"{compared.path}: {count:,} entries are not finite in the reference either, and are left out."] * (
        count > 0
    )


def _finding(compared: Compared, allowance: Allowance, entries: int) -> Finding | None:
    """Return what is wrong with a tensor: single entries, boxes of entries, or errors that are large throughout."""
    statistics = compared.statistics
    wrong = statistics.worst + statistics.storage(statistics.numerical) > allowance.bar
    count = int(wrong.sum())
    shared = box_error(compared.coordinates, statistics, entries, allowance.level) if not count else None
    found: tuple[Diagnosis, ...] = ()
    if count:
        what = f"is wrong in {count:,} of {statistics.size:,} entries"
        found = diagnoses(compared.shape, statistics, wrong) if not compared.is_complex else ()
    elif shared is not None:
        wrong = shared.inside
        where = place_of(compared.coordinates, wrong)
        what = f"is off {_alike(shared)} in {where}: by less than one entry shows, and in the same way in all"
        found = tuple(regions(compared.coordinates, wrong))
    elif allowance.imprecise:
        what = f"is imprecise: its errors are {allowance.level:.2g} times what rounding explains, throughout"
        wrong = statistics.worst >= 0
    else:
        return None
    return Finding(
        kind="wrong-gradient" if compared.is_gradient else "wrong-value",
        message=f"{compared.name} {what}. {_errors(compared, short=True)}",
        argument=compared.path,
        entries=tuple(_entries(compared, allowance, wrong)),
        hint="Compare the kernel with the reference at the entries shown." if not found else "",
        diagnoses=found,
    )


def _alike(shared: BoxError) -> str:
    if shared.pattern == "factor":
        return f"by a common factor of {1 + shared.coefficient:.8g} ± {shared.bar:.1g}"
    if shared.pattern == "offset":
        return f"by {shared.coefficient:.3g} ± {shared.bar:.1g} units of rounding, always to the same side,"
    return f"by {shared.coefficient:.3g} ± {shared.bar:.1g} of the difference to the neighbour"


def _entries(compared: Compared, allowance: Allowance, wrong: Array) -> list[Entry]:
    """Return those of the wrong entries that are furthest off, in bars."""
    statistics = compared.statistics
    ratio = statistics.arrays.where(
        wrong, statistics.worst / allowance.bar, -statistics.arrays.ones_like(allowance.bar)
    )
    entries = []
    for coordinate in _worst(ratio):
        index, part = compared.index(coordinate)
        output = None if compared.is_gradient else Place(path=compared.path, index=index, part=part)
        entries.append(
            Entry(
                index=index,
                part=part,
                claimed=float(statistics.claimed[coordinate]),
                numerical=float(statistics.numerical[coordinate]),
                bar=float(allowance.bar[coordinate]),
                output=output,
            )
        )
    return entries


def _worst(ratio: Array) -> list[int]:
    left = ratio + 0.0
    found: list[int] = []
    for _ in range(min(SHOWN, int(ratio.shape[0]))):
        coordinate = int(left.argmax())
        if float(left[coordinate]) <= 0.0:
            break
        found.append(coordinate)
        left[coordinate] = -1.0
    return found


def _errors(compared: Compared, *, short: bool = False) -> str:
    """Return the errors of the kernel beside the plain implementation's."""
    statistics = compared.statistics
    plain = (
        f"the plain reference's {statistics.largest_plain:.2g} ({statistics.typical_plain:.1g})"
        if statistics.has_plain
        else "the plain reference's is not known"
    )
    return (
        f"{'Its' if short else f'{compared.path}: the'} largest error is {statistics.largest_error:.2g} (root mean "
        f"square {statistics.typical_error:.1g}), {plain}."
    )
